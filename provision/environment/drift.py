"""Compares an environment with the lock that it was built from. It reads files, and runs nothing installed.

Three cheap comparisons are always made: versions (names of the dist-info folders), each RECORD with the
installed one, and existence and size of each file. With `thorough`, the bytes of files that were written after
the build are compared too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from packaging.utils import canonicalize_version

from ..model import (
    WHEEL_NAMES,
    Drift,
    EnvironmentChange,
    InstalledPackage,
    InstallRecord,
    Lock,
    LockedPackage,
    UnlockedPackage,
    from_plain,
    name_few,
    normalize_name,
)
from ..system import untrusted
from .distributions import (
    CondaRecord,
    Distribution,
    RecordRow,
    compare_file,
    list_conda_infos,
    list_conda_records,
    read_distributions,
)

Part = Distribution | CondaRecord
WrongFiles = Mapping[Part, Mapping[str, str]]
"""By package its files that differ, each with how: missing, size or bytes."""

_WORDS = {
    "missing": ("is missing", "are missing"),
    "size": ("has the wrong size", "have the wrong size"),
    "bytes": ("was changed", "were changed"),
}
"""What a kind of difference is called, for one file and for several."""
_PATHS = 8  # that a change lists


def read_wrong_sizes(env: Path) -> WrongFiles:
    """Read which files of installed packages are missing or have another size than RECORD or conda-meta lists."""
    wheels = (several[0] for several in read_distributions(env).values())
    return _find_wrong_sizes([*wheels, *list_conda_records(env)])


def find_drift(
    env: Path,
    lock: Lock,
    *,
    python: str | None = None,
    thorough: bool = False,
    deep: bool = False,
    fresh: Collection[str] = (),
    sizes: WrongFiles | None = None,
) -> Drift:
    """Return the differences. `python` is the version of the environment's interpreter.

    With `deep` every byte is read. `fresh` are packages that were just installed: all their bytes are read, and
    their RECORD is trusted. `sizes` is the result of `read_wrong_sizes`, if it was called before.
    """
    found = read_distributions(env)
    wheels = {normalize_name(p.name): p for p in lock.packages if not p.is_conda}
    conda = {p.name: p for p in lock.packages if p.is_conda}
    records = {r.name: r for r in list_conda_records(env)} if conda else {}
    noted, since = _read_installed(env)
    changes = [] if conda else _compare_python(lock, python)  # there Python is a package like the others
    changes += [
        c for n, p in wheels.items() if (c := _compare_wheel(p, found.get(n, ()), noted.get(n), n in fresh))
    ]
    replaced = {c.name for c in changes}
    here = {n: found[n][0] for n in wheels if n not in replaced and n in found}
    built = [c for n, p in conda.items() if (c := _compare_build(p, records.get(n)))]
    unbuilt = {c.name for c in built}
    parts: list[Part] = [*here.values(), *records.values()]
    if thorough:
        wrong = _compare_rows(parts, since, {p.name for p in parts} if deep else fresh)
    else:
        wrong = _find_wrong_sizes(parts) if sizes is None else sizes
    # A wheel over a conda package is a change. Conda packages share files, also with one that is not locked.
    changes += _list_modified([*here.values()], wrong) + built
    shared = _list_modified([*records.values()], wrong)
    changes += [c for c in shared if c.name in conda and c.name not in unbuilt]
    added = [d for n, ds in found.items() if n not in wheels for d in ds]
    if conda and (added := [d for d in added if d.installer != "conda"]):
        infos = list_conda_infos(env)
        added = [d for d in added if d.folder.name not in infos]
    strangers, overwritten = _find_strangers(added, [*here.values(), *records.values()])
    strangers += [
        UnlockedPackage(name=r.name, version=r.version, conda=True)
        for r in records.values()
        if r.name not in conda
    ]
    return Drift(changes=_merge_changes([*changes, *overwritten]), strangers=tuple(strangers))


def _read_installed(env: Path) -> tuple[dict[str, InstalledPackage], float | None]:
    """Return what was installed, and when that was recorded. A draft has no such record yet."""
    path = env / ".gpuenv" / "installed.json"
    try:
        kept = from_plain(InstallRecord, json.loads(untrusted.read_bytes(path)))
        return {p.name: p for p in kept.packages}, path.stat().st_mtime
    except (OSError, ValueError, RecursionError):
        return {}, None


def _merge_changes(changes: Iterable[EnvironmentChange]) -> tuple[EnvironmentChange, ...]:
    """Return one change per package, because an overwritten package has wrong files too."""
    merged: dict[tuple[str, bool], EnvironmentChange] = {}
    for change in sorted(changes, key=lambda c: c.kind == "modified"):
        merged.setdefault((change.name, change.kind == "python"), change)
    return tuple(sorted(merged.values(), key=lambda c: (c.kind != "python", c.name)))


# --- versions ------------------------------------------------------------------------------------


def _compare_python(lock: Lock, python: str | None) -> list[EnvironmentChange]:
    wanted = lock.plan.python
    if not python or not wanted or python.split(".")[:2] == wanted.split(".")[:2]:
        return []
    text = f"the environment has Python {python}, but the lock is for {wanted}"
    return [EnvironmentChange(kind="python", name="python", text=text, locked=wanted, found=python)]


def _compare_wheel(
    package: LockedPackage, found: Sequence[Distribution], noted: InstalledPackage | None, fresh: bool
) -> EnvironmentChange | None:
    """Return the change of a locked wheel that is missing, replaced, duplicated, or has another RECORD."""
    name = normalize_name(package.name)
    wanted = noted.version if noted and package.unhashed else package.version
    if not found:
        text = f"{name} is missing, but the lock has {wanted}"
        return EnvironmentChange(kind="removed", name=name, text=text, locked=wanted)
    versions = " and ".join(d.version for d in found)
    if len(found) > 1 or not (
        canonicalize_version(found[0].version) == canonicalize_version(wanted) or package.editable
    ):
        text = f"{name} {versions} is installed, but the lock has {wanted}"
        return EnvironmentChange(kind="replaced", name=name, text=text, locked=wanted, found=versions)
    here = found[0]
    if here.record is None:
        text = f"the RECORD file of {name} {versions} is missing"
    elif noted and noted.record and noted.record != here.record_digest and not fresh:
        text = f"the RECORD file of {name} {versions} was changed after the installation"
    else:
        return None
    path = (str(here.folder / "RECORD"),)
    return EnvironmentChange(kind="modified", name=name, text=text, locked=wanted, found=versions, paths=path)


def _compare_build(package: LockedPackage, record: CondaRecord | None) -> EnvironmentChange | None:
    """Return the change of a locked conda package that is missing, or of another build."""
    name = package.name
    if record is None:
        text = f"{name} is missing, but the lock has {package.version}"
        return EnvironmentChange(kind="removed", name=name, text=text, locked=package.version)
    if record.stem == package.stem:
        return None
    text = f"{record.stem} is installed, but the lock has {package.stem}"
    locked, found = package.stem[len(name) + 1 :], record.stem[len(name) + 1 :]
    return EnvironmentChange(kind="replaced", name=name, text=text, locked=locked, found=found)


# --- files ---------------------------------------------------------------------------------------


def _find_wrong_sizes(parts: Sequence[Part]) -> WrongFiles:
    return {one: wrong for one in parts if (wrong := one.find_wrong_sizes())}


def _compare_rows(parts: Sequence[Part], since: float | None, read: Collection[str]) -> WrongFiles:
    """Return the files that differ from their row. All bytes of the packages in `read` are compared."""

    def wrong(one: Part) -> dict[str, str]:
        hashes = one.name in read
        return {r.path: how for r in one.rows if (how := compare_file(r, since, hashes=hashes))}

    with ThreadPoolExecutor(max_workers=4) as pool:  # hashing releases the interpreter's lock
        return dict(zip(parts, pool.map(wrong, parts), strict=True))


def _list_modified(parts: Sequence[Part], wrong: WrongFiles) -> list[EnvironmentChange]:
    """Return the changes of packages with wrong files.

    If two packages list one file, either may have written it: it is right if it matches one of them.
    """
    paths = {path for files in wrong.values() for path in files}
    listed = ((one, r.path) for one in parts if paths for r in one.rows if r.path in paths)
    right = {path for one, path in listed if path not in wrong.get(one, {})}
    changes = []
    for one in parts:
        files = {path: how for path, how in wrong.get(one, {}).items() if path not in right}
        changes += [make_change(one, files)] if files else []
    return changes


def make_change(one: Part, files: Mapping[str, str]) -> EnvironmentChange:
    """Return the change of a package with different files. `files` is path -> kind of difference."""
    texts: list[str] = []
    for kind, words in _WORDS.items():
        paths = sorted(os.path.relpath(p, one.root) for p, k in files.items() if k == kind)
        if paths:
            owner = "" if texts else f" of {one.name} {one.version}"
            noun = "file" if len(paths) == 1 else "files"
            texts.append(f"{len(paths)} {noun}{owner} {words[len(paths) > 1]} ({name_few(paths)})")
    return EnvironmentChange(
        kind="modified", name=one.name, text="; ".join(texts), locked=one.version, found=one.version,
        paths=tuple(sorted(files)[:_PATHS]),
    )  # fmt: skip


# --- packages that the lock does not name ----------------------------------------------------------


def _find_strangers(
    added: Sequence[Distribution], owners: Sequence[Part]
) -> tuple[list[UnlockedPackage], list[EnvironmentChange]]:
    """Return the added packages, and the changes of files that they overwrote. Two packages may share a file of
    the same bytes."""
    owned = {row.path: (owner, row) for owner in owners for row in owner.rows} if added else {}
    strangers, changes = [], []
    for one in sorted(added, key=lambda d: d.name):
        shared: dict[Part, list[RecordRow]] = {}
        for row in one.rows:
            owner, locked = owned.get(row.path, (None, None))
            if owner and locked and locked.digest and row.digest not in (None, locked.digest):
                shared.setdefault(owner, []).append(locked)
        over = sorted(shared, key=lambda owner: owner.name)
        strangers.append(
            UnlockedPackage(
                name=one.name, version=one.version, over=tuple(o.name for o in over), requires=one.requires
            )
        )
        changes += [c for owner in over if (c := _make_overwritten(one, owner, shared[owner]))]
    return strangers, changes


def _make_overwritten(one: Distribution, owner: Part, rows: Sequence[RecordRow]) -> EnvironmentChange | None:
    """Return the change of a locked package whose files another package overwrote, or None."""
    lost = sorted(r.path for r in rows if compare_file(r, None, hashes=True))
    if not lost:
        return None
    name, version, paths = owner.name, owner.version, tuple(lost[:_PATHS])
    by = f"{one.name} {one.version}"
    if one.name == WHEEL_NAMES.get(name, name):  # a wheel over its conda package
        text = f"{by} was installed over {version}, which is the version in the lock"
        return EnvironmentChange(
            kind="replaced", name=name, text=text, locked=version, found=one.version, paths=paths
        )
    files = f"{len(lost)} file{'s' if len(lost) > 1 else ''}"
    text = f"{by}, which is not in the lock, overwrote {files} of {name} {version}"
    return EnvironmentChange(
        kind="overwritten", name=name, text=text, locked=version, found=version, by=by, paths=paths
    )
