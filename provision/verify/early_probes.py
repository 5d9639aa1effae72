"""Starts the first two probes, while gpuenv still reads the lock.

One reads the search paths of the target's Python. The other asks the driver, which needs no path. It then waits
for the paths of the libraries, and continues with stages 2 and 4.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import UsageError
from ..model import FRAMEWORKS
from ..system import process
from ..system.redaction import clean
from . import run_probe
from .options import Options, device_of
from .python_paths import FoundFramework, PythonPaths

if TYPE_CHECKING:
    from ..model import Environment, Machine
    from .drift import compare_wheels

# cuDNN and cuBLAS workspaces of one framework take about this much. With less, any cuDNN status can
# mean that memory ran out (a full H200 gave INTERNAL_ERROR and NOT_INITIALIZED).
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
    """A call in another thread, made at most once. `result` waits for it."""

    def __init__(self, pool: ThreadPoolExecutor, call: Callable[[], Any]) -> None:
        self._pool, self._call = pool, call
        self._future: Future[Any] | None = None

    def start(self) -> None:
        """Begin, unless it has begun."""
        if self._future is None:
            self._future = self._pool.submit(self._call)

    def result(self) -> Any:
        """Return the result of the call, or raise its exception."""
        self.start()
        assert self._future is not None
        return self._future.result()


@dataclass(frozen=True, kw_only=True)
class EarlyProbes:
    """The first reports of a verification, which may still be under way.

    `driver_report` is None if the driver is not queried. `paths` are the library paths that its probe waits
    for. `machine` is this machine as gpuenv reads it. `reading` and `sizes` are work for the time in which
    gpuenv waits for children.
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
        """End the driver's probe after stage 1, because no library will be loaded."""
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
) -> Iterator[EarlyProbes]:
    """Start the first two probes. They run when the block begins, and no child is left at its end.

    Without `driver` only the search paths are read. `machine` reads the driver and the GPUs while the driver's
    probe runs. `meanwhile` is called while gpuenv waits for children. Raise UsageError for an unknown device.
    """
    _, ordinal = device_of(options, None)
    environ, paths = process.environ(), Future[LibraryPaths | None]()
    environ.pop("PYTHONDONTWRITEBYTECODE", None)  # gpuenv decides where bytecode is written
    pool, report, read = ThreadPoolExecutor(5), None, None
    where, looks = _start_path_probe(pool, env, environ, options.timeout)
    try:
        if driver and options.device != "cpu":
            seconds = min(options.timeout, SECONDS)
            child = run_probe.ChildSettings(environ=environ, timeout=seconds, later_input=paths.result)
            report, asks = _start_driver_probe(pool, env, ordinal, child)
            asks.wait()
        # Imports in this thread would delay the start of these two children.
        looks.wait()
        read = pool.submit(machine) if report and machine else None
        reading = BackgroundCall(pool, lambda: meanwhile(where.result())) if meanwhile else None
        sizes = BackgroundCall(pool, lambda: _read_sizes(env)) if env.made_by_gpuenv else None
        yield EarlyProbes(
            env=env, environ=environ, python_paths=where, paths=paths, driver_report=report, machine=read, reading=reading,
            sizes=sizes,
        )  # fmt: skip
    finally:
        if not paths.done():
            paths.set_result(None)
        if not where.done() or (report and not report.done()):
            process.end_children()
        pool.shutdown()


def _start_path_probe(
    pool: ThreadPoolExecutor, env: Environment, environ: Mapping[str, str], timeout: float
) -> tuple[Future[PythonPaths], threading.Event]:
    plain = {**environ, "PYTHONDONTWRITEBYTECODE": "1"}
    return start_in_thread(pool, lambda on_start: read_python_paths(env, plain, timeout, on_start))


def _start_driver_probe(
    pool: ThreadPoolExecutor, env: Environment, ordinal: int | None, child: run_probe.ChildSettings
) -> tuple[Future[run_probe.ProbeReport], threading.Event]:
    return start_in_thread(pool, lambda on_start: ask_driver(env, ordinal, replace(child, on_start=on_start)))


