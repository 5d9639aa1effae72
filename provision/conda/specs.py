"""Builds specs, constraints and virtual packages for the conda solver, without I/O.

The virtual packages describe the target, so that a login node or an image build without a GPU gets the environment of
the target. CUDA is never newer than the driver supports. conda's own rule (`__cuda >=12` of cuda-version 12.9) is
weaker: with a driver for 12.2 it allows 12.9, whose PTX the driver cannot compile.
"""

from __future__ import annotations

import dataclasses
import platform as system
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from ..errors import LockError, UsageError
from ..model import (
    AvailableWheels,
    CondaBuild,
    FrameworkRequest,
    Profiles,
    Request,
    RequestContext,
    Target,
    TargetGpu,
    VersionBound,
)
from ..resolve.question import Question
from ..system import process

# All packages, past and present, whose version is the CUDA release of an environment
CUDA_NAMES = ("cuda-version", "cudatoolkit", "pytorch-cuda")
CUDNN_NAMES = ("cudnn", "libcudnn")
_OVERRIDES = {"__cuda": "CUDA", "__cuda_arch": "CUDA_ARCH", "__glibc": "GLIBC", "__linux": "LINUX",
              "__archspec": "ARCHSPEC"}  # fmt: skip
# The kernel of RHEL 8 and its derivatives. conda-lock assumes 5.10 for linux-64.
_ANY_KERNEL = "4.18"
_VERSION = r"(\d+(?:\.\d+)*)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """The limits of the target's driver and GPUs.

    `cuda` is the newest version that the driver supports. `oldest` and `newest` are the CUDA releases that support every
    GPU. `cudnn` are conda version bounds ("<=9.10.2.21").
    """

    cuda: str | None = None
    oldest: str | None = None
    newest: str | None = None
    cudnn: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class SolverQuestion:
    """The inputs of a solve.

    `channels` are names or addresses, best first. `bounds` and `virtual` come from the target, `limits` from the
    project's files: they apply if the package is a dependency. `prefer` are addresses of packages to keep if possible.
    """

    request: Request
    target: Target
    rows: tuple[CondaBuild, ...]
    channels: tuple[str, ...]
    bounds: Bounds
    virtual: tuple[dict[str, str], ...]
    limits: tuple[VersionBound, ...] = ()
    prefer: tuple[str, ...] = ()
    offline: bool = False
    cache_dir: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """One way to request a framework: a package of a channel, and the specs of its build."""

    channel: str
    package: str
    specs: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """One question to the solver.

    For each framework the first way with an available package applies. Ways of other channels apply only if there is
    no other. `packages` apply if a channel has them.
    """

    label: str
    python: str
    frameworks: tuple[tuple[str, tuple[Way, ...]], ...]
    packages: tuple[str, ...]
    constraints: tuple[str, ...]
    virtual: tuple[dict[str, str], ...]

    def plain(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


# --- virtual packages --------------------------------------------------------------------------


def virtual_packages(
    target: Target, *, cuda: str | None, kernel: str | None, archspec: str | None
) -> tuple[dict[str, str], ...]:
    """Return the virtual packages of a target. `cuda` is what its driver supports, or None without a GPU."""
    kind, _, machine = target.platform.partition("-")
    packages = [_make_virtual("__archspec", "1", archspec or machine)]
    if kind == "windows":
        packages.append(_make_virtual("__win", "0"))
    else:
        packages += [_make_virtual("__unix", "0"), _make_virtual("__linux", kernel or _ANY_KERNEL)]
        packages += [_make_virtual("__glibc", target.glibc)] if target.glibc else []
    if cuda:
        packages.append(_make_virtual("__cuda", cuda))
        least = min((g.capability for g in target.gpus), key=_split_numbers, default=None)
        packages += [_make_virtual("__cuda_arch", least)] if least else []
    return tuple(packages)


def _make_virtual(name: str, version: str, build: str = "0") -> dict[str, str]:
    return {"name": name, "version": version, "build": build}


def overridden(
    virtual: Sequence[dict[str, str]], environ: Mapping[str, str]
) -> tuple[tuple[dict[str, str], ...], tuple[str, ...]]:
    """Apply CONDA_OVERRIDE_* to virtual packages, and return them with the overrides as text.

    An empty value removes a package. Raises UsageError for an invalid value.
    """
    packages = {v["name"]: v for v in virtual}
    said = []
    for name, suffix in _OVERRIDES.items():
        value = _read_override(environ, name)
        if value is None:
            continue
        before = packages.pop(name, None)
        if value:
            override = _make_virtual(name, "1", value) if name == "__archspec" else _make_virtual(name, value)
            packages[name] = override
        now, was = value or "absent", _format_virtual(before) if before else "absent"
        words = f"{name} is {now}, set by CONDA_OVERRIDE_{suffix}"
        said.append(words if now == was else f"{words} (it was {was})")
    return tuple(packages.values()), tuple(said)


def _read_override(environ: Mapping[str, str], name: str) -> str | None:
    """Return the value of an override: "" removes the virtual package, None keeps it."""
    variable = f"CONDA_OVERRIDE_{_OVERRIDES[name]}"
    value = environ.get(variable)
    if not value:
        return value
    # conda uses only the number of a kernel's release. A CPU has a name.
    match = re.fullmatch(
        {"__archspec": r"([\w.+]+)", "__linux": r"(\d+(?:\.\d+)*).*"}.get(name, _VERSION), value
    )
    if match is None:
        expected = "the name of a CPU" if name == "__archspec" else "a version"
        raise UsageError(
            f"{variable} is `{value}`, which is not {expected}", hint=f"unset {variable}, or correct it"
        )
    return match[1]


def overridden_target(target: Target, environ: Mapping[str, str]) -> Target:
    """Apply CONDA_OVERRIDE_* to the target, so that it limits the wheels like the solver.

    For a removed virtual package the target keeps its value, because only the solver must ignore it.
    """
    cuda, glibc, arch = (_read_override(environ, n) for n in ("__cuda", "__glibc", "__cuda_arch"))
    if cuda:
        target = dataclasses.replace(target, driver=None, driver_cuda=cuda, forward_compat=None)
    if glibc:
        target = dataclasses.replace(target, glibc=glibc)
    if arch:
        target = dataclasses.replace(target, gpus=(TargetGpu(capability=arch),))
    return target


def _format_virtual(virtual: Mapping[str, str]) -> str:
    return virtual["build"] if virtual["name"] == "__archspec" else virtual["version"]


def describe_virtual_packages(virtual: Sequence[Mapping[str, str]]) -> str:
    """Return virtual packages as text: __cuda 12.4, __glibc 2.35 and so on. A missing __cuda is stated."""
    words = [f"{v['name']} {_format_virtual(v)}" for v in virtual if v["name"] != "__unix"]
    if not any(v["name"] == "__cuda" for v in virtual):
        words.append("no __cuda")
    return ", ".join(words)


# --- specs -------------------------------------------------------------------------------------


def rows_of(framework: str, device: str, rows: Sequence[CondaBuild]) -> list[CondaBuild]:
    """Return the rows with the package names of a framework, without rows that describe a version."""
    return [r for r in rows if r.framework == framework and r.device == device and r.version is None]


def rows_for(
    framework: str, device: str, channels: Sequence[str], rows: Sequence[CondaBuild]
) -> list[CondaBuild]:
    """Return the rows of a framework in these channels.

    A channel without a row, such as a mirror, is assumed to use the names of conda-forge.
    """
    named = rows_of(framework, device, rows)
    names = {c.rstrip("/").rsplit("/", 1)[-1] for c in channels}
    return [r for r in named if r.channel in names] or named


def conda_version(specifier: str) -> str:
    """Return PEP 440 bounds as a conda version spec ("" becomes "*").

    conda reads `==2.7.*` as `==2.7`, and has no labels. The plan chooses the build of a label such as "+cu128".
    """
    clauses = []
    for part in (p.strip() for p in specifier.split(",")):
        clause = part.partition("+")[0].replace("===", "==").replace(" ", "")
        clauses += [clause[2:] if re.fullmatch(r"==[\w.]+\.\*", clause) else clause] if clause else []
    return ",".join(dict.fromkeys(clauses)) or "*"


def make_framework_specs(
    wanted: FrameworkRequest, row: CondaBuild, bounds: Sequence[VersionBound] = ()
) -> list[str]:
    """Return the specs of a framework with the requested version and the bounds of the project's files."""
    specifiers = [b.specifier for b in bounds if canonicalize_name(b.name) == wanted.name]
    version = conda_version(",".join([wanted.specifier, *specifiers]))
    return [f"{row.package} {version} {row.build}", *(f"{name} {version}" for name in row.along)]


