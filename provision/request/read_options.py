"""From options to values: the request, the target, the profiles, where packages come from."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from ..errors import MissingVariableError, UsageError
from ..index.platform_tags import markers_of
from ..model import (
    FRAMEWORK_ALIASES,
    FRAMEWORKS,
    MANAGERS,
    PLATFORMS,
    AvailableWheels,
    FrameworkRequest,
    Lock,
    PackageSources,
    Plan,
    Profiles,
    ProjectRequirements,
    Request,
    RequestContext,
    RequirementLine,
    Target,
    TransitiveFrameworks,
    normalize_name,
)
from ..project.config.key_forms import CONFIG_NAME
from ..project.quoted_text import suggest_version
from ..system import process, variable_references
from . import cpu_only_frameworks, project_options as inproject, traps, upload_limits
from .load_profiles import load_all
from .options import Choices
from .target import MachineReader, choose_device, get_minor_version, list_pythons, read_request_target

_ANY_FRAMEWORK = f"name one: --framework {FRAMEWORKS[0]} (or {', '.join(FRAMEWORKS[1:])}); `gpuenv init` writes {CONFIG_NAME}"
_MEANT = {"gpu": "cuda", "nvidia": "cuda", "none": "cpu", "virtualenv": "venv", "mamba": "conda"}
"""Words that are no value of an option, and the value that they mean."""
_DRIVER_PLACE = "the driver version is at the top left of nvidia-smi"

Bring = Callable[[Plan, PackageSources, Sequence[RequirementLine]], TransitiveFrameworks]
"""Lists the frameworks that packages bring, for the Python and the platform of a plan."""


def read_sources(c: Choices, data: Profiles | None = None) -> PackageSources:
    """pip's and uv's configuration with the options laid over it. Raises LockError, UsageError."""
    from ..index import pytorch_index, uv_config
    from ..index.pip_config import pip_configuration

    of_uv = uv_config.variables(process.environ())
    no_build = c.no_build or uv_config.is_on(of_uv.get("UV_NO_BUILD"))
    only_binary = (*c.only_binary, *of_uv.get("UV_NO_BUILD_PACKAGE", "").split())
    if c.bundle:
        return dataclasses.replace(_of_bundle(c), no_build=no_build, only_binary=only_binary)
    config = pip_configuration(process.environ())
    for place in c.find_links:
        if not Path(place).exists():
            raise UsageError(f"--find-links {place}: no such folder", hint="check the path")
    configured = [p for p in config.find_links if "://" in p or Path(p).exists()]
    where = list_index_addresses(c, data or load_all(c))
    url = c.index if "://" in c.index and not pytorch_index.is_one(c.index) else None
    torch = pytorch_index.base_of(c.index) if "://" in c.index and url is None else where["pytorch"]
    extra = [u for u in config.extra_index_urls if not pytorch_index.is_one(u, torch)]
    return PackageSources(
        default=url or where.get("pypi") or config.index_url,
        extra=() if url else tuple(extra),
        find_links=tuple(dict.fromkeys([*(str(Path(p).absolute()) for p in c.find_links), *configured])),
        pytorch=torch,
        cert=config.cert,
        proxy=config.proxy,
        timeout=config.timeout,
        trusted=config.trusted_hosts,
        no_index=config.no_index,
        offline=c.offline,
        cache_dir=str(c.cache_dir.absolute()) if c.cache_dir else None,
        no_build=no_build,
        only_binary=only_binary,
        exclude_newer=limit.cutoff if (limit := upload_limits.read_limit(c)) else None,
        exclude_newer_except=limit.excepted if limit else (),
    )


def _of_bundle(c: Choices) -> PackageSources:
    """The bundle's wheels, and no index: nothing of pip's or uv's configuration holds."""
    assert c.bundle
    wheels = c.bundle / "wheels"
    return PackageSources(
        find_links=(str(wheels),) if wheels.is_dir() else (), offline=True, no_index=True,
        cache_dir=str(c.cache_dir.absolute()) if c.cache_dir else None,
    )  # fmt: skip


def read_locked_sources(c: Choices, lock: Lock) -> PackageSources:
    """Return where a lock's packages come from: the configuration, and the indexes and folders that the project's
    files name. Files that cannot be read name none; the lock says what is installed. Raises LockError, UsageError."""
    data = load_all(c)
    found = read_sources(c, data)
    if c.bundle:
        return found
    try:
        demands = inproject.read_requirements(c, data, lock.target)
    except MissingVariableError as error:
        if any(error.variable in variable_references.names_in(f"{p.url} {p.index}") for p in lock.packages):
            raise
        return found
    except UsageError:
        return found
    return inproject.merge_sources(found, c, demands)


