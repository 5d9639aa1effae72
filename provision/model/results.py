"""Results of commands: one JSON document for each command that has no other value."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from .environment import Environment
from .machine import Finding, Machine
from .plan import Lock, Plan
from .verdict import Verdict, is_expected


@dataclass(frozen=True, kw_only=True, slots=True)
class RestoredPackage:
    """A restored package: the version it `had` (None if it was missing), and has `now`."""

    name: str
    had: str | None
    now: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RemovedPackage:
    """A removed package that the lock does not name."""

    name: str
    version: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptPackage:
    """A package that the lock does not name, and that was kept."""

    name: str
    version: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RepairResult:
    """The result of `repair`. `packages` and `removed` are empty if the environment equalled its lock."""

    SCHEMA: ClassVar[str] = "gpuenv.repair/1"

    packages: tuple[RestoredPackage, ...] = ()
    removed: tuple[RemovedPackage, ...] = ()
    left: tuple[KeptPackage, ...] = ()
    environment: Environment | None = None
    verdict: Verdict | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class StepFailure:
    """The failure of a last step, with the name of the error's class ("usage", "build")."""

    name: str
    message: str
    hint: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CreateResult:
    """The result of `create`, with the values of all stages that ran.

    `kernel` is the name of a requested Jupyter kernel, and `kernel_error` the reason why there is none.
    """

    SCHEMA: ClassVar[str] = "gpuenv.create/1"

    machine: Machine | None = None
    plan: Plan | None = None
    lock: Lock | None = None
    environment: Environment | None = None
    verdict: Verdict | None = None
    kernel: str | None = None
    kernel_error: StepFailure | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedFramework:
    """A framework that an environment was created for."""

    name: str
    version: str
    cuda: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedEnvironment:
    """An environment that gpuenv made, as `list` shows it.

    `verdict` is the last one, and `verified` its time (ISO 8601, UTC). `bytes` is its size on disk, or None if the
    measurement would take too long. `shared_bytes` is the part in files that have other names elsewhere.
    """

    path: str
    manager: str | None = None
    frameworks: tuple[ListedFramework, ...] = ()
    cuda: str | None = None
    cudnn: str | None = None
    python: str | None = None
    verdict: str | None = None
    verified: str | None = None
    bytes: int | None = None
    shared_bytes: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentList:
    """The environments that gpuenv made on this machine."""

    SCHEMA: ClassVar[str] = "gpuenv.list/1"

    environments: tuple[ListedEnvironment, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class RemovedEnvironment:
    """A removed environment: its size, the space that was freed, and its removed Jupyter kernels."""

    path: str
    bytes: int
    freed_bytes: int
    kernels: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoveResult:
    """The result of `remove`."""

    SCHEMA: ClassVar[str] = "gpuenv.remove/1"

    removed: tuple[RemovedEnvironment, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageChange:
    """A package before and after a command, None if it is missing. `size` is that of the file to download, in bytes."""

    name: str
    before: str | None = None
    after: str | None = None
    size: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Preview:
    """The effects that a command with `--dry-run` would have.

    `path` is the environment or folder to change. `writes` and `removes` are paths. `download_bytes` is an upper
    limit, because the cache may already have files.
    """

    SCHEMA: ClassVar[str] = "gpuenv.preview/1"

    command: str
    path: str | None = None
    writes: tuple[str, ...] = ()
    removes: tuple[str, ...] = ()
    packages: tuple[PackageChange, ...] = ()
    download_bytes: int | None = None
    freed_bytes: int | None = None
    free_bytes: int | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheUsage:
    """The folder of gpuenv's cache. The counts are None for a command that only shows the folder."""

    SCHEMA: ClassVar[str] = "gpuenv.cache/1"

    path: str
    removed_files: int | None = None
    freed_bytes: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class IssueReport:
    """A text for an issue. `hidden` counts the parts that were removed from it, by kind."""

    SCHEMA: ClassVar[str] = "gpuenv.report/1"

    gpuenv: str
    text: str
    hidden: dict[str, int] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportResult:
    """A lock in another tool's format: its `text`, and its file if one was written."""

    SCHEMA: ClassVar[str] = "gpuenv.export/1"

    format: str
    path: str | None
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RunResult:
    """The result of `gpuenv run`: the program's exit code, and the diagnosis of its failure.

    For a program that a signal ended, the exit code is 128 plus the signal's number, and `signal` its name.
    """

    SCHEMA: ClassVar[str] = "gpuenv.run/1"

    env: str
    command: tuple[str, ...]
    code: int
    signal: str | None = None
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenFile:
    """A file of `init`. `done` is written, changed or kept."""

    path: str
    done: str
    detail: str


@dataclass(frozen=True, kw_only=True, slots=True)
class InitResult:
    """The result of `gpuenv init` in a folder: the frameworks of its gpuenv.yaml, and each file."""

    SCHEMA: ClassVar[str] = "gpuenv.init/1"

    folder: str
    frameworks: tuple[str, ...]
    files: tuple[WrittenFile, ...]
    notes: tuple[str, ...] = ()


def is_good(result: CreateResult) -> bool:
    """Return whether the environment exists and its verdict, if any, matches its device."""
    if result.environment is None:
        return False
    device = result.plan.device if result.plan else None
    return result.verdict is None or is_expected(result.verdict, device)
