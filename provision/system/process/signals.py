"""How signals end a run, and how the signal that ended a child is named and passed on."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

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
