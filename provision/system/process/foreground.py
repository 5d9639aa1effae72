"""A program that runs in the user's place: with the user's terminal, signals and process group."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .child_processes import die_with_parent, signal_name


@dataclass(frozen=True, kw_only=True, slots=True)
class Attended:
    """How an attended program ended, and the beginning and end of what it wrote to stderr."""

    returncode: int
    stderr: bytes
    signal: str | None


class _Relay:
    """Hands stderr on byte for byte and keeps its first 64 KiB and its last 256 KiB."""

    HEAD, LAST = 1 << 16, 1 << 18

    def __init__(self, source: int, target: int) -> None:
        self._source, self._target = source, target
        self._head, self._last, self._size = bytearray(), deque[bytes](), 0
        self._thread = threading.Thread(target=self._pass_on, daemon=True)
        self._thread.start()

    def _pass_on(self) -> None:
        # A pseudo-terminal whose last writer is gone answers EIO; a closed pipe answers nothing.
        with contextlib.suppress(OSError):
            while chunk := os.read(self._source, 65536):
                self._hand_on(chunk)
                self._keep(chunk)

    def _hand_on(self, chunk: bytes) -> None:
        # Where nobody reads our stderr any more the program must still not be stopped by it.
        with contextlib.suppress(OSError):
            while chunk:
                chunk = chunk[os.write(self._target, chunk) :]

    def _keep(self, chunk: bytes) -> None:
        if len(self._head) < self.HEAD:
            self._head += chunk
            return
        self._last.append(chunk)
        self._size += len(chunk)
        while self._size - len(self._last[0]) >= self.LAST:
            self._size -= len(self._last.popleft())

    def kept(self, seconds: float) -> bytes:
        self._thread.join(seconds)
        return bytes(self._head) + b"".join(self._last)


_FORWARDED = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")
_FROM_KEYBOARD = ("SIGINT", "SIGQUIT")
_AFTERWARDS = 0.5  # seconds that a program's own children have to finish what they write


def attend(argv: Sequence[str], env: Mapping[str, str], *, stdout: int | None = None) -> Attended:
    """Run a program in the user's place: stdin, stdout, terminal and process group are its own as if it
    had been started by the shell (`stdout`: another descriptor of ours for its output); only stderr passes
    through us, through a pseudo-terminal where it is a terminal. Signals sent to us are sent on; those of the
    keyboard reach it by themselves. Raises OSError when it cannot be started."""
    target = sys.stderr.fileno()
    sys.stdout.flush()
    sys.stderr.flush()
    ours, theirs = _terminal(target) if os.isatty(target) and os.name == "posix" else os.pipe()
    hands = _Hands(ours)
    try:
        # The handlers stand before the child does: what comes in between is sent on once it is there.
        child = hands.child = subprocess.Popen(
            list(argv),
            env=dict(env),
            stdout=stdout,
            stderr=theirs,
            preexec_fn=die_with_parent(),  # noqa: PLW1509  # two system calls, prepared before the fork
        )
    except BaseException:
        os.close(ours)
        hands.put_back()
        raise
    finally:
        os.close(theirs)
    relay = _Relay(ours, target)
    try:
        for number in hands.early:
            child.send_signal(number)
        returncode = child.wait()
    finally:
        hands.put_back()
    return Attended(returncode=returncode, stderr=relay.kept(_AFTERWARDS), signal=signal_name(returncode))


def _terminal(like: int) -> tuple[int, int]:
    """A pseudo-terminal (our end, its end) of the same size as a real one, which changes no byte."""
    import pty
    import termios

    ours, theirs = pty.openpty()
    modes = termios.tcgetattr(theirs)
    modes[1] &= ~termios.OPOST
    termios.tcsetattr(theirs, termios.TCSANOW, modes)
    _same_size(like, ours)
    return ours, theirs


def _same_size(like: int, other: int) -> None:
    import fcntl
    import termios

    # A terminal without a size (a serial line) has nothing to copy.
    with contextlib.suppress(OSError):
        fcntl.ioctl(other, termios.TIOCSWINSZ, fcntl.ioctl(like, termios.TIOCGWINSZ, bytes(8)))


class _Hands:
    """Handlers that send on what is sent to us, and leave to the child what the keyboard sends to the whole
    foreground group."""

    def __init__(self, terminal: int) -> None:
        self.child: subprocess.Popen[bytes] | None = None
        self.early: list[int] = []
        self._before: dict[int, Any] = {}
        for name in (*_FORWARDED, *_FROM_KEYBOARD):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                self._take(number, self._send_on if name in _FORWARDED else _left_to_the_child)
        if os.isatty(terminal) and hasattr(signal, "SIGWINCH"):
            self._take(signal.SIGWINCH, lambda *_: _same_size(sys.stderr.fileno(), terminal))

    def _take(self, number: int, handler: Callable[[int, Any], None]) -> None:
        self._before[number] = signal.signal(number, handler)

    def _send_on(self, number: int, _frame: object) -> None:
        if self.child:
            self.child.send_signal(number)
        else:
            self.early.append(number)

    def put_back(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def _left_to_the_child(_number: int, _frame: object) -> None:
    """The child decides what an interrupt means."""
