"""Reads and writes pylock.toml (PEP 751), with the plan and its target under [tool.gpuenv].

gpuenv reads through `packaging.pylock`, so that the same rules apply to locks of other tools. Bundles, caches and
environments write files with the names in a lock's addresses.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import tomli_w
from packaging.pylock import Package, Pylock, PylockValidationError
from packaging.requirements import Requirement
from packaging.utils import InvalidWheelFilename
from packaging.version import InvalidVersion, Version

from ..errors import LockError
from ..model import (
    VENV_LOCK,
    ExcludeNewer,
    HostClass,
    Lock,
    LockedPackage,
    Plan,
    Target,
    as_plain,
    check_forms,
    from_plain,
)
from ..system import trust, untrusted
from ..system.files import signed, suggest_fix, write_file, write_output
from ..system.redaction import redact, redact_value
from ..system.toml import parse_toml
from ..system.untrusted import UnsafeNameError, file_name_of_url, last_segments, path_of_url
from ..system.wheel_file import label_of, parse_wheel, plain_name


def write(path: Path, lock: Lock, *, root: Path | None = None) -> None:
    """Write a lock atomically. Raises LockError.

    No link may lead out of the folder `root`, by default that of the file.
    """
    text = signed(tomli_w.dumps(_make_document(lock)))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if root is None:
            write_output(path, text, durable=True)
        else:
            write_file(path, text, root=root, durable=True)
    except OSError as error:
        raise LockError(
            f"cannot write the lock {path}: {error.strerror}",
            hint=suggest_fix(error, "choose a writable folder"),
        ) from error


def _make_document(lock: Lock) -> dict[str, Any]:
    plan = as_plain(lock.plan)
    # Rejected and held-back releases depend on the day's profiles and releases. `resolve` shows them.
    plan["rejected"] = []
    del plan["held_back"], plan["sets"]
    ours = {"manager": lock.manager, "target": as_plain(lock.target), "plan": plan, "inputs": lock.inputs}
    ours["exclude_newer"] = as_plain(lock.exclude_newer) if lock.exclude_newer else None
    if lock.classes:
        ours["classes"] = [as_plain(c) for c in lock.classes]
    return {
        "lock-version": "1.0",
        "created-by": "gpuenv",
        "requires-python": f"=={lock.plan.python}.*",
        "packages": [_make_package_table(p) for p in lock.packages],
        "tool": {"gpuenv": redact_value(_drop_nulls(ours))},
    }


def _make_package_table(package: LockedPackage) -> dict[str, Any]:
    table: dict[str, Any] = {"name": package.name}
    if package.version:
        table["version"] = package.version
    if package.index:
        table["index"] = redact(package.index)
    if package.url.startswith("git+"):
        return {**table, "vcs": _make_vcs_table(redact(package.url))}
    if is_folder(package):
        folder = str(path_of_url(package.url))
        return {**table, "directory": {"path": folder, "editable": package.editable}}
    file: dict[str, Any] = {"name": file_name(package), "url": redact(package.url)}
    if package.size is not None:
        file["size"] = package.size
    file["hashes"] = {k: v for k, v in (("sha256", package.sha256), ("md5", package.md5)) if v}
    if not is_source(package):
        if wheel_version(package) != package.version:
            # PEP 751 takes a wheel only where its name has the version of its metadata.
            return {**table, "archive": {k: v for k, v in file.items() if k != "name"}}
        return {**table, "wheels": [file]}
    recorded = {"tool": {"gpuenv": {"depends": list(package.depends)}}} if package.depends else {}
    return {**table, "sdist": file, **recorded}


def _make_vcs_table(url: str) -> dict[str, Any]:
    parts = urlsplit(url.removeprefix("git+"))
    path, _, commit = parts.path.rpartition("@")
    table = {"type": "git", "url": parts._replace(path=path, fragment="").geturl(), "commit-id": commit}
    folder = parts.fragment.removeprefix("subdirectory=")
    return {**table, "subdirectory": folder} if folder else table


def is_folder(package: LockedPackage) -> bool:
    """Return whether a package is a folder of this machine, which cannot have a hash."""
    return package.unhashed and package.url.startswith("file:")


def is_source(package: LockedPackage) -> bool:
    """Return whether a package is a source archive, from which the installation builds a wheel."""
    return not package.unhashed and not file_name(package).endswith(".whl")


def wheel_version(package: LockedPackage) -> str:
    """Return the version in the name of a wheel, which can have a local label that its metadata lacks
    (flash_attn-2.8.3+cu12torch2.8cxx11abiTRUE)."""
    try:
        version = parse_wheel(file_name(package)).version
        return package.version if version == Version(package.version) else str(version)
    except (InvalidWheelFilename, InvalidVersion):
        return package.version


def is_variant(package: LockedPackage) -> bool:
    """Return whether a package is a variant of a wheel (PEP 825), by the file name in its address."""
    return (
        not package.unhashed and not package.is_conda and label_of(file_name_of_url(package.url)) is not None
    )


def file_name(package: LockedPackage) -> str:
    """Return the file name of a package, by its address. Raises UnsafeNameError.

    The label of a variant is left out: installers take the file under its plain name.
    """
    return plain_name(file_name_of_url(package.url))


def _drop_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _drop_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [_drop_nulls(v) for v in value]
    return value


def read(path: Path, env: Path | None = None) -> Lock:
    """Read a lock of a project, or the record of an environment. Raises LockError, UntrustedError.

    LockError means that it is missing or incomplete, or that it lacks data that gpuenv needs.
    """
    again = f"gpuenv create {shlex.quote(str(env))} --recreate" if env else "gpuenv lock"
    hint = f"write it again: {again}"
    try:
        content = trust.read_project(path, env=env)
        refuse_conflict(path, content)
        data = parse_toml(content.decode())
        locked = Pylock.from_dict(data)
        ours = data.get("tool", {}).get("gpuenv")
        if not isinstance(ours, dict):
            raise LockError(
                f"{path} has no [tool.gpuenv] table: gpuenv did not write it",
                hint=hint,
            )
        target = from_plain(Target, ours.get("target"), "tool.gpuenv.target")
        plan = from_plain(Plan, ours.get("plan"), "tool.gpuenv.plan")
        manager = plan.manager
        inputs: Any = ours.get("inputs")
        limit = ours.get("exclude_newer")
        newer = from_plain(ExcludeNewer, limit, "tool.gpuenv.exclude_newer") if limit is not None else None
        classes = _parse_classes(ours.get("classes", []))
        packages = tuple(_parse_package(p, i) for i, p in enumerate(locked.packages))
        check_file_names(packages, "packages")
    except OSError as error:
        raise LockError(f"cannot read the lock {path}: {error.strerror}", hint=hint) from error
    except (ValueError, RecursionError, PylockValidationError) as error:
        raise LockError(f"the lock {path} is not valid: {error}", hint=hint) from error
    digest = inputs if isinstance(inputs, str) else None
    return Lock(
        manager=manager, target=target, plan=plan, packages=packages, inputs=digest, exclude_newer=newer,
        classes=classes,
    )  # fmt: skip


def refuse_conflict(path: Path, content: bytes) -> None:
    """Raise LockError for a lock with merge conflict markers."""
    if line := untrusted.find_conflict(content):
        raise LockError(
            f"{path} has merge conflict markers (line {line})",
            hint="merge the project's other files, then lock again: gpuenv lock",
        )


def _parse_classes(data: Any) -> tuple[HostClass, ...]:
    """Return the classes of hosts of a fleet's lock, or none for the lock of one machine. Raises ValueError."""
    if not isinstance(data, list):
        raise ValueError("tool.gpuenv.classes: expected a list")  # noqa: TRY004  # as every mistake in a lock
    return tuple(from_plain(HostClass, row, f"tool.gpuenv.classes[{i}]") for i, row in enumerate(data))