def list_index_addresses(c: Choices, data: Profiles) -> dict[str, str]:
    """Where indexes lie that are not where pip and uv look: GPUENV_INDEX_PYPI and GPUENV_INDEX_PYTORCH, then
    gpuenv.yaml, then the profiles with the user's rows over ours. The PyTorch index always has an address."""
    environ = process.environ()
    told = {row.index: row.url for row in data.indexes} | c.indexes
    named = {name: environ.get(f"GPUENV_INDEX_{name.upper()}") for name in ("pypi", "pytorch")}
    return told | {name: url for name, url in named.items() if url}


def list_available_wheels(s: PackageSources) -> AvailableWheels:
    """The wheels at hand, and whether they are all there is."""
    from ..index.wheel_folders import find_links

    folders = [p for p in s.find_links if "://" not in p]
    return AvailableWheels(wheels=find_links(folders), only_wheels=s.offline or s.no_index)


def read_context(
    c: Choices, look: MachineReader, bring: Bring, *, reading: bool = False, plans_first: bool = True
) -> RequestContext:
    """Read options, and the machine as far as they leave it open. With `reading` no source code is run, and what
    cannot be read without is left out. `plans_first`: the manager installs wheels of a plan. Raises UsageError,
    MachineError, DataError."""
    data = load_all(c)
    check_values(c)
    wanted, packages = read_named(c, data)
    machine, target = read_request_target(c, data, look)
    demands = inproject.add_python_bounds(inproject.read_requirements(c, data, target), c)
    where = inproject.merge_sources(read_sources(c, data), c, demands)
    at_hand = list_available_wheels(where)
    device, reason = choose_device(c, machine, target, look)
    if plans_first:  # conda channels use other names
        by_name = traps.named_packages(packages, demands, markers_of(target.platform))
        warnings = traps.check_traps(by_name, data, at_hand, where, replaced=device == "cuda")
        demands = dataclasses.replace(demands, left_out=(*demands.left_out, *warnings))
    pythons = list_pythons(c, machine, target, look)
    python = get_minor_version(c.python) or next(iter(pythons), None)
    held = {w.name for w in wanted}
    frameworks = demands.frameworks
    if plans_first and device == "cuda":
        found = cpu_only_frameworks.sort_cpu_builds(
            demands,
            held,
            lambda needs: _frameworks_in(needs, target, python, lambda plan: bring(plan, where, needs)),
        )
        demands, frameworks = found.demands, found.frameworks
        if found.only_cpu and c.device == "auto":
            device, reason = "cpu", found.only_cpu
    wanted = (*wanted, *(FrameworkRequest(name=n) for n in frameworks if n not in held))
    brought = TransitiveFrameworks()
    if not wanted:
        brought = _require_transitive_frameworks(
            demands, target, python, lambda plan: bring(plan, where, demands.needs)
        )
        wanted = tuple(FrameworkRequest(name=n) for n in brought.frameworks)
    if plans_first and device == "cuda":
        notes = cpu_only_frameworks.list_notes(packages, [w.name for w in wanted])
        demands = dataclasses.replace(demands, left_out=(*demands.left_out, *notes))
    request = Request(
        frameworks=wanted, packages=packages, cuda=c.cuda, index=c.index, manager=c.manager,  # type: ignore[arg-type]  # checked
        device=device, python=get_minor_version(c.python), pythons=pythons, pre=c.pre or demands.pre,  # type: ignore[arg-type]  # judged
        along=tuple(n.name for n in demands.needs if n.name and not n.override), bounds=demands.bounds, stack=demands.stack, requires_python=demands.requires_python, python_origin=demands.python_origin,
    )  # fmt: skip
    return RequestContext(
        request=request, target=target, machine=machine, profiles=data, supply=at_hand, sources=where,
        reason=reason, pythons_known=bool(pythons), demands=demands, channels=tuple(c.channel), reading=reading,
        brought=brought,
    )  # fmt: skip


def _frameworks_in(
    needs: Sequence[RequirementLine],
    target: Target,
    python: str | None,
    bring: Callable[[Plan], TransitiveFrameworks],
) -> tuple[str, ...]:
    """Return the frameworks that packages bring; none where no Python is known to solve them for."""
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
    """The frameworks that the project's packages bring along, where nobody names one. Raises UsageError
    where they bring none."""
    if python is None or not demands.needs:
        files = ", ".join(Path(file).name for file in demands.files) or "the project"
        raise UsageError(f"{files} names no framework, and no --framework given", hint=_ANY_FRAMEWORK)
    found = bring(_without_builds(target, python))
    if not found.frameworks and found.unread:
        raise UsageError(
            "no --framework given, and no package with readable metadata requires one",
            hint=f"{_ANY_FRAMEWORK}; or let gpuenv run the build code of the packages: gpuenv lock",
        )
    if not found.frameworks:
        files = ", ".join(dict.fromkeys(n.origin.partition(" line ")[0] for n in demands.needs))
        raise UsageError(
            f"no --framework given, and the packages of {files} require none",
            hint="; ".join(
                filter(None, (cpu_only_frameworks.make_cpu_hint(_texts(demands)), _ANY_FRAMEWORK))
            ),
        )
    return found


