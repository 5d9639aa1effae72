"""What a command tells when it is done: one document for each that has no value of its own."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from provision.model.environment import Environment
from provision.model.machine import Finding, Machine, Target
from provision.model.plan_and_lock import Lock, Plan
from provision.model.shared_words import Device, Manager
from provision.model.verdict import Verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class RestoredPackage:
    """A package that was put back: the version it `had` (None: it was not there), and has `now`."""

    name: str
    had: str | None
    now: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RemovedPackage:
    """A package that the lock does not name, taken out."""

    name: str
    version: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptPackage:
    """A package that the lock does not name, left where it is."""

    name: str
    version: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RepairResult:
    """What `repair` did. `packages` and `removed` are empty where nothing had changed."""

    SCHEMA: ClassVar[str] = "gpuenv.repair/1"

    packages: tuple[RestoredPackage, ...] = ()
    removed: tuple[RemovedPackage, ...] = ()
    left: tuple[KeptPackage, ...] = ()
    environment: Environment | None = None
    verdict: Verdict | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class StepFailure:
    """Why a last step failed, with the name of the error's class ("usage", "build")."""

    name: str
    message: str
    hint: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CreateResult:
    """What `create` did: what each stage handed on, as far as it was reached. `kernel` is the name of its Jupyter
    kernel, where one was asked for, and `kernel_error` why there is none."""

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
    """A framework that an environment was made with."""

    name: str
    version: str
    cuda: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedEnvironment:
    """An environment that gpuenv made, as `list` shows it. `verdict` is the last one and `verified` when
    it was given (ISO 8601, UTC). `bytes` is what it takes on disk (None where measuring would take too
    long), `shared_bytes` the part of it in files that have a name elsewhere as well."""

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
    """An environment that was removed: what it took, what that freed, the Jupyter kernels that went."""

    path: str
    bytes: int
    freed_bytes: int
    kernels: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoveResult:
    """What `remove` did."""

    SCHEMA: ClassVar[str] = "gpuenv.remove/1"

    removed: tuple[RemovedEnvironment, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageChange:
    """A package before and after a command: None where it is missing. `size` is of the file to download."""

    name: str
    before: str | None = None
    after: str | None = None
    size: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Preview:
    """What a command would do with `--dry-run`. `path` is the environment or folder that changes, `writes` and
    `removes` are paths. `download_bytes` is at most what is fetched: the cache may have files already."""

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
    """The folder of gpuenv's cache. What was removed from it is None where nothing was to be removed."""

    SCHEMA: ClassVar[str] = "gpuenv.cache/1"

    path: str
    removed_files: int | None = None
    freed_bytes: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class IssueReport:
    """A text to paste into an issue; `hidden` counts what was left out of it, by kind."""

    SCHEMA: ClassVar[str] = "gpuenv.report/1"

    gpuenv: str
    text: str
    hidden: dict[str, int] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportResult:
    """A lock in another tool's form: its `text`, and the file it was written to, if any."""

    SCHEMA: ClassVar[str] = "gpuenv.export/1"

    format: str
    path: str | None
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class BundleFile:
    """A file of a bundle: its path inside (with /), its bytes and hash (None until it is there)."""

    path: str
    size: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class BundlePython:
    """An archive of a standalone Python: uv's name for it ("cpython-3.12.16-linux-x86_64-gnu"), its version,
    and its path in the bundle."""

    FORMS: ClassVar[dict[str, str]] = {
        "key": r"cpython-[0-9]+\.[0-9]+\.[0-9]+[a-z0-9.]*-(linux|windows)-[a-z0-9_]+-(gnu|none)",
        "version": r"[0-9]+\.[0-9]+\.[0-9]+[a-z0-9.]*",
    }

    key: str
    version: str
    path: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Bundle:
    """What a machine without a network needs: gpuenv-bundle.json. `lock` is the file name of its lock, `gpuenv`
    the version that made it, `asked` a digest of the options that it was made with, and `complete` whether every
    file is there. `python` is the minor version that the environment will have, `archive` the Python in it."""

    SCHEMA: ClassVar[str] = "gpuenv.bundle/1"

    gpuenv: str
    manager: Manager
    lock: str
    target: Target
    device: Device
    frameworks: tuple[str, ...]
    python: str | None
    asked: str
    complete: bool = False
    archive: BundlePython | None = None
    files: tuple[BundleFile, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class RunResult:
    """A program that `gpuenv run` ran: its exit code (128 and the signal's number where one ended it, `signal`
    its name), and what its failure is diagnosed as."""

    SCHEMA: ClassVar[str] = "gpuenv.run/1"

    env: str
    command: tuple[str, ...]
    code: int
    signal: str | None = None
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenFile:
    """A file that `init` looked after: `done` is written, changed or kept."""

    path: str
    done: str
    detail: str


@dataclass(frozen=True, kw_only=True, slots=True)
class InitResult:
    """What `gpuenv init` did in a folder: the frameworks of its gpuenv.yaml, and each file."""

    SCHEMA: ClassVar[str] = "gpuenv.init/1"

    folder: str
    frameworks: tuple[str, ...]
    files: tuple[WrittenFile, ...]
    notes: tuple[str, ...] = ()
