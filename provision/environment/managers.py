"""An environment on disk: the interface of its managers, venv and conda, and the work that they are given."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from ..model import (
    Drift,
    EnvironmentChange,
    KeptPackage,
    Lock,
    LockedPackage,
    RemovedPackage,
    RestoredPackage,
    UnlockedPackage,
    normalize_name,
)
from ..model.values import Value

if TYPE_CHECKING:
    from ..model import Emit, PackageSources


class BuildSettings(Value):
    """The inputs of building an environment.

    `env` is its final path. `channels` are addresses from the user, and those with credentials never enter a lock.
    `python` returns an interpreter, and downloads a missing one. With `distrust` the files of the cache are compared
    with their hashes, because files of environments are links to them.
    """

    env: Path
    sources: PackageSources
    emit: Emit
    python: Callable[[], str]
    channels: tuple[str, ...] = ()
    distrust: bool = False


class Manager(Protocol):
    """The module of a manager that builds."""

    @staticmethod
    def transaction(env: Path, *, copied: bool) -> AbstractContextManager[Path]:
        """Yield a prefix, empty or a copy of the environment, that replaces the environment if the block succeeds.

        Raises BuildError.
        """

    @staticmethod
    def fetch(lock: Lock, packages: Sequence[LockedPackage], settings: BuildSettings) -> None:
        """Download what must be in the caches before the transaction. Raises BuildError."""

    @staticmethod
    def install(lock: Lock, prefix: Path, settings: BuildSettings) -> None:
        """Fill an empty prefix. Raises BuildError."""

    @staticmethod
    def change(old: Lock, new: Lock, prefix: Path, settings: BuildSettings) -> None:
        """Change a prefix with the lock `old` to the lock `new`. Raises BuildError."""

    @staticmethod
    def reinstall(
        lock: Lock, work: RepairWork, prefix: Path, settings: BuildSettings, *, fresh: bool
    ) -> None:
        """Remove and reinstall the packages of the work. `fresh` downloads wheels again. Raises BuildError."""

    @staticmethod
    def write_lock(lock: Lock, prefix: Path) -> None:
        """Write the lock into the environment. Raises BuildError."""

    @staticmethod
    def finish(env: Path) -> str | None:
        """Complete the steps after the commit, which a killed run may have skipped.

        Returns why a step failed that the environment does not need. Raises BuildError.
        """


_MODULES = {"venv": ".environment.venv", "conda": ".conda.build"}


def get_manager(name: str) -> Manager:
    """Import and return the module of a manager that builds."""
    return cast("Manager", importlib.import_module(f"provision{_MODULES[name]}"))


# --- the work of a repair and of a change --------------------------------------------------------

_NVIDIA = (
    r"nvidia-(cublas|cuda-[a-z-]+|cudnn|cufft|cufile|curand|cusolver|cusparse|cusparselt|nccl|npp|"
    r"nvjitlink|nvshmem|nvtx)(-cu\d+)?|nvidia-[a-z-]+-cu\d+|cuda-toolkit|(pytorch-)?triton(-[a-z-]+)?"
)
_OTHER_BUILDS = {
    "torch": r"torch",
    "tensorflow": r"(intel-)?tensorflow(-(cpu|gpu|intel|rocm|macos|cpu-aws))?|tf-nightly(-(cpu|gpu))?",
    "onnxruntime": r"onnxruntime(-[a-z]+)?",
    "jax": r"jaxlib|jax-(cuda|rocm)\d*-(plugin|pjrt)|jax-metal",
}


class RepairWork(Value):
    """The packages to restore with their differences, those to remove, and those to keep."""

    packages: tuple[LockedPackage, ...] = ()
    restored: tuple[RestoredPackage, ...] = ()
    removed: tuple[RemovedPackage, ...] = ()
    left: tuple[KeptPackage, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        return frozenset(normalize_name(p.name) for p in self.packages)


def find_work(lock: Lock, drift: Drift) -> RepairWork:
    """Return the work that makes an environment with these differences equal its lock."""
    out = _select_removals(lock, drift.strangers)
    changes = {c.name: c for c in drift.changes if c.kind != "python"}
    shared = {name: one for one in out for name in one.over if name not in changes}
    packages = tuple(p for p in lock.packages if normalize_name(p.name) in {*changes, *shared})
    return RepairWork(
        packages=packages,
        restored=tuple(
            _make_restored(p, changes.get(normalize_name(p.name)), shared.get(normalize_name(p.name)))
            for p in packages
        ),
        removed=tuple(RemovedPackage(name=s.name, version=s.version, why=_explain_removal(s)) for s in out),
        left=tuple(KeptPackage(name=s.name, version=s.version) for s in drift.strangers if s not in out),
    )


def _make_restored(
    package: LockedPackage, change: EnvironmentChange | None, by: UnlockedPackage | None
) -> RestoredPackage:
    if change is not None:
        had, why = change.found, change.text
    else:
        assert by is not None
        had, why = (
            package.version,
            f"{by.name} {by.version} contains the same files, and removing it removes them",
        )
    now = _build(package) if change and "-" in (change.found or "") else package.version
    now = now or (change.locked if change else None) or "the version in its folder"
    return RestoredPackage(name=normalize_name(package.name), had=had, now=now, why=why)


def _build(package: LockedPackage) -> str:
    """Return a wheel's version, or a conda package's version and build. Two conda builds differ only in the build."""
    return package.stem[len(package.name) + 1 :] if package.is_conda else package.version


def _explain_removal(stranger: UnlockedPackage) -> str:
    if stranger.over:
        return f"its RECORD lists files of {', '.join(stranger.over)}"
    return "it belongs to a different build than the locked one"


def _select_removals(lock: Lock, strangers: Sequence[UnlockedPackage]) -> tuple[UnlockedPackage, ...]:
    """Return the packages to remove: those that share files with the lock's packages, and those of other builds.

    Other builds are those of a framework or of CUDA's libraries. They stay if another package of the user requires
    them.
    """
    planned = [b.framework for b in lock.plan.builds]
    names = re.compile("|".join([_NVIDIA, *(_OTHER_BUILDS[f] for f in planned if f in _OTHER_BUILDS)]))
    wheels = [s for s in strangers if not s.conda]
    stack = {s.name for s in wheels if names.fullmatch(s.name)}
    by_name = {s.name: s for s in wheels}
    kept: set[str] = set()
    todo = [s for s in wheels if s.name not in stack and not s.over]
    while todo:
        one = todo.pop()
        if one.name not in kept:
            kept.add(one.name)
            todo += [by_name[n] for n in one.requires if n in by_name]
    return tuple(s for s in wheels if s.over or (s.name in stack and s.name not in kept))


def join_work(one: RepairWork, more: RepairWork) -> RepairWork:
    """Return the work of two rounds together."""
    names, gone = one.names, {r.name for r in one.removed}
    return RepairWork(
        packages=(*one.packages, *(p for p in more.packages if normalize_name(p.name) not in names)),
        restored=(*one.restored, *(t for t in more.restored if t.name not in names)),
        removed=(*one.removed, *(r for r in more.removed if r.name not in gone)),
        left=more.left,
    )


def compare_locks(old: Lock, new: Lock) -> tuple[list[str], tuple[LockedPackage, ...]]:
    """Return the packages that a new lock removes from an environment (names), and those that it installs. A package
    with another version is both.

    Wheels of NVIDIA share folders, so a file's old package must be removed before the new one is installed.
    """
    before, after = {p.name: _identify(p) for p in old.packages}, {p.name: _identify(p) for p in new.packages}
    out = [n for n in before if before[n] != after.get(n)]
    return out, tuple(p for p in new.packages if after[p.name] != before.get(p.name))


def _identify(package: LockedPackage) -> tuple[str, str, bool]:
    source = package.url if package.unhashed else package.sha256 or package.url
    return package.version, source, package.editable
