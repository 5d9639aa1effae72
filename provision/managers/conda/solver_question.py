"""Builds the question for the conda solver, and changes to try if it has no solution."""

from __future__ import annotations

import dataclasses
import platform as system
import re
from collections.abc import Callable
from pathlib import Path

from packaging.version import Version

from ...errors import LockError
from ...model import AvailableWheels, Profiles, Request, RequestContext, Target
from ...resolve.question import Question
from ...system import process
from . import specs
from .specs import Bounds, SolverQuestion

HowTheyRun = Callable[[tuple[str, ...], str, frozenset[str]], str | None]
# The feature levels of the x86-64 psABI, each with a flag of /proc/cpuinfo that it introduced.
_LEVELS = (("avx512bw", "x86_64_v4"), ("avx2", "x86_64_v3"), ("sse4_2", "x86_64_v2"))


def assumed_gpu() -> str | None:
    """Return the variable that makes conda assume a GPU, CONDA_OVERRIDE_CUDA, or None if it is unset."""
    forced = process.environ().get("CONDA_OVERRIDE_CUDA")
    return f"CONDA_OVERRIDE_CUDA is {forced}" if forced else None


def question(context: RequestContext) -> tuple[SolverQuestion, tuple[str, ...]]:
    """Return the question for the target with the overrides of the environment, and the overrides as text."""
    environ, known = process.environ(), _has_driver_limit(context.target) or context.target.gpus
    assumed = assumed_gpu() and not known  # the override assumes a GPU that is not described
    cuda = None if assumed else _find_cuda_version(context)
    here = context.machine is not None  # a target file describes another machine than this one
    virtual, said = specs.overridden(
        specs.virtual_packages(
            context.target,
            cuda=cuda,
            kernel=_read_kernel() if here else None,
            archspec=_read_archspec() if here else None,
        ),
        environ,
    )
    target = specs.overridden_target(context.target, environ)
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
def alternatives(question: SolverQuestion, known: Profiles) -> list[tuple[str, SolverQuestion]]:
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
