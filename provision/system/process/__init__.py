"""Runs other programs and reads the process environment.

A program runs with a list of arguments (no shell). It has its own session, so that a timeout kills all its
processes. Memory is bounded: only the last `KEEP` bytes of each stream are kept.
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
from typing import IO, NamedTuple

from .children import (
    ENDING,
    HUNG_UP,
    TERMINATED,
    adopt_orphans,
    die_with_parent,
    end_by_signal,
    handle_signals,
    kill_family,
    make_end,
    signal_name,
)

__all__ = [
    "HUNG_UP",
    "KEEP",
    "TERMINATED",
    "Finished",
    "adopt_orphans",
    "end_by_signal",
    "end_children",
    "environ",
    "handle_signals",
    "has_borrowed_rights",
    "replace",
    "run",
]  # fmt: skip

KEEP = 1 << 20
_GRACE = 5.0  # seconds to read the pipes of a child that has ended
_ALIVE: set[subprocess.Popen[bytes]] = set()


class Finished(NamedTuple):
    """The result of a program.

    `signal` is the name of the signal that ended it ("SIGSEGV"). `report` is its output on the report descriptor.
    """

    returncode: int
    stdout: str
    stderr: str
    timed_out: bool = False
    signal: str | None = None
    report: bytes = b""

    @property
    def ok(self) -> bool:
        return self.returncode == 0 and not self.timed_out


def environ() -> dict[str, str]:
    """Return a copy of this process's environment."""
    return dict(os.environ)


class _Tail:
    """Reads a stream in a thread, keeps its last bytes, and passes on its lines."""

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
            return b""  # EIO is the end of file of a terminal whose other end is closed

    def join_until(self, until: float) -> bytes:
        """Wait for the end of the stream until a time of the monotonic clock, and return the kept bytes."""
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
    """Run a program and return its result. A failing exit status does not raise.

    `timeout` in seconds starts when the child has its `stdin`. A function as `stdin` is called when the child runs, and
    may block. `on_start` is called then too, and must not block. `report` names an environment variable with the number
    of a descriptor for a report. `on_line` receives each line of stderr in another thread. `terminal` makes stderr a
    terminal, for programs that show progress only there. With `leaves_nothing`, processes that the child leaves in its
    session are killed. Raises OSError if the program cannot be started. KeyboardInterrupt passes through after all
    processes of the child have ended.
    """
    env, signals = os.environ if env is None else env, len(ENDING)
    child, stdout, stderr, reported = _start(
        argv, env, cwd, stdin=stdin is not None, report=report, terminal=terminal
    )
    _ALIVE.add(child)
    if on_start:
        on_start()
    reporter = _Tail(reported, None) if reported else None
    out, err = _Tail(stdout, None), _Tail(stderr, on_line)
    try:
        if len(ENDING) > signals:
            kill_family(child)
            raise make_end(ENDING[-1])
        timed_out = _finish(child, stdin, timeout, leaves_nothing=leaves_nothing)
    finally:
        _ALIVE.discard(child)
    # Processes that the child left running keep the pipes open. They are not waited for.
    until = time.monotonic() + _GRACE
    texts = [tail.join_until(until).decode("utf-8", "replace") for tail in (out, err)]
    return Finished(
        returncode=child.returncode, stdout=texts[0], stderr=texts[1], timed_out=timed_out,
        signal=signal_name(child.returncode), report=reporter.join_until(until) if reporter else b"",
    )  # fmt: skip


def _start(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str | os.PathLike[str] | None,
    *,
    stdin: bool,
    report: str | None,
    terminal: bool,
) -> tuple[subprocess.Popen[bytes], IO[bytes], IO[bytes], IO[bytes] | None]:
    """Start a program in a new session. Return it with its stdout, stderr and report to read. Raises OSError."""
    env = dict(env)
    with contextlib.ExitStack() as child_ends, contextlib.ExitStack() as kept:
        # `child_ends` are copies of the child's ends, closed after its start. `kept` are the ends of this process,
        # which the readers close.
        reading = writing = screen = child_screen = -1
        if report:
            reading, writing = os.pipe()
            kept.callback(os.close, reading)
            child_ends.callback(os.close, writing)
            env[report] = str(writing)
        if terminal:
            screen, child_screen = _open_terminal()
            kept.callback(os.close, screen)
            child_ends.callback(os.close, child_screen)
        child = subprocess.Popen(
            list(argv),
            env=env,
            cwd=cwd,
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=child_screen if terminal else subprocess.PIPE,
            start_new_session=True,
            pass_fds=(writing,) if report else (),
            preexec_fn=die_with_parent(),  # noqa: PLW1509  # two system calls, prepared before the fork
        )
        kept.pop_all()
    stderr = os.fdopen(screen, "rb") if terminal else child.stderr
    assert child.stdout
    assert stderr
    return child, child.stdout, stderr, os.fdopen(reading, "rb") if report else None


def _open_terminal() -> tuple[int, int]:
    """Open a terminal, wide enough for every line, and return the ends of this process and the child."""
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 200, 0, 0))
    return ours, theirs


def end_children() -> None:
    """Kill the programs that `run` runs in other threads, because their results are not needed any more."""
    for child in tuple(_ALIVE):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)


def _finish(
    child: subprocess.Popen[bytes], stdin: str | Callable[[], str] | None, timeout: float | None, *,
    leaves_nothing: bool,
) -> bool:  # fmt: skip
    """Write stdin and wait. Return whether the timeout passed and the processes were killed."""
    try:
        if child.stdin:
            data = stdin() if callable(stdin) else stdin or ""
            # A child that ends without reading closes the pipe. Its exit status tells why.
            with contextlib.suppress(BrokenPipeError):
                child.stdin.write(data.encode())
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
    """Wait for the end of a child. With a timeout Python polls every 50 ms, while a pidfd of Linux reports it at once."""
    if timeout is not None and hasattr(os, "pidfd_open"):
        # a kernel before 5.3 or a sandbox may reject pidfds; Python's polling remains
        with contextlib.suppress(OSError), os.fdopen(os.pidfd_open(child.pid), "rb", 0) as ended:
            poll = select.poll()
            poll.register(ended, select.POLLIN)
            ends = poll.poll(min(timeout * 1000, _LONGEST))
            timeout = 0.0
            if ends and leaves_nothing:
                # The child is not reaped yet, so no other process group can have its number.
                os.killpg(child.pid, signal.SIGKILL)
    child.wait(timeout)


def replace(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Replace this process with another program (exec). Raises OSError.

    Signals that Python ignores get their default handlers again, as in `subprocess`.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.execvpe(argv[0], list(argv), dict(env))


def has_borrowed_rights() -> bool:
    """Return whether this process has other rights than the user who started it, because of a setuid program.

    PATH, PYTHONPATH and files then come from one user, and the rights from another.
    """
    return hasattr(os, "getresuid") and len({*os.getresuid()[:2]}) > 1
