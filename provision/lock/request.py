"""Make a request of options: the machine or target, frameworks, bounds, packages and sources."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ..config.file import CONFIG_NAME
from ..config.options import Choices, suggest_value
from ..config.project import add_python_bounds, merge_sources, read_requirements
from ..config.rows import load
from ..config.sources import list_available_wheels, read_sources
from ..config.target import choose_device, get_minor_version, list_pythons, read_request_target
from ..errors import MachineError, UsageError
from ..index.wheel_names import markers_of
from ..model import (
    CPU_PACKAGES,
    FRAMEWORK_ALIASES,
    FRAMEWORKS,
    PROJECT_FRAMEWORKS,
    TORCH_COMPANIONS,
    AvailableWheels,
    CpuOnlyFramework,
    Emit,
    FrameworkRequest,
    PackageSources,
    PackageTrap,
    Plan,
    Profiles,
    ProjectRequirements,
    Request,
    RequestContext,
    RequirementLine,
    Target,
    VersionBound,
    drop_event,
    is_cpu_build,
    normalize_name,
)
from ..requirements.lines import may_apply
from ..requirements.quote import parse_requirement, suggest_version, try_requirement
from .formats import get_format

_ANY_FRAMEWORK = f"name one: --framework {FRAMEWORKS[0]} (or {', '.join(FRAMEWORKS[1:])}); `gpuenv init` writes {CONFIG_NAME}"


def make_request(choices: Choices, emit: Emit, *, no_code: bool = False) -> RequestContext:
    """Return the request of the options. Where they name no framework, uv is run: it says which ones the packages require.

    With `no_code` no source code runs.
    If the manager's configuration assumes a GPU, this machine needs none. Raises UsageError, MachineError,
    DataError.
    """
    assumed = get_format(choices.manager).assumed_gpu()
    by_configuration = assumed and choices.device == "auto" and not choices.elsewhere
    try:
        context = _read_context(choices, emit, no_code=no_code)
    except MachineError:
        if not assumed or choices.device == "cpu":
            raise
        context = _read_context(dataclasses.replace(choices, device="cpu"), emit, no_code=no_code)
    if assumed and context.request.device == "cpu" and (by_configuration or choices.device == "cuda"):
        return dataclasses.replace(context.with_request(device="cuda"), reason=assumed)
    return context


def _read_context(c: Choices, emit: Emit, *, no_code: bool) -> RequestContext:
    """Return the request of the options, and of the machine if they leave it open.

    With `no_code` packages that need source code are left out. Raises UsageError, MachineError, DataError.
    """
    data = load(c)
    wanted, packages = read_named(c, data)
    machine, target = read_request_target(c, data)
    requirements = add_python_bounds(read_requirements(c, data, target), c)
    where = dataclasses.replace(merge_sources(read_sources(c, data), c, requirements), no_code=no_code)
    available = list_available_wheels(where)
    device, reason = choose_device(c, machine, target)
    of_wheels = get_format(c.manager).OF_WHEELS  # conda channels use other names
    if of_wheels:
        replaced = device == "cuda"
        warnings = _check_traps(
            packages, requirements, data, available, where, target.platform, replaced=replaced
        )
        requirements = _leave_out(requirements, warnings)
    pythons = list_pythons(c, machine, target)
    python = get_minor_version(c.python) or next(iter(pythons), None)
    ask = partial(_list_brought, target=target, python=python, sources=where, emit=emit)
    named = {w.name for w in wanted}
    if of_wheels and device == "cuda":
        requirements, only_cpu = _sort_cpu_builds(requirements, named, ask)
        if only_cpu and c.device == "auto":
            device, reason = "cpu", only_cpu
    elif of_wheels:
        requirements = _keep_cpu_packages(requirements, named)
    frameworks = [n for n in requirements.frameworks if n not in named]
    if not (wanted or frameworks):
        frameworks = _require_frameworks(requirements, python, ask)
    wanted = (*wanted, *(FrameworkRequest(name=n) for n in frameworks))
    bounds = (*requirements.bounds, *_bounds_of_packages(wanted, requirements, data))
    if of_wheels and device == "cuda":
        requirements = _leave_out(requirements, _note_cpu_packages(packages, [w.name for w in wanted]))
    elif of_wheels:
        requirements = _leave_out_gpu_packages(requirements, wanted, data)
    request = Request(
        frameworks=wanted, packages=packages, cuda=c.cuda, index=c.index, manager=c.manager,  # type: ignore[arg-type]  # checked
        device=device, python=get_minor_version(c.python), pythons=pythons, pre=c.pre or requirements.pre,
        along=tuple(n.name for n in requirements.lines if n.name and not n.override), bounds=bounds, stack=requirements.stack, requires_python=requirements.requires_python, python_origin=requirements.python_origin,
        file=c.config.name if c.config else None,
    )  # fmt: skip
    return RequestContext(
        request=request, target=target, machine=machine, profiles=data, available=available, sources=where,
        reason=reason, pythons_known=bool(pythons), requirements=requirements, channels=tuple(c.channel),
    )  # fmt: skip


def _leave_out(requirements: ProjectRequirements, notes: Iterable[str]) -> ProjectRequirements:
    """Return the requirements with notes on what does not apply as written."""
    return dataclasses.replace(requirements, left_out=(*requirements.left_out, *notes))


def _list_brought(
    lines: Sequence[RequirementLine],
    *,
    target: Target,
    python: str | None,
    sources: PackageSources,
    emit: Emit,
) -> tuple[list[str], list[str]]:
    """Ask uv which frameworks some packages require. Return also the packages whose requirements only a build can state."""
    if not (python and lines):
        return [], []
    from .compile import Query
    from .source_builds import source_rules

    plan = Plan(
        builds=(), python=python, platform=target.platform, manager="venv", device="cpu", target=target
    )
    rules = source_rules(sources, emit)
    query = Query(plan=plan, rules=rules, emit=drop_event, roots=(), lines=tuple(lines))
    versions = query.answer().versions
    return [f for f in PROJECT_FRAMEWORKS if f in versions], rules.unread


def _require_frameworks(
    requirements: ProjectRequirements, python: str | None, ask: Callable[..., tuple[list[str], list[str]]]
) -> list[str]:
    """Return the frameworks that the project's packages require. Raises UsageError if they require none."""
    if python is None or not requirements.lines:
        files = ", ".join(Path(file).name for file in requirements.files) or "the project"
        raise UsageError(f"{files} names no framework, and no --framework given", hint=_ANY_FRAMEWORK)
    frameworks, unread = ask(requirements.lines)
    if frameworks:
        return frameworks
    if unread:
        raise UsageError(
            "no --framework given, and no package with readable metadata requires one",
            hint=f"{_ANY_FRAMEWORK}; or let gpuenv run the build code of the packages: gpuenv lock",
        )
    files = ", ".join(dict.fromkeys(n.origin.partition(" line ")[0] for n in requirements.lines))
    by_name = [n.text for n in requirements.lines if n.name and not (n.constraint or n.is_direct)]
    raise UsageError(
        f"no --framework given, and the packages of {files} require none",
        hint="; ".join(filter(None, (_make_cpu_hint(by_name), _ANY_FRAMEWORK))),
    )


