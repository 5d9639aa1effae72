"""How a conda environment is built, changed and put back: the engine links packages of channels, uv installs wheels.
What else is in the prefix stays."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from ...environment import place, state, transaction as transactions
from ...environment.difference import difference
from ...environment.repair import Work
from ...errors import BuildError
from ...model import Event, Lock, Package, as_plain
from ...wheels.install import install_wheels
from ...wheels.put_back import put_back as put_back_wheels, take_out
from ..protocol import Building
from . import engine as door, scripts as conda_scripts
from .install import install_wheels_on_top, link, specs_of

transaction = transactions.at_its_path


def begin() -> None:
    """Raise UsageError where the engine is missing."""
    door.require("rattler")


def fetch(lock: Lock, packages: Sequence[Package], how: Building) -> None:
    """Bring packages into the caches, hashes compared, before the environment is renamed aside. Raises BuildError."""
    channelled, wheels = _parted(packages)
    names = {p.name for p in channelled} | {"python"}  # pure packages are unpacked for a Python
    with place.draft(how.env) as scratch:
        if channelled:
            named = tuple(p for p in lock.packages if p.is_conda and p.name in names)
            link(dataclasses.replace(lock, packages=named), scratch / "conda", how, distrust=True)
        if wheels:
            some = dataclasses.replace(lock, packages=wheels)
            install_wheels(some, how.env, how.sources, how.emit, target=scratch / "wheels")


def install(lock: Lock, prefix: Path, how: Building) -> None:
    """Fill an empty prefix. Raises BuildError."""
    channelled, wheels = _parted(lock.packages)
    told = f"installing {len(channelled)} conda packages"
    how.emit(Event(kind="start", stage="build", text=told, total=len(channelled)))
    link(lock, prefix, how, distrust=how.distrust)
    conda_scripts.write(prefix, channelled, specs_of(lock))
    install_wheels_on_top(lock, wheels, prefix, how)
    how.emit(Event(kind="done", stage="build", text=f"{len(lock.packages)} packages installed"))


def change(old: Lock, new: Lock, prefix: Path, how: Building) -> None:
    """Bring a prefix that holds `old` to `new`. Raises BuildError, with the prefix half changed."""
    step = difference(old, new)
    before = {p.name: p for p in old.packages}
    channelled, wheels = _parted(step.into)
    take_out(prefix, [n for n in step.out if not before[n].is_conda])
    gone = [n for n in step.out if before[n].is_conda]
    if channelled or gone:
        link(new, prefix, how, replaced=gone)
        conda_scripts.record(prefix, [before[n] for n in gone], channelled, specs_of(new))
    install_wheels_on_top(new, wheels, prefix, how)
    how.emit(Event(kind="done", stage="build", text=f"{len(step.into)} packages changed"))


def put_back(lock: Lock, work: Work, prefix: Path, how: Building, *, fresh: bool) -> None:
    """Take out and put back what the work names. The cache's files are compared with their hashes, because they are
    the prefix's. Raises BuildError."""
    channelled, wheels = _parted(work.packages)
    take_out(prefix, [r.name for r in work.removed])
    if channelled:
        link(lock, prefix, how, distrust=True, reinstall=[p.name for p in channelled])
    put_back_wheels(lock, wheels, prefix, how.sources, how.emit, fresh=fresh)


def record(lock: Lock, prefix: Path) -> None:
    """Write the lock into the environment, as a value: reading it needs no conda-lock. Raises BuildError."""
    plain = as_plain(dataclasses.replace(lock, plan=dataclasses.replace(lock.plan, rejected=())))
    state.write(prefix, "lock.json", {"digest": state.lock_digest(lock), "lock": plain})


def settle(env: Path) -> str | None:
    """Add the environment to the list that conda, VS Code and Jupyter read. It works without that: return why it
    could not be done."""
    try:
        conda_scripts.register(env)
    except BuildError as error:
        return error.message
    return None


def _parted(packages: Sequence[Package]) -> tuple[tuple[Package, ...], tuple[Package, ...]]:
    """Return conda's packages, and wheels."""
    return tuple(p for p in packages if p.is_conda), tuple(p for p in packages if not p.is_conda)
