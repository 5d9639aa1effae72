"""Solves an environment of conda packages: the query to the solver, and its answer as a lock or an error.

The virtual packages describe the target, so that a login node or an image build without a GPU gets the environment of
the target. CUDA is never newer than the driver supports. conda's own rule (`__cuda >=12` of cuda-version 12.9) is
weaker: with a driver for 12.2 it allows 12.9, whose PTX the driver cannot compile.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import platform as system
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from ..errors import LockError, ResolveError, UsageError
from ..index.refusals import CONDA_CHANNEL, UNREADABLE_HINT
from ..model import (
    CONDA_SUBDIRS,
    AvailableWheels,
    CondaBuild,
    Device,
    Emit,
    Event,
    FrameworkRequest,
    Lock,
    LockedPackage,
    Plan,
    PlannedBuild,
    Profiles,
    Request,
    RequestContext,
    Target,
    TargetGpu,
    VersionBound,
)
from ..model.values import Value
from ..resolve.question import Question
from ..system import process
from ..system.kernels import find_run_mode
from ..system.redaction import clean, redact
from ..system.versions import major, minor, numbers, public
from ..wheels import pylock
from . import engine

# All packages, past and present, whose version is the CUDA release of an environment
CUDA_NAMES = ("cuda-version", "cudatoolkit", "pytorch-cuda")
CUDNN_NAMES = ("cudnn", "libcudnn")
_OVERRIDES = {"__cuda": "CUDA", "__cuda_arch": "CUDA_ARCH", "__glibc": "GLIBC", "__linux": "LINUX",
              "__archspec": "ARCHSPEC"}  # fmt: skip
_OVERRIDE_FORMS = {
    "__archspec": r"([\w.+]+)",
    "__linux": r"(\d+(?:\.\d+)*).*",
}  # conda uses a kernel's number
# The feature levels of the x86-64 psABI, each with a flag of /proc/cpuinfo that it introduced.
_LEVELS = (("avx512bw", "x86_64_v4"), ("avx2", "x86_64_v3"), ("sse4_2", "x86_64_v2"))
# The kernel of RHEL 8 and its derivatives. conda-lock assumes 5.10 for linux-64.
_ANY_KERNEL = "4.18"
_ASKED = "asked"
Virtual = Mapping[str, str]
Record = Mapping[str, Any]


class Bounds(Value):
    """The limits of the target's driver and GPUs.

    `cuda` is the newest version that the driver supports. `oldest` and `newest` are the CUDA releases that support every
    GPU. `cudnn` are conda version bounds ("<=9.10.2.21").
    """

    cuda: str | None = None
    oldest: str | None = None
    newest: str | None = None
    cudnn: tuple[str, ...] = ()


class ChannelQuery(Value):
    """The inputs of a solve.

    `channels` are names or addresses, best first. `bounds` and `virtual` come from the target, `limits` from the
    project's files: they apply if the package is a dependency. `prefer` are addresses of packages to keep if possible.
    """

    request: Request
    target: Target
    rows: tuple[CondaBuild, ...]
    channels: tuple[str, ...]
    bounds: Bounds
    virtual: tuple[Virtual, ...]
    limits: tuple[VersionBound, ...] = ()
    prefer: tuple[str, ...] = ()
    offline: bool = False
    cache_dir: str | None = None


class Solution(Value):
    """The records of a solution, and what no channel has: frameworks (`lacking`) and other packages (`wheels`)."""

    records: tuple[Record, ...]
    channels: tuple[str, ...]
    lacking: tuple[str, ...] = ()
    wheels: tuple[str, ...] = ()


# --- the query ---------------------------------------------------------------------------------


def assumed_gpu() -> str | None:
    """Return the variable that makes conda assume a GPU, CONDA_OVERRIDE_CUDA, or None if it is unset."""
    forced = process.environ().get("CONDA_OVERRIDE_CUDA")
    return f"CONDA_OVERRIDE_CUDA is {forced}" if forced else None


def make_query(context: RequestContext) -> tuple[ChannelQuery, tuple[str, ...]]:
    """Return the query for the target with the overrides of the environment, and the overrides as text."""
    environ, request, profiles = process.environ(), context.request, context.profiles
    cuda = None
    known = context.target.gpus or _has_driver_limit(context.target)
    if request.device == "cuda" and (
        known or not assumed_gpu()
    ):  # the override assumes a GPU that is not described
        supported = Question(Request(frameworks=()), context.target, profiles, AvailableWheels()).driver_cuda
        cuda = supported or max((r.cuda for r in profiles.cuda), key=Version, default=None)
    here = context.machine is not None  # a target file describes another machine than this one
    virtual, overrides = override_virtual(
        virtual_packages(
            context.target,
            cuda=cuda,
            kernel=_read_kernel() if here else None,
            archspec=_read_archspec() if here else None,
        ),
        environ,
    )
    target = override_target(context.target, environ)
    bounds = find_gpu_bounds(target, profiles)
    if _has_driver_limit(target):
        limit = next((v["version"] for v in virtual if v["name"] == "__cuda"), cuda)
        bounds = dataclasses.replace(bounds, cuda=limit)
    query = ChannelQuery(
        request=request, target=target, rows=profiles.conda, channels=tuple(map(_resolve_channel, context.channels)),
        bounds=bounds, virtual=virtual, offline=context.sources.offline, cache_dir=context.sources.cache_dir,
    )  # fmt: skip
    return query, overrides


def _has_driver_limit(target: Target) -> bool:
    return bool(target.driver or target.driver_cuda or target.forward_compat)


def _read_kernel() -> str | None:
    match = re.match(r"\d+(\.\d+)*", system.release())
    return match[0] if match and system.system() == "Linux" else None


def _read_archspec() -> str | None:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    flags = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    return next((level for flag, level in _LEVELS if flags and flag in flags[1].split()), None)


def _resolve_channel(channel: str) -> str:
    """Return the address of a channel folder, or a name or address unchanged. Raises LockError for another folder."""
    path = Path(channel).expanduser()
    if "://" in channel or not (path.is_dir() or channel.startswith((".", "/", "~"))):
        return channel
    if not (path / "noarch").is_dir():
        raise LockError(
            f"--channel {channel}: {'no such folder' if not path.is_dir() else 'it has no noarch/repodata.json'}",
            hint="name a folder with indexed noarch/ and linux-64/",
        )
    return path.resolve().as_uri()


def find_gpu_bounds(target: Target, known: Profiles) -> Bounds:
    """Return the CUDA releases that support every GPU of the target."""
    models = [g for g in known.gpus if g.capability in {t.capability for t in target.gpus}]
    return Bounds(
        oldest=max((g.first_cuda for g in models if g.first_cuda), key=Version, default=None),
        newest=min((g.last_cuda for g in models if g.last_cuda), key=Version, default=None),
    )


def find_cudnn_bounds(query: ChannelQuery, known: Profiles, cuda: str, cudnn: str) -> tuple[str, ...]:
    """Return bounds that exclude a cuDNN without kernels for a GPU of the target.

    Returns none for a cuDNN that supports all GPUs, or is unknown.
    """
    serving = {
        r.version: all(find_run_mode(r.kernels, g.capability, known.tegra) for g in query.target.gpus)
        for r in known.cudnn
        if r.kernels and major(r.cuda) == major(cuda) and r.platform == query.target.platform
    }
    release = next((v for v in serving if v.split(".")[:3] == cudnn.split(".")[:3]), None)
    if release is None or serving[release]:
        return ()
    good = sorted((v for v, serves in serving.items() if serves), key=Version)
    if older := [v for v in good if Version(v) < Version(release)]:
        return (f"<={older[-1]}",)
    return (f">={good[0]}",) if good else (f"!={cudnn}",)


def list_alternatives(query: ChannelQuery, known: Profiles) -> list[tuple[str, ChannelQuery]]:
    """Return changes that may make the query solvable, the smallest first."""
    request = query.request
    found: list[tuple[str, ChannelQuery]] = []

    def change(words: str, **changes: Any) -> None:
        found.append((words, dataclasses.replace(query, request=dataclasses.replace(request, **changes))))

    if request.python:
        change("remove --python to allow another Python", python=None)
    if request.cuda:
        change("remove --cuda to allow another CUDA", cuda=None)
    for one in request.frameworks:
        if one.specifier:
            freed = tuple(dataclasses.replace(w, specifier="") if w is one else w for w in request.frameworks)
            words = f"remove {one.specifier} from --framework {one.name} to allow another version"
            change(words, frameworks=freed)
    for bound in request.bounds:
        rest = tuple(b for b in request.bounds if b is not bound)
        change(f"change the bound {bound.name}{bound.specifier} in {bound.origin}", bounds=rest)
    if request.requires_python:
        where = request.python_origin or "the project"
        change(f"change the bound Python {request.requires_python} in {where}", requires_python="")
    for limit in query.limits:
        limits = tuple(b for b in query.limits if b is not limit)
        words = f"change the bound {limit.name}{limit.specifier} in {limit.origin}"
        found.append((words, dataclasses.replace(query, limits=limits)))
    for text in request.packages:
        change(f"remove --with {text}", packages=tuple(p for p in request.packages if p != text))
    for one in request.frameworks if len(request.frameworks) > 1 else ():
        words = f"create a separate environment for {one.name}, because the channels have no compatible set of packages that includes it"
        change(words, frameworks=tuple(w for w in request.frameworks if w is not one))
    if request.device == "cuda":
        found += _try_newer_drivers(query, known)
        words = "use --device cpu: the channels have a build without CUDA"
        without = tuple(v for v in query.virtual if not v["name"].startswith("__cuda"))
        other = dataclasses.replace(request, device="cpu", cuda=None)
        found.append((words, dataclasses.replace(query, request=other, virtual=without)))
    return found


def _try_newer_drivers(query: ChannelQuery, known: Profiles) -> list[tuple[str, ChannelQuery]]:
    now = query.bounds.cuda
    others = [v for v in query.virtual if v["name"] != "__cuda"]
    if now and len(others) == len(query.virtual):
        virtual = (*others, _make_virtual("__cuda", now))
        words = f"unset CONDA_OVERRIDE_CUDA: the driver supports CUDA {now}"
        return [(words, dataclasses.replace(query, virtual=virtual))]
    changes = []
    for release in sorted(known.cuda, key=lambda r: Version(r.cuda)):
        floor = (query.target.driver_os == "windows" and release.windows) or release.linux
        if now and floor and Version(release.cuda) > Version(now):
            virtual = (*others, _make_virtual("__cuda", release.cuda))
            bounds = dataclasses.replace(query.bounds, cuda=release.cuda)
            words = f"install driver {floor} or newer, which supports CUDA {release.cuda}"
            changes.append((words, dataclasses.replace(query, virtual=virtual, bounds=bounds)))
    return changes


# --- virtual packages --------------------------------------------------------------------------


def virtual_packages(
    target: Target, *, cuda: str | None, kernel: str | None, archspec: str | None
) -> tuple[Virtual, ...]:
    """Return the virtual packages of a target. `cuda` is what its driver supports, or None without a GPU."""
    kind, _, machine = target.platform.partition("-")
    versions: dict[str, str | None] = {"__archspec": archspec or machine}
    if kind == "windows":
        versions |= {"__win": "0"}
    else:
        versions |= {"__unix": "0", "__linux": kernel or _ANY_KERNEL, "__glibc": target.glibc}
    if cuda:
        least = min((g.capability for g in target.gpus), key=numbers, default=None)
        versions |= {"__cuda": cuda, "__cuda_arch": least}
    return tuple(_make_virtual(name, version) for name, version in versions.items() if version)


def _make_virtual(name: str, value: str) -> Virtual:
    """Return a virtual package with a version. The one of the CPU has its name as the build."""
    version, build = ("1", value) if name == "__archspec" else (value, "0")
    return {"name": name, "version": version, "build": build}


def override_virtual(
    virtual: Sequence[Virtual], environ: Mapping[str, str]
) -> tuple[tuple[Virtual, ...], tuple[str, ...]]:
    """Apply CONDA_OVERRIDE_* to virtual packages, and return them with the overrides as text.

    An empty value removes a package. Raises UsageError for an invalid value.
    """
    packages = {v["name"]: v for v in virtual}
    overrides = []
    for name, suffix in _OVERRIDES.items():
        value = _read_override(environ, name)
        if value is None:
            continue
        before = packages.pop(name, None)
        if value:
            packages[name] = _make_virtual(name, value)
        now, was = value or "absent", _format_virtual(before) if before else "absent"
        words = f"{name} is {now}, set by CONDA_OVERRIDE_{suffix}"
        overrides.append(words if now == was else f"{words} (it was {was})")
    return tuple(packages.values()), tuple(overrides)


def _read_override(environ: Mapping[str, str], name: str) -> str | None:
    """Return the value of an override: "" removes the virtual package, None keeps it."""
    variable = f"CONDA_OVERRIDE_{_OVERRIDES[name]}"
    value = environ.get(variable)
    if not value:
        return value
    match = re.fullmatch(_OVERRIDE_FORMS.get(name, r"(\d+(?:\.\d+)*)"), value)
    if match is None:
        expected = "the name of a CPU" if name == "__archspec" else "a version"
        raise UsageError(
            f"{variable} is `{value}`, which is not {expected}", hint=f"unset {variable}, or correct it"
        )
    return match[1]


def override_target(target: Target, environ: Mapping[str, str]) -> Target:
    """Apply CONDA_OVERRIDE_* to the target, so that it limits the wheels like the solver.

    For a removed virtual package the target keeps its value, because only the solver must ignore it.
    """
    if cuda := _read_override(environ, "__cuda"):
        target = dataclasses.replace(target, driver=None, driver_cuda=cuda, forward_compat=None)
    if glibc := _read_override(environ, "__glibc"):
        target = dataclasses.replace(target, glibc=glibc)
    if arch := _read_override(environ, "__cuda_arch"):
        target = dataclasses.replace(target, gpus=(TargetGpu(capability=arch),))
    return target


def _format_virtual(virtual: Virtual) -> str:
    return virtual["build"] if virtual["name"] == "__archspec" else virtual["version"]


def describe_virtual_packages(virtual: Sequence[Virtual]) -> str:
    """Return virtual packages as text: __cuda 12.4, __glibc 2.35 and so on. A missing __cuda is stated."""
    words = [f"{v['name']} {_format_virtual(v)}" for v in virtual if v["name"] != "__unix"]
    if not any(v["name"] == "__cuda" for v in virtual):
        words.append("no __cuda")
    return ", ".join(words)


# --- specs -------------------------------------------------------------------------------------


def _list_rows(framework: str, device: str, rows: Sequence[CondaBuild]) -> list[CondaBuild]:
    """Return the rows with the package names of a framework, without rows that describe a version."""
    return [r for r in rows if r.framework == framework and r.device == device and r.version is None]


def select_rows(
    framework: str, device: str, channels: Sequence[str], rows: Sequence[CondaBuild]
) -> list[CondaBuild]:
    """Return the rows of a framework in these channels.

    A channel without a row, such as a mirror, is assumed to use the names of conda-forge.
    """
    named = _list_rows(framework, device, rows)
    names = {shorten_channel(c) for c in channels}
    return [r for r in named if r.channel in names] or named


def conda_version(specifier: str) -> str:
    """Return PEP 440 bounds as a conda version spec ("" becomes "*").

    conda reads `==2.7.*` as `==2.7`, and has no labels. The plan chooses the build of a label such as "+cu128".
    """
    clauses = [public(p).replace("===", "==").replace(" ", "") for p in specifier.split(",")]
    clauses = [c[2:] if re.fullmatch(r"==[\w.]+\.\*", c) else c for c in clauses if c]
    return ",".join(dict.fromkeys(clauses)) or "*"


def _make_framework_specs(wanted: FrameworkRequest, row: CondaBuild, request: Request) -> list[str]:
    """Return the specs of a framework with the requested version and the bounds of the project's files."""
    specifiers = [b.specifier for b in request.bounds if canonicalize_name(b.name) == wanted.name]
    version = conda_version(",".join([wanted.specifier, *specifiers]))
    return [f"{row.package} {version} {row.build}", *(f"{name} {version}" for name in row.along)]