def _parse_package(package: Any, position: int) -> LockedPackage:
    where = f"packages[{position}] ({package.name})"
    version = str(package.version or "")
    if source := unhashed_source(package):
        return source
    if package.wheels and len(package.wheels) > 1:
        raise ValueError(f"{where}: expected one wheel")
    file: Any = package.wheels[0] if package.wheels else package.sdist or package.archive
    address = file.url or (Path(file.path).absolute().as_uri() if file.path else None)
    sha256 = file.hashes.get("sha256")
    if address is None or not version:
        raise ValueError(f"{where}: no address or no version")
    if sha256 is None:
        raise ValueError(f"{where}: no sha256")
    return LockedPackage(
        name=package.name, version=version, url=address, sha256=sha256, index=package.index, size=file.size,
        depends=_parse_depends(package.tool, where) if file is package.sdist else (),
    )  # fmt: skip


def unhashed_source(package: Package) -> LockedPackage | None:
    """Return a package that is a commit or a folder, or None for one with files."""
    name, version = str(package.name), str(package.version or "")
    if package.vcs is not None:
        return LockedPackage(name=name, version=version, url=_vcs_url(package.vcs), unhashed=True)
    if package.directory is not None:
        url, editable = Path(package.directory.path).absolute().as_uri(), bool(package.directory.editable)
        return LockedPackage(name=name, version=version, url=url, unhashed=True, editable=editable)
    return None


