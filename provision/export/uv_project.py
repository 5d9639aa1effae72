"""Write a pyproject.toml for uv with all packages, their versions as constraints, and their indexes.

`uv lock` reads the indexes again and writes its own hashes. In another project's pyproject.toml the tables of
[tool.uv] alone limit its requirements to the lock's versions and indexes.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

import tomli_w

from ..index import pytorch_index
from ..model import LockedPackage
from . import export_subject_and_shared_texts as s
from .export_subject_and_shared_texts import Subject

FORM = "uv"
_MARKERS = {
    "linux-x86_64": "sys_platform == 'linux' and platform_machine == 'x86_64'",
    "linux-aarch64": "sys_platform == 'linux' and platform_machine == 'aarch64'",
    "windows-x86_64": "sys_platform == 'win32' and platform_machine == 'AMD64'",
}
_OF_THE_TOOL = ("pip",)
"""What gpuenv locks for an environment that uv manages itself."""


def text(subject: Subject) -> str:
    """Return the project file. Raises UsageError for a conda lock, and for an address that it cannot name."""
    s.venv_only(subject, FORM, "pixi")
    lock = subject.lock
    packages = sorted((p for p in s.pip_packages(lock) if p.name not in _OF_THE_TOOL), key=lambda p: p.name)
    main = s.main_index(lock)
    names = index_names(packages, main)
    project = {
        "constraint-dependencies": [_pin(p) for p in packages if not p.unhashed],
        "environments": [_MARKERS[lock.plan.platform]],
        "package": False,
        "sources": {p.name: place for p in packages if (place := _source(p, main, names))},
        "index": _indexes(main, names),
    }
    document = {
        "project": {
            "name": "gpuenv-" + "-".join(b.framework for b in lock.plan.builds)
            if lock.plan.builds
            else "gpuenv",
            "version": "0",
            "requires-python": f"=={lock.plan.python}.*",
            "dependencies": [s.oneline(p.name) for p in packages],
        },
        "tool": {"uv": {key: value for key, value in project.items() if value not in ({}, [])}},
    }
    comments = [
        "`uv sync` in this file's folder installs these builds",
        "to use the same builds in another project, copy the [tool.uv] tables and requires-python to its pyproject.toml",
    ]
    return s.comment(subject, FORM, "", *comments) + "\n" + tomli_w.dumps(document)


def index_names(packages: list[LockedPackage], main: str | None) -> dict[str, str]:
    """Return a name for each index but the main one, by its address: "pytorch-cu126", else "index-2"."""
    names: dict[str, str] = {}
    for package in packages:
        url = package.index
        if not url or url == main or url in names or not url.startswith(("http://", "https://")):
            continue
        label = urlsplit(url).path.rstrip("/").rpartition("/")[2]
        name = f"pytorch-{label}" if pytorch_index.is_one(url) and re.fullmatch(r"cu\d+|cpu", label) else ""
        names[url] = name if name and name not in names.values() else f"index-{len(names) + 2}"
    return names


def _indexes(main: str | None, names: dict[str, str]) -> list[dict[str, Any]]:
    """Return the main index instead of uv's own, and the others for the packages that name them."""
    rows: list[dict[str, Any]] = [{"name": "main", "url": s.oneline(main), "default": True}] if main else []
    return rows + [{"name": name, "url": s.oneline(url), "explicit": True} for url, name in names.items()]


def _pin(package: LockedPackage) -> str:
    return s.oneline(f"{package.name}=={package.version}")


def _source(package: LockedPackage, main: str | None, names: dict[str, str]) -> dict[str, Any] | None:
    """Return where uv gets a package from, or None for the main index."""
    folder = s.folder_of(package)
    if folder:
        return {"path": folder, "editable": True} if package.editable else {"path": folder}
    if package.url.startswith("git+"):
        return s.commit_of(package)
    if package.url.startswith("file:"):
        return {"path": s.path_of(package)}
    if package.index == main and main:
        return None
    if package.index in names:
        return {"index": names[package.index]}
    return {"url": package.url}