def _make_package_spec(text: str) -> str:
    """Return a PEP 508 requirement as a conda spec, without extras, which conda does not have."""
    need = Requirement(text)
    return f"{canonicalize_name(need.name)} {conda_version(str(need.specifier))}"


def constraints(request: Request, bounds: Bounds, limits: Sequence[VersionBound] = ()) -> tuple[str, ...]:
    """Return the constraints on packages that the solver adds as dependencies."""
    specs = [f"{b.name} {conda_version(b.specifier)}" for b in limits]
    if request.requires_python:
        specs.append(f"python {conda_version(request.requires_python)}")
    if request.device == "cuda":
        forms = (
            ("{}.*", request.cuda),
            ("<{}", bounds.cuda and _compute_next(bounds.cuda)),
            (">={}", bounds.oldest),
            ("<{}", bounds.newest and _compute_next(bounds.newest)),
        )
        specs += [f"{name} {form.format(cuda)}" for name in CUDA_NAMES for form, cuda in forms if cuda]
        specs += [f"{name} {b}" for name in CUDNN_NAMES for b in bounds.cudnn]
    return tuple(dict.fromkeys(specs))


def _compute_next(cuda: str) -> str:
    """Return the first version above every update of a CUDA release ("12.2" -> "12.3.0a0")."""
    first, second = (*numbers(cuda), 0)[:2]
    return f"{first}.{second + 1}.0a0"


