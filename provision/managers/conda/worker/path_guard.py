"""Rejects packages that would write outside of the prefix.

The engine unpacks archives safely. But it links the paths of `info/paths.json` even with `..`, writes entry points to
any path in their names, and follows links of other packages. So each package in the cache is checked before linking.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

_MARK = ".gpuenv"
_LINKS = 40
"""The most links in one path, as in Linux."""
_MOST = 64 << 20
"""The most bytes of a record. The largest real ones have ten million."""


class UnsafeError(ValueError):
    """A package or a record with a path outside of the prefix."""


class PathGuard:
    """The packages of one run with their places in the cache, and the links and folders found so far."""

    def __init__(self, cache: Path, records: Iterable[Any]) -> None:
        self._lying = {
            r.name.normalized: cache / f"{r.name.normalized}-{r.version}-{r.build}" for r in records
        }
        self._folders: set[str] = set()
        self._links: dict[str, str] = {}

    def check(self, name: str) -> None:
        """Raise UnsafeError if this package, alone or with others, would write outside of the prefix."""
        lying = self._lying[name]
        for command in _iterate_commands(lying):
            if not re.fullmatch(r"[^/\\\0]+", command) or command in (".", ".."):
                raise UnsafeError(f"{name} has an entry point outside of the environment: {command!r}")
        listed = set()
        for path in _iterate_paths(lying):
            place = posixpath.normpath(path) if is_inside(path) else ""
            if not place or place.split("/", 1)[0] == _MARK:
                raise UnsafeError(f"{name} has a file outside of the environment: {path!r}")
            listed.add(place)
            self._enter(place)
            self._enter(_normalize(place))
        for place in listed.intersection(_iterate_links(lying)):
            self._links[place] = self._links[_normalize(place)] = str((lying / place).readlink())
        for folder in sorted(self._folders & self._links.keys()):
            if not self._is_contained(folder):
                raise UnsafeError(f"{name} writes through a link out of the environment: {folder!r}")

    def _enter(self, place: str) -> None:
        """Record the folders of a file."""
        folder = place.rpartition("/")[0]
        while folder and folder not in self._folders:
            self._folders.add(folder)
            folder = folder.rpartition("/")[0]

    def _is_contained(self, folder: str) -> bool:
        """Return whether a folder is inside after following all links of the packages."""
        done: list[str] = []
        todo, links = folder.split("/"), 0
        while todo:
            part = todo.pop(0)
            if part in ("", "."):
                continue
            if part == "..":
                if not done:
                    return False
                done.pop()
                continue
            done.append(part)
            target = self._links.get("/".join(done))
            if target is not None:
                links += 1
                if target.startswith("/") or links > _LINKS:
                    return False
                done.pop()
                todo = [*target.split("/"), *todo]
        return True


def is_inside(path: object) -> bool:
    """Return whether a path of a package is inside of the prefix."""
    if not isinstance(path, str) or "\0" in path or re.match(r"[A-Za-z]:", path):
        return False
    parts = path.replace("\\", "/").split("/")
    return parts[0] != "" and ".." not in parts and any(p not in ("", ".") for p in parts)


def _normalize(place: str) -> str:
    """Return a path in a form that is the same for pure packages and those of one Python."""
    return re.sub(r"^lib/python[^/]+/site-packages/", "site-packages/", place)


def _iterate_links(lying: Path) -> Iterator[str]:
    """Yield the links in an unpacked package. Reading folders is faster than a stat of each file."""
    todo = [lying]
    while todo:
        with os.scandir(todo.pop()) as entries:
            for entry in entries:
                if entry.is_symlink():
                    yield Path(entry.path).relative_to(lying).as_posix()
                elif entry.is_dir():
                    todo.append(Path(entry.path))


def _iterate_paths(lying: Path) -> Iterator[str]:
    """Yield the paths that a package lists. Packages before 2016 have no paths.json."""
    listing = lying / "info" / "paths.json"
    if not listing.exists():
        yield from (x for x in (lying / "info" / "files").read_text(encoding="utf-8").splitlines() if x)
        return
    for row in json.loads(listing.read_bytes())["paths"]:
        yield row["_path"]


def _iterate_commands(lying: Path) -> Iterator[str]:
    """Yield the names of the generated scripts of a pure package."""
    listing = lying / "info" / "link.json"
    if listing.exists():
        noarch = json.loads(listing.read_bytes()).get("noarch") or {}
        for point in noarch.get("entry_points") or () if isinstance(noarch, dict) else ():
            yield point.partition("=")[0].strip()


def check_records(prefix: Path) -> list[Path]:
    """Return the records of a prefix, whose files a removal deletes.

    Raises UnsafeError for a record that lists a file outside of the prefix, or that is not a regular file.
    """
    records = sorted((prefix / "conda-meta").glob("*.json"))
    for path in records:
        state = path.lstat()
        if not stat.S_ISREG(state.st_mode) or state.st_size > _MOST:
            raise UnsafeError(f"{path} is damaged: conda cannot read which files the package has")
        try:
            data = json.loads(path.read_bytes())
            rows = (data.get("paths_data") or {}).get("paths") or []
            listed = [*(data.get("files") or ()), *(row.get("_path") for row in rows)]
        except (ValueError, AttributeError, TypeError, RecursionError) as error:
            raise UnsafeError(f"{path} is damaged: conda cannot read which files the package has") from error
        bad = next((x for x in listed if not is_inside(x)), None)
        if bad is not None:
            raise UnsafeError(f"{path} lists a file outside of the environment: {bad!r}")
    return records
