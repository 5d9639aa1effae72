"""One verification in progress: its fixed values, and the stages that are judged so far."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..environment import bytecode_folder
from ..errors import UsageError
from ..model import (
    FRAMEWORKS,
    CudnnRelease,
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
from .locate import PythonPaths
from .options import Options, device_of
from .prefetch import Prefetch

Emit = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class EarlyProbe:
    """A framework's child that was started before its turn. `turn` lets it go on, with None it ends."""

    framework: str
    turn: Future[Mapping[str, Any] | None]
    told: Future[run_probe.ProbeReport]


@dataclass(slots=True)
class Verification:
    """One verification under way: what is fixed for it, and the stages as they come."""

    begun: Prefetch
    env: Environment
    options: Options
    lock: Lock | None
    releases: Sequence[CudnnRelease]
    emit: Emit
    device: str
    ordinal: int | None
    environ: dict[str, str]
    found: PythonPaths
    packages: tuple[read_libraries.LibraryPackage, ...]
    files: tuple[str, ...]
    builds: dict[str, bool]
    stages: list[StageResult]
    findings: list[Finding]
    verdicts: list[FrameworkVerdict]
    wrong: bool = False
    told: run_probe.ProbeReport | None = None
    read_machine: Callable[[], Machine] | None = None
    machine: Machine | None = None  # as gpuenv itself reads it, once stage 1 is judged
    drift: tuple[EnvironmentChange, ...] = ()
    blamed: bool = False  # a variable was found guilty of what failed
    ahead: EarlyProbe | None = None
    slices: tuple[str, ...] = ()  # UUIDs of MIG devices, each of which needs a process of its own

    @property
    def broken(self) -> str | None:
        """The first stage that failed."""
        return next((s.stage for s in self.stages if s.status == "fail"), None)

    def read_ahead(self) -> None:
        """Start what is to be read while children are waited for."""
        self.begun.read_ahead()

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


def prepare(
    begun: Prefetch, options: Options, lock: Lock | None, releases: Sequence[CudnnRelease], emit: Emit
) -> Verification:
    """What is fixed for one verification. Raises UsageError for a framework that gpuenv does not know, and
    where the environment's Python does not even start."""
    env = begun.env
    device, ordinal = device_of(options, lock)
    unknown = [f for f in options.frameworks if f not in FRAMEWORKS]
    if unknown:
        raise UsageError(
            f"unknown framework: {', '.join(unknown)}", hint=f"Supported frameworks: {', '.join(FRAMEWORKS)}."
        )
    emit(Event(kind="start", stage="verify", text=f"verifying {env.path}"))
    found = begun.python_paths.result()
    env = replace(env, python_version=found.version)
    for problem in found.problems:
        emit(Event(kind="warning", stage="verify", text=problem))
    packages = read_libraries.read_packages(found)
    return Verification(
        begun=begun,
        env=env,
        options=options,
        lock=lock,
        releases=releases,
        emit=emit,
        device=device,
        ordinal=ordinal,
        environ=child_environ(begun, options),
        found=found,
        packages=packages,
        files=read_libraries.find_libraries(found),
        builds=read_libraries.find_cuda_builds(found, packages),
        stages=[],
        findings=[],
        verdicts=[],
    )


def child_environ(begun: Prefetch, options: Options) -> dict[str, str]:
    """The variables of children that import packages: the user's, with a place for bytecode."""
    origins = [str(Path(f.origin).parent) for f in begun.python_paths.result().frameworks]
    return {**bytecode_folder.choose_bytecode_folder(origins, options.cache_dir), **begun.environ}


def find_suspects(run: Verification, framework: str | None = None) -> list[culprit_setting.Suspect]:
    return culprit_setting.list_suspects(process.environ(), run.files, run.found.user_site, framework)


def search_settings(
    run: Verification,
    found: Sequence[culprit_setting.Suspect],
    cured: Callable[[Mapping[str, str]], bool],
    mapped: Sequence[str],
) -> None:
    """Search the suspects and put what is found in front of what the failure itself said."""
    if not found:
        return
    run.emit(
        Event(
            kind="note", stage="verify", text="running again without " + ", ".join(s.variable for s in found)
        )
    )
    guilty = culprit_setting.search_guilty(run.environ, found, cured)
    if guilty:
        said = run.findings[-1].cause if run.findings else None
        run.blamed = True
        run.findings.insert(0, culprit_setting.explain_settings(guilty, mapped, said))


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """How a stage came out; `foreign` are libraries of others that would be or were used."""

    status: Status
    detail: str
    evidence: tuple[Evidence, ...] = ()
    findings: tuple[Finding, ...] = ()
    foreign: tuple[str, ...] = ()


def fail_with(finding: Finding, foreign: tuple[str, ...] = ()) -> Judgement:
    """A stage that failed for a known cause: the cause's title and evidence are the stage's."""
    return Judgement(
        status="fail", detail=finding.title, evidence=finding.evidence, findings=(finding,), foreign=foreign
    )
