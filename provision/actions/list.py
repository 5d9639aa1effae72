"""`gpuenv list`: list the environments that gpuenv made on this machine."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ..environment import record, registry
from ..errors import GpuenvError
from ..model import Emit, EnvironmentList, ListedEnvironment, ListedFramework, drop_event
from ..model.values import Value

T = TypeVar("T")

_SECONDS = 3.0  # time for measuring: the 25000 files of a torch environment take 0.2 s if they are cached
_FRESH = 600.0  # seconds until a size is measured again
_SIZE = "size.json"


class ListOptions(Value):
    """The options of `list`: none."""


def list(options: ListOptions, emit: Emit = drop_event) -> EnvironmentList:  # noqa: A001  # the command's name
    """Return the environments that gpuenv made on this machine."""
    envs = registry.list_environments()
    sizes = _measure_sizes(envs)
    return EnvironmentList(environments=tuple(_describe_env(env, sizes.get(env)) for env in envs))


def _describe_env(env: Path, size: registry.Size | None) -> ListedEnvironment:
    """Return an environment as described by its `.gpuenv/` folder. Damaged parts stay unknown."""
    plan, verdict = _read_or_none(record.read_plan, env), _read_or_none(record.read_verdict, env)
    builds = plan.builds if plan else ()
    return ListedEnvironment(
        path=str(env).encode("utf-8", "backslashreplace").decode(),  # invalid UTF-8 as hex
        manager=plan.manager if plan else None,
        frameworks=tuple(ListedFramework(name=b.framework, version=b.version, cuda=b.cuda) for b in builds),
        cuda=plan.cuda if plan else None,
        cudnn=plan.cudnn if plan else None,
        python=plan.python if plan else None,
        verdict=verdict.verdict if verdict else None,
        verified=record.find_verified_time(env),
        bytes=size.bytes if size else None,
        shared_bytes=size.shared if size else None,
    )


def _read_or_none(read: Callable[..., T], *what: Any) -> T | None:
    try:
        return read(*what)
    except GpuenvError:
        return None


def _measure_sizes(envs: Sequence[Path]) -> dict[Path, registry.Size]:
    """Return the disk usage of each environment.

    Measuring stops after some seconds. Sizes are kept in the environment, and unmeasured environments come
    first.
    """
    kept = {env: document for env in envs if (document := _read_or_none(record.read, env, _SIZE))}
    sizes = {
        env: registry.Size(bytes=x["bytes"], shared=x["shared"])
        for env, x in kept.items()
        if x.get("files") == _files(env) and all(isinstance(x.get(n), int) for n in ("bytes", "shared"))
    }
    end = time.monotonic() + _SECONDS
    for env in sorted(envs, key=lambda e: _get_time(kept.get(e, {}))):
        if env in sizes and time.time() - _get_time(kept[env]) < _FRESH:
            continue
        left = end - time.monotonic()
        size = registry.measure(env, left) if left > 0 else None
        if size:
            sizes[env] = size
            now = {"bytes": size.bytes, "shared": size.shared, "measured": time.time(), "files": _files(env)}
            with contextlib.suppress(GpuenvError):  # a read-only environment is measured again the next time
                record.write(env, _SIZE, now)
    return sizes


def _get_time(kept: dict[str, Any]) -> float:
    measured = kept.get("measured")
    return float(measured) if isinstance(measured, (int, float)) else 0.0


def _files(env: Path) -> Sequence[Any]:
    try:
        conda: int | None = (env / "conda-meta").stat().st_mtime_ns
    except OSError:
        conda = None
    return [record.digest_installed(env), conda]
