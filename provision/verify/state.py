"""One proof: its options, the two probes that it starts early, and the stages judged so far.

The early probes run while gpuenv still reads the lock. One reads the search paths of the target's Python. The other
asks the driver, which needs no path. It then waits for the paths of the libraries, and continues with runtime and cudnn.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..errors import UsageError
from ..model import (
    FRAMEWORKS,
    Device,
    Emit,
    Environment,
    EnvironmentChange,
    Event,
    Evidence,
    Finding,
    FrameworkVerdict,
    Lock,
    Machine,
    Profiles,
    StageResult,
    Status,
)
from ..model.values import Value
from ..system import process
from ..system.probes import Record
from ..system.redaction import clean
from .libraries import NVIDIA_LIBRARY, InstalledLibraries, PythonPaths
from .probe import ProbeReport, run_probe

if TYPE_CHECKING:
    from ..environment.drift import WrongFiles
    from .packages import Reading

# cuDNN and cuBLAS workspaces of one framework take about this much. With less, any cuDNN status can
# mean that memory ran out (a full H200 gave INTERNAL_ERROR and NOT_INITIALIZED).
LOW_MEMORY_MIB = 1024
LAYERS = ("driver", "runtime", "libraries", "cudnn")
"""The stages of driver and CUDA, below every framework."""
FRAMEWORK_STAGES = ("framework", "convolution", "matmul", "attention", "loaded")
"""The stages of each framework."""
SECONDS = 120.0

LibraryPaths = Mapping[str, Any]
Diagnose = Callable[[str, Device], tuple[Finding, ...]]
T = TypeVar("T")


class Options(Value):
    """Options of a proof. `timeout` is in seconds, for each child.

    `device` is cpu, all, cuda:N, or None for the lock's device (cuda without a lock). Empty `frameworks` means
    all installed ones. With `locked` every difference from the lock is a failure.
    """

    quick: bool = False
    deep: bool = False
    device: str | None = None
    frameworks: tuple[str, ...] = ()
    timeout: float = 300.0
    strict: bool = False
    locked: bool = False


def device_of(options: Options, lock: Lock | None) -> tuple[str, int | None]:
    """Return ("cpu" | "cuda" | "cuda:N", N): the requested device, else the lock's.

    Raise UsageError for an unknown device.
    """
    device = options.device or (lock.plan.device if lock else "cuda")
    if device == "cpu":
        return "cpu", None
    if device in ("all", "cuda", "auto"):
        return "cuda", None
    match = re.fullmatch(r"cuda:(\d+)", device)
    if not match:
        hint = "Did you mean cuda?" if device.lower().startswith(("gpu", "nvidia")) else "N starts at 0"
        raise UsageError(f"--device {device}: expected cpu, all, cuda or cuda:N", hint=hint)
    return device, int(match[1])


def check_options(options: Options) -> None:
    """Raise UsageError for an unknown device or framework."""
    device_of(options, None)
    for name in options.frameworks:
        if name not in FRAMEWORKS:
            raise UsageError(f"unknown framework {name!r}: gpuenv knows {', '.join(FRAMEWORKS)}")


# --- the early probes ----------------------------------------------------------------------------


class Work(Generic[T]):
    """Work of a thread, begun by `start` or by the first who asks for its result."""

    def __init__(self, pool: ThreadPoolExecutor, call: Callable[[], T]) -> None:
        self.start: Callable[[], Future[T]] = functools.cache(lambda: pool.submit(call))

    def result(self) -> T:
        return self.start().result()


class EarlyProbes(Value):
    """The first reports of a proof, which may still be under way.

    `gpu_report` is None if the driver is not queried. `libraries` are the paths that its probe waits for.
    `machine` is this machine as gpuenv sees it, `reading` what the stage `packages` reads, and `sizes` are the files of
    another size than recorded. Those of them in `ahead` are read while children are waited for. `profiles` loads the rows.
    """

    env: Environment
    environ: dict[str, str]
    profiles: Callable[[], Profiles]
    python_paths: Future[PythonPaths]
    libraries: Future[LibraryPaths | None]
    gpu_report: Future[ProbeReport] | None
    machine: Work[Machine]
    reading: Work[Reading]
    sizes: Work[WrongFiles]
    ahead: tuple[Work[Any], ...]

    def read_ahead(self) -> None:
        for work in self.ahead:
            work.start()


@contextlib.contextmanager
def run_early_probes(
    env: Environment,
    options: Options,
    *,
    driver: bool = True,
    machine: Callable[[], Machine],
    profiles: Callable[[], Profiles],
    packages: bool = False,
) -> Iterator[EarlyProbes]:
    """Start the first two probes. They run when the block begins, and no child is left at its end.

    Without `driver` only the search paths are read. `machine` reads the driver and the GPUs while the probe of the GPU
    runs. With `packages` these are read ahead, by the rows of `profiles`. Raise UsageError for an unknown device or
    framework.
    """
    check_options(options)
    environ, libraries = process.environ(), Future[LibraryPaths | None]()
    # Children write bytecode into gpuenv's environments only.
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    environ |= {} if env.made_by_gpuenv else {"PYTHONDONTWRITEBYTECODE": "1"}
    pool, report = ThreadPoolExecutor(5), None

    def read_sizes() -> WrongFiles:
        from ..environment.drift import read_wrong_sizes

        return read_wrong_sizes(Path(env.path))

    def read_packages() -> Reading:
        from .packages import read_packages

        return read_packages(env, paths.result(), environ, profiles())

    read_paths = functools.partial(read_python_paths, env, environ, options.timeout)
    paths, path_child = start_in_thread(pool, read_paths)
    try:
        if driver:
            ask = functools.partial(ask_gpu, env, environ, options, libraries.result)
            report, gpu_child = start_in_thread(pool, ask)
            gpu_child.wait()
        # Imports in this thread would delay the start of these two children.
        path_child.wait()
        here, reading, sizes = Work(pool, machine), Work(pool, read_packages), Work(pool, read_sizes)
        if report:
            here.start()
        ahead = [sizes] if env.made_by_gpuenv else []
        yield EarlyProbes(
            env=env, environ=environ, profiles=profiles, python_paths=paths, libraries=libraries, gpu_report=report, machine=here,
            reading=reading, sizes=sizes, ahead=(*ahead, *([reading] if packages else [])),
        )  # fmt: skip
    finally:
        if not libraries.done():
            libraries.set_result(None)
        if not paths.done() or (report and not report.done()):
            process.end_children()
        pool.shutdown()


def start_in_thread(pool: ThreadPoolExecutor, call: Callable[..., T]) -> tuple[Future[T], threading.Event]:
    """Start a call in another thread. Return its future, and an event that is set once its child runs or cannot
    run."""
    runs = threading.Event()

    def work() -> T:
        try:
            return call(on_start=runs.set)
        finally:
            runs.set()

    return pool.submit(work), runs


def ask_gpu(
    env: Environment,
    environ: Mapping[str, str],
    options: Options,
    libraries: Callable[[], LibraryPaths | None],
    on_start: Callable[[], None] | None = None,
) -> ProbeReport:
    """Run driver, runtime and cudnn in one child. It waits for the paths of the `libraries` after the first."""
    request = {
        "ordinal": device_of(options, None)[1], "low_memory_mib": LOW_MEMORY_MIB, "pattern": NVIDIA_LIBRARY,
        "conditions": not options.quick,
    }  # fmt: skip
    return run_probe(
        env.python,
        ("report", "devices", "gpu"),
        request,
        environ=environ,
        timeout=min(options.timeout, SECONDS),
        options=("-I", "-S", "-B"),  # only the standard library is imported, and its bytecode exists
        later_input=libraries,
        on_start=on_start,
    )


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
        try:
            report = run_probe(
                env.python,
                ("report", "python_search_paths"),
                {"frameworks": list(FRAMEWORKS)},
                environ={**environ, "PYTHONDONTWRITEBYTECODE": "1"},
                timeout=min(timeout, 60.0),
                options=options,
                on_start=on_start,
            )
        except OSError:
            interpreter.ask_version(env)  # the same error, with a hint
            raise
        if where := report.last("where"):
            python_path = [os.path.abspath(p) for p in environ.get("PYTHONPATH", "").split(":") if p]
            return _make_python_paths(env, where, python_path, problems)
        words = "".join(f": {e.text}" for e in report.words(1))
        problems.append(f"{report.death or 'it reported nothing'}{words}")
    interpreter.ask_version(env)  # raises a clearer error for a file that is no Python
    raise UsageError(
        f"the search path of {env.python} cannot be read: {problems[-1]}",
        hint="The Python of the environment does not work. Create the environment again.",
        log=clean(report.finished.stderr)[-4000:] or None,
    )


def _make_python_paths(
    env: Environment, where: Record, python_path: Sequence[str], problems: list[str]
) -> PythonPaths:
    """Return the paths in a report. `python_path` are the entries of PYTHONPATH, which belong to the user."""
    frameworks, user = {}, where["user_site"]
    for name, spec in where["frameworks"].items():
        if spec and (origin := spec.get("origin")) and "error" not in spec:
            frameworks[name] = origin
        elif spec:
            problems.append(f"{name}: {spec.get('error') or 'a folder without a package in it'}")
    sites = [
        s
        for s in where["path"]
        if s in where["sites"]
        # a .pth file can add folders of packages too
        or (os.path.basename(s) in ("site-packages", "dist-packages") and s not in (user, *python_path))
    ]
    # Where the frameworks themselves were installed with --user, that folder is the environment's.
    folders = (Path(origin).parent for origin in frameworks.values())
    installed = {str(f.parent if f.name in frameworks else f) for f in folders}
    if env.manager is None and user in where["path"] and user in installed:
        sites.append(user)
    own = [] if env.manager is None else [env.path, os.path.realpath(env.path)]
    return PythonPaths(
        prefix=where["prefix"],
        include=where["include"],
        version=where["version"],
        sites=tuple(dict.fromkeys(sites)),
        roots=tuple(dict.fromkeys((*own, *sites, *map(os.path.realpath, sites)))),
        user_site=user,
        frameworks=frameworks,
        problems=tuple(problems),
    )


# --- a proof in progress -------------------------------------------------------------------------


class Judgement(Value, kw_only=False):
    """The result of a stage. `foreign` are libraries from outside that would be or were used."""

    status: Status
    detail: str
    evidence: tuple[Evidence, ...] = ()
    finding: Finding | None = None
    foreign: tuple[str, ...] = ()


def fail_with(finding: Finding, foreign: tuple[str, ...] = ()) -> Judgement:
    """Return a failed stage with the title and the evidence of a finding."""
    return Judgement("fail", finding.title, finding.evidence, finding, foreign)


@dataclasses.dataclass(kw_only=True, slots=True)
class State:
    """A proof in progress: its fixed values, and its stages so far.

    The environment is compared with its lock. `diagnose` finds causes in a text: no stage imports another. `machine` has the driver and the GPUs that the environment's reports must agree with.
    It is set once the stage driver is judged. `blamed` is true if a variable was found guilty. `started` lets a
    framework's probe that was started before its turn continue, and returns its report. `mig_devices` are the UUIDs of
    MIG devices, each of which needs its own process.
    """

    early: EarlyProbes
    env: Environment
    options: Options
    emit: Emit
    device: str
    ordinal: int | None
    environ: dict[str, str]
    installed: InstalledLibraries
    diagnose: Diagnose
    lock: Lock | None = None
    stages: list[StageResult] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    verdicts: list[FrameworkVerdict] = field(default_factory=list)
    wrong: bool = False
    gpu_report: ProbeReport | None = None
    machine: Machine | None = None
    drift: tuple[EnvironmentChange, ...] = ()
    blamed: bool = False
    started: dict[str, Callable[[], ProbeReport]] = field(default_factory=dict)
    mig_devices: tuple[str, ...] = ()

    @property
    def paths(self) -> PythonPaths:
        return self.installed.paths

    @property
    def failed(self) -> StageResult | None:
        """The first stage that failed."""
        return next((s for s in self.stages if s.status == "fail"), None)

    @property
    def low_memory(self) -> Mapping[str, Any] | None:
        """The values of the stage runtime if little GPU memory is free, else None."""
        return find_low_memory(self.gpu_report) if self.gpu_report else None

    def explain(self, text: str) -> Finding | None:
        """Return the cause that the words of a process show, or None if they allow several."""
        found = self.diagnose(text, "cpu" if self.device == "cpu" else "cuda")
        return found[0] if found and found[0].confidence != "possible" else None

    def announce(self, kind: str, text: str) -> None:
        self.emit(Event(kind, "verify", text))

    def add(
        self,
        stage: str,
        judged: Judgement,
        seconds: float | None = None,
        framework: str | None = None,
        device: str | None = None,
    ) -> None:
        self.stages.append(
            StageResult(
                stage=stage,
                status=judged.status,
                detail=judged.detail,
                framework=framework,
                device=device or self.device,
                seconds=None if seconds is None else round(seconds, 3),
                evidence=judged.evidence,
            )
        )
        self.findings += [judged.finding] if judged.finding else []
        self.announce("done", f"{stage}: {judged.status}: {judged.detail}")

    def skip(self, stages: Sequence[str], why: str, framework: str | None = None) -> None:
        for stage in stages:
            self.add(stage, Judgement("skip", why), None, framework)


def find_low_memory(report: ProbeReport) -> Mapping[str, Any] | None:
    """Return the values of the stage runtime if little GPU memory is free, else None."""
    saw = report.values("runtime")
    return saw if any(m["free_mib"] < LOW_MEMORY_MIB for m in saw.get("memory", ())) else None
