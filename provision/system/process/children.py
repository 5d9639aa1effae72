"""Ends child processes and their descendants, makes a call in a fork, and handles the signals that end gpuenv.

Killing a child with its session does not kill daemons. They run in another session and get another parent.
The command line asks Linux to be that parent, so that it finds and ends them.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from ...errors import GpuenvError

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # prctl(2)
_PF_EXITING = 0x4  # linux/sched.h: the process is in do_exit
_LONGEST = 5.0  # seconds to wait for killed processes
_SOON = 0.5  # seconds in which a killed process ends that no driver holds
_OTHERS: set[int] = set()
"""Children from before this process became gpuenv: a shell may start some and then `exec` gpuenv."""


def die_with_parent() -> Callable[[], None] | None:
    """Return a function that makes a new child die with this process, or None on systems other than Linux.

    A surviving child could write in the same place as the next run.
    """
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
    """Become the parent of orphaned descendants, and end them when Python ends.

    Only the command line does this, because a program that imports gpuenv has other children.
    """
    if sys.platform != "linux":
        return
    import ctypes

    if _has_children():
        _OTHERS.update(pid for pid in _iterate_pids() if (one := _read(pid)) and one.parent == os.getpid())
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    atexit.register(end_descendants)  # runs after the threads that start children have ended


def end_descendants() -> None:
    """Kill all descendants of this process, and wait for their end.

    An exiting process runs no more code and is not waited for. The driver may take a tenth of a second to
    free its GPU memory.
    """
    deadline = time.monotonic() + _LONGEST
    while _has_children() and (running := find_descendants(os.getpid())) and time.monotonic() < deadline:
        for pid in running:  # a killed one starts no others
            try:
                os.kill(pid, signal.SIGKILL)
            except (PermissionError, ProcessLookupError):
                _OTHERS.add(pid)  # it runs as another user (sudo), or was reaped elsewhere
        time.sleep(0.001)


def kill_family(child: subprocess.Popen[bytes]) -> None:
    """Kill a child, its session, and its descendants in other sessions."""
    others = find_descendants(child.pid)  # before their parents end and they get another parent
    with contextlib.suppress(ProcessLookupError):  # it has been waited for
        os.killpg(child.pid, signal.SIGKILL)
    for pid in others:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    try:
        child.wait(_LONGEST)
    except subprocess.TimeoutExpired:
        # A call into a broken driver cannot be interrupted (state D). The killed child ends when the call returns,
        # which may be never, so it is not waited for.
        child.returncode = -signal.SIGKILL


def end_family(root: int) -> set[int]:
    """Kill a child and its descendants. Return those that do not end.

    A call into a broken driver does not end with its process, so nobody waits for such a process again.
    """
    family = {root, *find_descendants(root)}
    until = time.monotonic() + _SOON
    while True:
        for pid in family:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        family = {pid for pid in family if (one := _read(pid)) and not one.exiting}
        if not family or time.monotonic() > until:
            break
        time.sleep(0.005)
    _OTHERS.update(family)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(root, os.WNOHANG)
    return family


def read_start(pid: int) -> str | None:
    """Return when a process was started, in ticks since the start of the machine, or None if it has ended."""
    words = _read_stat(pid)
    return None if words[:1] in ([], [b"Z"]) else words[19].decode()


def _read_stat(pid: int) -> list[bytes]:
    """Return the fields of a process after its name (proc(5)): state, parent and others. Empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []


class _ChildProcess(NamedTuple):
    """A process in the words of proc(5). `exiting` is set when it runs no more of its code."""

    parent: int
    exiting: bool


def find_descendants(root: int) -> set[int]:
    """Return the descendants of a process that are not exiting."""
    processes = {pid: process for pid in _iterate_pids() if (process := _read(pid))}
    family, descendants = {root}, set[int]()
    while family:
        family = {pid for pid, one in processes.items() if one.parent in family} - _OTHERS
        descendants |= family
    return {pid for pid in descendants if not processes[pid].exiting}


