"""The processes that this one starts, what they leave behind, and how all of them end: by which signal, and how it is
named and passed on.

A child that is killed with its session cannot be waited for by its own children: those that went into a session of
their own (daemons) get another parent. The command line asks Linux to be that parent, so that it finds and ends them."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NamedTuple

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # prctl(2)
_PF_EXITING = 0x4  # linux/sched.h: the process is in do_exit
_LONGEST = 5.0  # seconds that killed processes have to end
_OTHERS: set[int] = set()
"""Children that this process had before it was gpuenv: a shell may start some and become gpuenv (`exec`)."""


def die_with_parent() -> Callable[[], None] | None:
    """Return what makes a new child end when this process ends, in whatever way; None where only Linux can. A
    child that went on would write where the next run writes."""
    if sys.platform != "linux":
        return None
    import ctypes

    parent, control = os.getpid(), ctypes.CDLL(None).prctl

    def die_with() -> None:
        control(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return die_with


def adopt_orphans() -> None:
    """Become the parent of every process that this one's children leave behind, and end them when Python ends. Only
    the command line does: a program that imports gpuenv has children of its own."""
    if sys.platform != "linux":
        return
    import ctypes

    _OTHERS.update(_children())
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    atexit.register(end_descendants)  # after the threads that start children have ended


def end_descendants() -> None:
    """Kill all processes that came from this one, and wait until none of them runs any more.

    A process that is exiting runs no code of its own; the driver may take a tenth of a second to free what such a
    process had on the GPU, and nobody waits for that.
    """
    deadline = time.monotonic() + _LONGEST
    while (running := _running_descendants()) and time.monotonic() < deadline:
        for pid in running:
            try:
                os.kill(pid, signal.SIGKILL)
            except PermissionError:
                _OTHERS.add(pid)  # it runs as another user now (sudo)
            except ProcessLookupError:
                pass  # it has ended, and something else waited for it
        time.sleep(0.001)


def kill_family(child: subprocess.Popen[bytes]) -> None:
    """Kill a child, its session, and what its children started in other sessions."""
    others = _descendants(child.pid)  # once their parents have ended they have another parent
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        child.kill()
    for pid in others:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    try:
        child.wait(_LONGEST)
    except subprocess.TimeoutExpired:
        # A call into a broken driver cannot be interrupted (state D): the child dies when the call
        # returns, which may be never. It was killed all the same, and we do not wait for it.
        child.returncode = -signal.SIGKILL


class _Process(NamedTuple):
    """A process as proc(5) shows it; `exiting` is set once it runs no code of its own any more."""

    parent: int
    exiting: bool


def _running_descendants() -> set[int]:
    """The processes that came from this one and are not exiting. One that is killed starts no other."""
    if not _has_children():
        return set()
    return _descendants(os.getpid())


def _descendants(root: int) -> set[int]:
    """The processes that came from another one and are not exiting."""
    processes = {pid: found for pid in _pids() if (found := _read(pid))}
    family, descendants = {root}, set[int]()
    while family:
        family = {pid for pid, one in processes.items() if one.parent in family} - _OTHERS
        descendants |= family
    return {pid for pid in descendants if not processes[pid].exiting}


def _children() -> set[int]:
    """The processes whose parent is this one, whether they have ended or not."""
    if not _has_children():
        return set()
    return {pid for pid in _pids() if (found := _read(pid)) and found.parent == os.getpid()}


def _has_children() -> bool:
    """Whether there is any child, running or not; the kernel answers without a look at all processes."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _pids() -> list[int]:
    with contextlib.suppress(OSError):  # no /proc
        return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return []


def _read(pid: int) -> _Process | None:
    """A process: after its name, the fields state, parent and (the seventh) flags; None where it has ended."""
    try:
        words = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    if len(words) < 7:
        return None
    return _Process(int(words[1]), words[0] in (b"Z", b"X") or bool(int(words[6]) & _PF_EXITING))


TERMINATED = 143
"""The exit code of a run that SIGTERM ended."""
HUNG_UP = 129
"""The exit code of a run whose terminal was closed (SIGHUP)."""
ENDING: list[int] = []
"""The signals that asked this run to end."""


_AGAIN = 0.01
"""Seconds until a signal that could not end the run where it came asks once more."""


def unwind(number: int, frame: FrameType | None = None) -> None:
    """Handle SIGTERM, SIGHUP and SIGINT: they unwind, so that drafts are removed and locks freed. Python drops
    what is raised while it forks, so `run` looks whether one came meanwhile; where `unraised` is at work the
    signal comes again a moment later."""
    ENDING.append(number)
    signal.signal(signal.SIGALRM, _unwind_again)
    while frame:
        if frame.f_code is unraised.__code__:
            signal.setitimer(signal.ITIMER_REAL, _AGAIN)
            return
        frame = frame.f_back
    signal.setitimer(signal.ITIMER_REAL, 0)
    raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)


def _unwind_again(_alarm: int, frame: FrameType | None = None) -> None:
    unwind(ENDING[-1], frame)


def unraised(dropped: sys.UnraisableHookArgs) -> None:
    """What Python calls where it drops an exception (in a destructor, a callback of the garbage collector). The
    news that the run is to end comes again, a moment later and elsewhere. What fails in such a place because that
    news cut its counterpart short (a library's hook after a fork misses what its hook before it noted) is no news;
    without a signal all is told as ever."""
    if not ENDING:
        sys.__unraisablehook__(dropped)
    elif isinstance(dropped.exc_value, KeyboardInterrupt | SystemExit):
        signal.setitimer(signal.ITIMER_REAL, _AGAIN)


def signal_name(returncode: int) -> str | None:
    """The name of the signal that a negative return code stands for, else None."""
    if returncode >= 0:
        return None
    try:
        return signal.Signals(-returncode).name
    except ValueError:
        return f"signal {-returncode}"


def die_of(name: str) -> int:
    """End as a child ended, by its signal, so that whoever started us sees the same; returns the shell's
    code for it where the signal does not end us. No second core file is written."""
    import resource

    number = getattr(signal, name, None)
    if number is None:
        return 1
    sys.stdout.flush()
    sys.stderr.flush()
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return 128 + int(number)
