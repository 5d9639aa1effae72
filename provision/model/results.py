"""What commands return and no stage takes: what the stages gave, previews, files, texts and tables."""

import dataclasses
from typing import Any

from .environment import Environment
from .machine import Finding, Machine
from .plan import Lock, Plan
from .values import Value
from .verdict import Verdict, is_expected


class PackageChange(Value):
    """A package before and after a command, None if it is missing. `size` is that of the file to download, in bytes."""

    name: str
    before: str | None = None
    after: str | None = None
    size: int | None = None


class Preview(Value):
    """The effects that a command with `--dry-run` would have.

    `path` is the environment or folder to change. `writes` and `removes` are paths. `download_bytes` is an upper
    limit, because the cache may already have files.
    """

    SCHEMA = "gpuenv.preview/1"

    command: str
    path: str | None = None
    writes: tuple[str, ...] = ()
    removes: tuple[str, ...] = ()
    packages: tuple[PackageChange, ...] = ()
    download_bytes: int | None = None
    freed_bytes: int | None = None
    free_bytes: int | None = None
    notes: tuple[str, ...] = ()


class CacheUsage(Value):
    """The folder of gpuenv's cache. The counts are None for a command that only shows the folder."""

    SCHEMA = "gpuenv.cache/1"

    path: str
    removed_files: int | None = None
    freed_bytes: int | None = None


class IssueReport(Value):
    """A text for an issue. `hidden` counts the parts that were removed from it, by kind."""

    SCHEMA = "gpuenv.report/1"

    gpuenv: str
    text: str
    hidden: dict[str, int] = dataclasses.field(default_factory=dict)


class ExportResult(Value):
    """A lock in another tool's format: its `text`, and its file if one was written."""

    SCHEMA = "gpuenv.export/1"

    format: str
    path: str | None
    text: str


class WrittenFile(Value):
    """A file of `init`. `done` is written, changed or kept."""

    path: str
    done: str
    detail: str


class InitDecision(Value):
    """A value of gpuenv.yaml, with the file and line that decided it.

    `key` is its key there, or "left open" for keys without a value, "not read" for files that state requirements and are
    not listed, and "undeclared" for packages that programs import and no file declares.
    """

    key: str
    value: str
    origin: str = ""


class InitResult(Value):
    """The result of `gpuenv init` in a folder: the frameworks of its gpuenv.yaml, each file, and what was decided."""

    SCHEMA = "gpuenv.init/1"

    folder: str
    frameworks: tuple[str, ...]
    files: tuple[WrittenFile, ...]
    decisions: tuple[InitDecision, ...] = ()
    notes: tuple[str, ...] = ()


class ProfileTable(Value):
    """A table of a profile file, unchanged. `count` is the number of its rows."""

    file: str
    table: str
    framework: str | None
    kept: str | None
    source: str
    read: str
    rows: tuple[dict[str, Any], ...] = ()
    count: int | None = None

    def without_rows(self) -> "ProfileTable":
        return dataclasses.replace(self, rows=(), count=len(self.rows))


class ProfileTables(Value):
    """The tables that `gpuenv profiles` shows."""

    SCHEMA = "gpuenv.profiles/1"

    tables: tuple[ProfileTable, ...]


class RestoredPackage(Value):
    """A restored package: the version it `had` (None if it was missing), and has `now`."""

    name: str
    had: str | None
    now: str
    why: str


class RemovedPackage(Value):
    """A removed package that the lock does not name."""

    name: str
    version: str
    why: str


class KeptPackage(Value):
    """A package that the lock does not name, and that was kept."""

    name: str
    version: str


class RepairResult(Value):
    """The result of `repair`. `packages` and `removed` are empty if the environment equalled its lock."""

    SCHEMA = "gpuenv.repair/1"

    packages: tuple[RestoredPackage, ...] = ()
    removed: tuple[RemovedPackage, ...] = ()
    left: tuple[KeptPackage, ...] = ()
    environment: Environment | None = None
    verdict: Verdict | None = None


class StepFailure(Value):
    """The failure of a last step, with the name of the error's class ("usage", "build")."""

    name: str
    message: str
    hint: str | None = None


class CreateResult(Value):
    """The result of `create`, with the values of all stages that ran.

    `packages` are those that an update of an environment added, removed or replaced. `kernel` is the name of a requested Jupyter kernel, and `kernel_error` the reason why there is none.
    """

    SCHEMA = "gpuenv.create/1"

    machine: Machine | None = None
    plan: Plan | None = None
    lock: Lock | None = None
    environment: Environment | None = None
    verdict: Verdict | None = None
    packages: tuple[PackageChange, ...] = ()
    kernel: str | None = None
    kernel_error: StepFailure | None = None


class RunResult(Value):
    """The result of `gpuenv run`: the program's exit code, and the diagnosis of its failure.

    For a program that a signal ended, the exit code is 128 plus the signal's number, and `signal` its name.
    """

    SCHEMA = "gpuenv.run/1"

    env: str
    command: tuple[str, ...]
    code: int
    signal: str | None = None
    findings: tuple[Finding, ...] = ()


def is_good(result: CreateResult) -> bool:
    """Return whether the environment exists and its verdict, if any, matches its device."""
    if result.environment is None:
        return False
    device = result.plan.device if result.plan else None
    return result.verdict is None or is_expected(result.verdict, device)
