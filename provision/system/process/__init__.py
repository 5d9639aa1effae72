"""The one door to other programs and to the process environment.

Everything runs with a list of arguments (no shell), in a session of its own so that a deadline
kills the whole family, and with bounded memory: only the last `KEEP` bytes of each stream stay.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from .child_processes import (
    ENDING,
    HUNG_UP,
    TERMINATED,
    adopt_orphans,
    die_of,
    die_with_parent,
    kill_family,
    signal_name,
    unraised,
    unwind,
)
from .foreground import Attended, attend
from .user_folders import borrowed_rights, hide_credentials, is_anothers, settle_home

__all__ = [
    "HUNG_UP", "KEEP", "TERMINATED", "Attended", "Finished", "adopt_orphans", "attend", "borrowed_rights", "die_of", "end_children",
    "environ", "hide_credentials", "is_anothers", "replace", "run", "settle_home", "unraised", "unwind",
]  # fmt: skip

KEEP = 1 << 20
_GRACE = 5.0  # seconds for what is still in the pipes of a child that has ended
_ALIVE: set[subprocess.Popen[bytes]] = set()


@dataclass(frozen=True, kw_only=True, slots=True)
class Finished:
    """How a program ended. `signal` is a name ("SIGSEGV") when a signal ended it; `report` is
    what it wrote to the report descriptor, b"" when it had none."""

    returncode: int
    stdout: str
    stderr: str
    timed_out: bool
    signal: str | None
    report: bytes

    @property
    def ok(self) -> bool:
        return self.returncode == 0 and not self.timed_out


def environ() -> dict[str, str]:
    """A copy of this process's environment."""
    return dict(os.environ)


class _Tail:
    """Reads a stream to its end in a thread, keeps its last bytes, hands on its lines."""

    def __init__(self, stream: IO[bytes], on_line: Callable[[str], None] | None) -> None:
        self._stream, self._on_line = stream, on_line
        self._kept = bytearray()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        pending = b""
        with self._stream:
            while chunk := self._chunk():
                self._kept += chunk
                del self._kept[:-KEEP]
                if self._on_line:
                    *lines, pending = (pending + chunk).replace(b"\r", b"\n").split(b"\n")
                    for line in lines:
                        self._on_line(line.decode("utf-8", "replace"))
        if self._on_line and pending:
            self._on_line(pending.decode("utf-8", "replace"))

    def _chunk(self) -> bytes:
        try:
            return self._stream.read1(65536)  # type: ignore[attr-defined,no-any-return]  # BufferedReader
        except OSError:
            return b""  # a terminal whose other end is closed: EIO is its end of file

    def join_until(self, until: float) -> bytes:
        """Wait for the end of the stream until a moment of the monotonic clock; return what was kept."""
        self._thread.join(max(until - time.monotonic(), 0.0))
        return bytes(self._kept)


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    timeout: float | None = None,
    stdin: str | Callable[[], str] | None = None,
    report: str | None = None,
    on_start: Callable[[], None] | None = None,
    on_line: Callable[[str], None] | None = None,
    terminal: bool = False,
    leaves_nothing: bool = False,
) -> Finished:
    """Run a program to its end and say how it ended; never raises for a bad exit status.

    `timeout` is in seconds, counted from when the child has its `stdin`; where that is a function, it is
    called once the child runs, and may wait; so is `on_start`, which may not. `report` names an environment variable in which the child finds the
    number of a descriptor of its own to write a report to. `on_line` gets each line of stderr as
    it comes, in another thread. `terminal` makes stderr a terminal, for programs that tell their
    progress only there. With `leaves_nothing` what the child leaves running in its session is ended. Raises OSError when the program cannot be started, and passes
    KeyboardInterrupt on after the child's family is gone.
    """
    env, signals = dict(os.environ if env is None else env), len(ENDING)
    with contextlib.ExitStack() as given, contextlib.ExitStack() as kept:
        # `given` are our copies of the child's ends, closed once it has them; `kept` are our own
        # ends, which the readers close.
        reading = screen = -1
        if report:
            reading, writing = os.pipe()
            kept.callback(os.close, reading)
            given.callback(os.close, writing)
            env[report] = str(writing)
        if terminal:
            screen, theirs = _open_terminal()
            kept.callback(os.close, screen)
            given.callback(os.close, theirs)
        child = subprocess.Popen(
            list(argv),
            env=env,
            cwd=cwd,
            stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=theirs if terminal else subprocess.PIPE,
            start_new_session=True,
            pass_fds=(writing,) if report else (),
            preexec_fn=die_with_parent(),  # noqa: PLW1509  # two system calls, prepared before the fork
        )
        kept.pop_all()
    _ALIVE.add(child)
    if on_start:
        on_start()
    reporter = _Tail(os.fdopen(reading, "rb"), None) if report else None
    assert child.stdout
    out = _Tail(child.stdout, None)
    stream = os.fdopen(screen, "rb") if terminal else child.stderr
    assert stream
    err = _Tail(stream, on_line)
    try:
        if len(ENDING) > signals:
            kill_family(child)
            unwind(ENDING[-1])
        timed_out = _finish(child, stdin, timeout, leaves_nothing=leaves_nothing)
    finally:
        _ALIVE.discard(child)
    # What the child started and left behind holds the pipes as long as it runs: nobody waits for that.
    until = time.monotonic() + _GRACE
    stdout, stderr, told = (tail.join_until(until) if tail else b"" for tail in (out, err, reporter))
    return Finished(
        returncode=child.returncode,
        stdout=stdout.decode("utf-8", "replace"),
        stderr=stderr.decode("utf-8", "replace"),
        timed_out=timed_out,
        signal=signal_name(child.returncode),
        report=told,
    )


