"""The request of a command, read on this machine: what `request/` needs of the stages is passed in here."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .. import detect
from ..errors import MachineError
from ..model import (
    Emit,
    Machine,
    PackageSources,
    Plan,
    RequestContext,
    RequirementLine,
    Target,
    TransitiveFrameworks,
)
from ..request import load_profiles, read_options, target as targets, upload_limits
from ..request.options import Choices
from ..request.target import MachineReader

if TYPE_CHECKING:
    from ..managers.protocol import Locking

LOOKING = MachineReader(detect=detect.detect, judge_device=detect.judge_device)


def judge_request(choices: Choices, emit: Emit, *, reading: bool = False) -> RequestContext:
    """Return what the options ask for. Where the manager's configuration says that a GPU is meant, none has to be
    here. With `reading` no source code is run. Raises UsageError, MachineError, DataError."""
    assumed = get_locking(choices).assumed_gpu()
    by_configuration = assumed and choices.device == "auto" and not choices.elsewhere
    try:
        asked = _judged(choices, emit, reading=reading)
    except MachineError:
        if not assumed or choices.device == "cpu":
            raise
        asked = _judged(dataclasses.replace(choices, device="cpu"), emit, reading=reading)
    if assumed and asked.request.device == "cpu" and (by_configuration or choices.device == "cuda"):
        request = dataclasses.replace(asked.request, device="cuda")
        return dataclasses.replace(asked, request=request, reason=assumed)
    return asked


def get_locking(choices: Choices) -> Locking:
    """Return the half of the chosen manager that locks. Raises UsageError for an unknown one."""
    from ..managers.protocol import locking

    read_options.check_values(choices)
    found = locking(choices.manager)
    upload_limits.check_limits(choices, kept=found.KEEPS_UPLOAD_LIMITS)
    return found


def _judged(choices: Choices, emit: Emit, *, reading: bool) -> RequestContext:
    def bring(plan: Plan, sources: PackageSources, needs: Sequence[RequirementLine]) -> TransitiveFrameworks:
        from ..wheels import solve_wheels
        from ..wheels.allowed_source_builds import source_builds

        return solve_wheels.frameworks_in(plan, sources, needs, source_builds(sources, emit, reading=reading))

    plans_first = get_locking(choices).PLANS_FIRST
    return read_options.read_context(choices, LOOKING, bring, reading=reading, plans_first=plans_first)


def described_target(choices: Choices) -> Target | None:
    """Return the target that the options describe, None where they mean this machine. Raises UsageError."""
    if not choices.elsewhere:
        return None
    return targets.read_request_target(choices, load_profiles.load_all(choices), LOOKING)[1]


def find_interpreter(
    python: str, machine: Machine | None, wanted: str | None, cache: Path | None
) -> str | None:
    """Return the path of a Python of that minor (of that exact version where one is wanted), None without one.
    What Pythons answer is kept in `cache`."""
    if machine is None or not machine.pythons:
        machine = detect.detect({"pythons"}, cache=cache)
    for found in machine.pythons:
        if targets.get_minor_version(found.version) == python and (
            wanted is None or found.version.startswith(wanted)
        ):
            return found.path
    return None
