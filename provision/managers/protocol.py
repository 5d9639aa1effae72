"""The protocols of a manager, and the choice of venv or conda by name.

A manager has two modules. `locking` solves, reads and writes locks, also without building. `manager` builds
environments from locks. Steps that are the same for both managers are in `commands/`. Both use `Preferred` in their
search for a lock.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from ..errors import LockError
from ..model import Emit, Event, Lock, Plan

if TYPE_CHECKING:
    from ..environment.packages_to_replace import RepairWork
    from ..model import Emit, LockedPackage, Machine, PackageSources, Plan, Profiles, RequestContext, Target
    from ..wheels.allowed_source_builds import SourceBuilds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Building:
    """The inputs of building an environment.

    `env` is its final path. `channels` are addresses from the user, and those with credentials never enter a lock.
    `python` returns an interpreter, and downloads a missing one. With `distrust` the files of the cache are compared
    with their hashes, because files of environments are links to them. `fetched` is called with the prefix after
    wheels were added to it.
    """

    env: Path
    sources: PackageSources
    emit: Emit
    channels: tuple[str, ...] = ()
    python: Callable[[], str] = str
    distrust: bool = False
    fetched: Callable[[Path], None] = lambda _prefix: None


class Manager(Protocol):
    """The module of a manager that builds."""

    @staticmethod
    def begin() -> None:
        """Prepare to build. Raises UsageError for a missing library."""

    @staticmethod
    def transaction(env: Path, *, copied: bool) -> AbstractContextManager[Path]:
        """Yield a prefix, empty or a copy of the environment, that replaces the environment if the block succeeds.

        Raises BuildError.
        """

    @staticmethod
    def fetch(lock: Lock, packages: Sequence[LockedPackage], how: Building) -> None:
        """Download what must be in the caches before the transaction. Raises BuildError."""

    @staticmethod
    def install(lock: Lock, prefix: Path, how: Building) -> None:
        """Fill an empty prefix. Raises BuildError."""

    @staticmethod
    def change(old: Lock, new: Lock, prefix: Path, how: Building) -> None:
        """Change a prefix with the lock `old` to the lock `new`. Raises BuildError."""

    @staticmethod
    def put_back(lock: Lock, work: RepairWork, prefix: Path, how: Building, *, fresh: bool) -> None:
        """Remove and reinstall the packages of the work. `fresh` downloads wheels again. Raises BuildError."""

    @staticmethod
    def record(lock: Lock, prefix: Path) -> None:
        """Write the lock into the environment. Raises BuildError."""

    @staticmethod
    def settle(env: Path) -> str | None:
        """Complete the steps after the commit, which a killed run may have skipped.

        Returns why a step failed that the environment does not need. Raises BuildError.
        """


# --- locks -----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stages:
    """The functions of the stages `resolve` and `detect` that a manager needs. The command passes them in.

    `plan` returns the plan of a request, and `spoken_cuda` the CUDA that a target's driver supports. `how_they_run`
    returns whether kernels run on a GPU. `interpreter` returns the path of a Python of a minor version.
    """

    plan: Callable[[RequestContext], Plan]
    spoken_cuda: Callable[[Target, Profiles], str | None]
    how_they_run: Callable[[tuple[str, ...], str, frozenset[str]], str | None]
    interpreter: Callable[[str, Machine | None], str | None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Near:
    """A lock with preferred versions. `moving` are the packages that may change."""

    lock: Lock | None = None
    moving: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """The inputs of a search for a lock. `first` is its first question."""

    emit: Emit
    first: RequestContext
    stages: Stages
    builds: SourceBuilds
    near: Near = Near()


class ManagerSearch(Protocol):
    """A search for a lock. It keeps the results of one attempt for the next."""

    def solve(self, context: RequestContext) -> tuple[Plan, Lock | None]:
        """Make one attempt, and return the plan with its lock, or None as the lock if no build fits.

        Raises ResolveError, and LockError with the rejected `plan` if another question may succeed.
        """


class Locking(Protocol):
    """The module of a manager that solves, reads and writes locks."""

    OPTION: str
    """The option for this manager after a space, or an empty text for the default manager."""
    PLANS_FIRST: bool
    """Whether builds are planned before packages are solved. Otherwise the solver chooses them, and a lock does not
    state the request."""
    BRINGS_PYTHON: bool
    """Whether Python is a package of the lock."""
    KEEPS_UPLOAD_LIMITS: bool
    """Whether a lock can exclude newer uploads (--exclude-newer)."""
    EXTRAS: tuple[str, ...]
    """The extras of gpuenv that the manager requires."""

    def require(self) -> None:
        """Raise UsageError for a missing library that locking needs."""

    def read_lock(self, path: Path, platform: str, known: Callable[[], Profiles]) -> Lock:
        """Read a lock file. Raises LockError, OtherPlatformError."""

    def write_lock(
        self, path: Path, lock: Lock, virtual: tuple[Mapping[str, str], ...], *, alone: bool = False
    ) -> None:
        """Write a lock file, and keep its other platforms unless `alone`. Raises LockError."""

    def check_hashes(self, lock: Lock, origin: str, *, allow_md5: bool) -> None:
        """Raise LockError for packages without a sha256."""

    def assumed_gpu(self) -> str | None:
        """Return the setting that makes the manager assume a GPU, or None."""

    def virtual_packages(self, context: RequestContext, stages: Stages) -> tuple[Mapping[str, str], ...]:
        """Return the virtual packages of the target for the solver."""

    def check(self, lock: Lock, context: RequestContext, stages: Stages) -> None:
        """Raise LockError for a lock that does not fit the target."""

    def search(self, task: Task) -> ManagerSearch:
        """Return a new search for a lock."""


_BUILDING = {"venv": ".venv", "conda": ".conda.build"}
_LOCKING = {"venv": ".venv_locks", "conda": ".conda.conda_locks"}
NAMES = tuple(_LOCKING)
"""The names of all managers."""


def manager(name: str) -> Manager:
    """Import and return the module of a manager that builds."""
    return cast("Manager", importlib.import_module(_BUILDING[name], __package__))


def locking(name: str) -> Locking:
    """Import and return the module of a manager that locks."""
    return cast("Locking", importlib.import_module(_LOCKING[name], __package__))


Solve = Callable[[Mapping[str, str]], Lock]


@dataclasses.dataclass
class Preferred:
    """The versions of the existing lock during the attempts of a search."""

    versions: Mapping[str, str]
    emit: Emit
    tried_without: bool = False

    def solved(self, plan: Plan, solve: Solve) -> Lock:
        """Return the lock of a plan. Raises LockError.

        If the versions may have caused the first failure, one solve runs without them. On another index, wheels of
        these versions can have other requirements.
        """
        try:
            return self._solve(solve)
        except LockError as error:
            error.plan = plan
            raise

    def _solve(self, solve: Solve) -> Lock:
        try:
            return solve(self.versions)
        except LockError as error:
            refused = error.contradiction or error.brought or error.companion
            if not refused or not self.versions or self.tried_without:
                raise
        self.tried_without = True
        text = "the versions of the existing lock have no compatible solution. Solving without them"
        self.emit(Event(kind="note", stage="lock", text=text))
        return solve({})
