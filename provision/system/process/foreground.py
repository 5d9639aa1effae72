"""Runs a program in the foreground with the terminal's signals, and says how it ended: limits and the kernel's kills."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from . import Finished
from .children import die_with_parent, signal_name

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")
_NO_LIMIT = 1 << 60  # without a limit cgroup v1 writes the largest multiple of a page


class OomKills(NamedTuple):
    """The number of out-of-memory kills by file. The machine's count includes other containers, the cgroup's does not."""

    machine: int | None
    cgroup: int | None

    def since(self, before: OomKills) -> tuple[int, str] | None:
        """Return the kills since then and the file that counts them, or None without a count."""
        if self.cgroup is not None and before.cgroup is not None and self.cgroup > before.cgroup:
            return self.cgroup - before.cgroup, "cgroup"
        if self.machine is None or before.machine is None:
            return None
        return self.machine - before.machine, "/proc/vmstat"


def oom_kills(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> OomKills:
    """Return the current counts. A missing file, as on other systems, counts nothing."""
    counts = [
        _read_count(f / n)
        for f in _list_cgroup_folders(proc, cgroups)
        for n in ("memory.events", "memory.oom_control")
    ]
    return OomKills(_read_count(proc / "vmstat"), next((n for n in counts if n is not None), None))


def memory(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int | None:
    """Return the bytes of memory of the machine, or of its container or job if less. None if unknown."""
    total = re.search(r"^MemTotal: +(\d+) kB", _read_text(proc / "meminfo"), re.MULTILINE)
    sizes = [int(total.group(1)) << 10] if total else []
    for folder in _list_cgroup_folders(proc, cgroups):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = _read_text(folder / name).strip()
            if text.isdigit() and int(text) < _NO_LIMIT:
                sizes.append(int(text))
    return min(sizes, default=None)


def limit(name: str) -> int | None:
    """Return a limit of this process ("RLIMIT_AS"), or None without one."""
    soft, _ = resource.getrlimit(getattr(resource, name))
    return None if soft in (resource.RLIM_INFINITY, -1) else soft


def _list_cgroup_folders(proc: Path, cgroups: Path) -> list[Path]:
    """Return the folders of this process's memory cgroup and its parents, innermost first.

    In a container its cgroup is the root.
    """
    folders: list[Path] = []
    for line in _read_text(proc / "self" / "cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number != "0" and "memory" not in controllers.split(","):
            continue
        top = cgroups if number == "0" else cgroups / "memory"
        here = top / path.lstrip("/")
        folders += [here, *(p for p in here.parents if p.is_relative_to(top))]
    return list(dict.fromkeys(folders))


def _read_count(path: Path) -> int | None:
    count = re.search(r"^oom_kill (\d+)$", _read_text(path), re.MULTILINE)
    return int(count.group(1)) if count else None


def _read_text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(encoding="ascii", errors="replace")
    return ""


class _Relay:
    """Passes stderr on unchanged, and keeps its first 64 KiB and last 256 KiB."""

    HEAD, LAST = 1 << 16, 1 << 18

    def __init__(self, source: int, target: int) -> None:
        self._source, self._target = source, target
        self._head, self._last, self._size = bytearray(), deque[bytes](), 0
        self._thread = threading.Thread(target=self._pass_on, daemon=True)
        self._thread.start()

    def _pass_on(self) -> None:
        # Without a writer a pseudo-terminal returns EIO, and a pipe returns no bytes.
        with contextlib.suppress(OSError):
            while chunk := os.read(self._source, 65536):
                self._hand_on(chunk)
                self._keep(chunk)

    def _hand_on(self, chunk: bytes) -> None:
        # The program must continue even if nothing reads stderr any more.
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


_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_FROM_KEYBOARD = (signal.SIGINT, signal.SIGQUIT)
_AFTERWARDS = 0.5  # seconds for the program's children to finish writing


def attend(argv: Sequence[str], env: Mapping[str, str], *, stdout: int | None = None) -> Finished:
    """Run a program with this process's stdin, stdout, terminal and process group, as a shell would.

    `stdout` is another descriptor for its output. Only stderr passes through this process, by a pseudo-terminal if
    stderr is a terminal, and the result has its start and end. Signals to this process are forwarded, and those of the keyboard reach the program directly.
    Raises OSError if it cannot be started.
    """
    target = sys.stderr.fileno()
    sys.stdout.flush()
    sys.stderr.flush()
    ours, theirs = _terminal(target) if os.isatty(target) else os.pipe()
    forwarder = _SignalForwarder(ours)
    try:
        # The handlers are set before the child starts. Earlier signals are forwarded after its start.
        child = forwarder.child = subprocess.Popen(
            list(argv),
            env=dict(env),
            stdout=stdout,
            stderr=theirs,
            preexec_fn=die_with_parent(),  # noqa: PLW1509  # two system calls, prepared before the fork
        )
    except BaseException:
        os.close(ours)
        forwarder.put_back()
        raise
    finally:
        os.close(theirs)
    relay = _Relay(ours, target)
    try:
        for number in forwarder.early:
            child.send_signal(number)
        returncode = child.wait()
    finally:
        forwarder.put_back()
    kept = relay.kept(_AFTERWARDS).decode("utf-8", "replace")
    return Finished(returncode, stdout="", stderr=kept, signal=signal_name(returncode))


def _terminal(like: int) -> tuple[int, int]:
    """Return the two ends of a raw pseudo-terminal with the size of a real one."""
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


class _SignalForwarder:
    """Signal handlers that forward signals of other processes to the child.

    Signals of the keyboard reach the whole foreground group anyway.
    """

    def __init__(self, terminal: int) -> None:
        self.child: subprocess.Popen[bytes] | None = None
        self.early: list[int] = []
        self._before: dict[int, Any] = {}
        for number in (*_FORWARDED, *_FROM_KEYBOARD):
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._take(number, self._send_on if number in _FORWARDED else _ignore)
        if os.isatty(terminal):
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


def _ignore(_number: int, _frame: object) -> None:
    """Ignore an interrupt, which the child handles."""
