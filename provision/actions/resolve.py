"""`gpuenv resolve`: show the builds that fit, and why nothing newer fits."""

from __future__ import annotations

import dataclasses
import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement

from .. import detect
from ..config import rows
from ..config.env import note_project
from ..config.options import (
    NOT_SHARED,
    STDIN,
    Choices,
    apply_single_target,
    declare_plans,
    declare_targets,
    list_words,
)
from ..config.project import apply_project
from ..config.sources import list_index_addresses
from ..errors import ResolveError, UsageError
from ..index.places import add_configured_indexes
from ..lock import solve_near
from ..lock.formats import check_choices, get_format
from ..lock.request import make_request
from ..model import (
    CudaCompiler,
    Emit,
    Event,
    Lock,
    Plan,
    Profiles,
    RequestContext,
    drop_event,
    requirement_name,
)
from ..model.declare import group, iterate_options, option
from ..model.values import Value
from ..resolve import plan_request
from ..resolve.pip import install_lines, pip_gaps
from ..system import process
from ..system.redaction import redact

if TYPE_CHECKING:
    from ..model import Fleet, FleetLocks

_NVCC = re.compile(r"nvidia-cuda-nvcc(-cu\d+)?")
_INSTALL = "`sudo apt install g++` (Debian, Ubuntu) or `sudo dnf install gcc-c++` (Fedora, RHEL)"
_WORDS = {"with_": "--with", "requirement": "-r"}


class ResolveOptions(Value):
    """The options of `resolve`."""

    explain: bool = option(False, help="Show every build and the reasons against it.")
    pip: bool = option(
        False, help="Show the commands that install the builds with pip or uv, without gpuenv."
    )
    locks: Path | None = option(
        None,
        metavar="DIR",
        help="Check the locks of a fleet against another --driver or --glibc, and name the hosts that need new ones.",
    )
    targets: list[Path] = declare_targets()
    plans: str | None = declare_plans()
    choices: Choices = group(Choices, without=("exclude_newer", "exclude_newer_except", *NOT_SHARED))


def resolve(options: ResolveOptions, emit: Emit = drop_event) -> Plan | Fleet | FleetLocks:
    """Return the plan: the builds that fit, and why nothing newer fits. For several targets return the fewest
    plans.

    Named packages are solved as `gpuenv lock` does. Nothing is built, and no source code runs. Raises LockError, ResolveError.
    """
    note_project(emit)
    if options.locks:
        from ..lock.fleet_locks import check_locks

        return check_locks(options.locks, options.targets, options.choices)
    choices = apply_single_target(options.choices, options.targets, options.plans)
    if choices is None:
        return _plan_fleet(options, emit)
    asked, choices = choices, apply_project(choices)
    check_choices(choices)
    if options.pip:
        _refuse_channels(choices)
    context = make_request(choices, emit, no_code=True)
    local, lock = context.sources.offline or context.sources.no_index, None
    if not get_format(choices.manager).OF_WHEELS:
        plan = _solve_channels(emit, context, choices, explain=options.explain)
    elif (context.request.packages or context.requirements.lines) and not local:
        plan, lock = solve_near(context, choices, emit)
    else:
        plan = add_configured_indexes(plan_request(context), context.sources, context.requirements.lines)
    plan = add_notes(plan, context, choices)
    if options.pip:
        plan = add_pip(plan, context.profiles, choices, context, lock)
    if plan.builds:
        command = "create" if plan.platform == detect.detect(()).target.platform else "lock"
        emit(Event("next", "resolve", " ".join(["gpuenv", command, *_format_choices(asked)])))
    return plan


def _plan_fleet(options: ResolveOptions, emit: Emit) -> Fleet:
    from ..lock import fleet

    locker = fleet.FleetLocker(options.choices, emit)
    answer = fleet.plan_targets(
        options.targets, options.choices, emit, no_code=True, locker=locker, plans=options.plans
    )
    planned_fleet = answer.fleet
    for event in locker.events(answer.requests):
        emit(event)
    if options.pip:
        choices = apply_project(options.choices)
        _refuse_channels(choices)
        data = rows.load(choices)
        plans = (dataclasses.replace(p, plan=add_pip(p.plan, data, choices)) for p in planned_fleet.plans)
        planned_fleet = dataclasses.replace(planned_fleet, plans=tuple(plans))
    if planned_fleet.plans:
        named = [f"--plans {options.plans}"] if options.plans else []
        words = " ".join(
            ["gpuenv lock", *_format_choices(options.choices), *named, list_words(options.targets)]
        )
        if Path(STDIN) in options.targets:
            left = sum(u.hosts for u in planned_fleet.unserved)
            words += "  # with the same input" + (
                f"; it leaves out what has no plan ({left})" if left else ""
            )
        emit(Event("next", "resolve", words))
    return planned_fleet


def explain_cpu_choice(context: RequestContext, choices: Choices) -> str | None:
    """Return why the plan is for the CPU if that was not requested, otherwise None."""
    if choices.device != "auto" or context.request.device != "cpu":
        return None
    reason, stop, rest = context.reason.partition(". ")
    return f"{reason}: building for the CPU{stop}{rest}"


def add_notes(plan: Plan, context: RequestContext, choices: Choices) -> Plan:
    """Return the plan with notes on what nobody chose: the CPU, a Python, or a gcc that nvcc does not support."""
    free = not (context.request.python or context.request.pythons)
    python = f"no Python given: {plan.python} is the newest that fits" if free else None
    notes = filter(None, (explain_cpu_choice(context, choices), python, find_compiler_problem(plan, choices)))
    return (
        dataclasses.replace(plan, notes=tuple(dict.fromkeys((*plan.notes, *notes)))) if plan.builds else plan
    )