def _make_attempt(label: str, query: ChannelQuery) -> dict[str, Any]:
    """Return one query for the worker.

    For each framework the first way with an available package applies. Ways of other channels apply only if there is
    no other. `packages` apply if a channel has them.
    """
    request = query.request
    ways = {
        one.name: [
            {"channel": row.channel, "specs": _make_framework_specs(one, row, request)}
            for row in _list_rows(one.name, request.device, query.rows)
        ]
        for one in request.frameworks
    }
    return {
        "label": label,
        "python": f"python {request.python}.*" if request.python else "python",
        "frameworks": list(ways.items()),
        "packages": list(dict.fromkeys([*map(_make_package_spec, request.packages), "pip"])),
        "constraints": constraints(request, query.bounds, query.limits),
        "virtual": query.virtual,
    }


# --- the solution, as a plan and a lock ----------------------------------------------------------


def solve(query: ChannelQuery, emit: Emit, alternatives: Sequence[tuple[str, ChannelQuery]] = ()) -> Solution:
    """Run the solver. Raises LockError if a channel does not answer, and ResolveError if nothing fits.

    The ResolveError has the reason and the first of `alternatives` (a hint and its query) with a solution.
    """

    def on_event(event: Mapping[str, Any]) -> None:
        if event["event"] == "note":
            emit(Event("note", "lock", event["text"]))

    emit(Event("start", "lock", "reading the channels and solving"))
    subdir = CONDA_SUBDIRS[query.target.platform]
    request = {
        "channels": list(query.channels),
        "subdirs": [subdir, "noarch"],
        "attempts": [_make_attempt(label, other) for label, other in ((_ASKED, query), *alternatives)],
        "prefer": list(query.prefer),
        "cache": str(engine.cache_dir(query.cache_dir)),
        "offline": query.offline,
    }
    answer = engine.ask("solve", request, on_event, LockError)
    if "error" in answer:
        raise explain_channel(answer["error"], query.channels)
    missing = set(answer["missing"])
    if "python" in missing:
        raise LockError(
            f"the channels have no python for {subdir}: {', '.join(answer['channels'])}",
            hint="add a channel that has it: --channel conda-forge",
        )
    if answer.get("label") != _ASKED:
        raise _explain_conflict(query, answer)
    records = tuple(answer["records"])
    emit(Event("done", "lock", f"{len(records)} conda packages", done=len(records)))
    return Solution(
        records=records, channels=tuple(answer["channels"]), lacking=tuple(answer["lacking"]),
        wheels=tuple(p for p in query.request.packages if _make_package_spec(p).split()[0] in missing),
    )  # fmt: skip


