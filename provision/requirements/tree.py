"""The tree of a project: the only files that its own files can lead to.

A file of a stranger may name any file of the user's (`-r ../../.ssh/config`), whose lines would be sent to an index as
names of packages. So the files that a project names lie in its tree: in the folder of the naming file, or in the git
repository around it, or in the nearest folder around it that can be installed. Links are resolved. What the user types
may lie anywhere."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

from ..errors import UsageError
from ..system import trust
from .quote import quote_text

MAX_BYTES = 8 << 20
"""The most bytes of a file of requirements."""
BUILDABLE = ("pyproject.toml", "setup.py", "setup.cfg")
"""The files of a folder that can be installed."""


@functools.lru_cache(maxsize=256)
def find_root(folder: Path) -> Path:
    """Return the root of the git repository around a folder, else of the project, else the folder itself, resolved.

    A root counts only if the folder's owner has it. It is never the home folder or around it: a home folder that is
    a repository (of dotfiles) holds files that no project brought.
    """
    folder = folder.resolve()
    ends, project = _list_shared(), None
    try:
        owner = folder.stat().st_uid
        for parent in (folder, *folder.parents):
            if parent in ends or parent.stat().st_uid != owner:
                break
            if _has(parent, (".git",), owner):
                return parent
            project = project or (parent if _has(parent, BUILDABLE, owner) else None)
    except OSError:
        pass
    return project or folder


def _has(folder: Path, names: Sequence[str], owner: int) -> bool:
    return any((folder / n).exists() and (folder / n).lstat().st_uid == owner for n in names)


def _list_shared() -> set[Path]:
    """Return the home folders of this user and the folders around them, which hold more than a project."""
    homes = {home.resolve() for home in trust.list_homes()}
    return homes | {parent for home in homes for parent in home.parents}


def _holds(root: Path, real: Path) -> bool:
    """Return whether a tree holds a path. Hidden files of a home folder belong to no project in it."""
    if not real.is_relative_to(root):
        return False
    return root not in _list_shared() or not any(p.startswith(".") for p in real.relative_to(root).parts)


def refuse_outside(path: Path, roots: Sequence[Path], origin: str, advice: str) -> None:
    """Raise UsageError for a path that leads out of the trees `roots`. `origin` is the file and line that names it."""
    real = path.resolve()
    if not any(_holds(root, real) for root in roots):
        raise UsageError(
            f"{origin}: {quote_text(str(path))} leads out of the project's folder {roots[0]}",
            hint=f"{advice}, or move the file into the folder",
        )


def read_bytes(path: Path, name: str, included: str | None = None) -> bytes:
    """Return a file's bytes. Raises UsageError, which names the including line if there is one."""
    by = f", included by {included}" if included else ""
    refuse_outside(path, [find_root(path.absolute().parent)], name, "name the file that the link leads to")
    try:
        if path.exists() and not path.is_file():  # reading a pipe may hang, and a device may never end
            raise UsageError(f"{name} is not a regular file{by}", hint="name a requirements file")
        return trust.read_project(path, MAX_BYTES)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{name} cannot be read: {reason}{by}", hint="check the path") from error
