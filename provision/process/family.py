"""The processes that this one starts, what they leave behind, and how all of them end.

A child that is killed with its session cannot be waited for by its own children: those that went into a session of
their own (daemons) get another parent. The command line asks Linux to be that parent, so that it finds and ends them.
"""

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

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # prctl(2)
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
    """Kill all processes that came from this one, and wait until they have ended."""
    deadline = time.monotonic() + _LONGEST
    while (children := _children() - _OTHERS) and time.monotonic() < deadline:
        for child in children:
            try:
                os.kill(child, signal.SIGKILL)
            except PermissionError:
                _OTHERS.add(child)  # it runs as another user now (sudo)
            except ProcessLookupError:
                pass  # it has ended, and something else waited for it
        # The children of a killed one are ours once it has ended.
        for child in children:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, os.WNOHANG)
        time.sleep(0.002)


def kill_family(child: subprocess.Popen[bytes]) -> None:
    """Kill a child and its session."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        child.kill()
    try:
        child.wait(_LONGEST)
    except subprocess.TimeoutExpired:
        # A call into a broken driver cannot be interrupted (state D): the child dies when the call
        # returns, which may be never. It was killed all the same, and we do not wait for it.
        child.returncode = -signal.SIGKILL


def _children() -> set[int]:
    """The processes whose parent is this one, whether they have ended or not."""
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # says at once where there are none
        return {pid for pid in _processes() if _parent(pid) == os.getpid()}
    return set()


def _processes() -> list[int]:
    with contextlib.suppress(OSError):  # no /proc
        return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return []


def _parent(pid: int) -> int | None:
    """The parent of a process (proc(5): the second field after the name); None where it has ended."""
    try:
        words = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return int(words[1]) if len(words) > 1 else None
