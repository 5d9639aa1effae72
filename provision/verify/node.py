"""Decides whether this machine has a fault that every job on it would meet (`verify --node`).

No signal ends a process that waits for a driver that hangs. So a child asks the driver, and gpuenv answers at its deadline.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Callable, Collection
from pathlib import Path

from ..environment.place import read_settings
from ..errors import MachineError, UsageError
from ..model import Finding, Lock, Machine, NodeVerdict, Verdict
from ..profiles.wording import make_finding
from ..system import trust
from ..system.process import children
from ..system.process.children import read_start
from ..system.redaction import clean_line
from .probe import ENDED_BY, NO_ANSWER
from .state import LAYERS

_ASKS_DRIVER = (" while calling cuInit", " while calling cudaGetDeviceCount", " while making a context")
"""What a probe was doing that hangs in the driver. Loading files can take as long on a slow disk."""
_SAYS_NOTHING = (NO_ANSWER, f"{ENDED_BY} SIGKILL", f"{ENDED_BY} SIGTERM")
"""How a child ends that is slow, or that the system or a person killed: the machine may be in order."""
_UV_LOCK = ".lock"
"""The lock file that uv leaves in an environment for all users. Nothing reads its contents."""
_STUCK = Path("/run/gpuenv/stuck")
"""The processes that no signal ends, and when they were started. Only root can write there."""

Ask = Callable[[Callable[[], Machine]], Machine]
"""Calls a function that reads the driver in this process, which may hang."""


def check(examine: Callable[[float, Ask], NodeVerdict], seconds: float) -> NodeVerdict:
    """Return what `examine` says of this machine. A child of this process calls it with the seconds of its probes, and with what
    reads the driver in that child: memory of both says whether it waits for the driver.

    Raises MachineError if there is no result within `seconds`, and the driver is not the reason.
    """
    if _is_driver_stuck():
        return _blame(make_finding("driver_hangs", call="a call of an earlier check"), hung=True)
    asking = mmap.mmap(-1, 1)  # memory of both processes

    def ask(read: Callable[[], Machine]) -> Machine:
        asking[0] = 1
        machine = read()
        asking[0] = 0
        return machine

    # The probes have a deadline of their own, which names the call that hangs.
    ended = children.call(lambda: examine(seconds * 0.8, ask), seconds)
    if isinstance(ended.answer, NodeVerdict):
        return ended.answer
    if ended.signal and not asking[0]:
        raise MachineError(f"this machine was not examined: the check was ended by {ended.signal}")
    if not (asking[0] or ended.stuck):
        raise MachineError(f"this machine was not examined: no result within {seconds:g} s")
    if ended.signal:
        return NodeVerdict(fault=True, text=f"driver: NVML was ended by {ended.signal}", cause="driver")
    if ended.stuck:
        with contextlib.suppress(OSError):
            _STUCK.parent.mkdir(mode=0o700, exist_ok=True)
            _STUCK.write_text("".join(f"{pid} {read_start(pid)}\n" for pid in ended.stuck))
    finding = make_finding("driver_hangs", call="NVML" if asking[0] else "a call")
    return _blame(finding, hung=True)


def _is_driver_stuck() -> bool:
    """Return whether a process of an earlier check still waits for the driver. Each further one would wait beside it."""
    try:
        kept = [line.split() for line in _STUCK.read_text().splitlines()]
    except OSError:
        return False
    return any(read_start(int(pid)) == start for pid, start in kept)


def _blame(finding: Finding, verdict: Verdict | None = None, *, hung: bool = False) -> NodeVerdict:
    text = shorten_line(f"{finding.cause}: {finding.title}")
    return NodeVerdict(fault=True, hung=hung, text=text, cause=finding.cause, verdict=verdict)


def judge(
    verdict: Verdict, machine: Machine | None, of_jobs: Collection[str], expected: int = 0
) -> NodeVerdict:
    """Return whether the first stage that failed, or what gpuenv reads itself, shows a fault of the machine.

    `of_jobs` are the causes that come and go with the jobs on it, `expected` is the number of its GPUs.
    """
    failed = verdict.failed
    finding = next(iter(verdict.findings), None)
    if failed:
        cause = finding.cause if finding else failed.stage
        slow = failed.detail.startswith(_SAYS_NOTHING)
        hung = slow and any(doing in failed.detail for doing in _ASKS_DRIVER)
        fault = hung or (failed.stage in LAYERS and cause not in of_jobs and not slow)
        text = f"{cause}: {finding.title if finding else failed.detail}"
    else:
        cause, fault, hung = None, False, False
        text = next((s.detail for s in verdict.stages if s.stage == "driver"), verdict.verdict)
    if machine and not fault:
        certain = [f for f in machine.findings if f.confidence == "certain"]
        if len(machine.gpus) < expected:
            certain.append(make_finding("gpus_missing", found=len(machine.gpus), expected=expected))
        if found := next((f for f in certain if f.cause not in of_jobs), None):
            return _blame(found, verdict)
    return NodeVerdict(fault=fault, hung=hung, text=shorten_line(text), cause=cause, verdict=verdict)


def count_expected(asked: int | None, lock: Lock | None) -> int:
    """Return how many GPUs the machine should have: as asked, or as the machine that the lock was made for.

    GPUs of several models are those of several machines, as the classes of a fleet are.
    """
    if asked is not None:
        return asked
    return len(lock.target.gpus) if lock and not lock.classes and len({*lock.target.gpus}) == 1 else 0


def shorten_line(text: str) -> str:
    """Return the text as one line of fewer than 80 characters."""
    return clean_line(text, 79)


# --- nothing runs that another user can change ----------------------------------------------------


def assert_own(env: Path) -> None:
    """Raise UsageError if another user can change the environment or its base Python."""
    try:
        settings = read_settings(env)
        home = settings.get("home")
        # site.py adds the packages of the base Python unless this setting forbids it. Base Pythons with thousands of packages are common, and most environments import none of them.
        unused = (
            ()
            if settings.get("include-system-site-packages", "true").lower() == "true"
            else ("site-packages",)
        )
        trust.assert_unchangeable([env], without=(_UV_LOCK,))
        trust.assert_unchangeable(
            sorted(Path(home).parent.glob("lib/python3.*")) if home else [], without=unused
        )
    except trust.UntrustedError as error:
        raise UsageError(
            f"{env} is not examined: {error.reason}",
            hint="name an environment that only root can change (chown -R root, chmod -R go-w)",
        ) from error
    except OSError as error:
        raise UsageError(f"{env} cannot be examined: {error.filename}: {error.strerror}") from error
