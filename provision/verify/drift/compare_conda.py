"""Compares the conda packages of an environment with its lock, by conda-meta."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ...environment.distributions import RecordRow, compare_file
from ...model import EnvironmentChange, LockedPackage, UnlockedPackage
from ...system import untrusted
from .changed_files_of_package import make_change


def list_files(meta: Any) -> list[dict[str, Any]]:
    """Return the files that a conda-meta document lists. Damaged rows are skipped."""
    paths = meta.get("paths_data") if isinstance(meta, dict) else None
    rows = paths.get("paths") if isinstance(paths, dict) else None
    entries = [r for r in rows if isinstance(r, dict)] if isinstance(rows, list) else []
    return [r for r in entries if isinstance(r.get("_path"), str) and "\0" not in r["_path"]]


@dataclass(frozen=True)
class CondaRecord:
    """A record of conda-meta: `stem` is "numpy-2.3.1-py311h1_0"."""

    prefix: Path
    stem: str

    @property
    def name(self) -> str:
        return self.stem.rsplit("-", 2)[0]

    @property
    def version(self) -> str:
        return self.stem.rsplit("-", 2)[1]

    @cached_property
    def rows(self) -> tuple[RecordRow, ...]:
        """Its files with digests and sizes in this prefix.

        conda writes the prefix into some text files, so their recorded size does not apply. Links have no
        digest.
        """
        try:
            data = json.loads(untrusted.read_bytes(self.prefix / "conda-meta" / f"{self.stem}.json"))
        except (OSError, ValueError, RecursionError):
            return ()
        return tuple(self._make_row(r) for r in list_files(data) if not r["_path"].endswith(".pyc"))

    def _make_row(self, row: Mapping[str, Any]) -> RecordRow:
        path = str(self.prefix / row["_path"])
        if row.get("path_type") == "softlink":
            return RecordRow(path, None, None)
        moved, size = text_or_none(row.get("sha256_in_prefix")), row.get("size_in_bytes")
        if row.get("prefix_placeholder"):
            return RecordRow(path, moved, None)
        return RecordRow(
            path, moved or text_or_none(row.get("sha256")), size if isinstance(size, int) else None
        )


def text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


@dataclass(frozen=True)
class CondaMeta:
    """The records in conda-meta, by name of package."""

    prefix: Path
    metas: dict[str, CondaRecord]

    def rows(self) -> dict[str, tuple[str, RecordRow]]:
        """Return path -> ("name version", row) for each file."""
        return {r.path: (f"{m.name} {m.version}", r) for m in self.metas.values() for r in m.rows}

    @cached_property
    def wrong_sizes(self) -> dict[str, dict[str, str]]:
        """Package -> path -> "missing" or "size", for its wrong files."""
        return {m.name: _find_wrong(m, self, None, hashes=False) for m in self.metas.values()}

    def infos(self) -> frozenset[str]:
        """Return the names of the dist-info folders of conda packages."""
        return self._infos

    @cached_property
    def _infos(self) -> frozenset[str]:
        folders: set[str] = set()
        for path in (self.prefix / "conda-meta").glob("*.json"):
            with contextlib.suppress(OSError):
                folders.update(re.findall(r'site-packages/([^/"]+\.dist-info)/', untrusted.read_text(path)))
        return frozenset(folders)


def read_conda_meta(prefix: Path) -> CondaMeta:
    """Read the names of all records in conda-meta. Each file is read when it is needed."""
    names = sorted(p.stem for p in (prefix / "conda-meta").glob("*-*-*.json"))
    return CondaMeta(prefix, {m.name: m for m in (CondaRecord(prefix, n) for n in names)})


def find_changes(
    packages: Sequence[LockedPackage],
    conda: CondaMeta,
    since: float | None,
    *,
    thorough: bool,
    read: Collection[str],
) -> list[EnvironmentChange]:
    """Return the changes of locked conda packages: missing, of another build, or with other files.

    With `thorough`, files changed after the time `since` are compared byte by byte. All bytes of the packages
    in `read` are compared.
    """
    changes = []
    for package in packages:
        meta = conda.metas.get(package.name)
        stem = _get_stem(package)
        if meta is None:
            text = f"{package.name} is missing, but the lock has {package.version}"
            changes.append(
                EnvironmentChange(kind="removed", name=package.name, text=text, locked=package.version)
            )
        elif meta.stem != stem:
            text = f"{meta.stem} is installed, but the lock has {stem}"
            changes.append(
                EnvironmentChange(kind="replaced", name=meta.name, text=text, locked=stem[len(meta.name) + 1 :],
                       found=meta.stem[len(meta.name) + 1 :])
            )  # fmt: skip
        else:
            if thorough:
                wrong = _find_wrong(meta, conda, since, hashes=meta.name in read)
            else:
                wrong = conda.wrong_sizes[meta.name]
            changes += [make_change(meta.name, meta.version, str(conda.prefix), wrong)] if wrong else []
    return changes


def find_strangers(packages: Sequence[LockedPackage], conda: CondaMeta) -> tuple[UnlockedPackage, ...]:
    """Return the conda packages that the lock does not name."""
    names = {p.name for p in packages}
    added = (m for m in conda.metas.values() if m.name not in names)
    return tuple(UnlockedPackage(name=m.name, version=m.version, conda=True) for m in added)


def _get_stem(package: LockedPackage) -> str:
    return package.url.rpartition("/")[2].removesuffix(".conda").removesuffix(".tar.bz2")


def _find_wrong(meta: CondaRecord, conda: CondaMeta, since: float | None, *, hashes: bool) -> dict[str, str]:
    bad = {r.path: how for r in meta.rows if (how := _compare_row(r, since, hashes=hashes))}
    for other in conda.metas.values() if bad else ():
        if other is not meta:  # if two packages list a file, one of them wrote it
            for row in other.rows:
                if row.path in bad and not _compare_row(row, since, hashes=hashes):
                    del bad[row.path]
    return bad


def _compare_row(row: RecordRow, since: float | None, *, hashes: bool) -> str | None:
    if row.digest is None and row.size is None:
        return None if os.path.lexists(row.path) else "missing"
    return compare_file(row, since, hashes=hashes)
