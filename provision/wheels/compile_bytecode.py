"""Compiles an environment's modules, the first ones during the download of other wheels.

The dependencies of a framework beside its libraries are small, and have half of all modules (torch: sympy, networkx,
pip). A processor has little to do while GBs are downloaded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from ..model import Event, LockedPackage
from ..system import process
from . import bytecode_cache

_SMALL = 10_000_000  # bytes: pure Python wheels are smaller (sympy, the largest of them here, has 6 MB)
_WORTH = 100_000_000  # bytes of other wheels that make a second start of the installer negligible


def split_small_packages(
    packages: tuple[LockedPackage, ...],
) -> tuple[tuple[LockedPackage, ...], tuple[LockedPackage, ...]]:
    """Return the packages to fetch first, and the rest. Small packages are first if the others take a while, else all
    are."""
    small = tuple(p for p in packages if p.size and p.size < _SMALL)
    others = tuple(p for p in packages if p not in small)
    if small and sum(p.size or 0 for p in others) >= _WORTH:
        return small, others
    return packages, ()


@dataclass
class EnvironmentCompiler:
    """A compiler of one environment's modules: `begin` with some wheels, `finish` with all.

    At the end no child and no draft is left.
    """

    env: Path
    python: Path
    cache: Path
    emit: Callable[[Event], None]
    _found: list[LockedPackage] = field(default_factory=list)
    _parts: list[bytecode_cache.Part] = field(default_factory=list)
    _unkept: str | None = None
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    _ahead: list[Future[None]] = field(default_factory=list)

    def __enter__(self) -> EnvironmentCompiler:  # noqa: PYI034  # typing has Self from Python 3.11 on
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._stop()
        for part in self._parts:
            part.discard()

    def begin(self, packages: Sequence[LockedPackage]) -> None:
        """Compile the installed modules at the lowest priority in the background."""
        self._ahead.append(self._pool.submit(self._compile_ahead, packages))

    def finish(self, packages: Sequence[LockedPackage]) -> None:
        """Compile the remaining modules, and cache all for other environments. Raises BuildError."""
        self._stop()
        self._find([p for p in packages if p not in self._found])
        jobs = [job for part in self._parts for job in part.jobs()]
        if jobs:
            self.emit(Event(kind="start", stage="build", text=f"compiling {len(jobs)} modules"))
            self._unkept = bytecode_cache.compile_jobs(jobs, self.python) or self._unkept
        self._keep()
        if self._parts:
            bytecode_cache.note(self.env, self._parts)

    def _stop(self) -> None:
        """End the compilation in the background. Finished modules are in the drafts, and `finish` compiles the
        others."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        while not all(work.done() for work in self._ahead):  # it may be starting another child
            process.end_children()
            time.sleep(0.01)

    def _compile_ahead(self, packages: Sequence[LockedPackage]) -> None:
        jobs = [job for part in self._find(packages) for job in part.jobs()]
        bytecode_cache.compile_jobs(jobs, self.python, idle=True)

    def _find(self, packages: Sequence[LockedPackage]) -> list[bytecode_cache.Part]:
        """Return the parts of some packages, each with a draft if modules must be compiled and a draft is possible."""
        parts = bytecode_cache.filled(packages, self.env, self.python, self.cache)
        self._parts += parts
        self._found += packages  # not earlier: after an interrupted search the packages are searched again
        try:
            for part in parts:
                if part.lacking:
                    part.begin()
        except OSError as error:
            self._unkept = error.strerror or str(error)
        return parts

    def _keep(self) -> None:
        try:
            lacking = [part for part in self._parts if part.lacking]
            for part in [] if self._unkept else lacking:
                part.keep()
            if lacking:
                bytecode_cache.tidy(self.cache)
        except OSError as error:
            self._unkept = error.strerror or str(error)
        if self._unkept:
            text = f"the compiled modules are not cached for the next environment: {self._unkept}"
            self.emit(Event(kind="note", stage="build", text=text))
