"""From what is asked for to the question for the conda solver: virtual packages, bounds, and the changes that
are tried when nothing fits."""

from __future__ import annotations

import dataclasses
import platform as system
import re
from collections.abc import Callable
from pathlib import Path

from packaging.version import Version

from ...errors import LockError
from ...model import Profiles, RequestContext, Target
from ...system import process
from ..protocol import Stages
from . import specs
from .specs import Bounds, Question

HowTheyRun = Callable[[tuple[str, ...], str, frozenset[str]], str | None]
# The feature levels of the x86-64 psABI, by one flag of /proc/cpuinfo that came with each.
_LEVELS = (("avx512bw", "x86_64_v4"), ("avx2", "x86_64_v3"), ("sse4_2", "x86_64_v2"))


def assumed_gpu() -> str | None:
    """The setting by which a GPU is meant where none is seen: CONDA_OVERRIDE_CUDA; None without it."""
    forced = process.environ().get("CONDA_OVERRIDE_CUDA")
    return f"CONDA_OVERRIDE_CUDA is {forced}" if forced else None


def question(asked: RequestContext, stages: Stages) -> tuple[Question, tuple[str, ...]]:
    """The question, for the target as the environment overrides it, and what that was, in words."""
    environ, known = process.environ(), _driver_binds(asked.target) or asked.target.gpus
    assumed = assumed_gpu() and not known  # a GPU is meant that nobody has told of
    cuda = None if assumed else _spoken(asked, stages)
    here = asked.machine is not None  # else the target was given, and this machine's CPU says nothing
    virtual, said = specs.overridden(
        specs.virtual_packages(
            asked.target,
            cuda=cuda,
            kernel=_kernel() if here else None,
            archspec=_archspec() if here else None,
        ),
        environ,
    )
    target = specs.overridden_target(asked.target, environ)
    told = next((v["version"] for v in virtual if v["name"] == "__cuda"), cuda)
    found = Question(
        request=asked.request, target=target, rows=asked.profiles.conda,
        channels=tuple(map(_address, asked.channels)), virtual=virtual,
        bounds=dataclasses.replace(gpu_bounds(target, asked.profiles), cuda=told if _driver_binds(target) else None),
        offline=asked.sources.offline, cache_dir=asked.sources.cache_dir,
    )  # fmt: skip
    return found, said


def _driver_binds(target: Target) -> bool:
    return bool(target.driver or target.driver_cuda or target.forward_compat)


def _spoken(asked: RequestContext, stages: Stages) -> str | None:
    """What `__cuda` is: the CUDA that the target's driver speaks; the newest known one where GPUs but no
    driver were given; none for a CPU environment."""
    if asked.request.device != "cuda":
        return None
    newest = max((r.cuda for r in asked.profiles.cuda), key=Version, default=None)
    return stages.spoken_cuda(asked.target, asked.profiles) or newest


def gpu_bounds(target: Target, known: Profiles) -> Bounds:
    """The CUDA releases that know every GPU of the target."""
    mine = [g for g in known.gpus if g.capability in {t.capability for t in target.gpus}]
    oldest = max((g.first_cuda for g in mine if g.first_cuda), key=Version, default=None)
    newest = min((g.last_cuda for g in mine if g.last_cuda), key=Version, default=None)
    return Bounds(oldest=oldest, newest=newest)


def cudnn_bounds(
    asked: Question, known: Profiles, cuda: str, cudnn: str, how_they_run: HowTheyRun
) -> tuple[str, ...]:
    """Bounds that lead away from a cuDNN without kernels for a GPU of the target; nothing where it
    serves them all, or is not known."""
    here = [
        r
        for r in known.cudnn
        if r.cuda.partition(".")[0] == cuda.partition(".")[0] and r.platform == asked.target.platform
    ]
    tegra = frozenset(g.capability for g in known.gpus if g.tegra)
    serving = {
        r.version: all(how_they_run(r.kernels, g.capability, tegra) for g in asked.target.gpus)
        for r in here if r.kernels
    }  # fmt: skip
    mine = next((v for v in serving if v.split(".")[:3] == cudnn.split(".")[:3]), None)
    if mine is None or serving[mine]:
        return ()
    older = [v for v, good in serving.items() if good and Version(v) < Version(mine)]
    newer = [v for v, good in serving.items() if good and Version(v) > Version(mine)]
    if older:
        return (f"<={max(older, key=Version)}",)
    return (f">={min(newer, key=Version)}",) if newer else (f"!={cudnn}",)


