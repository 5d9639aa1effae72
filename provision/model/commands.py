"""What single commands return, and no stage takes: previews, files, texts and tables."""

import dataclasses
from typing import Any, ClassVar

from .values import dataclass


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
class WrittenFile:
    """A file of `init`. `done` is written, changed or kept."""

    path: str
    done: str
    detail: str


@dataclass(frozen=True, kw_only=True, slots=True)
class InitDecision:
    """A value of gpuenv.yaml, with the file and line that decided it.

    `key` is its key there, or "left open" for keys without a value, "not read" for files that state requirements and are
    not listed, and "undeclared" for packages that programs import and no file declares.
    """

    key: str
    value: str
    origin: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class InitResult:
    """The result of `gpuenv init` in a folder: the frameworks of its gpuenv.yaml, each file, and what was decided."""

    SCHEMA: ClassVar[str] = "gpuenv.init/1"

    folder: str
    frameworks: tuple[str, ...]
    files: tuple[WrittenFile, ...]
    decisions: tuple[InitDecision, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileTable:
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


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileTables:
    """The tables that `gpuenv profiles` shows."""

    SCHEMA: ClassVar[str] = "gpuenv.profiles/1"

    tables: tuple[ProfileTable, ...]
