"""Locks of the manager `venv`: pylock.toml with wheels that uv solves for a plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

from ..errors import LockError
from ..model import AvailableWheels, FrameworkRequest, Lock, Profiles, Request, RequestContext
from ..resolve.planner import plan_request

OPTION = ""
PLANS_FIRST = True
BRINGS_PYTHON = False
KEEPS_UPLOAD_LIMITS = True
EXTRAS: tuple[str, ...] = ()


def require() -> None:
    """Do nothing: uv is a dependency of gpuenv."""


def read_lock(path: Path, _platform: str, _known: Callable[[], Profiles]) -> Lock:
    """Read a pylock.toml. Raises LockError."""
    from ..wheels import pylock

    return pylock.read(path)


def write_lock(
    path: Path,
    lock: Lock,
    _virtual: tuple[Mapping[str, str], ...],
    *,
    alone: bool = False,  # noqa: ARG001  # part of the protocol
) -> None:
    """Write a pylock.toml for one platform. Raises LockError."""
    from ..wheels import pylock

    pylock.write(path, lock)


def check_hashes(lock: Lock, origin: str, *, allow_md5: bool) -> None:
    """Do nothing: reading rejects a pylock.toml without a sha256."""


def assumed_gpu() -> str | None:
    """Return None: uv and pip have no setting for GPUs."""
    return None


def virtual_packages(_asked: RequestContext) -> tuple[Mapping[str, str], ...]:
    """Return nothing: wheels have no virtual packages."""
    return ()


def check(lock: Lock, context: RequestContext) -> None:
    """Raise LockError for a locked build that does not fit the target's driver and GPUs."""
    plan = lock.plan
    for build in plan.builds if plan.device == "cuda" else ():
        request = Request(
            frameworks=(FrameworkRequest(name=build.framework, specifier=f"=={build.version}"),),
            cuda=build.cuda, device="cuda", python=plan.python, pre=True,
        )  # fmt: skip
        again = plan_request(
            dataclasses.replace(context, request=request, supply=AvailableWheels(), pythons_known=False)
        )
        same = [r for r in again.rejected if r.version == build.version and r.cuda == build.cuda]
        if not again.builds and same:
            reasons = "; ".join(x.text for r in same for x in r.reasons)
            raise LockError(
                f"the lock's {build.framework} {build.version} does not fit this machine: {reasons}",
                hint="lock for this machine: gpuenv lock",
            )
