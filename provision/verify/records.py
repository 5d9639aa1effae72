"""Installed distributions and what their RECORDs say, read from the files alone."""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ..model import EnvironmentChange, normalize_name
from ..system import untrusted_files

SHOWN = 8
"""Files that a change names."""


@dataclass(frozen=True, slots=True)
class Row:
    """A file that a package lists: `digest` is its sha256 in hexadecimal, `size` in bytes, None where
    the list does not say."""

    path: str
    digest: str | None
    size: int | None


@dataclass(frozen=True)
class Distribution:
    """A distribution in a site-packages folder: `folder` is its dist-info."""

    name: str
    version: str
    folder: Path

    @cached_property
    def text(self) -> bytes | None:
        """RECORD as it lies there, None where there is none."""
        try:
            return untrusted_files.read_bytes(self.folder / "RECORD")
        except OSError:
            return None

    @property
    def record(self) -> str | None:
        """The sha256 of RECORD."""
        return None if self.text is None else hashlib.sha256(self.text).hexdigest()

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The files that RECORD lists, without bytecode, which comes and goes by itself."""
        site = str(self.folder.parent)
        lines = (self.text or b"").decode("utf-8", "replace").splitlines()
        return tuple(_row(site, *row) for row in cells(lines) if not row[0].endswith(".pyc"))

    def wrong_sizes(self) -> dict[str, str]:
        """The files that are missing or of another size than RECORD lists, with which of the two: `differs` for all
        rows, without making them. torch has ten thousand. Metadata need only be there: wheels are published whose
        RECORD has other sizes for it (decord 0.6.0)."""
        site, found = str(self.folder.parent), {}
        lines = (self.text or b"").decode("utf-8", "replace").splitlines()
        for name, _, size in cells(lines):
            if name.endswith(".pyc"):
                continue
            plain = ".." not in name and name[0] != "/"
            path = f"{site}/{name}" if plain else os.path.normpath(f"{site}/{name}")
            try:
                is_size = os.stat(path).st_size
            except OSError:
                found[path] = "missing"
            else:
                if size and size != str(is_size) and size_in(size) not in (None, is_size):
                    found |= {} if ".dist-info/" in name else {path: "size"}
        return found

    @cached_property
    def requires(self) -> tuple[str, ...]:
        """The names that METADATA requires, whatever the marker: an extra may have been asked for."""
        try:
            text = untrusted_files.read_text(self.folder / "METADATA")
        except OSError:
            return ()
        head = text.split("\n\n", 1)[0]
        names = re.findall(r"^Requires-Dist:\s*([\w.-]+)", head, re.MULTILINE)
        return tuple(dict.fromkeys(normalize_name(n) for n in names))

    @property
    def installer(self) -> str:
        try:
            return untrusted_files.read_text(self.folder / "INSTALLER").strip()
        except OSError:
            return ""


def cells(lines: Iterable[str]) -> Iterable[list[str]]:
    """The cells of RECORD's lines. Only a path with a comma or a quote in it is quoted, so that the
    csv reader is asked for few of the ten thousands."""
    for line in lines:
        try:
            cells = next(csv.reader([line])) if '"' in line else line.rsplit(",", 2)
        except csv.Error:
            continue  # a cell longer than any path
        if len(cells) == 3 and cells[0] and "\0" not in cells[0]:
            yield cells


def _row(site: str, name: str, digest: str, size: str) -> Row:
    path = f"{site}/{name}" if ".." not in name and name[0] != "/" else os.path.normpath(f"{site}/{name}")
    return Row(path, sha256_in(digest), size_in(size))


def sha256_in(cell: str) -> str | None:
    """The hash of a row in hexadecimal; None where it has none that can be one."""
    found = re.fullmatch(r"sha256=([A-Za-z0-9_-]{43})=?", cell)
    return base64.urlsafe_b64decode(found[1] + "=").hex() if found else None


def size_in(cell: str) -> int | None:
    return int(cell) if re.fullmatch(r"[0-9]{1,18}", cell) else None


def distributions(env: Path) -> dict[str, tuple[Distribution, ...]]:
    """What is installed in an environment, by name. Two of one name are what an installer that was
    killed leaves; names that begin with a tilde are pip's, of what it was about to remove."""
    found: dict[str, tuple[Distribution, ...]] = {}
    for site in sites(env):
        for entry in sorted(os.listdir(site)):
            stem, dot, _ = entry.partition(".dist-info")
            name, _, version = stem.partition("-")
            if entry != f"{stem}.dist-info" or not dot or not version or entry.startswith("~"):
                continue
            key = normalize_name(name)
            found[key] = (*found.get(key, ()), Distribution(key, version, site / entry))
    return found


def sites(env: Path) -> tuple[Path, ...]:
    return tuple(sorted(env.glob("lib/python3*/site-packages")))


def differs(row: Row, since: float | None, *, hashes: bool = False) -> str | None:
    """How a file differs from its row: "missing", "size" or "bytes"; None where it does not. Bytes are
    read where `hashes` is asked, or where the file was written after `since` (seconds since 1970)."""
    try:
        status = os.stat(row.path)
    except OSError:
        return "missing"
    if row.size is not None and status.st_size != row.size:
        return "size"
    if row.digest is None or not (hashes or (since is not None and status.st_mtime > since)):
        return None
    return "bytes" if digest_of(row.path) != row.digest else None


def digest_of(path: str) -> str | None:
    """The sha256 of a file, None where it cannot be read."""
    digest = hashlib.sha256()
    try:
        with open(path, "rb", buffering=0) as stream:
            while chunk := stream.read(1 << 22):
                digest.update(chunk)
    except OSError:
        return None
    return digest.hexdigest()


_HOW = {
    "missing": "missing",
    "size": "of another size",
    "bytes": "changed",
    "bytecode": "not compiled from its source",
}


def modified(name: str, version: str, root: str, files: Mapping[str, str]) -> EnvironmentChange:
    """A package of the right version with files (path: how) that are not its own."""
    parts = []
    for how, word in _HOW.items():
        paths = sorted(os.path.relpath(p, root) for p, h in files.items() if h == how)
        if paths:
            more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
            parts.append(f"{len(paths)} {word} ({', '.join(paths[:3])}{more})")
    text = f"{name} {version} has files that are not its own: {'; '.join(parts)}"
    shown = tuple(sorted(files)[:SHOWN])
    return EnvironmentChange(
        kind="modified", name=name, text=text, locked=version, found=version, paths=shown
    )
