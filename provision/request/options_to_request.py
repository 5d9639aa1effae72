"""Read options into a request and its context."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from ..errors import UsageError
from ..index.markers_and_tags_of_platform import markers_of
from ..model import (
    FRAMEWORK_ALIASES,
    FRAMEWORKS,
    FrameworkRequest,
    PackageSources,
    Plan,
    Profiles,
    ProjectRequirements,
    Request,
    RequestContext,
    RequirementLine,
    Target,
    TransitiveFrameworks,
    VersionBound,
    normalize_name,
)
from ..project.config.key_forms import CONFIG_NAME
from ..project.quote_for_messages_and_parse_requirement import suggest_version
from . import misleading_package_names, project_options as inproject, sort_out_cpu_builds
from .check_option_values import check_values, suggest_value
from .load_profiles import load_all
from .package_sources import list_available_wheels, read_sources
from .shared_options import Choices
from .target import MachineReader, choose_device, get_minor_version, list_pythons, read_request_target

_ANY_FRAMEWORK = f"name one: --framework {FRAMEWORKS[0]} (or {', '.join(FRAMEWORKS[1:])}); `gpuenv init` writes {CONFIG_NAME}"
Bring = Callable[[Plan, PackageSources, Sequence[RequirementLine]], TransitiveFrameworks]
"""Lists the frameworks that packages bring, for the Python and the platform of a plan."""


# Longer than most functions: each value depends on several of those before it, so parts would have many parameters.
def read_context(
    c: Choices, look: MachineReader, bring: Bring, *, reading: bool = False, plans_first: bool = True
) -> RequestContext:
    """Return the request of the options, and of the machine if they leave it open.

    With `reading` no source code runs, and packages that need it are left out. `plans_first` is true for a
    manager that installs wheels of a plan. Raises UsageError, MachineError, DataError.
    """
    data = load_all(c)
    check_values(c)
    wanted, packages = read_named(c, data)
    machine, target = read_request_target(c, data, look)
    demands = inproject.add_python_bounds(inproject.read_requirements(c, data, target), c)
    where = inproject.merge_sources(read_sources(c, data), c, demands)
    supply = list_available_wheels(where)
    device, reason = choose_device(c, machine, target, look)
    if plans_first:  # conda channels use other names
        by_name = misleading_package_names.named_packages(packages, demands, markers_of(target.platform))
        warnings = misleading_package_names.check_traps(
            by_name, data, supply, where, replaced=device == "cuda"
        )
        demands = dataclasses.replace(demands, left_out=(*demands.left_out, *warnings))
    pythons = list_pythons(c, machine, target, look)
    python = get_minor_version(c.python) or next(iter(pythons), None)
    named = {w.name for w in wanted}
    frameworks = demands.frameworks
    if plans_first and device == "cuda":
        sorted_builds = sort_out_cpu_builds.sort_cpu_builds(
            demands,
            named,
            lambda needs: _frameworks_in(needs, target, python, lambda plan: bring(plan, where, needs)),
        )
        demands, frameworks = sorted_builds.demands, sorted_builds.frameworks
        if sorted_builds.only_cpu and c.device == "auto":
            device, reason = "cpu", sorted_builds.only_cpu
    wanted = (*wanted, *(FrameworkRequest(name=n) for n in frameworks if n not in named))
    if not wanted:
        brought = _require_transitive_frameworks(
            demands, target, python, lambda plan: bring(plan, where, demands.needs)
        )
        wanted = tuple(FrameworkRequest(name=n) for n in brought.frameworks)
    if plans_first and device == "cuda":
        notes = sort_out_cpu_builds.list_notes(packages, [w.name for w in wanted])
        demands = dataclasses.replace(demands, left_out=(*demands.left_out, *notes))
    request = Request(
        frameworks=wanted, packages=packages, cuda=c.cuda, index=c.index, manager=c.manager,  # type: ignore[arg-type]  # checked
        device=device, python=get_minor_version(c.python), pythons=pythons, pre=c.pre or demands.pre,  # type: ignore[arg-type]  # judged
        along=tuple(n.name for n in demands.needs if n.name and not n.override), bounds=(*demands.bounds, *_bounds_of_packages(wanted, demands, data)), stack=demands.stack, requires_python=demands.requires_python, python_origin=demands.python_origin,
    )  # fmt: skip
    return RequestContext(
        request=request, target=target, machine=machine, profiles=data, supply=supply, sources=where,
        reason=reason, pythons_known=bool(pythons), demands=demands, channels=tuple(c.channel), reading=reading,
    )  # fmt: skip


def _bounds_of_packages(
    wanted: Sequence[FrameworkRequest], demands: ProjectRequirements, data: Profiles
) -> list[VersionBound]:
    """Return the bounds of lines that name a framework by another name of its package (onnxruntime-gpu)."""
    names = {b.package: b.framework for b in data.builds if b.package}
    requested = {w.name for w in wanted}
    bounds = []
    for need in demands.needs:
        framework = names.get(need.name or "")
        if framework in requested and not (need.local or need.vcs or " @ " in need.text):
            specifier = str(Requirement(need.text).specifier)
            bounds.append(VersionBound(name=framework, specifier=specifier, origin=need.origin))
    return bounds


def _frameworks_in(
    needs: Sequence[RequirementLine],
    target: Target,
    python: str | None,
    bring: Callable[[Plan], TransitiveFrameworks],
) -> tuple[str, ...]:
    """Return the frameworks that packages require, or none if no Python is known to solve them for."""
    return bring(_without_builds(target, python)).frameworks if python and needs else ()


def _without_builds(target: Target, python: str) -> Plan:
    return Plan(
        builds=(), python=python, platform=target.platform, manager="venv", device="cpu", target=target
    )


def _require_transitive_frameworks(
    demands: ProjectRequirements,
    target: Target,
    python: str | None,
    bring: Callable[[Plan], TransitiveFrameworks],
) -> TransitiveFrameworks:
    """Return the frameworks that the project's packages require. Raises UsageError if they require none."""
    if python is None or not demands.needs:
        files = ", ".join(Path(file).name for file in demands.files) or "the project"
        raise UsageError(f"{files} names no framework, and no --framework given", hint=_ANY_FRAMEWORK)
    brought = bring(_without_builds(target, python))
    if not brought.frameworks and brought.unread:
        raise UsageError(
            "no --framework given, and no package with readable metadata requires one",
            hint=f"{_ANY_FRAMEWORK}; or let gpuenv run the build code of the packages: gpuenv lock",
        )
    if not brought.frameworks:
        files = ", ".join(dict.fromkeys(n.origin.partition(" line ")[0] for n in demands.needs))
        raise UsageError(
            f"no --framework given, and the packages of {files} require none",
            hint="; ".join(
                filter(None, (sort_out_cpu_builds.make_cpu_hint(_texts(demands)), _ANY_FRAMEWORK))
            ),
        )
    return brought