def _texts(demands: ProjectRequirements) -> list[str]:
    """The needs that are a name with bounds."""
    return [
        n.text for n in demands.needs if n.name and not (n.constraint or n.local or n.vcs or "@" in n.text)
    ]


def check_values(c: Choices) -> None:
    """Refuse a word that is none of an option's own, naming the nearest that is."""
    for option, value, allowed in (
        ("--manager", c.manager, MANAGERS),
        ("--device", c.device, ("auto", "cuda", "cpu")),
        ("--platform", c.platform, PLATFORMS),
        ("--driver-os", c.driver_os, ("linux", "windows")),
    ):
        if value is not None and value not in allowed:
            raise UsageError(
                f"{option} {value}: not one of {', '.join(allowed)}", hint=_did_you_mean(value, allowed)
            )
    if "://" not in c.index and c.index not in ("auto", "pypi", "pytorch"):
        hint = _did_you_mean(c.index, ("auto", "pypi", "pytorch"))
        raise UsageError(f"--index {c.index}: not auto, pypi, pytorch or a URL", hint=hint)
    for option, value, form in (
        ("--driver", c.driver, r"\d{3,4}(\.\d+){0,3}"),
        ("--glibc", c.glibc, r"2\.\d+"),
        ("--python", c.python, r"3\.\d+(\.\d+)?"),
        ("--cuda", c.cuda, r"\d+(\.\d+)?"),
        ("--gpus", c.gpus, r"\d+(,\d+)*"),
    ):
        if value is not None and not re.fullmatch(form, value):
            raise _wrong_form(option, value)


def _wrong_form(option: str, value: str) -> UsageError:
    """Return the error for a version or list that has another form. A CUDA version is often taken for the driver's."""
    if option == "--driver" and re.fullmatch(r"\d{1,2}(\.\d+)?", value):
        return UsageError(
            f"--driver {value}: this looks like a CUDA version",
            hint=f"{_DRIVER_PLACE}; for a CUDA release: --cuda {value}",
        )
    example = {"--driver": "535.129.03", "--glibc": "2.28", "--python": "3.11", "--cuda": "12.6"}
    expected = f"a version such as {example[option]}" if option in example else "indexes such as 0,2"
    return UsageError(
        f"{option} {value}: expected {expected}", hint=_DRIVER_PLACE if option == "--driver" else None
    )


def _did_you_mean(word: str, allowed: tuple[str, ...] | list[str]) -> str | None:
    """Return the allowed word that is meant, as a question; None where no word is near."""
    meant = _MEANT.get(word.lower())
    near = [meant] if meant in allowed else difflib.get_close_matches(word, allowed, n=1, cutoff=0.4)
    return f"Did you mean {near[0]}?" if near else None


def _implied_framework(name: str, data: Profiles) -> str | None:
    """Return the framework of programs that use a package, such as jax for flax."""
    packages = {normalize_name(row.package): row.implies for row in data.imports if row.implies}
    return packages.get(name)


def read_named(c: Choices, data: Profiles) -> tuple[tuple[FrameworkRequest, ...], tuple[str, ...]]:
    """The frameworks and the packages that --framework and --with name; none where the project's files
    may name them. Raises UsageError."""
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
            hint = f"Did you mean {alias}?" if alias else _did_you_mean(name, FRAMEWORKS)
            raise UsageError(f"unknown framework {name!r}: gpuenv knows {', '.join(FRAMEWORKS)}", hint=hint)
    along = [_requirement("--with", text) for text in c.with_]
    for need in along:
        if canonicalize_name(need.name) == "nvcc" and (need.specifier or need.extras):
            raise UsageError(
                f"--with {str(need)!r}: nvcc cannot have bounds, because its version must match the CUDA of the build",
                hint="choose the CUDA: --with nvcc --cuda 13.0",
            )
    packages += [str(need) for need in along if not need.url]  # a URL is one of the project's requirements
    if not wanted and not (c.requirement or c.project):
        hint = cpu_only_frameworks.make_cpu_hint([str(need) for need in along])
        raise UsageError(
            f"{_no_framework(c)}, and no --framework given",
            hint="; ".join(filter(None, (hint, _ANY_FRAMEWORK))),
        )
    return tuple(wanted.values()), tuple(packages)


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
