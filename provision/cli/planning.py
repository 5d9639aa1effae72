"""resolve as a command, and the plan that the other commands begin with."""

from __future__ import annotations

import dataclasses

from .. import resolve, show
from ..model import Plan
from . import ask, inproject
from .options import Choices


def plan_for(asked: ask.Asked, choices: Choices) -> Plan:
    """The plan; where no Python at hand fits, one that uv could fetch is tried as well."""
    plan = _plan_for(asked, choices)
    return dataclasses.replace(plan, notes=(*plan.notes, *asked.demands.left_out))


def _plan_for(asked: ask.Asked, choices: Choices) -> Plan:
    plan = resolve.resolve(asked.request, asked.target, asked.profiles, asked.supply)
    if plan.builds or not asked.pythons_known or choices.python or choices.offline:
        return plan
    anywhere = dataclasses.replace(asked.request, pythons=())
    wider = resolve.resolve(anywhere, asked.target, asked.profiles, asked.supply)
    return wider if wider.builds else plan


def show_plan(screen: show.Screen, choices: Choices, *, explain: bool = False) -> int:
    choices = inproject.laid(choices)
    if choices.manager == "conda":
        from . import conda_locking

        return conda_locking.show_plan(screen, choices, explain=explain)
    asked = ask.judged(choices)
    plan = plan_for(asked, choices)
    show.result(screen, plan, explain=explain)
    return 0 if plan.builds else 5
