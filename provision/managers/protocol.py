"""The protocols of a manager, and the choice of venv or conda by name.

A manager has two modules. `locking` solves, reads and writes locks, also without building. `manager` builds
environments from locks. Steps that are the same for both managers are in `commands/`, and the search for a lock is in
`lock/`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from ..environment.packages_to_replace import RepairWork
    from ..model import Emit, Lock, LockedPackage, PackageSources, Profiles, RequestContext


@dataclass(frozen=True, kw_only=True)
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

    def virtual_packages(self, context: RequestContext) -> tuple[Mapping[str, str], ...]:
        """Return the virtual packages of the target for the solver."""

    def check(self, lock: Lock, context: RequestContext) -> None:
        """Raise LockError for a lock that does not fit the target."""


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
