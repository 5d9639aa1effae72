"""Puts an environment back to what its lock names: packages that were replaced, removed or changed.

The work is done in a copy, from the cache first, and looked at again before the copy takes the
environment's place. Where the cache's own copy of a package is spoiled (its files are the very files of
the environments that were made from it), the package is fetched anew.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..environment import installed, place
from ..environment.clone import working_copy
from ..environment.installed import normal
from ..errors import BuildError
from ..index import uv
from ..model import Change, Drift, Event, Left, Lock, Package, PutBack, Removed, Sources, Stranger
from ..wheels.install import install_wheels, python_of
from .conda import install as conda

Emit = Callable[[Event], None]
Check = Callable[[Path, Collection[str]], Drift]
"""Looks an environment over; the names are of packages that were put back a moment ago."""

_ROUNDS = 3
_TIMEOUT = 600.0
_OF_PACKAGES = ("replaced", "removed", "modified", "overwritten")
_NVIDIA = (
    r"nvidia-(cublas|cuda-[a-z-]+|cudnn|cufft|cufile|curand|cusolver|cusparse|cusparselt|nccl|npp|"
    r"nvjitlink|nvshmem|nvtx)(-cu\d+)?|nvidia-[a-z-]+-cu\d+|cuda-toolkit|(pytorch-)?triton(-[a-z-]+)?"
)
_OTHER_BUILDS = {
    "torch": r"torch",
    "tensorflow": r"(intel-)?tensorflow(-(cpu|gpu|intel|rocm|macos|cpu-aws))?|tf-nightly(-(cpu|gpu))?",
    "jax": r"jaxlib|jax-(cuda|rocm)\d*-(plugin|pjrt)|jax-metal",
}


@dataclass(frozen=True, kw_only=True)
class Work:
    """What is to be done: the lock's packages to put back and what had become of each, what to take out,
    what to leave."""

    packages: tuple[Package, ...] = ()
    told: tuple[PutBack, ...] = ()
    removed: tuple[Removed, ...] = ()
    left: tuple[Left, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        return frozenset(normal(p.name) for p in self.packages)


def work(lock: Lock, drift: Drift) -> Work:
    """What would bring an environment that differs like this back to its lock."""
    out = _to_remove(lock, drift.strangers)
    changes = {c.name: c for c in drift.changes if c.kind in _OF_PACKAGES}
    shared = {name: one for one in out for name in one.over if name not in changes}
    packages = tuple(p for p in lock.packages if normal(p.name) in {*changes, *shared})
    return Work(
        packages=packages,
        told=tuple(_told(p, changes.get(normal(p.name)), shared.get(normal(p.name))) for p in packages),
        removed=tuple(Removed(name=s.name, version=s.version, why=_why(s)) for s in out),
        left=tuple(Left(name=s.name, version=s.version) for s in drift.strangers if s not in out),
    )


def _told(package: Package, change: Change | None, by: Stranger | None) -> PutBack:
    if change is not None:
        had, why = change.found, change.text
    else:
        assert by is not None
        had, why = package.version, f"its files go with {by.name} {by.version}, which lists them too"
    now = _build(package) if change and "-" in (change.found or "") else package.version
    now = now or (change.locked if change else None) or "as its folder has it"
    return PutBack(name=normal(package.name), had=had, now=now, why=why)


def _build(package: Package) -> str:
    """A wheel's version; of a conda package version and build, as two builds differ in nothing else."""
    if not conda.is_conda(package):
        return package.version
    stem = package.url.rpartition("/")[2].removesuffix(".conda").removesuffix(".tar.bz2")
    return stem[len(package.name) + 1 :]


def _why(stranger: Stranger) -> str:
    if stranger.over:
        return f"it lists files of {', '.join(stranger.over)} as its own"
    return "it belongs to another build than the lock's"


def _to_remove(lock: Lock, strangers: Sequence[Stranger]) -> tuple[Stranger, ...]:
    """Those that share files with the lock's packages, and what came with another build of a framework
    or of CUDA's libraries, unless something else that the user added requires it."""
    planned = [b.framework for b in lock.plan.builds]
    names = re.compile("|".join([_NVIDIA, *(_OTHER_BUILDS[f] for f in planned if f in _OTHER_BUILDS)]))
    mine = [s for s in strangers if not s.conda]
    stack = {s.name for s in mine if names.fullmatch(s.name)}
    by_name = {s.name: s for s in mine}
    kept: set[str] = set()
    todo = [s for s in mine if s.name not in stack and not s.over]
    while todo:
        one = todo.pop()
        if one.name not in kept:
            kept.add(one.name)
            todo += [by_name[n] for n in one.requires if n in by_name]
    return tuple(s for s in mine if s.over or (s.name in stack and s.name not in kept))


# --- doing it --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class How:
    """Where packages come from, how to look an environment over, and whom to tell."""

    sources: Sources
    check: Check
    emit: Emit
    channels: tuple[str, ...] = ()