def read_named(c: Choices, data: Profiles) -> tuple[tuple[FrameworkRequest, ...], tuple[str, ...]]:
    """Return the frameworks and packages of --framework and --with.

    There may be none if the project's files can name them. Raises UsageError.
    """
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
        elif name in TORCH_COMPANIONS:
            packages.append(text)
        else:
            # the framework of programs that use a package, such as jax for flax
            implied = {normalize_name(row.package): row.implies for row in data.imports}
            alias = FRAMEWORK_ALIASES.get(name) or implied.get(name)
            hint = f"Did you mean {alias}?" if alias else suggest_value(name, FRAMEWORKS)
            raise UsageError(f"unknown framework {name!r}: gpuenv knows {', '.join(FRAMEWORKS)}", hint=hint)
    along = [_requirement("--with", text) for text in c.with_]
    _refuse_bounds_of_nvcc(along)
    packages += [str(need) for need in along if not need.url]  # a URL is one of the project's requirements
    if not wanted and not (c.requirement or c.project):
        hint = _make_cpu_hint([str(need) for need in along])
        file = f"{c.config.name} names no framework" if c.config else f"no {CONFIG_NAME} here"
        raise UsageError(
            f"{file}, and no --framework given",
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


def _requirement(option: str, text: str) -> Requirement:
    if meant := suggest_version(text):
        raise UsageError(
            f"{option} {text!r}: expected == before a version, not @ or =", hint=f"{option} '{meant}'"
        )
    try:
        return parse_requirement(text)
    except ValueError as error:
        raise UsageError(f"{option} {text!r} is not a requirement such as 'torch>=2.6': {error}") from error


# --- packages that are not what their names suggest ---------------------------------------------------


def _check_traps(
    packages: Sequence[str], requirements: ProjectRequirements, known: Profiles, available: AvailableWheels,
    sources: PackageSources, platform: str, *, replaced: bool,
) -> tuple[str, ...]:  # fmt: skip
    """Return warnings about packages that are not what their names suggest, where options or files require them by name.

    A package in a folder of wheels is accepted. `replaced` is true if the plan has a CUDA, which selects the
    replacements. Raises UsageError for a package that is never meant.
    """
    texts = [(text, "") for text in packages]
    texts += [
        (n.text, f" ({n.origin})") for n in requirements.lines
        if n.name and not (n.constraint or n.override or n.local or n.vcs or n.index)
    ]  # fmt: skip
    local_wheels = {wheel.name for wheel in available.wheels}
    traps = [
        (name, row) for row in known.traps
        if (name := canonicalize_name(row.package)) not in local_wheels
        and not (replaced and row.action == "replace")
    ]  # fmt: skip
    pages = any("://" in place for place in sources.find_links)
    warnings = []
    for text, where in texts:
        need = try_requirement(text)
        if need is None or need.url or not may_apply(need.marker, markers_of(platform)):
            continue
        for row in (row for name, row in traps if name == canonicalize_name(need.name)):
            why = row.why[0].lower() + row.why[1:].rstrip(".")
            message = (
                f"{need}{where} is not the package that its name suggests: {why} ({row.source.rstrip('.')})"
            )
            if row.action != "warn" and not pages:
                raise UsageError(message, hint=_suggest_instead(need, row))
            warnings.append(f"{message}; {_suggest_instead(need, row)}")
    return tuple(dict.fromkeys(warnings))


def _suggest_instead(need: Requirement, row: PackageTrap) -> str:
    if row.instead is None:
        return f"remove {need.name}, or give its wheel with --find-links"
    framework = row.instead.partition("[")[0]
    if framework in FRAMEWORKS:
        return f"--framework {framework}, or {row.instead} in a requirements file"
    return f"write {row.instead}"


# --- CPU builds ---------------------------------------------------------------------------------------


def _sort_cpu_builds(
    requirements: ProjectRequirements,
    named: Collection[str],
    ask: Callable[..., tuple[list[str], list[str]]],
) -> tuple[ProjectRequirements, str]:
    """Treat CPU builds as ordinary packages if a framework is planned for a GPU.

    Such a framework is `named` by an option, named by the files, or required by other packages, for which uv is
    asked. Return the requirements, and why nothing is for a GPU, "" if something is.
    """
    builds = [build for build in requirements.cpu if build.framework not in named]
    if not builds:
        return requirements, ""
    extended = _add_cpu_packages(requirements, builds)
    of_cpu = {line for build in builds for line in build.lines}
    if not (named or extended.frameworks) and any(
        not n.constraint and n not in of_cpu for n in extended.lines
    ):
        cpu = {build.framework for build in builds}
        brought = tuple(f for f in ask(extended.lines)[0] if f not in cpu)
        extended = dataclasses.replace(extended, frameworks=brought)
    if named or extended.frameworks:
        notes = (
            f"{', '.join(b.names)} {'remains an ordinary CPU package' if len(b.names) == 1 else 'remain ordinary CPU packages'}. "
            f"To use the GPU: --framework {b.framework}" for b in builds
        )  # fmt: skip
        return _leave_out(extended, notes), ""
    names = ", ".join(name for build in builds for name in build.names)
    gpu = " ".join(f"--framework {build.framework}" for build in builds)
    one = sum(len(build.names) for build in builds) == 1
    why = f"{names} {'is a CPU package' if one else 'are CPU packages'}. To use the GPU: {gpu}"
    return requirements, why


def _keep_cpu_packages(requirements: ProjectRequirements, named: Collection[str]) -> ProjectRequirements:
    """Return the requirements for a CPU environment. A package that is for the CPU by its name, as tensorflow-cpu, stays
    what it is beside another framework."""
    own = [
        build for build in requirements.cpu
        if build.framework not in named and all(need.name in FRAMEWORK_ALIASES for need in build.lines)
    ]  # fmt: skip
    extended = _add_cpu_packages(requirements, own)
    return extended if own and (named or extended.frameworks) else requirements


def _add_cpu_packages(
    requirements: ProjectRequirements, builds: Sequence[CpuOnlyFramework]
) -> ProjectRequirements:
    """Return the requirements with the CPU builds as packages instead of frameworks."""
    names = {build.framework for build in builds}
    notes = {sentence for build in builds for sentence in build.as_framework}
    of_cpu = [line for build in builds for line in build.lines]
    kept = [line for line in requirements.lines if line not in of_cpu]
    return dataclasses.replace(
        requirements,
        frameworks=tuple(f for f in requirements.frameworks if f not in names),
        bounds=tuple(b for b in requirements.bounds if b.name not in names),
        lines=(*kept, *of_cpu),
        left_out=tuple(s for s in requirements.left_out if s not in notes),
        cpu=(),
    )


def _note_cpu_packages(packages: Sequence[str], planned: Collection[str]) -> tuple[str, ...]:
    """Return notes on packages of `--with` and `packages:` that are CPU builds of frameworks that are not
    planned."""
    needs = [Requirement(text) for text in packages]
    return tuple(
        f"{need.name} is installed as an ordinary CPU package. To use the GPU: --framework {framework}"
        for need in needs
        if is_cpu_build(canonicalize_name(need.name), sorted(need.extras), str(need.specifier))
        and (framework := CPU_PACKAGES[canonicalize_name(need.name)]) not in planned
    )


def _make_cpu_hint(texts: Sequence[str]) -> str | None:
    """Return a hint on a CPU package if no framework is named, or None."""
    for need in map(Requirement, texts):
        name = canonicalize_name(need.name)
        # onnxruntime can be installed beside a framework, so no requirement of it asks for one
        if framework := (CPU_PACKAGES | {"onnxruntime": "onnxruntime"}).get(name):
            return f"{need.name} in the requirements installs the ordinary CPU package. To let gpuenv select the build of {framework}: --framework {framework}"
    return None


def _bounds_of_packages(
    wanted: Sequence[FrameworkRequest], requirements: ProjectRequirements, data: Profiles
) -> list[VersionBound]:
    """Return the bounds of lines that name a framework, or another name of its package (onnxruntime-gpu)."""
    names = {b.package: b.framework for b in data.builds if b.package}
    requested = {w.name for w in wanted}
    bounds = []
    for need in requirements.lines:
        framework = names.get(need.name or "", need.name)
        if framework in requested and not need.is_direct:
            specifier = str(Requirement(need.text).specifier)
            bounds.append(VersionBound(name=framework, specifier=specifier, origin=need.origin))
    return bounds


def _leave_out_gpu_packages(
    requirements: ProjectRequirements, wanted: Sequence[FrameworkRequest], data: Profiles
) -> ProjectRequirements:
    """Return the requirements without GPU packages of planned frameworks (onnxruntime-gpu), for a CPU environment.

    The CPU package has the same modules, so both cannot be installed.
    """
    gpu = {b.package: b.framework for b in data.builds if b.package and b.cuda}
    planned = {w.name for w in wanted}
    out = [n for n in requirements.lines if gpu.get(n.name or "") in planned and not n.is_direct]
    if not out:
        return requirements
    notes = [
        f"{n.name} ({n.origin}) is replaced by {gpu[n.name or '']}: the environment is for the CPU"
        for n in out
    ]
    lines = tuple(n for n in requirements.lines if n not in out)
    return _leave_out(dataclasses.replace(requirements, lines=lines), notes)