def alternatives(asked: Question, known: Profiles) -> list[tuple[str, Question]]:
    """Changes that may make the question solvable, the cheapest for the user first."""
    request, found = asked.request, []

    def changed(sentence: str, **changes: object) -> None:
        other = dataclasses.replace(request, **changes)  # type: ignore[arg-type]  # fields of Request
        found.append((sentence, dataclasses.replace(asked, request=other)))

    if request.python:
        changed("another Python: leave --python out", python=None)
    if request.cuda:
        changed("another CUDA: leave --cuda out", cuda=None)
    for one in request.frameworks:
        if one.specifier:
            freed = tuple(dataclasses.replace(w, specifier="") if w is one else w for w in request.frameworks)
            changed(f"another version: --framework {one.name} without {one.specifier}", frameworks=freed)
    for bound in request.bounds:
        rest = tuple(b for b in request.bounds if b is not bound)
        changed(f"another bound than {bound.name}{bound.specifier} in {bound.origin}", bounds=rest)
    if request.requires_python:
        where = request.python_origin or "the project"
        changed(f"another bound than Python {request.requires_python} in {where}", requires_python="")
    for limit in asked.limits:
        limits = tuple(b for b in asked.limits if b is not limit)
        told = f"another bound than {limit.name}{limit.specifier} in {limit.origin}"
        found.append((told, dataclasses.replace(asked, limits=limits)))
    for text in request.packages:
        others = tuple(p for p in request.packages if p != text)
        changed(f"without --with {text}", packages=others)
    for one in request.frameworks if len(request.frameworks) > 1 else ():
        apart = tuple(w for w in request.frameworks if w is not one)
        changed(
            f"{one.name} in an environment of its own: the channels have no set with it", frameworks=apart
        )
    if request.device == "cuda":
        found += _with_newer_drivers(asked, known)
        without = tuple(v for v in asked.virtual if not v["name"].startswith("__cuda"))
        other = dataclasses.replace(request, device="cpu", cuda=None)
        found.append(("--device cpu: the channels have a build without CUDA",
                      dataclasses.replace(asked, request=other, virtual=without)))  # fmt: skip
    return found


def _with_newer_drivers(asked: Question, known: Profiles) -> list[tuple[str, Question]]:
    now = asked.bounds.cuda
    if now and not any(v["name"] == "__cuda" for v in asked.virtual):
        virtual = (*asked.virtual, {"name": "__cuda", "version": now, "build": "0"})
        told = f"CONDA_OVERRIDE_CUDA unset: the driver speaks CUDA {now}"
        return [(told, dataclasses.replace(asked, virtual=virtual))]
    windows = asked.target.driver_os == "windows"
    found = []
    for release in sorted(known.cuda, key=lambda r: Version(r.cuda)):
        floor = (release.windows if windows else release.linux) or release.linux
        if not now or Version(release.cuda) <= Version(now) or not floor:
            continue
        others = [v for v in asked.virtual if v["name"] != "__cuda"]
        virtual = (*others, {"name": "__cuda", "version": release.cuda, "build": "0"})
        bounds = dataclasses.replace(asked.bounds, cuda=release.cuda)
        found.append((f"driver {floor} or newer, which speaks CUDA {release.cuda}",
                      dataclasses.replace(asked, virtual=virtual, bounds=bounds)))  # fmt: skip
    return found


# --- small facts of this machine -------------------------------------------------------------------


def _kernel() -> str | None:
    found = re.match(r"\d+(\.\d+)*", system.release())
    return found.group(0) if found and system.system() == "Linux" else None


def _archspec() -> str | None:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    flags = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    words = set(flags.group(1).split()) if flags else set()
    return next((level for flag, level in _LEVELS if flag in words), None)


def _address(channel: str) -> str:
    """A folder as an address; names and addresses as they are. Raises LockError for a folder that is
    no channel."""
    path = Path(channel).expanduser()
    if "://" in channel or not (path.is_dir() or channel.startswith((".", "/", "~"))):
        return channel
    if not (path / "noarch").is_dir():
        raise LockError(
            f"--channel {channel}: {'no such folder' if not path.is_dir() else 'it has no noarch/repodata.json'}",
            hint="a channel is a folder with noarch/ and linux-64/, each indexed",
        )
    return path.resolve().as_uri()
