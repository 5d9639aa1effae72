"""Read the request of a command on this machine.

It passes the functions of the stages that `request/` needs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .. import detect
from ..config import options, request, rows, target as targets
from ..config.options import Choices
from ..config.sources import check_limits
from ..config.target import MachineReader
from ..errors import MachineError
from ..model import (
    Emit,
    PackageSources,
    Plan,
    RequestContext,
    RequirementLine,
    Target,
    TransitiveFrameworks,
)

if TYPE_CHECKING:
    from ..lock.formats import Locks

LOOKING = MachineReader(detect=detect.detect, judge_device=detect.judge_device)


def judge_request(choices: Choices, emit: Emit, *, reading: bool = False) -> RequestContext:
    """Return the request of the options. With `reading` no source code runs.

    If the manager's configuration assumes a GPU, this machine needs none. Raises UsageError, MachineError,
    DataError.
    """
    assumed = get_locking(choices).assumed_gpu()
    by_configuration = assumed and choices.device == "auto" and not choices.elsewhere
    try:
        context = _judged(choices, emit, reading=reading)
    except MachineError:
        if not assumed or choices.device == "cpu":
            raise
        context = _judged(dataclasses.replace(choices, device="cpu"), emit, reading=reading)
    if assumed and context.request.device == "cpu" and (by_configuration or choices.device == "cuda"):
        request = dataclasses.replace(context.request, device="cuda")
        return dataclasses.replace(context, request=request, reason=assumed)
    return context


def get_locking(choices: Choices) -> Locks:
    """Return the locking half of the chosen manager. Raises UsageError for an unknown one."""
    from ..lock.formats import locking

    options.check_values(choices)
    chosen = locking(choices.manager)
    check_limits(choices, kept=chosen.KEEPS_UPLOAD_LIMITS)
    return chosen


def _judged(choices: Choices, emit: Emit, *, reading: bool) -> RequestContext:
    def bring(plan: Plan, sources: PackageSources, needs: Sequence[RequirementLine]) -> TransitiveFrameworks:
        from ..lock.update import required_frameworks

        return required_frameworks(plan, sources, needs, emit, reading=reading)

    plans_first = get_locking(choices).PLANS_FIRST
    return request.read_context(choices, LOOKING, bring, reading=reading, plans_first=plans_first)


def described_target(choices: Choices) -> Target | None:
    """Return the target that the options describe, or None if they mean this machine. Raises UsageError."""
    if not choices.elsewhere:
        return None
    return targets.read_request_target(choices, rows.load_all(choices), LOOKING)[1]