def repair(env: Path, lock: Lock, planned: Work, how: How) -> Work:
    """Do it, all or nothing; what was done, which can be more than was planned. Raises BuildError."""
    is_conda = lock.manager == "conda"
    if is_conda:
        _fetch(env, lock, planned, how)
    with working_copy(env, at_its_path=is_conda) as copy:
        done = _rounds(copy, lock, planned, how)
        installed.write(copy, lock)
    return done


def _rounds(copy: Path, lock: Lock, planned: Work, how: How) -> Work:
    """Taking a package out can take files of another one with it, so what was done is looked at again."""
    todo, done, fresh = planned, planned, False
    for _ in range(_ROUNDS):
        _one_round(copy, lock, todo, how, fresh=fresh)
        left = work(lock, how.check(copy, done.names))
        if not left.packages and not left.removed:
            return done
        spoiled = sorted(left.names & todo.names)
        if spoiled:
            text = f"the cache's own files of {', '.join(spoiled)} are changed too: fetching them anew"
            how.emit(Event(kind="warning", stage="build", text=text))
            fresh = True
        todo = left
        done = _both(done, left)
    told = "; ".join(t.why for t in left.told) or ", ".join(r.name for r in left.removed)
    raise BuildError(f"the environment could not be brought back to its lock: {told}",
                     hint="build it again: gpuenv create with --recreate")  # fmt: skip


def _both(one: Work, more: Work) -> Work:
    names, gone = one.names, {r.name for r in one.removed}
    return Work(
        packages=(*one.packages, *(p for p in more.packages if normal(p.name) not in names)),
        told=(*one.told, *(t for t in more.told if t.name not in names)),
        removed=(*one.removed, *(r for r in more.removed if r.name not in gone)),
        left=more.left,
    )


def _one_round(copy: Path, lock: Lock, todo: Work, how: How, *, fresh: bool) -> None:
    _take_out(copy, [r.name for r in todo.removed])
    channelled = [p.name for p in todo.packages if conda.is_conda(p)]
    if channelled:
        conda.put_back(lock, copy, channelled, how.sources, how.emit, channels=how.channels)
    wheels = tuple(p for p in todo.packages if not conda.is_conda(p))
    if not wheels:
        return
    _forget_unrecorded(copy, {normal(p.name) for p in wheels})
    some = dataclasses.replace(lock, packages=wheels)
    if not fresh:
        install_wheels(some, copy, how.sources, how.emit, reinstall=True)
        return
    own = copy / place.MARK / "fetched"
    install_wheels(some, copy, dataclasses.replace(how.sources, cache_dir=str(own)), how.emit, reinstall=True)
    shutil.rmtree(own, ignore_errors=True)
    _clean_cache([p.name for p in wheels], how.sources)


def _take_out(copy: Path, names: Iterable[str]) -> None:
    """Remove distributions and their files. Raises BuildError."""
    names = list(names)
    if not names:
        return
    settings = uv.Settings(timeout=_TIMEOUT)
    done = uv.run_uv(["pip", "uninstall", *names], Sources(), python=python_of(copy), settings=settings)
    if not done.ok:
        raise BuildError(
            f"{', '.join(names)} could not be removed", log=uv.redacted(done.stderr),
            hint="the environment is as it was; gpuenv create with --recreate builds it anew",
        )  # fmt: skip


def _forget_unrecorded(copy: Path, names: Collection[str]) -> None:
    """Remove dist-info folders without a RECORD: an installer cannot replace what they stand for, and
    would leave them beside the new ones."""
    for folder in copy.glob("lib/python3*/site-packages/*.dist-info"):
        if normal(folder.name.partition("-")[0]) in names and not (folder / "RECORD").is_file():
            shutil.rmtree(folder)


def _clean_cache(names: Sequence[str], sources: Sources) -> None:
    """Take the spoiled packages out of the installer's cache, so that no other environment gets them."""
    uv.run_uv(["cache", "clean", *names], sources, python=None, settings=uv.Settings(timeout=_TIMEOUT))


def _fetch(env: Path, lock: Lock, planned: Work, how: How) -> None:
    """Bring everything into the caches before a conda environment is put aside. Raises BuildError."""
    wheels = tuple(p for p in planned.packages if not conda.is_conda(p))
    channelled = [p for p in lock.packages if conda.is_conda(p)]
    wanted = {p.name for p in planned.packages} | {"python"}  # pure packages are laid out for a Python
    with place.draft(env) as scratch:
        if len(wanted & {p.name for p in channelled}) > 1:
            some = dataclasses.replace(lock, packages=tuple(p for p in channelled if p.name in wanted))
            conda.put_back(some, scratch / "conda", (), how.sources, how.emit, channels=how.channels)
        if wheels:
            some = dataclasses.replace(lock, packages=wheels)
            install_wheels(some, env, how.sources, how.emit, target=scratch / "wheels")