def make_lock(query: ChannelQuery, solution: Solution) -> Lock:
    """Return the lock of a solution, with its plan. Raises LockError for a variant that was not requested."""
    by_name = {r["name"]: r for r in solution.records}
    builds = tuple(
        _plan_build(wanted, query, solution, by_name)
        for wanted in query.request.frameworks
        if wanted.name not in solution.lacking
    )
    plan = make_plan(
        builds, by_name["python"], query.target, query.request.device, packages=query.request.packages
    )
    packages = (make_package(r, r["channel"].rstrip("/") or None) for r in solution.records)
    return Lock(
        manager="conda",
        target=query.target,
        plan=plan,
        packages=tuple(map(pylock.check_file_name, packages)),
    )


def make_package(record: Record, index: str | None) -> LockedPackage:
    """Return a record of the engine as a locked package."""
    return LockedPackage(
        name=record["name"], version=record["version"], url=record["url"], sha256=record["sha256"], md5=record["md5"],
        index=index, size=record["size"], depends=tuple(record["depends"]),
    )  # fmt: skip


def make_plan(
    builds: Sequence[PlannedBuild], python: Record, target: Target, device: Device, **more: Any
) -> Plan:
    """Return the plan of builds and the package of Python, with `more` fields."""
    cuda = next((b.cuda for b in builds if b.cuda), None)
    return Plan(
        builds=tuple(builds), python=minor(python["version"]), platform=target.platform,
        manager="conda", device=device, target=target, cuda_major=cuda and major(cuda),
        cudnn=next((b.cudnn for b in builds if b.cudnn), None), **more,
    )  # fmt: skip


