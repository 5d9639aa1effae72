"""`gpuenv resolve`: show the builds that fit, and why nothing newer fits."""

from __future__ import annotations

import dataclasses
import shlex
from dataclasses import dataclass
from pathlib import Path

from .. import detect
from ..errors import ResolveError
from ..index.build_addresses import name_configured
from ..model import Emit, Event, Fleet, Plan, RequestContext, drop_event
from ..model.command_options import group, option
from ..request import paths_of_environment_and_cache as where, project_options as inproject
from ..request.shared_options import Choices
from . import target_option
from .default_env import note_project
from .functions_for_managers import resolve_plan
from .nvcc_host_compiler import find_compiler_problem
from .read_request import get_locking, judge_request

_WORDS = {"with_": "--with", "requirement": "-r"}
_OF_THE_FILE = ("config", "target_name", "indexes", "bundle", "typed", "planned", "named")


@dataclass(frozen=True, kw_only=True)
class ResolveOptions:
    """The options of `resolve`."""

    explain: bool = option(False, help="Show every build and the reasons against it.")
    targets: list[Path] = target_option.declare_targets()
    choices: Choices = group(
        Choices, without=("exclude_newer", "exclude_newer_except", *target_option.NOT_SHARED)
    )


def resolve(options: ResolveOptions, emit: Emit = drop_event) -> Plan | Fleet:
    """Return the plan: the builds that fit, and why nothing newer fits. For several targets return the fewest
    plans.

    Nothing is built.
    """
    note_project(emit)
    choices = target_option.apply_single_target(options.choices, options.targets)
    if choices is None:
        return _fleet(options, emit)
    plan = show_plan(emit, choices, explain=options.explain)
    if plan.builds:
        emit(Event(kind="next", stage="resolve", text=describe_next_step(choices, plan)))
    return plan


def _fleet(options: ResolveOptions, emit: Emit) -> Fleet:
    from . import fewest_plans_of_targets, host_classes_not_served_together

    packages = host_classes_not_served_together.FleetPackages(options.choices.allow_old, emit)
    answer = fewest_plans_of_targets.plan_targets(
        options.targets, options.choices, emit, reading=True, packages=packages
    )
    planned_fleet = answer.fleet
    if planned_fleet.plans:
        words = " ".join(
            ["gpuenv lock", *_words_of(options.choices), target_option.list_words(options.targets)]
        )
        emit(Event(kind="next", stage="resolve", text=words))
    return planned_fleet


def explain_cpu_choice(context: RequestContext, choices: Choices) -> str | None:
    """Return why the plan is for the CPU if that was not requested, otherwise None."""
    if choices.device != "auto" or context.request.device != "cpu":
        return None
    reason, stop, rest = context.reason.partition(". ")
    return f"{reason}: building for the CPU{stop}{rest}"


def add_notes(plan: Plan, context: RequestContext, choices: Choices) -> Plan:
    """Return the plan with notes on this machine: an unrequested CPU, or a gcc that nvcc does not support."""
    notes = filter(None, (explain_cpu_choice(context, choices), find_compiler_problem(plan, choices)))
    return dataclasses.replace(plan, notes=(*plan.notes, *notes)) if plan.builds else plan


def show_plan(emit: Emit, choices: Choices, *, explain: bool = False) -> Plan:
    """Return the plan of `gpuenv resolve` and `create --dry-run`."""
    choices = inproject.apply_project(choices)
    first = get_locking(choices).PLANS_FIRST
    context = judge_request(choices, emit, reading=True)
    if first and (context.request.packages or context.demands.needs):
        context = _with_newest_set(context, choices, emit)
    if first:
        plan = name_configured(
            resolve_plan(context), context.sources, context.demands.needs, where.get_cache_dir(choices)
        )
    else:
        plan = _solved_plan(emit, context, choices, explain=explain)
    plan = add_notes(plan, context, choices)
    if choices.exclude_newer:
        note = "upload dates (--exclude-newer) are not checked here, but when the packages are solved, for example by gpuenv lock"
        plan = dataclasses.replace(plan, notes=(*plan.notes, note)) if plan.builds else plan
    return plan


def _with_newest_set(context: RequestContext, choices: Choices, emit: Emit) -> RequestContext:
    from .joint_choice import JointChoice

    return JointChoice(emit, allow_old=choices.allow_old).applied(context)


def _solved_plan(emit: Emit, context: RequestContext, choices: Choices, *, explain: bool) -> Plan:
    """Return the plan that the solver chooses, or one without builds that states the reason."""
    from . import search_for_lock

    try:
        return search_for_lock.solve_packages(context, choices, emit)[0]
    except ResolveError as error:
        if error.log and explain:
            emit(Event(kind="log", stage="resolve", text=error.log))
        return Plan(
            builds=(), python=context.request.python, platform=context.target.platform, manager=context.request.manager,
            device=context.request.device, target=context.target, notes=(error.message,), hint=error.hint,
        )  # fmt: skip


def describe_next_step(choices: Choices, plan: Plan) -> str:
    """Return `gpuenv create` with the options of the plan, or `gpuenv lock` for another platform."""
    words = ["gpuenv", "create" if plan.platform == detect.detect(()).target.platform else "lock"]
    return " ".join([*words, *_words_of(choices)])


def _words_of(choices: Choices) -> list[str]:
    """Return the options as words of a command line."""
    words: list[str] = []
    for field in sorted(dataclasses.fields(Choices), key=lambda f: f.name != "framework"):
        value = getattr(choices, field.name)
        if field.name in _OF_THE_FILE or not value or value == field.default:
            continue
        name = _WORDS.get(field.name, f"--{field.name.replace('_', '-')}")
        for one in value if isinstance(value, list) else [value]:
            words += [name] if one is True else [name, shlex.quote(str(one))]
    return words
