"""State of one verification in progress.

It has fixed values, and the stages that are judged so far.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..environment import bytecode_outside_environment
from ..errors import UsageError
from ..model import (
    FRAMEWORKS,
    Environment,
    EnvironmentChange,
    Event,
    Evidence,
    Finding,
    FrameworkVerdict,
    Lock,
    Machine,
    StageResult,
    Status,
)
from ..system import process
from . import culprit_setting, read_libraries, run_probe
from .early_probes import EarlyProbes
from .options import Baseline, Options, device_of
from .python_paths import PythonPaths

Emit = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class EarlyImport:
    """A framework's probe that was started before its turn.

    It continues when `turn` gets a mapping, and ends when `turn` gets None.
    """

    framework: str
    turn: Future[Mapping[str, Any] | None]
    report: Future[run_probe.ProbeReport]


@dataclass(slots=True)
class Verification:
    """One verification in progress: its fixed values, and its stages so far.

    `machine` is set once stage 1 is judged. `blamed` is true if a variable was found guilty. `slices` are the
    UUIDs of MIG devices, each of which needs its own process.
    """

    early_probes: EarlyProbes
    env: Environment
    options: Options
    baseline: Baseline
    emit: Emit
    device: str
    ordinal: int | None
    environ: dict[str, str]
    installed: read_libraries.InstalledLibraries
    stages: list[StageResult]
    findings: list[Finding]
    verdicts: list[FrameworkVerdict]
    wrong: bool = False
    lowlevel: run_probe.ProbeReport | None = None
    machine: Machine | None = None  # as gpuenv itself reads it, once stage 1 is judged
    drift: tuple[EnvironmentChange, ...] = ()
    blamed: bool = False  # a variable caused the failure
    early_import: EarlyImport | None = None
    slices: tuple[str, ...] = ()  # UUIDs of MIG devices, each of which needs a process of its own

    @property
    def lock(self) -> Lock | None:
        return self.baseline.lock

    @property
    def paths(self) -> PythonPaths:
        return self.installed.paths

    @property
    def broken(self) -> str | None:
        """The first stage that failed."""
        return next((s.stage for s in self.stages if s.status == "fail"), None)

    def read_ahead(self) -> None:
        """Start the reading for the time in which gpuenv waits for children."""
        self.early_probes.read_ahead()

    def add(
        self,
        stage: str,
        judged: Judgement,
        seconds: float | None,
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
        self.findings.extend(judged.findings)
        self.emit(Event(kind="done", stage="verify", text=f"{stage}: {judged.status}: {judged.detail}"))

    def skip(self, stage: str, why: str, framework: str | None = None) -> None:
        self.add(stage, Judgement(status="skip", detail=why), None, framework)

    def skip_rest(self, stages: Sequence[str], framework: str | None = None) -> None:
        for stage in stages:
            self.skip(stage, f"the {self.broken} stage failed", framework)


def prepare(early_probes: EarlyProbes, options: Options, baseline: Baseline, emit: Emit) -> Verification:
    """Return a verification without stages.

    Raise UsageError for an unknown framework, and if the environment's Python does not start.
    """
    env = early_probes.env
    device, ordinal = device_of(options, baseline.lock)
    unknown = [f for f in options.frameworks if f not in FRAMEWORKS]
    if unknown:
        raise UsageError(
            f"unknown framework: {', '.join(unknown)}", hint=f"Supported frameworks: {', '.join(FRAMEWORKS)}."
        )
    emit(Event(kind="start", stage="verify", text=f"verifying {env.path}"))
    paths = early_probes.python_paths.result()
    env = replace(env, python_version=paths.version)
    for problem in paths.problems:
        emit(Event(kind="warning", stage="verify", text=problem))
    return Verification(
        early_probes=early_probes,
        env=env,
        options=options,
        baseline=baseline,
        emit=emit,
        device=device,
        ordinal=ordinal,
        environ=child_environ(early_probes, options),
        installed=read_libraries.read_installed(paths),
        stages=[],
        findings=[],
        verdicts=[],
    )


def child_environ(early_probes: EarlyProbes, options: Options) -> dict[str, str]:
    """Return the variables of children that import packages: the user's, and a folder for bytecode."""
    origins = [str(Path(f.origin).parent) for f in early_probes.python_paths.result().frameworks]
    return {
        **bytecode_outside_environment.choose_bytecode_folder(origins, options.cache_dir),
        **early_probes.environ,
    }


def find_suspects(run: Verification, framework: str | None = None) -> list[culprit_setting.Suspect]:
    return culprit_setting.list_suspects(
        process.environ(), run.installed.files, run.paths.user_site, framework
    )


def search_settings(
    run: Verification,
    suspects: Sequence[culprit_setting.Suspect],
    cured: Callable[[Mapping[str, str]], bool],
    mapped: Sequence[str],
) -> None:
    """Search the suspects, and put the finding before those of the failure itself."""
    if not suspects:
        return
    run.emit(
        Event(
            kind="note",
            stage="verify",
            text="running again without " + ", ".join(s.variable for s in suspects),
        )
    )
    guilty = culprit_setting.search_guilty(run.environ, suspects, cured)
    if guilty:
        said = run.findings[-1].cause if run.findings else None
        run.blamed = True
        run.findings.insert(0, culprit_setting.explain_settings(guilty, mapped, said))


@dataclass(frozen=True, kw_only=True, slots=True)
class FrameworkContext:
    """The values that the report of a framework is judged by.

    `owners` is resolved path -> package, for each library file. `own_families` are the library families that the
    environment contains. `devices` are the GPUs that stage 1 reported. `low_memory` is the report of stage 2 if little
    GPU memory is free. `explain_unloaded` returns the cause of a message of the loader.
    """

    device: str
    roots: Sequence[str] = ()
    owners: Mapping[str, read_libraries.LibraryPackage] = field(default_factory=dict)
    own_families: Sequence[str] = ()
    devices: Sequence[Mapping[str, Any]] = ()
    lock: Lock | None = None
    low_memory: Mapping[str, Any] | None = None
    explain_unloaded: Callable[[str], Finding | None] = lambda _: None


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """The result of a stage. `foreign` are libraries from outside that would be or were used."""

    status: Status
    detail: str
    evidence: tuple[Evidence, ...] = ()
    findings: tuple[Finding, ...] = ()
    foreign: tuple[str, ...] = ()


def fail_with(finding: Finding, foreign: tuple[str, ...] = ()) -> Judgement:
    """Return a failed stage with the title and the evidence of a finding."""
    return Judgement(
        status="fail", detail=finding.title, evidence=finding.evidence, findings=(finding,), foreign=foreign
    )
