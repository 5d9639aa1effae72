"""Checks that only this user and root can change files that are run or loaded."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Container, Iterable
from pathlib import Path

_ROOT = 0
_MOST_LINKS = 40
"""The most links that the kernel follows in one path (path_resolution(7))."""


class ChangeableError(Exception):
    """A file that another user can change, with the reason."""


def assert_unchangeable(paths: Iterable[Path], *, without: Container[str] = ()) -> None:
    """Check paths, the contents of folders, the targets of links, and every parent folder.

    `without` are names of folders directly in these paths that are not examined. Raises ChangeableError for the first
    file that another user can change, and OSError.
    """
    search = _OwnershipSearch(frozenset({_ROOT, os.geteuid()}))
    for path in paths:
        search.look(str(path), without)


class _OwnershipSearch:
    """A search that visits each folder once."""

    def __init__(self, trusted: frozenset[int]) -> None:
        self._trusted = trusted
        self._passed: set[str] = set()
        self._walked: set[str] = set()

    def look(self, path: str, without: Container[str] = ()) -> None:
        """Check a path with its parents, and the contents of a folder."""
        top = self._follow(path)
        waiting = [top]
        while waiting:
            place = waiting.pop()
            if place in self._walked or not stat.S_ISDIR(os.lstat(place).st_mode):
                continue
            self._walked.add(place)
            with os.scandir(place) as entries:
                for entry in entries:
                    if place == top and entry.name in without:
                        continue
                    self._check(entry.path, entry.stat(follow_symlinks=False))
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif entry.is_symlink() and os.path.exists(entry.path):  # noqa: PTH110  # a text here
                        waiting.append(self._follow(entry.path))

    def _follow(self, path: str) -> str:
        """Check every folder and link on the way to a path, and return its target."""
        at, left, links = os.sep, _parts(os.path.abspath(path)), 0  # noqa: PTH100  # Path.absolute keeps ".."
        while left:
            part = left.pop()
            if part == os.pardir:
                at = os.path.dirname(at)  # noqa: PTH120  # a text here
                continue
            place = at.rstrip(os.sep) + os.sep + part
            if place in self._passed:
                at = place
                continue
            status = os.lstat(place)
            self._check(place, status)
            if not stat.S_ISLNK(status.st_mode):
                self._passed.add(place)
                at = place
                continue
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            target = os.readlink(place)  # noqa: PTH115  # a text here
            at = os.sep if target.startswith(os.sep) else at
            left += _parts(target)
        return at

    def _check(self, path: str, status: os.stat_result) -> None:
        if status.st_uid not in self._trusted:
            raise ChangeableError(f"{path} belongs to user {status.st_uid}")
        is_sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
        if stat.S_ISLNK(status.st_mode) or is_sticky:
            return  # in a sticky folder such as /tmp, only owners can rename or remove files
        if status.st_mode & stat.S_IWOTH:
            raise ChangeableError(f"{path} can be written by every user")
        if status.st_mode & stat.S_IWGRP and status.st_gid != _ROOT:
            raise ChangeableError(f"{path} can be written by group {status.st_gid}")


def _parts(path: str) -> list[str]:
    """Return the components of a path in reverse order."""
    return [name for name in reversed(Path(path).parts) if name != os.sep]
