"""A conda environment from one lock to another: the engine swaps the packages that differ, uv the wheels;
what else is in the prefix stays."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ...environment import place
from ...model import Event, Lock, Package, Sources
from ...wheels.install import install_wheels
from .. import sync
from . import install as conda
from . import scripts as conda_scripts
from .install import is_conda


@dataclass(frozen=True, kw_only=True)
class How:
    """Where packages come from, and whom to tell."""

    sources: Sources
    emit: Callable[[Event], None]
    channels: tuple[str, ...] = ()


def fetch(old: Lock, new: Lock, env: Path, how: How) -> None:
    """Bring everything that is new into the caches, hashes checked, before the environment is touched.
    Raises BuildError."""
    step = sync.difference(old, new)
    channelled, wheels = _parted(step.into)
    python = [
        p for p in new.packages if is_conda(p) and p.name == "python"
    ]  # what pure packages are laid out for
    with place.draft(env) as scratch:
        if channelled:
            some = dataclasses.replace(
                new, packages=(*(p for p in python if p not in channelled), *channelled)
            )
            conda.put_back(some, scratch / "conda", (), how.sources, how.emit, channels=how.channels)
        if wheels:
            some = dataclasses.replace(new, packages=wheels)
            install_wheels(some, env, how.sources, how.emit, target=scratch / "wheels")


def change(old: Lock, new: Lock, prefix: Path, how: How) -> None:
    """Bring a prefix that holds `old` to `new`. Raises BuildError, with the prefix half changed: it is to be
    a copy."""
    step = sync.difference(old, new)
    before = {p.name: p for p in old.packages}
    channelled, wheels = _parted(step.into)
    sync.take_out(prefix, tuple(n for n in step.out if not is_conda(before[n])))
    gone = [n for n in step.out if is_conda(before[n])]
    if channelled or gone:
        conda.swap(new, prefix, gone, how.sources, how.emit, channels=how.channels)
        conda_scripts.record(prefix, [before[n] for n in gone], channelled, conda.specs_of(new))
    if wheels:
        conda.install_wheels_on_top(new, list(wheels), prefix, how.sources, how.emit)
    how.emit(Event(kind="done", stage="build", text=f"{len(step.into)} packages changed"))


def _parted(packages: tuple[Package, ...]) -> tuple[tuple[Package, ...], tuple[Package, ...]]:
    """conda's packages, and wheels."""
    return tuple(p for p in packages if is_conda(p)), tuple(p for p in packages if not is_conda(p))