def _read_sizes(env: Environment) -> compare_wheels.WrongSizes:
    from .drift import compare_wheels

    return compare_wheels.read_wrong_sizes(Path(env.path))


def start_in_thread(
    pool: ThreadPoolExecutor, call: Callable[[Callable[[], None]], T]
) -> tuple[Future[T], threading.Event]:
    """Start a call in another thread. Return its future, and an event that is set once its child runs or cannot
    run."""
    runs = threading.Event()

    def work() -> T:
        try:
            return call(runs.set)
        finally:
            runs.set()

    return pool.submit(work), runs


def read_python_paths(
    env: Environment,
    environ: Mapping[str, str],
    timeout: float,
    on_start: Callable[[], None] | None = None,
) -> PythonPaths:
    """Read where the target's Python looks for packages and frameworks, with the user's settings.

    If these settings stop that Python (a broken sitecustomize), it is started again without them, and the
    problem is reported. Raise UsageError if it cannot be started at all.
    """
    from ..environment import interpreter

    problems: list[str] = []
    for options in ((), ("-I",)):
        child = run_probe.ChildSettings(
            environ=environ, timeout=min(timeout, 60.0), options=options, on_start=on_start
        )
        try:
            report = run_probe.run_probe(
                env.python, ("report", "python_search_paths"), {"frameworks": list(FRAMEWORKS)}, child
            )
        except OSError:
            interpreter.ask_version(env)  # the same error, with a hint
            raise
        where = report.last("where")
        if where is not None:
            python_path = [os.path.abspath(p) for p in environ.get("PYTHONPATH", "").split(":") if p]
            return _make_python_paths(env, where, python_path, problems)
        last = report.words(1)
        problems.append(f"{report.death or 'it reported nothing'}{': ' + last[0].text if last else ''}")
    interpreter.ask_version(env)  # raises a clearer error for a file that is no Python
    raise UsageError(
        f"the search path of {env.python} cannot be read: {problems[-1]}",
        hint="The Python of the environment does not work. Create the environment again.",
        log=clean(report.finished.stderr)[-4000:] or None,
    )


def _is_site(folder: str) -> bool:
    """Return whether a folder is a site-packages folder by its name. A .pth file can add such folders."""
    return os.path.basename(folder) in ("site-packages", "dist-packages")


def _make_python_paths(
    env: Environment, where: run_probe.Record, python_path: list[str], problems: list[str]
) -> PythonPaths:
    """Return the paths in a report. `python_path` are the entries of PYTHONPATH, which belong to the user."""
    frameworks = []
    for name, spec in where["frameworks"].items():
        if spec is None:
            continue
        if "error" in spec or not spec["origin"]:
            problems.append(f"{name}: {spec.get('error') or 'a folder without a package in it'}")
            continue
        package = os.path.dirname(spec["origin"])
        folder = package if os.path.basename(package) != name else os.path.dirname(package)
        frameworks.append(FoundFramework(name=name, origin=spec["origin"], site=folder))
    user = where["user_site"]
    sites = [
        s
        for s in where["path"]
        if s in where["sites"] or (_is_site(s) and s != user and s not in python_path)
    ]
    # Where the frameworks themselves were installed with --user, that folder is the environment's.
    if user in where["path"] and env.manager is None and any(f.site == user for f in frameworks):
        sites.append(user)
    is_managed = env.manager is not None
    roots = dict.fromkeys([env.path] * is_managed + [os.path.realpath(env.path)] * is_managed + sites)
    roots.update(dict.fromkeys(os.path.realpath(s) for s in sites))
    return PythonPaths(
        prefix=where["prefix"],
        version=where["version"],
        sites=tuple(dict.fromkeys(sites)),
        roots=tuple(roots),
        user_site=user,
        frameworks=tuple(frameworks),
        problems=tuple(problems),
    )
