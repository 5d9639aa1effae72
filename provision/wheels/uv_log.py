"""Reads uv's output during an installation: its progress, and the reason of a failure."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from ..errors import BuildError
from ..index import uv, uv_failures
from ..model import Lock, LockedPackage
from ..system import process
from .build_failure import explain_in_install

TIMEOUT = 4 * 3600.0  # seconds for one run of the installer

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_BAR = re.compile(
    r"(?<![A-Za-z0-9._-])([A-Za-z0-9._-]{1,200})\s{1,200}-{1,200}\s{1,200}([\d.]{1,20} ?[KMGTi]{0,3}B)/([\d.]{1,20} ?[KMGTi]{0,3}B)"
)


def progress(line: str) -> tuple[str, int, int] | None:
    """Return file, received bytes and total bytes of a line of uv's progress, or None for other lines."""
    bar = _BAR.search(_ESCAPE.sub("", line))
    return (bar[1], _parse_bytes(bar[2]), _parse_bytes(bar[3])) if bar else None


def _parse_bytes(text: str) -> int:
    """Return the number of bytes in uv's form "120.5 MiB", or 0 for another text."""
    match = re.fullmatch(r"(\d{1,18}(?:\.\d{1,9})?) ?([KMGT]?)(i?)B", text)
    if not match:
        return 0
    return int(float(match[1]) * (1024 if match[3] else 1000) ** " KMGT".index(match[2] or " "))


def strip_progress(log: str) -> str:
    """Return uv's output on a terminal as plain lines, without progress."""
    rows = _ESCAPE.sub("", log.replace("\r", "\n")).splitlines()
    return "\n".join(r for r in rows if r.strip() and not _BAR.search(r))


_MISSING = re.compile(
    r"network was disabled|Network connectivity is disabled|not found in the cache|offline|"
    r"no version of|not found in the package registry|unsatisfiable",
    re.IGNORECASE,
)


def lacks_only_files(log: str) -> bool:
    """Return whether an offline run failed only because something was not in the cache."""
    return bool(_MISSING.search(log)) and "os error 28" not in log and "Hash mismatch" not in log


# 39 lines: one short paragraph for each cause, the most precise first.
def explain_install_failure(done: process.Finished, path: Path, lock: Lock) -> BuildError:
    log = uv.redacted(strip_progress(done.stderr))
    if stored := uv_failures.find_storage_failure(log):
        return BuildError(stored.message, hint=stored.hint, log=log)
    indexes = {p.name: p.index for p in lock.packages}
    if mismatch := re.search(r"Hash mismatch for `?([^`\s]+)", log):
        index = indexes.get(mismatch[1].partition("=")[0])
        return BuildError(
            f"{mismatch[1]}{f' of {index}' if index else ''} is not the locked file: its hash differs",
            hint="lock again if the index replaced the file: gpuenv lock --upgrade", log=log,
        )  # fmt: skip
    if done.timed_out:
        return BuildError(
            f"the installation took longer than {TIMEOUT / 3600:.0f} hours", log=log,
            hint="run the same command again: it continues from the cache",
        )  # fmt: skip
    if unbuilt := explain_in_install(log, lock.packages):
        return unbuilt
    if refused := uv_failures.find_failure(log, indexes):
        return BuildError(refused.message, hint=refused.hint, log=log)
    if name := uv_failures.find_absent_package(log):
        index = indexes.get(name)
        return BuildError(
            f"no index has the locked {name} (it was locked from {index or 'a folder of wheels'})",
            hint="name an index or a folder that has it: pip's index-url, --find-links DIR", log=log,
        )  # fmt: skip
    if cache_is_damaged(log):
        return BuildError(
            "uv's cache is damaged", log=log,
            hint="choose another cache with --cache-dir DIR, or remove the one in UV_CACHE_DIR",
        )  # fmt: skip
    if absent := _NOT_CACHED.search(log):
        return BuildError(
            f"{absent[1]} is not available offline. It is neither in a folder of wheels nor in the cache", log=log,
            hint="name a folder that has it with --find-links DIR, or run once without --offline",
        )  # fmt: skip
    if _is_full(path):  # if the log was cut before the reason
        return BuildError(f"the disk of {path} is full", hint=uv_failures.SPACE_HINT, log=log)
    return BuildError("the packages could not be installed", log=log, hint="read the output of uv above")


_DAMAGED = re.compile(r"(?i)cache entry|failed to \w+ (file|directory)[^\n]*archive-v\d")


def cache_is_damaged(log: str) -> bool:
    """Return whether uv failed at files of its cache."""
    return bool(_DAMAGED.search(log)) and uv_failures.find_storage_failure(log) is None


_NOT_CACHED = re.compile(r"Failed to download `([^`]+)`(?=(?s:.*)Network connectivity is disabled)")


def _is_full(path: Path) -> bool:
    """Return whether a disk has less space than any package needs."""
    try:
        return shutil.disk_usage(path).free < 1 << 20
    except OSError:
        return False


_UNDECLARED = re.compile(r"depends on `([A-Za-z0-9._-]+)`,\s+but doesn't declare it as a build dependency")


def imports_undeclared(log: str) -> bool:
    """Return whether a source could not be built because it imports a package that it does not require."""
    return bool(_UNDECLARED.search(" ".join(strip_progress(log).split())))


def explain_failed_build(package: LockedPackage, done: process.Finished) -> BuildError:
    log = uv.redacted(strip_progress(done.stderr))
    return BuildError(
        f"{package.name} {package.version} has no wheel for this environment, and its source could not be built",
        hint=f"request a release of {package.name} that has a wheel for this Python and framework, or use another "
        "--python. To find missing build tools (a compiler, nvcc), read the log above",
        log=log,
    )  # fmt: skip
