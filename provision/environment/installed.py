"""What the lock put into an environment, kept inside it: the RECORD of each distribution, by digest.

A package that somebody replaced, edited or installed again has another RECORD. What the user installs
beside the lock is not noted.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from ..model import Installed, InstalledPackage, Lock, as_document
from ..system import foreign
from . import state

NAME = "installed.json"


def write(env: Path, lock: Lock) -> None:
    """Note what is installed now of the lock's packages. Raises BuildError."""
    wanted = {normal(p.name) for p in lock.packages}
    found = []
    for folder in sorted(env.glob("lib/python3*/site-packages/*.dist-info")):
        name, _, version = folder.name.removesuffix(".dist-info").partition("-")
        if normal(name) in wanted:
            found.append(InstalledPackage(name=normal(name), version=version, record=_digest(folder)))
    state.write(env, NAME, as_document(Installed(packages=tuple(found))))


def _digest(folder: Path) -> str | None:
    try:
        return hashlib.sha256(foreign.read_bytes(folder / "RECORD")).hexdigest()
    except OSError:
        return None


def normal(name: str) -> str:
    """A name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()
