"""Whose a library file is: the environment's, a package's, or another copy on the loader's path."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from ..system import process
from .libraries import Distribution, in_folder
from .locate import Surroundings


def other_copies(found: Surroundings, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The libcudnn files outside the environment that the loader would find: in LD_LIBRARY_PATH, and
    in its cache."""
    paths = [
        path
        for entry in environ.get("LD_LIBRARY_PATH", "").split(":")
        if entry
        for path in in_folder(entry)
        if os.path.basename(path).startswith("libcudnn.so")
    ]
    paths += re.findall(r"=> (\S*/libcudnn\.so\S*)$", _loader_cache(), re.MULTILINE)
    return tuple(dict.fromkeys(p for p in paths if not inside(p, found.roots)))


def inside(path: str, roots: Sequence[str]) -> bool:
    """Whether a file lies in one of the folders, as named or with links resolved."""
    return any(
        p == root or p.startswith(root.rstrip("/") + "/")
        for p in (path, os.path.realpath(path))
        for root in roots
    )


def _loader_cache() -> str:
    """What `ldconfig -p` prints; empty on systems without it."""
    for program in ("/sbin/ldconfig", "/usr/sbin/ldconfig"):
        if os.access(program, os.X_OK):
            return process.run([program, "-p"], timeout=10).stdout
    return ""


def owners_of(packages: Sequence[Distribution]) -> dict[str, Distribution]:
    """Whose each library file is, by resolved path (uv may link files into its cache)."""
    owned: dict[str, Distribution] = {}
    for package in packages:
        for f in package.files:
            owned.setdefault(os.path.realpath(f.path), package)
    return owned
