"""Make the overview of the page: GPU generations by driver branches, read from the answers."""

from __future__ import annotations

from bisect import bisect_right
from itertools import groupby
from typing import Any

from provision.model import FRAMEWORKS, Profiles
from provision.system.versions import version

from .lookup import VERSION, answer_of

_STEPS = (1, 4, 9)
"""A release this many feature releases older than the newest one begins the next level."""


def heat_maps(known: Profiles, document: dict[str, Any]) -> dict[str, Any]:
    """Return the heat map of each system and framework.

    Columns have the first and last branch and a driver. Rows have the generation, capabilities, and cells
    with version and level.
    """
    return {
        system["key"]: {f: _heat(known, document, system, f) for f in FRAMEWORKS} for system in document["systems"]
    }  # fmt: skip


def _heat(
    known: Profiles, document: dict[str, Any], system: dict[str, Any], framework: str
) -> dict[str, Any]:
    branches = [b.branch for b in known.branches]
    drivers = [driver_of(system, branches, branch) for branch in branches]
    gpus = [g for g in reversed(known.gpus) if g.capability in system["capabilities"] and not g.tegra]
    grid = [[answer_of(document, system, framework, g.capability, d)[VERSION] for d in drivers] for g in gpus]
    columns = [
        list(group) for _, group in groupby(range(len(branches)), key=lambda i: tuple(row[i] for row in grid))
    ]
    columns = [c for c in columns if any(row[c[0]] for row in grid)]
    levels = _levels(known, framework)
    rows = [
        (gpu, tuple((row[c[0]], levels.get(row[c[0]] or "", 0)) for c in columns))
        for gpu, row in zip(gpus, grid, strict=True)
    ]
    last = len(branches) - 1
    return {
        "columns": [[branches[c[0]], branches[c[-1]] if c[-1] != last else None, drivers[c[-1]]] for c in columns],
        "rows": [
            [generation, [gpu.capability for gpu, _ in reversed(group)], [list(cell) for cell in cells]]
            for (generation, cells), members in groupby(rows, key=lambda r: (r[0].generation, r[1]))
            if (group := list(members)) and columns
        ],
    }  # fmt: skip


def driver_of(system: dict[str, Any], branches: list[str], branch: str) -> str:
    """Return the driver that represents a branch: its last floor."""
    place = branches.index(branch)
    later = branches[place + 1] if place + 1 < len(branches) else None
    floors = [
        f for f in system["floors"]
        if version(f) >= version(branch) and (later is None or version(f) < version(later))
    ]  # fmt: skip
    return str(floors[-1])


def _levels(known: Profiles, framework: str) -> dict[str, int]:
    """Return how new each version is, from 4 (the newest feature release) to 1."""
    minors = sorted(
        {version(b.version).release[:2] for b in known.builds if b.framework == framework and b.cuda and not b.yanked},
        reverse=True,
    )  # fmt: skip
    behind = {minor: i for i, minor in enumerate(minors)}
    return {
        b.version: 4 - bisect_right(_STEPS, behind[version(b.version).release[:2]])
        for b in known.builds
        if b.framework == framework and version(b.version).release[:2] in behind
    }