def _has_children() -> bool:
    """Return whether any child exists, running or not, without listing all processes."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _iterate_pids() -> list[int]:
    with contextlib.suppress(OSError):  # no /proc
        return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return []


def _read(pid: int) -> _ChildProcess | None:
    """Return a process, or None if it has ended. Its flags are the seventh field."""
    words = _read_stat(pid)
    if len(words) < 7:
        return None
    return _ChildProcess(int(words[1]), words[0] in (b"Z", b"X") or bool(int(words[6]) & _PF_EXITING))


# --- a call in a fork --------------------------------------------------------------------------------


class Called(NamedTuple):
    """How a call ended: with an answer, by a signal ("SIGSEGV"), or not in time. `stuck` are processes that no signal
    ends."""

    answer: object = None
    signal: str | None = None
    stuck: Collection[int] = ()


def call(work: Callable[[], object], seconds: float) -> Called:
    """Return what a call in a fork returns. Raises what it raises. No process of the fork outlives this one."""
    import pickle  # few commands fork

    die_with, until = die_with_parent(), time.monotonic() + seconds
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if die_with:
                die_with()
            os.close(reading)
            _write_answer(writing, work)
        finally:
            os._exit(1)
    os.close(writing)
    data = b""
    with os.fdopen(reading, "rb", 0) as pipe:
        while select.select([pipe], [], [], max(until - time.monotonic(), 0.0))[0]:
            if not (chunk := pipe.read(1 << 16)):
                break
            data += chunk
        else:
            return Called(stuck=end_family(child))
    if not data:
        return Called(signal=signal_name(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
    end_family(child)
    answer = pickle.loads(data)  # noqa: S301  # from a fork of this process
    if isinstance(answer, BaseException):
        raise answer
    return Called(answer)


def _write_answer(writing: int, work: Callable[[], object]) -> None:
    """Write the answer of a call, or its exception, and end."""
    import pickle
    import traceback

    try:
        answer: object = work()
    except BaseException as error:  # noqa: BLE001  # the other process raises it
        if not isinstance(error, GpuenvError):
            traceback.print_exc()
        answer = error
    with os.fdopen(writing, "wb") as pipe:
        pickle.dump(answer, pipe)


# --- signals ---------------------------------------------------------------------------------------------

TERMINATED = 143
"""The exit code of a run that SIGTERM ended."""
HUNG_UP = 129
"""The exit code of a run whose terminal was closed (SIGHUP)."""
ENDING: list[int] = []
"""The signals received so far that end this run."""
_DROPPED: list[sys.UnraisableHookArgs] = []
"""What Python dropped since the first signal: exceptions in a destructor, in a callback of the garbage collector, in a fork."""
_SOON_AGAIN = 0.01
"""Seconds until a dropped signal is raised again."""


def handle_signals() -> None:
    """Unwind this run at SIGTERM, SIGINT and SIGHUP. Ignored signals (nohup, background jobs of a shell) stay ignored."""
    atexit.register(signal.setitimer, signal.ITIMER_REAL, 0)  # Python removes the handlers before it ends
    signal.signal(signal.SIGTERM, unwind)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, unwind)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, unwind)


def unwind(number: int, _frame: FrameType | None = None) -> None:
    """Raise an exception for SIGTERM, SIGHUP and SIGINT, so that drafts are removed and locks freed.

    Where Python drops it, it is raised again a moment later. A signal can interrupt a hook written in Python, but not
    a list's `append`, so the hook only collects, and a timer looks at what it collected.
    """
    ENDING.append(number)
    sys.unraisablehook = _DROPPED.append
    signal.signal(signal.SIGALRM, _raise_dropped)
    signal.setitimer(signal.ITIMER_REAL, _SOON_AGAIN, _SOON_AGAIN)
    raise make_end(number)


def make_end(number: int) -> BaseException:
    """Return the exception that ends a run at a signal, in any thread."""
    return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)


def _raise_dropped(_alarm: int, _frame: FrameType | None = None) -> None:
    """Raise a dropped signal again. Other dropped errors follow from code that the signal interrupted, such as a hook before a fork."""
    errors: list[BaseException | None] = []
    while _DROPPED:
        errors.append(_DROPPED.pop().exc_value)
    if any(isinstance(error, KeyboardInterrupt | SystemExit) for error in errors):
        unwind(ENDING[-1])


def signal_name(returncode: int) -> str | None:
    """Return the signal name for a negative return code, else None."""
    if returncode >= 0:
        return None
    try:
        return signal.Signals(-returncode).name
    except ValueError:
        return f"signal {-returncode}"


def end_by_signal(name: str) -> int:
    """End this process with the signal that ended a child, without a second core file.

    Returns the shell's exit code for the signal if the process survives it.
    """
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
