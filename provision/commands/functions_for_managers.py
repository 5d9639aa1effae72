"""Pass the functions of resolve and detect that a manager calls in one value.

Managers can then import neither stage.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from .. import resolve
from ..model import AvailableWheels, Plan, Profiles, Request, RequestContext, Target
from ..resolve.kernels import how_they_run
from ..resolve.question import Question
from .insert_missing_cuda_extras import add_extras
from .read_request import find_interpreter

if TYPE_CHECKING:
    from ..managers.protocol import Stages


def resolve_plan(context: RequestContext) -> Plan:
    """Return the plan. If no Python of this machine fits, one that uv could download is tried."""
    plan = add_extras(_plan_for(context), context)
    notes = (*plan.notes, *(said for said in context.demands.left_out if not _is_mentioned(said, plan)))
    if context.joint and plan.builds:
        held_back, sets = context.joint.held_back, context.joint.ladder
        plan = dataclasses.replace(plan, held_back=held_back, sets=sets)
        notes = (*notes, *context.joint.notes)
    return dataclasses.replace(plan, notes=notes)


def _is_mentioned(left_out: str, plan: Plan) -> bool:
    """Return whether a note of the plan already explains an ignored line."""
    line, ignored, _ = left_out.partition(" is ignored")
    return bool(ignored) and any(note.startswith(f"{line} is ") for note in plan.notes)


def _plan_for(context: RequestContext) -> Plan:
    plan = _resolved(context, context.request)
    if plan.builds or not context.pythons_known or context.sources.offline:
        return plan
    anywhere = dataclasses.replace(context.request, pythons=())
    wider = _resolved(context, anywhere)
    return wider if wider.builds else plan


def _resolved(context: RequestContext, request: Request) -> Plan:
    """Return the plan for the target, or the one plan that fits several targets."""
    first, *others = context.targets or (context.target,)
    plan = resolve.resolve(request, first, context.profiles, context.supply, others)
    return dataclasses.replace(plan, target=context.target)


def _spoken_cuda(target: Target, known: Profiles) -> str | None:
    return Question(Request(frameworks=()), target, known, AvailableWheels()).speaks


def get_stages(cache: Path) -> Stages:
    """Return the functions that the managers need. The answers of interpreters are kept in `cache`."""
    from ..managers.protocol import Stages

    return Stages(
        plan=resolve_plan,
        spoken_cuda=_spoken_cuda,
        how_they_run=how_they_run,
        interpreter=lambda python, machine: find_interpreter(python, machine, None, cache),
    )