def _plan_build(
    wanted: FrameworkRequest, query: ChannelQuery, solution: Solution, by_name: Mapping[str, Record]
) -> PlannedBuild:
    device, limit = query.request.device, query.bounds.cuda
    rows = select_rows(wanted.name, device, solution.channels, query.rows)
    row = next(r for r in rows if r.package in by_name)
    record = by_name[row.package]
    if not fnmatch.fnmatch(record["build"], row.build):
        raise LockError(
            f"the request is for {device}, but the solver chose {record['name']} {record['version']} {record['build']}",
            hint="request other versions, or name another channel",
        )
    cuda, cudnn = find_cuda_and_cudnn(record, by_name, query.rows) if device == "cuda" else (None, None)
    if cuda and limit and numbers(cuda) > numbers(limit):
        raise LockError(
            f"{wanted.name} comes with CUDA {cuda}, but the driver supports only {limit}",
            hint="request an older CUDA with --cuda MAJOR.MINOR",
        )
    along = [by_name[name] for name in (row.package, *row.along) if name in by_name]
    return PlannedBuild(
        framework=wanted.name, version=record["version"], cuda=cuda, cudnn=cudnn,
        index=shorten_channel(record["channel"]),
        requirements=tuple(f"{r['name']} {r['version']} {r['build']}" for r in along),
    )  # fmt: skip


