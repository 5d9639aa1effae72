"""Write environment.yml for conda, mamba, micromamba and conda-lock."""

from __future__ import annotations

import re

from ..model import Lock, LockedPackage
from . import export_subject_and_shared_texts as s
from .export_subject_and_shared_texts import Subject
from .requirements import requirement

FORM = "environment.yml"


def text(subject: Subject) -> str:
    """Return the file with exact versions: conda packages with builds, wheels with hashes.

    pip accepts hashes for all packages or for none, so they are omitted if one package has none.
    """
    import yaml

    lock = subject.lock
    conda, wheels = sorted(s.conda_packages(lock), key=lambda p: p.name), s.pip_packages(lock)
    channels = list(dict.fromkeys(p.index for p in conda if p.index)) or ["conda-forge"]
    if conda:
        dependencies: list[object] = [_spec(p, many=len(channels) > 1) for p in conda]
    else:
        dependencies = [f"python={lock.plan.python}", "pip"]
        wheels = [p for p in wheels if p.name != "pip"]
    if wheels:
        dependencies.append({"pip": _pip_section(sorted(wheels, key=lambda p: p.name), lock)})
    document = {
        "name": _name(lock), "channels": [*map(s.oneline, channels), "nodefaults"], "dependencies": dependencies,
    }  # fmt: skip
    body = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=10_000)
    return s.comment(subject, FORM, *_told(lock, wheels)) + body


def _told(lock: Lock, wheels: list[LockedPackage]) -> list[str]:
    index, more = s.main_index(lock), []
    if index:
        more.append(f"its wheels come from {s.oneline(index)}: set PIP_INDEX_URL for a mirror")
    loose = [p.name for p in wheels if not s.hashed(p)]
    if loose:
        more.append(f"no hashes: {s.oneline(', '.join(loose))} has none, and pip requires all or none")
    return ["", *more] if more else []


def _pip_section(wheels: list[LockedPackage], lock: Lock) -> list[str]:
    index = s.main_index(lock)
    checked = all(map(s.hashed, wheels))
    rows = []
    for package in wheels:
        folder = s.folder_of(package)
        if folder and package.editable:
            rows.append(f"-e {s.oneline(package.url)}")  # pip splits a path at spaces
        else:
            named = requirement(package, index)
            rows.append(s.oneline(named + (_hash(package, named) if checked else "")))
    return rows


def _hash(package: LockedPackage, named: str) -> str:
    """Return the hash as an option, or in an address, where conda-lock requires it. pip accepts both."""
    if "==" in named.partition(" @ ")[0]:
        return f" --hash=sha256:{package.sha256}"
    return f"{'&' if '#' in package.url else '#'}sha256={package.sha256}"


def _spec(package: LockedPackage, *, many: bool) -> str:
    """Return the exact spec of a conda package, with its channel if there are several."""
    name = s.file_name(package).removesuffix(".conda").removesuffix(".tar.bz2")
    channel = f"{package.index}::" if many and package.index else ""
    return s.oneline(f"{channel}{package.name}={package.version}={name.rsplit('-', 1)[-1]}")


def _name(lock: Lock) -> str:
    name = "-".join(b.framework for b in lock.plan.builds)
    return re.sub(r"[^A-Za-z0-9_-]", "", name) or "gpuenv"
