"""From options to values: the request, the target, the profiles, where packages come from."""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from .. import detect
from ..errors import MissingVariableError, ResolveError, UsageError
from ..model import (
    FRAMEWORKS,
    MANAGERS,
    PLATFORMS,
    Demands,
    Event,
    Lock,
    Machine,
    Plan,
    Profiles,
    Request,
    Sources,
    Supply,
    Target,
    TargetGpu,
    Wanted,
    from_plain,
)
from ..project.words import meant_version
from ..resolve import gpu_named
from ..system import foreign, process, references
from . import paths as where
from . import project_options as inproject
from . import upload_limits
from .facts import known
from .options import Choices

if TYPE_CHECKING:
    from ..wheels.source_builds import SourceBuilds

_DEFAULT_GLIBC = "2.35"
_ALIASES = {"pytorch": "torch", "tf": "tensorflow", "keras": "tensorflow", "jaxlib": "jax", "flax": "jax"}


_NO_DEMANDS = Demands()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked:
    """Everything the stages need, judged: what is wanted, for which target, from where."""

    request: Request
    target: Target
    machine: Machine | None
    profiles: Profiles
    supply: Supply
    sources: Sources
    reason: str
    pythons_known: bool
    demands: Demands = _NO_DEMANDS
    builds: SourceBuilds | None = None


def sources(c: Choices, data: Profiles | None = None) -> Sources:
    """pip's and uv's configuration with the options laid over it. Raises LockError, UsageError."""
    from .. import index
    from ..index import pytorch, uv_config

    of_uv = uv_config.variables(process.environ())
    no_build = c.no_build or uv_config.is_on(of_uv.get("UV_NO_BUILD"))
    only_binary = (*c.only_binary, *of_uv.get("UV_NO_BUILD_PACKAGE", "").split())
    if c.bundle:
        from ..commands import bundled

        return dataclasses.replace(bundled.sources(c), no_build=no_build, only_binary=only_binary)
    config = index.pip_configuration(process.environ())
    for place in c.find_links:
        if not Path(place).exists():
            raise UsageError(f"--find-links {place}: no such folder", hint="check the path")
    configured = [p for p in config.find_links if "://" in p or Path(p).exists()]
    where = addresses(c, data or known(c))
    url = c.index if "://" in c.index and not pytorch.is_one(c.index) else None
    torch = pytorch.base_of(c.index) if "://" in c.index and url is None else where["pytorch"]
    extra = [u for u in config.extra_index_urls if not pytorch.is_one(u, torch)]
    return Sources(
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
        exclude_newer=limit.cutoff if (limit := upload_limits.asked_for(c)) else None,
        exclude_newer_except=limit.excepted if limit else (),
    )


def locked_sources(c: Choices, lock: Lock) -> Sources:
    """Return where a lock's packages come from: the configuration, and the indexes and folders that the project's
    files name. Files that cannot be read name none; the lock says what is installed. Raises LockError, UsageError."""
    data = known(c)
    found = sources(c, data)
    if c.bundle:
        return found
    try:
        demands = inproject.demanded(c, data, lock.target)
    except MissingVariableError as error:
        if any(error.variable in references.names_in(f"{p.url} {p.index}") for p in lock.packages):
            raise
        return found
    except UsageError:
        return found
    return inproject.sources_with(found, c, demands)


def addresses(c: Choices, data: Profiles) -> dict[str, str]:
    """Where indexes lie that are not where pip and uv look: GPUENV_INDEX_PYPI and GPUENV_INDEX_PYTORCH, then
    gpuenv.yaml, then the profiles with the user's rows over ours. The PyTorch index always has an address."""
    environ = process.environ()
    told = {row.index: row.url for row in data.indexes} | c.indexes
    named = {name: environ.get(f"GPUENV_INDEX_{name.upper()}") for name in ("pypi", "pytorch")}
    return told | {name: url for name, url in named.items() if url}


def supply(s: Sources) -> Supply:
    """The wheels at hand, and whether they are all there is."""
    from .. import index

    folders = [p for p in s.find_links if "://" not in p]
    return Supply(wheels=index.find_links(folders), only_wheels=s.offline or s.no_index)


