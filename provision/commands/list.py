"""`gpuenv list`: the environments that gpuenv made on this machine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ..environment import host_verdicts, place, registry, state
from ..errors import GpuenvError
from ..model import Emit, EnvironmentList, ListedEnvironment, ListedFramework, drop_event

_SECONDS = 3.0  # for measuring: a torch environment has 25000 files, which takes 0.2 s when they are cached
_FRESH = 600.0  # seconds that a size is taken as it is
_SIZE = "size.json"


@dataclass(frozen=True, kw_only=True)
class ListOptions:
    """The options of `list`: none of its own."""


def list(options: ListOptions, emit: Emit = drop_event) -> EnvironmentList:  # noqa: A001  # the verb's name
    """Return the environments that gpuenv made on this machine."""
    envs = registry.environments()
    sizes = _sizes(envs)
    return EnvironmentList(environments=tuple(_listed(env, sizes.get(env)) for env in envs))


def _listed(env: Path, size: registry.Size | None) -> ListedEnvironment:
    """An environment as its own `.gpuenv/` has it; what is damaged there stays unknown."""
    plan, verdict = _read(env, "plan.json"), _verdict(env).get("verdict") or {}
    builds = [b for b in plan.get("builds", []) if isinstance(b, dict)]
    return ListedEnvironment(
        path=str(env).encode("utf-8", "backslashreplace").decode(),  # bytes that are no text as hex
        manager=plan.get("manager"),
        frameworks=tuple(
            ListedFramework(name=b["framework"], version=b["version"], cuda=b["cuda"]) for b in builds
        ),
        cuda=next((b["cuda"] for b in builds if b["cuda"]), None),
        cudnn=plan.get("cudnn"),
        python=plan.get("python"),
        verdict=verdict.get("verdict"),
        verified=verified(env),
        bytes=size.bytes if size else None,
        shared_bytes=size.shared if size else None,
    )


def _read(env: Path, name: str) -> dict[str, Any]:
    try:
        return state.read(env, name) or {}
    except GpuenvError:
        return {}


def _verdict(env: Path) -> dict[str, Any]:
    try:
        return host_verdicts.read(env) or {}
    except GpuenvError:
        return {}


def verified(env: Path) -> str | None:
    """When the verdict of this host was given, or the last one of another; None where there is none."""
    try:
        seconds = (env / place.MARK / host_verdicts.find(env)).stat().st_mtime
    except (OSError, GpuenvError):
        return None
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds")


def _sizes(envs: Sequence[Path]) -> dict[Path, registry.Size]:
    """What each takes on disk. Measuring all may take long, so that it stops after some seconds; what was
    measured is kept in the environment, and those that were never measured come first."""
    kept = {env: held for env in envs if (held := _read(env, _SIZE))}
    sizes = {
        env: registry.Size(bytes=int(x.get("bytes", 0)), shared=int(x.get("shared", 0)))
        for env, x in kept.items()
        if x.get("files") == _files(env)
    }
    end = time.monotonic() + _SECONDS
    for env in sorted(envs, key=lambda e: _measured(kept.get(e))):
        if env in sizes and time.time() - _measured(kept[env]) < _FRESH:
            continue
        left = end - time.monotonic()
        size = registry.measure(env, left) if left > 0 else None
        if size:
            sizes[env] = size
            _keep(env, size)
    return sizes


def _measured(held: dict[str, Any] | None) -> float:
    found = (held or {}).get("measured")
    return float(found) if isinstance(found, (int, float)) else 0.0


def _files(env: Path) -> Sequence[Any]:
    try:
        conda: int | None = (env / "conda-meta").stat().st_mtime_ns
    except OSError:
        conda = None
    return [state.installed_digest(env), conda]


def _keep(env: Path, size: registry.Size) -> None:
    found = {"bytes": size.bytes, "shared": size.shared, "measured": time.time(), "files": _files(env)}
    try:
        state.write(env, _SIZE, found)
    except GpuenvError:
        return  # a read-only environment is measured again the next time