def find_cuda_and_cudnn(
    record: Record, by_name: Mapping[str, Record], rows: Sequence[CondaBuild]
) -> tuple[str | None, str | None]:
    """Return CUDA ("12.9") and cuDNN of a build, from its row or from the packages with it."""
    row = next(
        (r for r in rows if r.version == record["version"] and r.package == record["name"]
         and fnmatch.fnmatch(record["build"], r.build)), None,
    )  # fmt: skip

    def find_version(names: Sequence[str]) -> str | None:
        return next((by_name[name]["version"] for name in names if name in by_name), None)

    cuda = (row and row.cuda) or find_version(CUDA_NAMES)
    cudnn = (row and row.cudnn and row.cudnn.removeprefix("==")) or find_version(CUDNN_NAMES)
    return cuda and minor(cuda), cudnn


def shorten_channel(url: str) -> str:
    """Return the short name of a channel ("conda-forge") if its address ends in one."""
    return url.rstrip("/").rsplit("/", 1)[-1] if "://" in url else url


# --- errors --------------------------------------------------------------------------------------


def explain_channel(error: Mapping[str, str], channels: Sequence[str]) -> LockError:
    """Return the error for a message of the engine about a channel."""
    text = clean(error["text"])
    where = engine.find_address(text) or ", ".join(map(redact, channels))
    other = f"the conda channels cannot be read: {text.splitlines()[0] if text else error['kind']}: {where}"
    return engine.explain(LockError, text, where, _LOCAL_FAULTS, _CHANNEL_FAULTS, other)


