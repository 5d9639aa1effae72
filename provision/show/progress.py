"""Shows the activity of a command: a live line on a terminal, a line every ten seconds elsewhere.

A thread draws it, because the command itself waits for programs. Downloads show size, speed and remaining time.
Other activities show their seconds.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from ..model import Event, format_bytes

_SPINNER = "|/-\\"
_DRAWN_EVERY = 0.1
_PATIENCE = 1.0
"""Seconds without a live line: what is over by then needs none."""
_WINDOW = 10.0
"""Seconds over which the speed of a download is measured."""
_SETTLED = 2.0
"""Seconds after which a speed means something, and without news the download stands still."""


@dataclass
class DownloadProgress:
    """How far a download is: pairs of time and bytes of the last seconds."""

    total: int
    files: int | None = None
    seen: deque[tuple[float, int]] = field(default_factory=deque)

    def set_done(self, done: int, now: float) -> None:
        """Note that so many bytes are there."""
        self.seen.append((now, done))
        while len(self.seen) > 2 and now - self.seen[0][0] > _WINDOW:
            self.seen.popleft()

    def words(self, now: float) -> str:
        """Return files, sizes, speed and time left, as far as they are known."""
        done = self.seen[-1][1] if self.seen else 0
        parts = [f"{self.files} files"] if self.files else []
        parts.append(f"{format_bytes(done)} of {format_bytes(max(self.total, done))}")
        if (speed := self._measure_speed(now)) > 0:
            parts += [
                f"{format_bytes(speed)}/s",
                f"{format_duration(max(0, self.total - done) / speed)} left",
            ]
        return ", ".join(parts)

    def _measure_speed(self, now: float) -> float:
        """Return bytes per second, 0 if they are not known yet. Between two news the speed does not change."""
        if not self.seen or self.seen[-1][0] - self.seen[0][0] < _SETTLED:
            return 0
        (start, before), (last, done) = self.seen[0], self.seen[-1]
        return (done - before) / ((now if now - last > _SETTLED else last) - start)


@dataclass
class Activity:
    """The activity that started last, and its progress."""

    stage: str
    text: str
    began: float
    download: DownloadProgress | None = None

    def words(self, now: float) -> str:
        """Return the activity in a line."""
        if self.download and self.download.seen:
            return f"{self.stage}: {self.text}, {self.download.words(now)}"
        return f"{self.stage}: {self.text}, {format_duration(now - self.began)}"


def format_duration(seconds: float) -> str:
    """Return a duration: "12 s", "3:07 min"."""
    whole = int(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60}:{whole % 60:02} min"


class Progress:
    """The activity of a command, drawn by a thread that starts with the first one. `draw` replaces the live line, `say`
    writes a line that stays; without `draw` a line is said `every` so many seconds."""

    def __init__(
        self, say: Callable[[str], None], draw: Callable[[str], None] | None, every: float = 10.0
    ) -> None:
        self._say, self._draw, self._every = say, draw, every
        self._activity: Activity | None = None
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._turn, self._said = 0, 0.0

    def update(self, event: Event) -> None:
        """Take what a stage tells."""
        now = time.monotonic()
        with self._changed:
            if event.kind == "start":
                bytes_of = event.total if event.unit == "bytes" else None
                download = DownloadProgress(bytes_of, event.files) if bytes_of else None
                self._activity = Activity(event.stage, event.text, now, download)
            elif event.kind == "progress":
                self._move(event, now)
            elif event.kind == "done":
                self._activity = None
            if self._thread is None and self._activity:
                self._thread = threading.Thread(target=self._run, daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """End the activity: nothing is drawn any more, until the next one starts."""
        with self._changed:
            self._activity = self._thread = None
            self._changed.notify_all()

    def _move(self, event: Event, now: float) -> None:
        activity = self._activity
        if activity is None or activity.stage != event.stage:
            activity = self._activity = Activity(event.stage, event.text, now)
        activity.text = event.text
        if event.unit == "bytes" and event.done is not None:
            download = activity.download = activity.download or DownloadProgress(event.total or event.done)
            download.total = max(download.total, event.total or 0)
            download.set_done(event.done, now)

    def _run(self) -> None:
        """Draw until `stop`. The lock is locked while a line is written, so none follows it."""
        pause = _DRAWN_EVERY if self._draw else min(self._every / 4, 1.0)
        with contextlib.suppress(OSError, ValueError), self._changed:  # standard error is closed
            while self._thread is threading.current_thread():
                self._changed.wait(pause)
                self._show(time.monotonic())

    def _show(self, now: float) -> None:
        activity = self._activity
        if activity is None:
            return
        if self._draw and now - activity.began >= _PATIENCE:
            self._turn += 1
            self._draw(f"{_SPINNER[self._turn % len(_SPINNER)]} {activity.words(now)}")
        elif not self._draw and now - max(self._said, activity.began) >= self._every:
            self._said = now
            self._say(activity.words(now))
