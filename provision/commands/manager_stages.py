"""What the managers need of the stages `resolve` and `detect`, passed to them in one value."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from .. import resolve
from ..model import AvailableWheels, Plan, Profiles, Request, RequestContext, Target
from ..resolve.kernels import how_they_run
from ..resolve.question import Question
from .added_extras import add_extras
from .read_request import find_interpreter

if TYPE_CHECKING:
    from ..managers.protocol import Stages


def resolve_plan(asked: RequestContext) -> Plan:
    """Return the plan. Where no Python of this machine fits, one that uv could fetch is tried as well."""
    plan = add_extras(_plan_for(asked), asked)
    notes = (*plan.notes, *(said for said in asked.demands.left_out if not _is_mentioned(said, plan)))
    if asked.joint and plan.builds:
        held, sets = asked.joint.held_back, asked.joint.ladder
        plan = dataclasses.replace(plan, held_back=held, sets=sets)
        notes = (*notes, *asked.joint.notes)
    return dataclasses.replace(plan, notes=notes)


def _is_mentioned(left_out: str, plan: Plan) -> bool:
    """Whether a note of the plan says what it takes for a line that is left to it."""
    line = left_out.removesuffix("is ignored: the plan chooses it")
    return line != left_out and any(note.startswith(f"{line}is taken as ") for note in plan.notes)


def _plan_for(asked: RequestContext) -> Plan:
    plan = _resolved(asked, asked.request)
    if plan.builds or not asked.pythons_known or asked.sources.offline:
        return plan
    anywhere = dataclasses.replace(asked.request, pythons=())
    wider = _resolved(asked, anywhere)
    return wider if wider.builds else plan


def _resolved(asked: RequestContext, request: Request) -> Plan:
    """The plan for the target, or for several targets the one plan that serves them all."""
    first, *others = asked.targets or (asked.target,)
    plan = resolve.resolve(request, first, asked.profiles, asked.supply, others)
    return dataclasses.replace(plan, target=asked.target)


def _spoken_cuda(target: Target, known: Profiles) -> str | None:
    return Question(Request(frameworks=()), target, known, AvailableWheels()).speaks


def get_stages(cache: Path) -> Stages:
    """Return the stages as the managers need them; what Pythons answer is kept in `cache`."""
    from ..managers.protocol import Stages

    return Stages(
        plan=resolve_plan,
        spoken_cuda=_spoken_cuda,
        how_they_run=how_they_run,
        interpreter=lambda python, machine: find_interpreter(python, machine, None, cache),
    )
