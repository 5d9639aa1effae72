"""What a manager is: a way to build environments. venv and conda are its two instances, chosen by name.

Its two halves are modules of their own, because a lock is solved where nothing is built: `locking` solves, reads and
writes locks, `manager` builds environments from them. What both managers do alike is written in `commands/`, once;
`Preferred` is the part of a search that both have."""

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
    from ..environment.repair import Work
    from ..model import Emit, LockedPackage, Machine, PackageSources, Plan, Profiles, RequestContext, Target
    from ..wheels.source_builds import SourceBuilds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Building:
    """What an environment is built with.

    `env` is its place in the end. `channels` are addresses as the user gave them: those with credentials never get
    into a lock. `python` returns an interpreter to build with, and fetches one where none is there. With `distrust`
    the cache's files are compared with their hashes: files of environments are links to them. `fetched` is called with
    the prefix whenever wheels have come into it.
    """

    env: Path
    sources: PackageSources
    emit: Emit
    channels: tuple[str, ...] = ()
    python: Callable[[], str] = str
    distrust: bool = False
    fetched: Callable[[Path], None] = lambda _prefix: None


class Manager(Protocol):
    """The half that builds: a module with these names."""

    @staticmethod
    def begin() -> None:
        """Get ready to build. Raises UsageError where a library is missing."""

    @staticmethod
    def transaction(env: Path, *, copied: bool) -> AbstractContextManager[Path]:
        """Give a prefix to build in, empty or a copy of the environment, which takes the environment's place when
        the block ends well. Raises BuildError."""

    @staticmethod
    def fetch(lock: Lock, packages: Sequence[LockedPackage], how: Building) -> None:
        """Bring what is to be installed into the caches, as far as it must be there before the transaction. Raises
        BuildError."""

    @staticmethod
    def install(lock: Lock, prefix: Path, how: Building) -> None:
        """Fill an empty prefix. Raises BuildError."""

    @staticmethod
    def change(old: Lock, new: Lock, prefix: Path, how: Building) -> None:
        """Bring a prefix that holds `old` to `new`. Raises BuildError."""

    @staticmethod
    def put_back(lock: Lock, work: Work, prefix: Path, how: Building, *, fresh: bool) -> None:
        """Take out and put back what the work names; `fresh` fetches wheels anew. Raises BuildError."""

    @staticmethod
    def record(lock: Lock, prefix: Path) -> None:
        """Write the lock into the environment. Raises BuildError."""

    @staticmethod
    def settle(env: Path) -> str | None:
        """Finish what belongs to an environment in its place, which a killed run may not have reached. Return what
        could not be done and does not matter to the environment. Raises BuildError."""


# --- the half that locks -------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stages:
    """What a manager needs of the stages `resolve` and `detect`; the command passes it in.

    `plan` is the plan of what is asked for, `spoken_cuda` the CUDA that a target's driver supports, `how_they_run`
    whether kernels run on a GPU, and `interpreter` the path of a Python of a minor version.
    """

    plan: Callable[[RequestContext], Plan]
    spoken_cuda: Callable[[Target, Profiles], str | None]
    how_they_run: Callable[[tuple[str, ...], str, frozenset[str]], str | None]
    interpreter: Callable[[str, Machine | None], str | None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Near:
    """A lock whose versions are kept where they can be; `moving` are the packages that may change."""

    lock: Lock | None = None
    moving: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """What a search for a lock is given. `first` is the question that it begins with."""

    emit: Emit
    first: RequestContext
    stages: Stages
    builds: SourceBuilds
    near: Near = Near()


class Search(Protocol):
    """One search for a lock. What an attempt finds out and the next one needs is kept in it."""

    def solve(self, asked: RequestContext) -> tuple[Plan, Lock | None]:
        """Make one attempt. Return the plan as it is shown and its lock, without a lock where no build fits. Raises
        LockError (`plan` is what was refused where another question may help), ResolveError."""


class Locking(Protocol):
    """The half that locks: a module with these names."""

    LOCK_NAME: str
    """The name of a project's lock file."""
    OPTION: str
    """The option that chooses this manager, with a space before it; empty for the default one."""
    PLANS_FIRST: bool
    """Whether the builds are planned before packages are solved; else the solver chooses them, and a lock does not
    say what was asked for."""
    BRINGS_PYTHON: bool
    """Whether Python is a package of the lock."""
    KEEPS_UPLOAD_LIMITS: bool
    """Whether a lock can be limited to what was uploaded before a moment (--exclude-newer)."""
    EXTRAS: tuple[str, ...]
    """The extras of gpuenv that the manager requires."""

    def lock_name(self, target: str | None) -> str:
        """Return the name of the project's lock file, or of that of a named target."""

    def require(self) -> None:
        """Raise UsageError where a library that locking needs is missing."""

    def read_lock(self, path: Path, platform: str, known: Callable[[], Profiles]) -> Lock:
        """Read a lock file. Raises LockError, OtherPlatformError."""

    def write_lock(
        self, path: Path, lock: Lock, virtual: tuple[Mapping[str, str], ...], *, alone: bool = False
    ) -> None:
        """Write a lock file. What it holds for other platforms is kept, unless `alone`. Raises LockError."""

    def check_hashes(self, lock: Lock, origin: str, *, allow_md5: bool) -> None:
        """Raise LockError for packages without a sha256."""

    def assumed_gpu(self) -> str | None:
        """Return the manager's setting by which a GPU is assumed where none is seen, None without one."""

    def virtual_packages(self, asked: RequestContext, stages: Stages) -> tuple[Mapping[str, str], ...]:
        """Return the packages that stand for properties of the target in the solve."""

    def check(self, lock: Lock, asked: RequestContext, stages: Stages) -> None:
        """Raise LockError where a lock does not fit the target."""

    def search(self, task: Task) -> Search:
        """Begin a search for a lock."""


_BUILDING = {"venv": ".venv", "conda": ".conda.build"}
_LOCKING = {"venv": ".venv_locks", "conda": ".conda.conda_locks"}
NAMES = tuple(_LOCKING)
"""The names of all managers."""


def manager(name: str) -> Manager:
    """Return the half of a manager that builds; it is imported when it is asked for."""
    return cast("Manager", importlib.import_module(_BUILDING[name], __package__))


def locking(name: str) -> Locking:
    """Return the half of a manager that locks; it is imported when it is asked for."""
    return cast("Locking", importlib.import_module(_LOCKING[name], __package__))


def name_of(lock_file: Path | None, chosen: str) -> str:
    """Return the name of the manager that a lock file is for, and `chosen` where none is given."""
    return "conda" if lock_file and lock_file.suffix != ".toml" else chosen


Solve = Callable[[Mapping[str, str]], Lock]


@dataclasses.dataclass
class Preferred:
    """The versions of the lock that is there, through the attempts of one search."""

    versions: Mapping[str, str]
    emit: Emit
    tried_without: bool = False

    def solved(self, plan: Plan, solve: Solve) -> Lock:
        """Return the lock of a plan. The first refusal that the versions may have caused is checked by one solve
        without them: another index can have wheels of these versions with other requirements. Raises LockError."""
        try:
            return self._solved(solve)
        except LockError as error:
            error.plan = plan
            raise

    def _solved(self, solve: Solve) -> Lock:
        try:
            return solve(self.versions)
        except LockError as error:
            refused = error.contradiction or error.brought or error.companion
            if not refused or not self.versions or self.tried_without:
                raise
        self.tried_without = True
        text = "not with the versions of the lock that is there: solving once without them"
        self.emit(Event(kind="note", stage="lock", text=text))
        return solve({})