def make_package_spec(text: str) -> str:
    """Return a PEP 508 requirement as a conda spec, without extras, which conda does not have."""
    need = Requirement(text)
    return f"{canonicalize_name(need.name)} {conda_version(str(need.specifier))}"


def constraints(request: Request, bounds: Bounds, limits: Sequence[VersionBound] = ()) -> tuple[str, ...]:
    """Return the constraints on packages that the solver adds as dependencies."""
    specs = [f"{b.name} {conda_version(b.specifier)}" for b in limits]
    if request.requires_python:
        specs.append(f"python {conda_version(request.requires_python)}")
    if request.device == "cuda":
        for name in CUDA_NAMES:
            if request.cuda:
                specs.append(f"{name} {request.cuda}.*")
            if bounds.cuda:
                specs.append(f"{name} <{_compute_next(bounds.cuda)}")
            if bounds.oldest:
                specs.append(f"{name} >={bounds.oldest}")
            if bounds.newest:
                specs.append(f"{name} <{_compute_next(bounds.newest)}")
        specs += [f"{name} {b}" for name in CUDNN_NAMES for b in bounds.cudnn]
    return tuple(dict.fromkeys(specs))


def _compute_next(cuda: str) -> str:
    """Return the first version above every update of a CUDA release ("12.2" -> "12.3.0a0")."""
    major, minor = (*_split_numbers(cuda), 0)[:2]
    return f"{major}.{minor + 1}.0a0"