_LOCAL_FAULTS = (
    (r"permission denied|os error 13\b", "a file of the channel or of the conda package cache is not accessible",
     "change its permissions (the messages above name it), or choose another cache with --cache-dir DIR or RATTLER_CACHE_DIR"),
    (r"URL scheme is not allowed", "a mirror must have an http address", "pass the folder as a channel: --channel DIR"),
    (r"failed to parse|expected value at|EOF while parsing|trailing characters",
     "the conda channel did not return a valid repodata.json", UNREADABLE_HINT),
    (r"no usable repodata cache",
     "--offline was given, but the channel is not in the cache",
     "run once with a network, or name a local folder with --channel DIR"),
)  # fmt: skip
_CHANNEL_FAULTS = (
    (r"\b404\b|\b410\b|could not find subdir|no such file", "the conda channel does not exist", CONDA_CHANNEL.hints["missing"]),
    (r"failed to (?:persist|open|create|write|rename|lock)", "the conda package cache cannot be used",
     "run the command again if another program removed files there, or choose another cache with --cache-dir DIR"),
    (r"connection", "the conda channel does not respond", CONDA_CHANNEL.hints["unreachable"]),
)  # fmt: skip


def _explain_conflict(query: ChannelQuery, answer: Mapping[str, Any]) -> ResolveError:
    """Return the error with the solver's explanation, the machine, and the change that has a solution."""
    request, cuda = query.request, query.bounds.cuda
    frameworks = ", ".join(f"{w.name}{w.specifier}" for w in request.frameworks)
    bounds = [f"{b.name}{b.specifier} ({b.origin})" for b in (*request.bounds, *query.limits)]
    if request.requires_python:
        bounds.append(f"Python {request.requires_python} ({request.python_origin})")
    if bounds:
        frameworks += f" with {', '.join(bounds)}"
    limit = f", CUDA up to {cuda}" if cuda and request.device == "cuda" else ""
    return ResolveError(
        f"no set of conda packages provides {frameworks} for {request.device} "
        f"on {describe_virtual_packages(query.virtual)}{limit}",
        log=str(answer.get("refusal", "")).strip() or None,
        hint=answer.get("label") or "no single change helps; see the conflicts with gpuenv resolve --explain",
    )
