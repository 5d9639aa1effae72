"""`gpuenv resolve`: the builds that fit, and why nothing newer does."""

from __future__ import annotations

from dataclasses import dataclass

from ..model import Emit, Plan, drop_event
from ..model.option import group, option
from ..request.options import Choices


@dataclass(frozen=True, kw_only=True)
class ResolveOptions:
    """The options of `resolve`."""

    explain: bool = option(False, help="Every build and what speaks against it.")
    choices: Choices = group(Choices, without=("exclude_newer", "exclude_newer_except"))


def resolve(options: ResolveOptions, emit: Emit = drop_event) -> Plan:
    """Return the plan: the builds that fit, and why nothing newer does. Builds nothing."""
    from . import planning

    return planning.show_plan(emit, options.choices, explain=options.explain, stepping=True)
