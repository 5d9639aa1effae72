"""resolve as a command, and the plan that the other commands begin with."""

from __future__ import annotations

import dataclasses
import shlex

from .. import detect, resolve
from ..model import Emit, Event, Plan
from ..request import ask
from ..request import project_options as inproject
from ..request.options import Choices

_WORDS = {"with_": "--with", "requirement": "-r"}
_OF_THE_FILE = ("config", "target_name", "indexes", "bundle", "given", "planned", "named")


def by_itself(asked: ask.Asked, choices: Choices) -> str | None:
    """What a plan for the CPU that nobody asked for is told with; None for any other."""
    cpu = choices.device == "auto" and asked.request.device == "cpu"
    return f"a CPU environment: {asked.reason}" if cpu else None


def noted(plan: Plan, asked: ask.Asked, choices: Choices) -> Plan:
    """The plan with the note that it is for the CPU, where nobody asked for that."""
    told = by_itself(asked, choices)
    return dataclasses.replace(plan, notes=(*plan.notes, told)) if told and plan.builds else plan


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


def show_plan(emit: Emit, choices: Choices, *, explain: bool = False, stepping: bool = False) -> Plan:
    """`gpuenv resolve`, and `create --dry-run`: the plan; `stepping`: and the command that carries it out."""
    given, choices = choices, inproject.laid(choices)
    if choices.manager == "conda":
        from . import conda_locking

        return conda_locking.show_plan(emit, choices, explain=explain)
    asked = ask.judged(choices, emit, reading=True)
    plan = noted(plan_for(asked, choices), asked, choices)
    if choices.exclude_newer:
        told = "upload dates are compared when the packages are solved"
        plan = dataclasses.replace(plan, notes=(*plan.notes, told)) if plan.builds else plan
    if stepping and plan.builds:
        emit(Event(kind="next", stage="resolve", text=next_step(given, plan)))
    return plan


def next_step(given: Choices, plan: Plan) -> str:
    """`gpuenv create` with the options that the plan was asked for with; `lock` where nothing can be built
    here, on another platform."""
    words = ["gpuenv", "create" if plan.platform == detect.detect(()).target.platform else "lock"]
    for field in sorted(dataclasses.fields(Choices), key=lambda f: f.name != "framework"):
        value = getattr(given, field.name)
        if field.name in _OF_THE_FILE or not value or value == field.default:
            continue
        name = _WORDS.get(field.name, f"--{field.name.replace('_', '-')}")
        for one in value if isinstance(value, list) else [value]:
            words += [name] if one is True else [name, shlex.quote(str(one))]
    return " ".join(words)
