"""Describes where the Python of an environment searches packages."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundFramework:
    """A framework that this Python would import: the file, and the folder that holds the package."""

    name: str
    origin: str
    site: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PythonPaths:
    """The folders that the target's Python searches, and its `version`.

    `sites` are its site-packages folders in the order of sys.path. `roots` are the folders of the environment's
    own files. `problems` are errors of the query.
    """

    prefix: str
    version: str
    sites: tuple[str, ...]
    roots: tuple[str, ...]
    user_site: str | None = None
    frameworks: tuple[FoundFramework, ...] = ()
    problems: tuple[str, ...] = ()