def _open_terminal() -> tuple[int, int]:
    """Our end and the child's end of a new terminal, wide enough that no line is broken."""
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 200, 0, 0))
    return ours, theirs


def end_children() -> None:
    """Kill what `run` has at work in other threads: nobody is going to ask for its answer any more."""
    for child in tuple(_ALIVE):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)


def _finish(
    child: subprocess.Popen[bytes], stdin: str | Callable[[], str] | None, timeout: float | None, *,
    leaves_nothing: bool,
) -> bool:  # fmt: skip
    """Feed and wait; True when the deadline passed and the family was killed."""
    try:
        if child.stdin:
            given = stdin() if callable(stdin) else stdin or ""
            # A child that ends without reading breaks the pipe: its exit status says why.
            with contextlib.suppress(BrokenPipeError):
                child.stdin.write(given.encode())
            with contextlib.suppress(BrokenPipeError):
                child.stdin.close()
        _wait(child, timeout, leaves_nothing=leaves_nothing)
    except subprocess.TimeoutExpired:
        kill_family(child)
        return True
    except BaseException:
        kill_family(child)
        raise
    return False


_LONGEST = 2**31 - 1  # milliseconds that a poll can wait, 24 days


def _wait(child: subprocess.Popen[bytes], timeout: float | None, *, leaves_nothing: bool) -> None:
    """Wait for a child's end. With a timeout Python looks for it every 50 ms; Linux tells it at once."""
    if timeout is not None and hasattr(os, "pidfd_open"):
        # where the kernel is older than 5.3, or a sandbox refuses it, Python's own way is left
        with contextlib.suppress(OSError), os.fdopen(os.pidfd_open(child.pid), "rb", 0) as ended:
            poll = select.poll()
            poll.register(ended, select.POLLIN)
            ends = poll.poll(min(timeout * 1000, _LONGEST))
            timeout = 0.0
            if ends and leaves_nothing:
                # The child is not waited for yet: no other group can have its number.
                os.killpg(child.pid, signal.SIGKILL)
    child.wait(timeout)


def replace(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Become another program (exec); returns only by raising OSError. Signals that Python ignores for
    itself are the other program's own again, as `subprocess` does it."""
    sys.stdout.flush()
    sys.stderr.flush()
    for name in ("SIGPIPE", "SIGXFSZ"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    os.execvpe(argv[0], list(argv), dict(env))
