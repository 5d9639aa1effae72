"""Compares library files with the sizes and hashes that their packages list."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ...system.file_digest import hash_readable


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedFile:
    """A library file as its package lists it. `size` in bytes; `sha256` in hexadecimal."""

    path: str
    size: int | None
    sha256: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class FileProblem:
    """A file that differs from its package's list. `kind` is missing, short, size or hash."""

    kind: str
    path: str
    text: str


DIFFERENCES = {
    "missing": "is missing",
    "short": "is truncated",
    "size": "has the wrong size",
    "hash": "has different content",
}
"""What the kinds of FileProblem are called."""


def check_files(files: Sequence[ListedFile], hashes: bool) -> list[FileProblem]:
    """Return the files that are missing or have the wrong size, and with `hashes` those with other bytes.

    Threads compute the digests, because hashlib releases the interpreter's lock.
    """
    problems = [p for f in files if (p := _check_size(f))]
    bad = {p.path for p in problems}
    rest = [f for f in files if hashes and f.sha256 and f.path not in bad]
    with ThreadPoolExecutor(max_workers=4) as pool:
        digests = list(pool.map(hash_readable, (f.path for f in sorted(rest, key=lambda f: -(f.size or 0)))))
    for f, digest in zip(sorted(rest, key=lambda f: -(f.size or 0)), digests, strict=True):
        if digest != f.sha256:
            what = digest or "cannot be read"
            problems.append(FileProblem(kind="hash", path=f.path, text=f"sha256 {what}, recorded {f.sha256}"))
    return problems


def find_worst(bad: Sequence[FileProblem]) -> str:
    """Return "missing", "size" (a whole file of another size is another version's) or "damaged"."""
    kinds = {p.kind for p in bad}
    if "missing" in kinds:
        return "missing"
    return "size" if "size" in kinds and "short" not in kinds else "damaged"


def _check_size(shipped: ListedFile) -> FileProblem | None:
    try:
        size = os.stat(shipped.path).st_size
    except OSError as error:
        return FileProblem(kind="missing", path=shipped.path, text=error.strerror or "missing")
    if shipped.size is None or size == shipped.size:
        return None
    kind = "short" if size < shipped.size and _is_cut_short(shipped.path, size) else "size"
    return FileProblem(kind=kind, path=shipped.path, text=f"{size} bytes, recorded {shipped.size}")


def _is_cut_short(path: str, size: int) -> bool:
    """Return whether an ELF file ends before its section headers, which linkers write last."""
    try:
        with open(path, "rb") as stream:
            head = stream.read(64)
    except OSError:
        return True
    if head[:5] != b"\x7fELF\x02":
        return True
    start = int.from_bytes(head[40:48], "little")
    entry, count = int.from_bytes(head[58:60], "little"), int.from_bytes(head[60:62], "little")
    return start + entry * count > size
