"""pylock.toml: a Lock as a file (PEP 751), with the plan and its target under [tool.gpuenv].

Written by gpuenv, read through `packaging.pylock`, so that a lock which another tool wrote is
read by the same rules.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

import tomli
import tomli_w
from packaging.pylock import Pylock, PylockValidationError

from ..errors import LockError
from ..model import Lock, Package, Plan, Target, as_plain, from_plain

_ABOUT = "pylock.toml"


def write(path: Path, lock: Lock) -> None:
    """Write a lock in one step: a reader sees the old file or the new one. Raises LockError."""
    text = tomli_w.dumps(_document(lock))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(draft).chmod(0o644)
        Path(draft).replace(path)
    except OSError as error:
        raise LockError(
            f"cannot write the lock {path}: {error.strerror}", hint="choose a folder you may write to"
        ) from error


def _document(lock: Lock) -> dict[str, Any]:
    plan = as_plain(lock.plan)
    # What was rejected depends on the day's profiles, not on the lock; `resolve` tells it anew.
    plan["rejected"] = []
    return {
        "lock-version": "1.0",
        "created-by": "gpuenv",
        "requires-python": f"=={lock.plan.python}.*",
        "packages": [_package_table(p) for p in lock.packages],
        "tool": {
            "gpuenv": _without_nulls({"manager": lock.manager, "target": as_plain(lock.target), "plan": plan})
        },
    }


def _package_table(package: Package) -> dict[str, Any]:
    wheel: dict[str, Any] = {"name": file_name(package), "url": package.url}
    if package.size is not None:
        wheel["size"] = package.size
    wheel["hashes"] = {k: v for k, v in (("sha256", package.sha256), ("md5", package.md5)) if v}
    table: dict[str, Any] = {"name": package.name, "version": package.version}
    if package.index:
        table["index"] = package.index
    return {**table, "wheels": [wheel]}


def file_name(package: Package) -> str:
    return unquote(PurePosixPath(urlsplit(package.url).path).name)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [_without_nulls(v) for v in value]
    return value


def read(path: Path) -> Lock:
    """Read a lock. Raises LockError when it is missing, half-written, of another kind, or made by
    a tool that leaves out what gpuenv needs."""
    try:
        data = tomli.loads(path.read_text(encoding="utf-8"))
        locked = Pylock.from_dict(data)
        ours = data.get("tool", {}).get("gpuenv")
        if not isinstance(ours, dict):
            raise LockError(
                f"{path} has no [tool.gpuenv] table: it was not written by gpuenv",
                hint="make one with `gpuenv lock`",
            )
        target = from_plain(Target, ours.get("target"), "tool.gpuenv.target")
        plan = from_plain(Plan, ours.get("plan"), "tool.gpuenv.plan")
        manager = plan.manager
        packages = tuple(_package(p, i) for i, p in enumerate(locked.packages))
    except OSError as error:
        raise LockError(
            f"cannot read the lock {path}: {error.strerror}", hint="make one with `gpuenv lock`"
        ) from error
    except (ValueError, PylockValidationError) as error:
        raise LockError(
            f"the lock {path} is not valid: {error}", hint="make it again with `gpuenv lock`"
        ) from error
    return Lock(manager=manager, target=target, plan=plan, packages=packages)


def _package(package: Any, position: int) -> Package:
    where = f"packages[{position}] ({package.name})"
    if not package.wheels or len(package.wheels) != 1:
        raise ValueError(f"{where}: expected one wheel")
    wheel = package.wheels[0]
    url = wheel.url or (Path(wheel.path).absolute().as_uri() if wheel.path else None)
    sha256 = wheel.hashes.get("sha256")
    if url is None or package.version is None:
        raise ValueError(f"{where}: no address or no version")
    if sha256 is None:
        raise ValueError(f"{where}: no sha256")
    return Package(
        name=package.name, version=str(package.version), url=url, sha256=sha256,
        index=package.index, size=wheel.size,
    )  # fmt: skip