def judged(c: Choices, emit: Callable[[Event], None], *, reading: bool = False) -> Asked:
    """Read options, and the machine as far as they leave it open. With `reading` no source code is run, and what
    cannot be read without is left out. Raises UsageError, MachineError, DataError."""
    from ..wheels.source_builds import source_builds

    data = known(c)
    check_words(c)
    wanted, packages = named(c, data)
    machine, target = _target(c, data)
    demands = inproject.with_python_bounds(inproject.demanded(c, data, target), c)
    wanted = _with_files(wanted, demands)
    device, reason = _device(c, machine, target)
    where = inproject.sources_with(sources(c, data), c, demands)
    pythons = _pythons(c, machine, target)
    builds = source_builds(where, emit, reading=reading)
    if not wanted:
        wanted = _brought(c, _Bringing(demands, target, where, builds), pythons)
    request = Request(
        frameworks=wanted, packages=packages, cuda=c.cuda, index=c.index, manager=c.manager,  # type: ignore[arg-type]  # checked
        device=device, python=_minor(c.python), pythons=pythons, pre=c.pre or demands.pre,  # type: ignore[arg-type]  # judged
        along=tuple(n.name for n in demands.needs if n.name and not n.override), bounds=demands.bounds, requires_python=demands.requires_python, python_origin=demands.python_origin,
    )  # fmt: skip
    return Asked(
        request=request, target=target, machine=machine, profiles=data, supply=supply(where),
        sources=where, reason=reason, pythons_known=bool(pythons), demands=demands, builds=builds,
    )  # fmt: skip


def _with_files(wanted: tuple[Wanted, ...], demands: Demands) -> tuple[Wanted, ...]:
    """The frameworks named, and those that the project's files name."""
    held = {w.name for w in wanted}
    return (*wanted, *(Wanted(name=n) for n in demands.frameworks if n not in held))


@dataclasses.dataclass(frozen=True)
class _Bringing:
    """What a project's packages are solved with, to see which frameworks they bring."""

    demands: Demands
    target: Target
    sources: Sources
    builds: SourceBuilds


def _brought(c: Choices, one: _Bringing, pythons: tuple[str, ...]) -> tuple[Wanted, ...]:
    """The frameworks that the project's packages bring along, where nobody names one. Raises UsageError
    where they bring none."""
    demands, target = one.demands, one.target
    nothing = UsageError("no framework was named", hint=f"--framework {'|'.join(FRAMEWORKS)}")
    if not demands.needs:
        raise nothing
    python = _minor(c.python) or next(iter(pythons), None)
    if python is None:
        raise nothing
    plan = Plan(
        builds=(), python=python, platform=target.platform, manager="venv", device="cpu", target=target
    )
    from ..wheels import pypi

    found = pypi.frameworks_in(plan, one.sources, demands.needs, one.builds)
    if not found and one.builds.unread:
        raise UsageError(
            "no framework was named, and the packages that could be read without running code bring none",
            hint=f"--framework {'|'.join(FRAMEWORKS)}; or `gpuenv lock`, which runs their build code",
        )
    if not found:
        files = ", ".join(dict.fromkeys(n.origin.partition(" line ")[0] for n in demands.needs))
        raise UsageError(
            f"no framework was named, and what {files} asks for brings none",
            hint=f"--framework {'|'.join(FRAMEWORKS)}",
        )
    return tuple(Wanted(name=n) for n in found)


def check_words(c: Choices) -> None:
    """Refuse a word that is none of an option's own, naming the nearest that is."""
    upload_limits.check(c)
    for option, value, allowed in (
        ("--manager", c.manager, MANAGERS),
        ("--device", c.device, ("auto", "cuda", "cpu")),
        ("--platform", c.platform, PLATFORMS),
        ("--driver-os", c.driver_os, ("linux", "windows")),
    ):
        if value is not None and value not in allowed:
            raise UsageError(f"{option} {value}: not one of {', '.join(allowed)}{_near(value, allowed)}")
    if "://" not in c.index and c.index not in ("auto", "pypi", "pytorch"):
        near = _near(c.index, ("auto", "pypi", "pytorch"))
        raise UsageError(f"--index {c.index}: not auto, pypi, pytorch or a URL{near}")
    for option, value, form in (
        ("--driver", c.driver, r"\d{3,4}(\.\d+){0,3}"),
        ("--glibc", c.glibc, r"2\.\d+"),
        ("--python", c.python, r"3\.\d+(\.\d+)?"),
        ("--cuda", c.cuda, r"\d+(\.\d+)?"),
        ("--gpus", c.gpus, r"\d+(,\d+)*"),
    ):
        if value is not None and not re.fullmatch(form, value):
            example = {"--driver": "535.129.03", "--glibc": "2.28", "--python": "3.11", "--cuda": "12.6"}
            raise UsageError(f"{option} {value}: expected a form like {example.get(option, '0,1')}")


