"""What is asked of a target first, in two children at once, while gpuenv itself still reads the lock.

Where the target's Python looks for packages, and the driver, which needs none of that: it waits for the
paths of the libraries, and goes on with the stages above it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..system import process
from . import run_probe
from .locate import PythonPaths, read_python_paths
from .options import Options, device_of

if TYPE_CHECKING:
    from ..model import Environment, Machine
    from .drift import compare_wheels

# cuDNN and cuBLAS workspaces of one framework take about this much; with less, any cuDNN status may
# only mean that memory ran out (a full H200 gave INTERNAL_ERROR and NOT_INITIALIZED).
LOW_MEMORY_MIB = 1024
SECONDS = 120.0
PROBES = ("report", "driver", "runtime", "cudnn", "lowlevel")
PATTERN = r"^lib(cudnn|cublas|cublasLt|cudart|nvrtc|nvJitLink)[._-]"

LibraryPaths = Mapping[str, Any]
T = TypeVar("T")


def ask_driver(
    env: Environment, ordinal: int | None, child: run_probe.ChildSettings
) -> run_probe.ProbeReport:
    """Run stages 1, 2 and 4 in one child. Its later input is the paths of the libraries (`choose_libraries`)."""
    request = {"ordinal": ordinal, "low_memory_mib": LOW_MEMORY_MIB, "pattern": PATTERN}
    # Only the standard library is imported. Its bytecode exists, and none is written.
    return run_probe.run_probe(env.python, PROBES, request, replace(child, options=("-I", "-S", "-B")))


class BackgroundCall:
    """A call that a thread makes while others wait for children, at most once; `result` waits for it."""

    def __init__(self, pool: ThreadPoolExecutor, call: Callable[[], Any]) -> None:
        self._pool, self._call = pool, call
        self._future: Future[Any] | None = None

    def start(self) -> None:
        """Begin, unless it has begun."""
        if self._future is None:
            self._future = self._pool.submit(self._call)

    def result(self) -> Any:
        """What the call returns, and raises."""
        self.start()
        assert self._future is not None
        return self._future.result()


@dataclass(frozen=True, kw_only=True)
class Prefetch:
    """A verification of which the first answers are under way. `told` is None where the driver was not
    asked; `paths` is what it waits for. `machine` is this machine as gpuenv reads it, where that was asked for.
    `reading` and `sizes` (of an environment that gpuenv made) are work for the time in which children are waited for.
    """

    env: Environment
    environ: dict[str, str]
    python_paths: Future[PythonPaths]
    paths: Future[LibraryPaths | None]
    driver_report: Future[run_probe.ProbeReport] | None
    machine: Future[Machine] | None = None
    reading: BackgroundCall | None = None
    sizes: BackgroundCall | None = None

    def read_ahead(self) -> None:
        """Start what is to be read while children are waited for."""
        for ahead in (self.sizes, self.reading):
            if ahead:
                ahead.start()

    def drop(self) -> None:
        """The driver's child need not go on: nothing is to be loaded."""
        if not self.paths.done():
            self.paths.set_result(None)


@contextlib.contextmanager
def begin(
    env: Environment,
    options: Options,
    *,
    driver: bool = True,
    machine: Callable[[], Machine] | None = None,
    meanwhile: Callable[[PythonPaths], Any] | None = None,
) -> Iterator[Prefetch]:
    """Ask the target's Python where it looks, and with `driver` its driver as well: both run when the block
    begins. `machine` reads the driver and the GPUs, where the driver is asked; `meanwhile` is called once children are
    waited for.

    At the end no child is left, whatever happened in between. Raises UsageError for a device that cannot
    be meant.
    """
    _, ordinal = device_of(options, None)
    environ, paths = process.environ(), Future[LibraryPaths | None]()
    environ.pop("PYTHONDONTWRITEBYTECODE", None)  # where bytecode goes is gpuenv's to say (probe.bytecode)
    plainly = {**environ, "PYTHONDONTWRITEBYTECODE": "1"}
    pool, report, read = ThreadPoolExecutor(5), None, None
    where, looks = start_in_thread(
        pool, lambda on_start: read_python_paths(env, plainly, options.timeout, on_start)
    )
    try:
        if driver and options.device != "cpu":
            child = run_probe.ChildSettings(
                environ=environ, timeout=min(options.timeout, SECONDS), later_input=paths.result
            )
            report, asks = start_in_thread(
                pool, lambda on_start: ask_driver(env, ordinal, replace(child, on_start=on_start))
            )
            asks.wait()
        # What this thread does next (importing, parsing) would keep those two from starting their children.
        looks.wait()
        read = pool.submit(machine) if report and machine else None
        ahead = BackgroundCall(pool, lambda: meanwhile(where.result())) if meanwhile else None
        sizes = BackgroundCall(pool, lambda: _read_sizes(env)) if env.made_by_gpuenv else None
        yield Prefetch(
            env=env, environ=environ, python_paths=where, paths=paths, driver_report=report, machine=read, reading=ahead,
            sizes=sizes,
        )  # fmt: skip
    finally:
        if not paths.done():
            paths.set_result(None)
        if not where.done() or (report and not report.done()):
            process.end_children()
        pool.shutdown()


def _read_sizes(env: Environment) -> compare_wheels.WrongSizes:
    from .drift import compare_wheels

    return compare_wheels.read_wrong_sizes(Path(env.path))


def start_in_thread(
    pool: ThreadPoolExecutor, call: Callable[[Callable[[], None]], T]
) -> tuple[Future[T], threading.Event]:
    """A call in another thread, and whether its child runs, or never will."""
    runs = threading.Event()

    def work() -> T:
        try:
            return call(runs.set)
        finally:
            runs.set()

    return pool.submit(work), runs