def add_pip(
    plan: Plan,
    data: Profiles,
    choices: Choices,
    context: RequestContext | None = None,
    lock: Lock | None = None,
) -> Plan:
    """Return the plan with the commands of pip that install it, and notes on what they leave out."""
    if not plan.builds:
        return plan
    from ..wheels.pylock import is_variant

    addresses = list_index_addresses(choices, data)
    indexes = {name: redact(url) for name, url in addresses.items()}
    direct = [p for p in lock.packages if p.index is None and p.url.startswith("http")] if lock else []
    prebuilt = {p.name: f"{p.name} @ {p.url}" for p in direct}
    packages = tuple(prebuilt.get(requirement_name(p), p) for p in plan.packages)
    paged = dataclasses.replace(plan, packages=packages)
    local = any(b.index == "find-links" for b in plan.builds)
    links = context.sources.find_links if context and local else choices.find_links
    lines = {tool: install_lines(tool, paged, data, indexes, links) for tool in ("pip", "uv")}
    notes = [*plan.notes, *pip_gaps(paged, data)]
    if variants := [p.name for p in lock.packages if is_variant(p)] if lock else []:
        notes.append(
            f"{', '.join(variants)}: pip refuses wheel variants. Run gpuenv lock, then uv pip sync pylock.toml"
        )
    if context and (left := [n for n in context.requirements.lines if not n.constraint]):
        notes.append(
            f"the pip command lacks {len(left)} requirements of the project's files: for all of them run gpuenv lock, "
            "then gpuenv export --format requirements"
        )
    return dataclasses.replace(plan, pip=lines["pip"], uv=lines["uv"], notes=tuple(notes))


def _refuse_channels(choices: Choices) -> None:
    """Raise UsageError for a manager whose builds are packages of conda channels."""
    if not get_format(choices.manager).OF_WHEELS:
        raise UsageError(
            f"--pip: the builds of --manager {choices.manager} come from its channels, and pip cannot install them",
            hint="leave out --pip, or use --manager venv",
        )


def _solve_channels(emit: Emit, context: RequestContext, choices: Choices, *, explain: bool) -> Plan:
    """Return the plan that the solver chooses, or one without builds that states the reason."""
    try:
        return solve_near(context, choices, emit)[0]
    except ResolveError as error:
        if error.log and explain:
            emit(Event("log", "resolve", error.log))
        return Plan(
            builds=(), python=context.request.python, platform=context.target.platform, manager=context.request.manager,
            device=context.request.device, target=context.target, notes=(error.message,), hint=error.hint,
        )  # fmt: skip


def _format_choices(choices: Choices) -> list[str]:
    """Return the options as words of a command line."""
    words: list[str] = []
    for _, field, _ in sorted(iterate_options(Choices), key=lambda declared: declared[1].name != "framework"):
        value = getattr(choices, field.name)
        if not value or value == field.default:
            continue
        name = _WORDS.get(field.name, f"--{field.name.replace('_', '-')}")
        for one in value if isinstance(value, list) else [value]:
            words += [name] if one is True else [name, shlex.quote(str(one))]
    return words


def find_compiler_problem(plan: Plan, choices: Choices) -> str | None:
    """Return why nvcc of the plan cannot compile on this machine, with the fix, or None if it can.

    Return None for a plan without nvcc and for the file of another machine. `--driver` and `--gpu` may
    describe a node that this machine builds for.
    """
    cuda = _find_nvcc(plan)
    if cuda is None or choices.target or not plan.platform.startswith("linux"):
        return None
    if plan.platform != detect.detect(()).target.platform:
        return None
    row = next((row for row in rows.load(choices).compilers if row.cuda == cuda), None)
    return _describe_problem(row) if row and row.extras else None


def warn_of_host_compiler(emit: Emit, plan: Plan, choices: Choices) -> None:
    """Warn if nvcc of the plan cannot compile on this machine."""
    if problem := find_compiler_problem(plan, choices):
        emit(Event("warning", "lock", problem))


def _find_nvcc(plan: Plan) -> str | None:
    """Return the CUDA version ("13.2") of the requested nvcc, or None."""
    for text in plan.packages:
        need = Requirement(text)
        version = next((s.version for s in need.specifier if s.operator == "=="), None)
        if _NVCC.fullmatch(need.name) and version:
            return ".".join(version.split(".")[:2])
    return None


def _describe_problem(row: CudaCompiler) -> str | None:
    from ..verify.compilers import read_gcc_version

    named = process.environ().get("NVCC_CCBIN")
    compiler = named or "gcc"
    found = {name: shutil.which(name) for name in ([named] if named else ["gcc", "g++"])}
    if missing := next((name for name, path in found.items() if not path), None):
        return f"{missing} is missing on this machine, and nvcc of CUDA {row.cuda} compiles host code with it: {_INSTALL}"
    version = read_gcc_version(found[compiler] or "")
    if version is None or version <= int(row.gcc):
        return None  # clang and others have no gcc version; nvcc checks them
    return f"{compiler} {version} on this machine is newer than nvcc of CUDA {row.cuda} supports (gcc {row.gcc}): {_suggest_compiler(int(row.gcc))}"


def _suggest_compiler(newest: int) -> str:
    """Return how to use the newest installed g++ that nvcc supports, or which one to install."""
    here = next(
        (n for n in range(newest, 6, -1) if shutil.which(f"g++-{n}") and shutil.which(f"gcc-{n}")), None
    )
    number = here or newest
    first = "" if here else f"install g++-{number}, then "
    return f"{first}NVCC_CCBIN=g++-{number} CC=gcc-{number} CXX=g++-{number} for builds of extensions"