def _texts(demands: ProjectRequirements) -> list[str]:
    """Return the requirements that are a name with bounds."""
    return [
        n.text for n in demands.needs if n.name and not (n.constraint or n.local or n.vcs or "@" in n.text)
    ]


def _implied_framework(name: str, data: Profiles) -> str | None:
    """Return the framework of programs that use a package, such as jax for flax."""
    packages = {normalize_name(row.package): row.implies for row in data.imports if row.implies}
    return packages.get(name)


def read_named(c: Choices, data: Profiles) -> tuple[tuple[FrameworkRequest, ...], tuple[str, ...]]:
    """Return the frameworks and packages of --framework and --with.

    There may be none if the project's files can name them. Raises UsageError.
    """
    # Matched by a pattern: parsing hundreds of requirements would take longer than resolving.
    texts = {x for b in data.builds for x in b.companions}
    companions = {canonicalize_name(re.split(r"[^A-Za-z0-9._-]", x, maxsplit=1)[0]) for x in texts}
    wanted: dict[str, FrameworkRequest] = {}
    packages = []
    for text in c.framework:
        need = _requirement("--framework", text)
        name = canonicalize_name(need.name)
        if need.url:
            raise UsageError(
                f"--framework {text!r}: expected a name with bounds, not an address",
                hint="write --framework 'torch>=2.6'; add --find-links FOLDER for your own wheels",
            )
        if name in FRAMEWORKS:
            wanted[name] = FrameworkRequest(name=name, specifier=str(need.specifier))
        elif name in companions:
            packages.append(text)
        else:
            alias = FRAMEWORK_ALIASES.get(name) or _implied_framework(name, data)
            hint = f"Did you mean {alias}?" if alias else suggest_value(name, FRAMEWORKS)
            raise UsageError(f"unknown framework {name!r}: gpuenv knows {', '.join(FRAMEWORKS)}", hint=hint)
    along = [_requirement("--with", text) for text in c.with_]
    _refuse_bounds_of_nvcc(along)
    packages += [str(need) for need in along if not need.url]  # a URL is one of the project's requirements
    if not wanted and not (c.requirement or c.project):
        hint = sort_out_cpu_builds.make_cpu_hint([str(need) for need in along])
        raise UsageError(
            f"{_no_framework(c)}, and no --framework given",
            hint="; ".join(filter(None, (hint, _ANY_FRAMEWORK))),
        )
    return tuple(wanted.values()), tuple(packages)


def _refuse_bounds_of_nvcc(needs: Sequence[Requirement]) -> None:
    for need in needs:
        if canonicalize_name(need.name) == "nvcc" and (need.specifier or need.extras):
            raise UsageError(
                f"--with {str(need)!r}: nvcc cannot have bounds, because its version must match the CUDA of the build",
                hint="choose the CUDA: --with nvcc --cuda 13.0",
            )


def _no_framework(c: Choices) -> str:
    return f"{c.config.name} names no framework" if c.config else f"no {CONFIG_NAME} here"


def _requirement(option: str, text: str) -> Requirement:
    if meant := suggest_version(text):
        raise UsageError(
            f"{option} {text!r}: expected == before a version, not @ or =", hint=f"{option} '{meant}'"
        )
    try:
        return Requirement(text)
    except InvalidRequirement as error:
        raise UsageError(f"{option} {text!r} is not a requirement such as 'torch>=2.6': {error}") from error
