"""Warnings, before anything is installed, of libraries that a lock's wheels need and the target lacks."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from ..model import Emit, Event, Lock, Package, Sources
from ..request import facts
from ..request.options import Choices
from ..system import process
from ..wheels.system_needs import SystemNeeds, needs_of


def warn_of_missing_libraries(
    emit: Emit, lock: Lock, choices: Choices, sources: Sources, folders: Sequence[Path] = ()
) -> None:
    """Warn of the system's libraries that wheels of the lock need and the target lacks, as far as wheels and target
    are known. `folders` have wheels. Of another machine only glibc is known."""
    if any(package.is_conda for package in lock.packages):
        return  # conda's packages bring the libraries of a system along
    needs = needs_of(lock.packages, sources, folders)
    for text in (
        *_of_glibc(needs, lock),
        *(() if choices.elsewhere or choices.glibc or choices.platform else _of_this_system(needs, choices)),
    ):
        emit(Event(kind="warning", stage="lock", text=text))


def _of_glibc(needs: dict[Package, SystemNeeds], lock: Lock) -> list[str]:
    has = lock.plan.target.glibc
    if not has:
        return []
    return [
        f"{package.name} {package.version} needs glibc {need.glibc}; the target has {has}"
        for package, need in needs.items()
        if need.glibc and _number(need.glibc) > _number(has)
    ]


def _of_this_system(needs: dict[Package, SystemNeeds], choices: Choices) -> list[str]:
    from ..system.elf import ElfError
    from ..verify.packages import remedy
    from ..verify.packages.lookup import Loader

    known = facts.for_verdict(choices)
    rows = remedy.Rows(system=known.system_libraries, replacements=known.replacements)
    named = {row.soname for row in rows.system}
    wanted = {p: [n for n in need.libraries if n in named] for p, need in needs.items()}
    if not any(wanted.values()):
        return []
    try:
        loader = Loader(sys.executable, process.environ())
    except ElfError:
        return []  # another C library than glibc: its search is not known here
    there = {n: loader.finds(re.escape(n)) for names in wanted.values() for n in names}
    missing = {p: [n for n in names if not there[n]] for p, names in wanted.items()}
    missing = {p: names for p, names in missing.items() if names}
    if not missing:
        return []
    what = "; ".join(f"{p.name} {p.version} needs {', '.join(names)}" for p, names in missing.items())
    fix = remedy.of_system({p.name: names for p, names in missing.items()}, rows, remedy.distribution())
    return [f"{what}, which this system does not have. {fix}"]


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(x) for x in version.split("."))