def _near(word: str, allowed: tuple[str, ...] | list[str]) -> str:
    found = difflib.get_close_matches(word, allowed, n=1, cutoff=0.4)
    return f". Did you mean {found[0]}?" if found else ""


def named(c: Choices, data: Profiles) -> tuple[tuple[Wanted, ...], tuple[str, ...]]:
    """The frameworks and the packages that --framework and --with name; none where the project's files
    may name them. Raises UsageError."""
    # By a pattern: reading hundreds of requirements by their grammar takes longer than to resolve.
    texts = {x for b in data.builds for x in b.companions}
    companions = {canonicalize_name(re.split(r"[^A-Za-z0-9._-]", x, maxsplit=1)[0]) for x in texts}
    wanted: dict[str, Wanted] = {}
    packages = []
    for text in c.framework:
        need = _requirement("--framework", text)
        name = canonicalize_name(need.name)
        if need.url:
            raise UsageError(
                f"--framework {text!r}: a framework is a name with bounds; the plan picks the file",
                hint="--framework 'torch>=2.6', and --find-links FOLDER for wheels of your own",
            )
        if name in FRAMEWORKS:
            wanted[name] = Wanted(name=name, specifier=str(need.specifier))
        elif name in companions:
            packages.append(text)
        else:
            alias = _ALIASES.get(name)
            near = f". Did you mean {alias}?" if alias else _near(name, FRAMEWORKS)
            raise UsageError(f"unknown framework {name!r}: gpuenv knows {', '.join(FRAMEWORKS)}{near}")
    along = [_requirement("--with", text) for text in c.with_]
    packages += [str(need) for need in along if not need.url]  # an address goes with the project's needs
    if not wanted and not (c.requirement or c.project):
        raise UsageError("no framework was named", hint=f"--framework {'|'.join(FRAMEWORKS)}")
    return tuple(wanted.values()), tuple(packages)


def _requirement(option: str, text: str) -> Requirement:
    if meant := meant_version(text):
        raise UsageError(f"{option} {text!r}: a version follows ==, not @ or =", hint=f"{option} '{meant}'")
    try:
        return Requirement(text)
    except InvalidRequirement as error:
        raise UsageError(f"{option} {text!r} is no requirement like 'torch>=2.6': {error}") from error


# --- the target ------------------------------------------------------------------------------


def _target(c: Choices, data: Profiles) -> tuple[Machine | None, Target]:
    if c.planned:
        return None, c.planned
    if c.gpus and c.elsewhere:
        raise UsageError("--gpus picks cards of this machine; another one was given", hint="leave --gpus out")
    if c.target:
        target = read_target(c.target)
        _check_target(c, target)
        return None, target
    here_platform = _here_platform()
    elsewhere = c.platform is not None and c.platform != here_platform
    if c.driver or c.gpu or elsewhere:
        return None, _given_target(c, data, here_platform)
    parts = {"driver", "gpus", "context", "hardware", "environment"} if c.device != "cpu" else {"environment"}
    machine = detect.detect(parts | (set() if c.python else {"pythons"}), cache=where.cache_dir(c))
    _refuse_other_systems(machine)
    target = machine.target
    if c.glibc:
        target = dataclasses.replace(target, glibc=c.glibc)
    if c.gpus:
        target = dataclasses.replace(target, gpus=_picked(c.gpus, target.gpus))
    return machine, target


def _check_target(c: Choices, target: Target) -> None:
    """Raise UsageError where an option says something else of the machine than --target does."""
    for name in ("driver", "driver_os", "platform", "glibc"):
        given, said = getattr(c, name), getattr(target, name)
        if given is not None and given != said:
            raise UsageError(
                f"--{name.replace('_', '-')} {given}: --target {c.target} says {said or 'nothing of it'}",
                hint="give --target, or --driver, --gpu and the others; or change the file",
            )
    if c.gpu:
        raise UsageError(
            f"--gpu {c.gpu[0]}: --target {c.target} has the GPUs",
            hint="give --target or --gpu, or change the file",
        )