def _parse_depends(tool: Any, where: str) -> tuple[str, ...]:
    """Return the requirements that a source archive was solved with. Raises ValueError."""
    ours = (tool or {}).get("gpuenv", {})
    depends = ours.get("depends", []) if isinstance(ours, dict) else None
    if not isinstance(depends, list) or not all(isinstance(text, str) for text in depends):
        raise ValueError(f"{where}: tool.gpuenv.depends: expected a list of strings")
    for text in depends[1:]:
        Requirement(text)  # raises ValueError
    return tuple(depends)


def _vcs_url(vcs: Any) -> str:
    """Return pip's address of a commit. Raises ValueError for another system than git, or an incomplete commit."""
    if vcs.type != "git" or not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", vcs.commit_id):
        raise ValueError(f"{vcs.type} {vcs.commit_id}: expected a full commit of git")
    url: str = vcs.url or Path(vcs.path).absolute().as_uri()
    folder = f"#subdirectory={vcs.subdirectory}" if vcs.subdirectory else ""
    return f"git+{url}@{vcs.commit_id}{folder}"


_CONDA_SEGMENTS = 3  # channel, platform and file


def check_file_names(packages: Sequence[LockedPackage], key: str) -> None:
    """Raise ValueError for a package with invalid texts or file name. `key` is the list's name."""
    for position, package in enumerate(packages):
        check_forms(package, f"{key}[{position}]")
        urlsplit(package.index or "")  # raises ValueError for an invalid address
        check_file_name(package)


def check_file_name(package: LockedPackage) -> LockedPackage:
    """Return a package whose address ends in a file name. Raises UnsafeNameError, or ValueError for an invalid
    address."""
    try:
        if package.unhashed:  # a folder or a commit: its address has no file name
            urlsplit(package.url)
        else:
            last_segments(package.url, _CONDA_SEGMENTS if package.is_conda else 1, hidden=True)
    except UnsafeNameError as error:
        raise UnsafeNameError(
            f"{package.name} {package.version}: {error.message}", hint=error.hint
        ) from error
    return package


def read_env_lock(folder: Path) -> Lock:
    """Return the lock in an environment's folder. Raises LockError.

    It is pylock.toml, or for a conda environment lock.json, which needs no conda-lock.
    """
    if (folder / VENV_LOCK).exists():
        return read(folder / VENV_LOCK, folder.parent)
    path = folder / "lock.json"
    try:
        data = json.loads(trust.read_project(path, env=folder.parent))
        lock = from_plain(Lock, data.get("lock") if isinstance(data, dict) else data, "lock")
        check_file_names(lock.packages, "packages")
    except (OSError, ValueError, RecursionError) as error:
        raise LockError(
            f"the environment's lock {path} cannot be read: {error}",
            hint=f"build the environment again: gpuenv create {shlex.quote(str(folder.parent))} --recreate",
        ) from error
    return lock