def _split_numbers(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", text))


def make_wish(
    label: str,
    question: SolverQuestion,
    frameworks: Sequence[tuple[FrameworkRequest, Sequence[CondaBuild]]],
    packages: Sequence[str],
) -> Wish:
    """Return a question to the solver for frameworks with their rows. `packages` are additional conda specs."""
    request = question.request
    return Wish(
        label=label,
        python=f"python {request.python}.*" if request.python else "python",
        frameworks=tuple(
            (one.name, tuple(Way(channel=r.channel, package=r.package,
                                 specs=tuple(make_framework_specs(one, r, request.bounds))) for r in rows))
            for one, rows in frameworks
        ),
        packages=tuple(dict.fromkeys(packages)),
        constraints=constraints(request, question.bounds, question.limits),
        virtual=tuple(question.virtual),
    )  # fmt: skip


HowTheyRun = Callable[[tuple[str, ...], str, frozenset[str]], str | None]
# The feature levels of the x86-64 psABI, each with a flag of /proc/cpuinfo that it introduced.
_LEVELS = (("avx512bw", "x86_64_v4"), ("avx2", "x86_64_v3"), ("sse4_2", "x86_64_v2"))


def assumed_gpu() -> str | None:
    """Return the variable that makes conda assume a GPU, CONDA_OVERRIDE_CUDA, or None if it is unset."""
    forced = process.environ().get("CONDA_OVERRIDE_CUDA")
    return f"CONDA_OVERRIDE_CUDA is {forced}" if forced else None


def make_question(context: RequestContext) -> tuple[SolverQuestion, tuple[str, ...]]:
    """Return the question for the target with the overrides of the environment, and the overrides as text."""
    environ, known = process.environ(), _has_driver_limit(context.target) or context.target.gpus
    assumed = assumed_gpu() and not known  # the override assumes a GPU that is not described
    cuda = None if assumed else _find_cuda_version(context)
    here = context.machine is not None  # a target file describes another machine than this one
    virtual, said = overridden(
        virtual_packages(
            context.target,
            cuda=cuda,
            kernel=_read_kernel() if here else None,
            archspec=_read_archspec() if here else None,
        ),
        environ,
    )
    target = overridden_target(context.target, environ)
    cuda_version = next((v["version"] for v in virtual if v["name"] == "__cuda"), cuda)
    built = SolverQuestion(
        request=context.request, target=target, rows=context.profiles.conda,
        channels=tuple(map(_resolve_channel, context.channels)), virtual=virtual,
        bounds=dataclasses.replace(find_gpu_bounds(target, context.profiles), cuda=cuda_version if _has_driver_limit(target) else None),
        offline=context.sources.offline, cache_dir=context.sources.cache_dir,
    )  # fmt: skip
    return built, said


def _has_driver_limit(target: Target) -> bool:
    return bool(target.driver or target.driver_cuda or target.forward_compat)


def _find_cuda_version(context: RequestContext) -> str | None:
    """Return the version of `__cuda`: the CUDA that the target's driver supports.

    It is the newest known CUDA for GPUs without a driver, and None for a CPU environment.
    """
    if context.request.device != "cuda":
        return None
    newest = max((r.cuda for r in context.profiles.cuda), key=Version, default=None)
    spoken = Question(Request(frameworks=()), context.target, context.profiles, AvailableWheels()).speaks
    return spoken or newest


def find_gpu_bounds(target: Target, known: Profiles) -> Bounds:
    """Return the CUDA releases that support every GPU of the target."""
    models = [g for g in known.gpus if g.capability in {t.capability for t in target.gpus}]
    oldest = max((g.first_cuda for g in models if g.first_cuda), key=Version, default=None)
    newest = min((g.last_cuda for g in models if g.last_cuda), key=Version, default=None)
    return Bounds(oldest=oldest, newest=newest)


def find_cudnn_bounds(
    question: SolverQuestion, known: Profiles, cuda: str, cudnn: str, how_they_run: HowTheyRun
) -> tuple[str, ...]:
    """Return bounds that exclude a cuDNN without kernels for a GPU of the target.

    Returns none for a cuDNN that supports all GPUs, or is unknown.
    """
    here = [
        r
        for r in known.cudnn
        if r.cuda.partition(".")[0] == cuda.partition(".")[0] and r.platform == question.target.platform
    ]
    tegra = frozenset(g.capability for g in known.gpus if g.tegra)
    serving = {
        r.version: all(how_they_run(r.kernels, g.capability, tegra) for g in question.target.gpus)
        for r in here if r.kernels
    }  # fmt: skip
    release = next((v for v in serving if v.split(".")[:3] == cudnn.split(".")[:3]), None)
    if release is None or serving[release]:
        return ()
    older = [v for v, good in serving.items() if good and Version(v) < Version(release)]
    newer = [v for v, good in serving.items() if good and Version(v) > Version(release)]
    if older:
        return (f"<={max(older, key=Version)}",)
    return (f">={min(newer, key=Version)}",) if newer else (f"!={cudnn}",)


# 44 lines: one short paragraph for each part of a request that can be relaxed.
def list_alternatives(question: SolverQuestion, known: Profiles) -> list[tuple[str, SolverQuestion]]:
    """Return changes that may make the question solvable, the smallest first."""
    request, changed_questions = question.request, []

    def changed(sentence: str, **changes: object) -> None:
        other = dataclasses.replace(request, **changes)  # type: ignore[arg-type]  # fields of Request
        changed_questions.append((sentence, dataclasses.replace(question, request=other)))

    if request.python:
        changed("remove --python to allow another Python", python=None)
    if request.cuda:
        changed("remove --cuda to allow another CUDA", cuda=None)
    for one in request.frameworks:
        if one.specifier:
            freed = tuple(dataclasses.replace(w, specifier="") if w is one else w for w in request.frameworks)
            changed(
                f"remove {one.specifier} from --framework {one.name} to allow another version",
                frameworks=freed,
            )
    for bound in request.bounds:
        rest = tuple(b for b in request.bounds if b is not bound)
        changed(f"change the bound {bound.name}{bound.specifier} in {bound.origin}", bounds=rest)
    if request.requires_python:
        where = request.python_origin or "the project"
        changed(f"change the bound Python {request.requires_python} in {where}", requires_python="")
    for limit in question.limits:
        limits = tuple(b for b in question.limits if b is not limit)
        text_of_change = f"change the bound {limit.name}{limit.specifier} in {limit.origin}"
        changed_questions.append((text_of_change, dataclasses.replace(question, limits=limits)))
    for text in request.packages:
        others = tuple(p for p in request.packages if p != text)
        changed(f"remove --with {text}", packages=others)
    for one in request.frameworks if len(request.frameworks) > 1 else ():
        apart = tuple(w for w in request.frameworks if w is not one)
        changed(
            f"create a separate environment for {one.name}, because the channels have no compatible set of packages that includes it",
            frameworks=apart,
        )
    if request.device == "cuda":
        changed_questions += _try_newer_drivers(question, known)
        without = tuple(v for v in question.virtual if not v["name"].startswith("__cuda"))
        other = dataclasses.replace(request, device="cpu", cuda=None)
        changed_questions.append(("use --device cpu: the channels have a build without CUDA",
                      dataclasses.replace(question, request=other, virtual=without)))  # fmt: skip
    return changed_questions


def _try_newer_drivers(question: SolverQuestion, known: Profiles) -> list[tuple[str, SolverQuestion]]:
    now = question.bounds.cuda
    if now and not any(v["name"] == "__cuda" for v in question.virtual):
        virtual = (*question.virtual, {"name": "__cuda", "version": now, "build": "0"})
        sentence = f"unset CONDA_OVERRIDE_CUDA: the driver supports CUDA {now}"
        return [(sentence, dataclasses.replace(question, virtual=virtual))]
    windows = question.target.driver_os == "windows"
    changes = []
    for release in sorted(known.cuda, key=lambda r: Version(r.cuda)):
        floor = (release.windows if windows else release.linux) or release.linux
        if not now or Version(release.cuda) <= Version(now) or not floor:
            continue
        others = [v for v in question.virtual if v["name"] != "__cuda"]
        virtual = (*others, {"name": "__cuda", "version": release.cuda, "build": "0"})
        bounds = dataclasses.replace(question.bounds, cuda=release.cuda)
        changes.append((f"install driver {floor} or newer, which supports CUDA {release.cuda}",
                      dataclasses.replace(question, virtual=virtual, bounds=bounds)))  # fmt: skip
    return changes


# --- small facts of this machine -------------------------------------------------------------------


def _read_kernel() -> str | None:
    match = re.match(r"\d+(\.\d+)*", system.release())
    return match.group(0) if match and system.system() == "Linux" else None


def _read_archspec() -> str | None:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    flags = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    words = set(flags.group(1).split()) if flags else set()
    return next((level for flag, level in _LEVELS if flag in words), None)


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
