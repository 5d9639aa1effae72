"""Compares an environment with the lock that it was built from. It reads files, and runs nothing installed.

Three cheap comparisons are always made: versions (names of the dist-info folders), each RECORD with the
installed one, and existence and size of each file. With `thorough`, the bytes of files that were written after
the build are compared too.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from packaging.version import InvalidVersion, Version

from ...environment.distributions import Distribution, RecordRow, compare_file, read_distributions
from ...model import (
    WHEEL_NAMES,
    Drift,
    EnvironmentChange,
    InstalledPackage,
    InstallRecord,
    Lock,
    LockedPackage,
    UnlockedPackage,
    from_plain,
    normalize_name,
)
from ...system import untrusted
from ...system.file_digest import hash_readable
from . import changed_bytecode, compare_conda
from .changed_files_of_package import MAX_PATHS, make_change

Distributions = Mapping[str, Sequence[Distribution]]
WrongFiles = Mapping[str, Mapping[str, str]]
"""By package its files that are missing or of another size, with which of the two."""


class WrongSizes(NamedTuple):
    """The wrong files of an environment: those of wheels, and conda-meta with those of conda packages."""

    wheels: WrongFiles
    conda: compare_conda.CondaMeta | None = None


def find_drift(
    env: Path,
    lock: Lock,
    *,
    python: str | None = None,
    thorough: bool = False,
    deep: bool = False,
    fresh: Collection[str] = (),
    sizes: WrongSizes | None = None,
) -> Drift:
    """Return the differences. `python` is the version of the environment's interpreter.

    With `deep` every byte is read. `fresh` are packages that were just installed: all their bytes are read, and
    their RECORD is trusted. `sizes` is the result of `read_wrong_sizes`, if it was called before.

    Seven parameters: each of the last five switches one comparison, and most callers set none or one of them.
    """
    seen = read_distributions(env)
    conda = [p for p in lock.packages if p.is_conda]
    wheels = {normalize_name(p.name): p for p in lock.packages if not p.is_conda}
    known, since = _read_installed(env)
    changes = [] if conda else _compare_python(lock, python)  # there Python is a package like the others
    changes += [
        c for n, p in wheels.items() if (c := _compare_package(p, seen.get(n, ()), known.get(n), n in fresh))
    ]
    named = {c.name for c in changes}
    here = {n: seen[n][0] for n in wheels if n not in named and n in seen}
    if thorough:
        changes += _compare_files(
            here, since, here if deep else fresh, changed_bytecode.find_changed(env, here)
        )
    else:
        changes += _drop_shared(here, sizes.wheels if sizes else _find_wrong_sizes(here))
    listed = ((sizes and sizes.conda) or compare_conda.read_conda_meta(env)) if conda else None
    if listed is not None:
        read = listed.metas if deep else fresh
        changes += compare_conda.find_changes(conda, listed, since, thorough=thorough, read=read)
    added = [d for n, ds in seen.items() if n not in wheels for d in ds if not _is_of_conda(d, listed)]
    strangers, over = _find_strangers(added, here, listed.rows() if listed and added else {})
    strangers += compare_conda.find_strangers(conda, listed) if listed else ()
    return Drift(changes=_merge_changes([*changes, *over]), strangers=strangers)


def _read_installed(env: Path) -> tuple[dict[str, InstalledPackage], float | None]:
    """Return what was installed, and when that was recorded. Older environments have no such record."""
    path = env / ".gpuenv" / "installed.json"
    try:
        kept = from_plain(InstallRecord, json.loads(untrusted.read_bytes(path)))
        return {p.name: p for p in kept.packages}, path.stat().st_mtime
    except (OSError, ValueError, RecursionError):
        return {}, None


def _is_of_conda(distribution: Distribution, listed: compare_conda.CondaMeta | None) -> bool:
    return listed is not None and (
        distribution.installer == "conda" or distribution.folder.name in listed.infos()
    )


def _merge_changes(changes: Iterable[EnvironmentChange]) -> tuple[EnvironmentChange, ...]:
    """Return one change per package, because an overwritten package has wrong files too."""
    merged: dict[tuple[str, bool], EnvironmentChange] = {}
    for change in sorted(changes, key=lambda c: c.kind == "modified"):
        merged.setdefault((change.name, change.kind == "python"), change)
    order = list(merged.values())
    return tuple(sorted(order, key=lambda c: (c.kind != "python", c.name)))


# --- one package ---------------------------------------------------------------------------------


def _compare_python(lock: Lock, python: str | None) -> list[EnvironmentChange]:
    wanted = lock.plan.python
    if not python or not wanted or python.split(".")[:2] == wanted.split(".")[:2]:
        return []
    text = f"the environment has Python {python}, but the lock is for {wanted}"
    return [EnvironmentChange(kind="python", name="python", text=text, locked=wanted, found=python)]


def _compare_package(
    package: LockedPackage, seen: Sequence[Distribution], kept: InstalledPackage | None, fresh: bool
) -> EnvironmentChange | None:
    """Return the change of a locked wheel that is missing, replaced, duplicated, or has another RECORD."""
    name = normalize_name(package.name)
    wanted = kept.version if kept and package.unhashed else package.version
    if not seen:
        text = f"{name} is missing, but the lock has {wanted}"
        return EnvironmentChange(kind="removed", name=name, text=text, locked=wanted)
    versions = " and ".join(d.version for d in seen)
    if len(seen) > 1 or not (is_same_version(seen[0].version, wanted) or package.editable):
        text = f"{name} {versions} is installed, but the lock has {wanted}"
        return EnvironmentChange(kind="replaced", name=name, text=text, locked=wanted, found=versions)
    here = seen[0]
    if here.record is None:
        text = f"the RECORD file of {name} {versions} is missing"
    elif kept and kept.record and kept.record != here.record_digest and not fresh:
        text = f"the RECORD file of {name} {versions} was changed after the installation"
    else:
        return None
    path = (str(here.folder / "RECORD"),)
    return EnvironmentChange(kind="modified", name=name, text=text, locked=wanted, found=versions, paths=path)


def is_same_version(one: str, other: str) -> bool:
    """Return whether two versions are equal, local labels included: 2.9.0+cpu is not 2.9.0."""
    try:
        return Version(one) == Version(other)
    except InvalidVersion:
        return one == other


# --- files ---------------------------------------------------------------------------------------


def _compare_files(
    here: Mapping[str, Distribution],
    since: float | None,
    read: Collection[str],
    modules: Mapping[str, Mapping[str, str]],
) -> list[EnvironmentChange]:
    """Return the changes of packages with files that differ from their RECORD, or with changed `modules`.

    All bytes of the packages in `read` are compared. If two locked packages list one file, either may have
    written it.
    """

    def wrong(name: str) -> dict[str, str]:
        rows = here[name].rows
        return {r.path: how for r in rows if (how := compare_file(r, since, hashes=name in read))}

    with ThreadPoolExecutor(max_workers=4) as pool:  # hashing releases the interpreter's lock
        bad = dict(zip(here, pool.map(wrong, here), strict=True))
    return _drop_shared(here, bad, modules)


def read_wrong_sizes(env: Path) -> WrongSizes:
    """Read which files of installed packages are missing or have another size than RECORD or conda-meta lists."""
    wheels = _find_wrong_sizes({n: ds[0] for n, ds in read_distributions(env).items()})
    listed = compare_conda.read_conda_meta(env) if (env / "conda-meta").is_dir() else None
    if listed:
        listed.wrong_sizes  # noqa: B018  # kept for `find`
    return WrongSizes(wheels, listed)


def _find_wrong_sizes(here: Mapping[str, Distribution]) -> WrongFiles:
    return {name: wrong for name, one in here.items() if (wrong := one.find_wrong_sizes())}


def _drop_shared(
    here: Mapping[str, Distribution], bad: WrongFiles, modules: Mapping[str, Mapping[str, str]] | None = None
) -> list[EnvironmentChange]:
    """Return the changes of packages with wrong files. A file that matches another package's list belongs to
    that package."""
    paths = {path for files in bad.values() for path in files}
    listed = ((n, r) for n in here if paths for r in here[n].rows if r.path in paths)
    good = {r.path for n, r in listed if r.path not in bad.get(n, {})}
    changes = []
    for name, one in here.items():
        left = {path: how for path, how in bad.get(name, {}).items() if path not in good}
        left |= (modules or {}).get(name, {})
        changes += [make_change(name, one.version, str(one.folder.parent), left)] if left else []
    return changes


# --- what the lock does not name -----------------------------------------------------------------


def _find_strangers(
    added: Sequence[Distribution],
    here: Mapping[str, Distribution],
    conda: Mapping[str, tuple[str, RecordRow]],
) -> tuple[tuple[UnlockedPackage, ...], list[EnvironmentChange]]:
    """Return the added packages, and the changes of files that they overwrote. Two packages may share a file of
    the same bytes."""
    if not added:
        return (), []
    owned = {row.path: (f"{n} {d.version}", row) for n, d in here.items() for row in d.rows} | dict(conda)
    strangers, changes = [], []
    for one in sorted(added, key=lambda d: d.name):
        shared: dict[str, list[RecordRow]] = {}
        for row in one.rows:
            owner, locked_row = owned.get(row.path, (None, None))
            if owner and locked_row and locked_row.digest and row.digest not in (None, locked_row.digest):
                shared.setdefault(owner, []).append(locked_row)
        names = tuple(sorted(o.partition(" ")[0] for o in shared))
        strangers.append(
            UnlockedPackage(name=one.name, version=one.version, over=names, requires=one.requires)
        )
        changes += [c for owner, rows in sorted(shared.items()) if (c := _make_overwritten(one, owner, rows))]
    return tuple(strangers), changes


def _make_overwritten(one: Distribution, owner: str, rows: Sequence[RecordRow]) -> EnvironmentChange | None:
    """Return the change of a locked package whose files another package overwrote, or None. Sizes decide most
    cases."""
    lost = [r.path for r in rows if compare_file(r, None) or hash_readable(r.path) != r.digest]
    if not lost:
        return None
    name, _, version = owner.partition(" ")
    by = f"{one.name} {one.version}"
    shown = tuple(sorted(lost)[:MAX_PATHS])
    if one.name == WHEEL_NAMES.get(name, name):  # a wheel over its conda package
        text = f"{by} was installed over {version}, which is the version in the lock"
        return EnvironmentChange(
            kind="replaced", name=name, text=text, locked=version, found=one.version, paths=shown
        )
    files = f"{len(lost)} file{'s' if len(lost) > 1 else ''}"
    text = f"{by}, which is not in the lock, overwrote {files} of {owner}"
    return EnvironmentChange(
        kind="overwritten", name=name, text=text, locked=version, found=version, by=by, paths=shown
    )