def told(c: Choices) -> Target | None:
    """The target that the options tell of, None where they mean this machine. Raises UsageError."""
    if not c.elsewhere:
        return None
    return _target(c, known(c))[1]


def _here_platform() -> str:
    return detect.detect(()).target.platform


def _given_target(c: Choices, data: Profiles, here: str) -> Target:
    """A target from options alone: nothing about drivers or GPUs is taken from this machine."""
    platform = c.platform or here
    if platform not in PLATFORMS:
        raise UsageError(
            f"this machine is {platform}; the target's platform must be named",
            hint=f"--platform {'|'.join(PLATFORMS)}",
        )
    glibc = c.glibc
    if glibc is None and platform.startswith("linux"):
        glibc = detect.detect(()).target.glibc if platform == here else _DEFAULT_GLIBC
    try:
        gpus = tuple(gpu_named(name, data.gpus) for name in c.gpu)
    except ValueError as error:
        raise UsageError(f"--gpu: {error}") from error
    system = c.driver_os or ("windows" if platform.startswith("windows") else "linux")
    return Target(platform=platform, glibc=glibc, driver=c.driver, driver_os=system, gpus=gpus)


def _picked(text: str, gpus: tuple[TargetGpu, ...]) -> tuple[TargetGpu, ...]:
    indexes = [int(i) for i in text.split(",")]
    beyond = [i for i in indexes if i >= len(gpus)]
    if beyond:
        raise UsageError(f"--gpus {text}: this machine has no GPU {beyond[0]} (it has {len(gpus)})")
    return tuple(gpus[i] for i in dict.fromkeys(indexes))


def _refuse_other_systems(machine: Machine) -> None:
    if machine.target.platform not in PLATFORMS:
        said = next((f.title for f in machine.findings if f.cause == "no_gpu_build_for_platform"), None)
        raise ResolveError(
            said or f"no framework build is known for {machine.target.platform}",
            hint="resolve and lock work here for another machine: --platform, --driver, --gpu or --target",
        )


def read_target(path: Path) -> Target:
    """A target from the JSON of `gpuenv detect` or of a target. Raises UsageError."""
    try:
        data = json.loads(foreign.read_strictly(path))
        schema = data.get("schema") if isinstance(data, dict) else None
        if schema == Machine.SCHEMA:
            return from_plain(Machine, data).target
        return from_plain(Target, data)
    except OSError as error:
        raise UsageError(
            f"--target {path}: {error.strerror}", hint="write one with `gpuenv detect --json`"
        ) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"--target {path} is no target: {error}", hint="write one with `gpuenv detect --json`"
        ) from error


def _device(c: Choices, machine: Machine | None, target: Target) -> tuple[str, str]:
    if c.device != "auto":
        if c.device == "cuda" and machine is not None:
            return detect.judge_device("cuda", machine)
        return c.device, f"--device {c.device} was given"
    if machine is not None:
        return detect.judge_device("auto", machine)
    if target.driver or target.gpus:
        return "cuda", "the target has a driver or GPUs"
    return "cpu", "the target names no driver and no GPU"


# --- Pythons ---------------------------------------------------------------------------------


def _minor(python: str | None) -> str | None:
    return ".".join(python.split(".")[:2]) if python else None


def _pythons(c: Choices, machine: Machine | None, target: Target) -> tuple[str, ...]:
    """The minors at hand: gpuenv's own first, then the newest. For another machine of this platform, too:
    a login node builds what its compute nodes run, and there it lies on a shared disk."""
    import sys

    if c.python:
        return ()
    if machine is None:
        if target.platform != _here_platform():
            return ()
        machine = detect.detect({"pythons"}, cache=where.cache_dir(c))
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    minors = {_minor(p.version) or "" for p in machine.pythons}
    return tuple(sorted(minors, key=lambda m: (m != own, -int(m.split(".")[1]))))


def interpreter(python: str, machine: Machine | None, wanted: str | None, cache: Path | None) -> str | None:
    """The path of a Python of that minor (of that exact version where one was asked for). What Pythons say
    is kept in `cache`."""
    if machine is None or not machine.pythons:
        machine = detect.detect({"pythons"}, cache=cache)
    found = machine.pythons
    for p in found:
        if _minor(p.version) == python and (wanted is None or p.version.startswith(wanted)):
            return p.path
    return None
