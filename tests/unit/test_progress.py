"""What is shown while a command waits: a live line on a terminal, a line every so many seconds elsewhere."""

import io
import itertools
import re
import threading
import time

from rows import rows

from provision.bundle.writer import BundleWriter
from provision.environment import uv_install
from provision.errors import GpuenvError
from provision.model import Event, Lock, PackageSources, Plan, Target
from provision.show import Screen, progress, show_error, show_event
from provision.show.progress import DownloadProgress, Progress, format_duration
from provision.system.process import Finished


class Terminal(io.StringIO):
    def isatty(self):
        return True


def start(text="solving", stage="lock", **more):
    return Event(kind="start", stage=stage, text=text, **more)


def until(said, condition):
    """Wait for what a thread does, however slow the machine is."""
    end = time.monotonic() + 30
    while not condition(said) and time.monotonic() < end:
        time.sleep(0.01)
    return said


@rows(
    ("seconds", "words"),
    [(0.9, "0 s"), (59.9, "59 s"), (60, "1:00 min"), (187, "3:07 min"), (7322, "122:02 min")],
)
def test_durations_are_shown_in_short(seconds, words):
    assert format_duration(seconds) == words


def test_a_download_says_files_size_speed_and_time_left():
    download = DownloadProgress(total=5_100_000_000, files=23)
    assert download.words(0.0) == "23 files, 0 B of 5.1 GB"
    for second in range(5):
        download.set_done(second * 50_000_000, float(second))
    assert download.words(4.0) == "23 files, 200 MB of 5.1 GB, 50 MB/s, 1:38 min left"


def test_the_speed_is_that_of_the_last_seconds():
    download = DownloadProgress(total=1000)
    for second in range(60):
        download.set_done(min(30, second), float(second))
    assert "left" not in download.words(59.0), "it stands still"
    assert len(download.seen) < 15


def seconds_left(text):
    found = re.search(r"(?:(\d+):)?(\d+) (?:s|min) left", text)
    return int(found[1] or 0) * 60 + int(found[2]) if found else None


@rows("pause", [0.1, 0.5, 1.0, 1.9])
def test_the_time_left_does_not_jump_between_news_and_at_the_start(pause):
    """50 MB/s, told in pieces, and drawn ten times a second."""
    download, told, shown = DownloadProgress(total=5_000_000_000), 0.0, []
    for tenth in range(400):
        now = tenth / 10
        while told <= now:
            download.set_done(int(told * 50_000_000), told)
            told += pause
        shown.append((now, seconds_left(download.words(now))))
    known = [(now, left) for now, left in shown if left is not None]
    assert known[0][0] <= 4, "seconds until it is known"
    assert all(abs(left - (100 - now)) <= 4 for now, left in known)


def test_a_slower_network_changes_the_speed_little_by_little():
    download, left = DownloadProgress(total=5_000_000_000), []
    done = 0
    for second in range(60):
        done += 50_000_000 if second < 30 else 10_000_000
        download.set_done(done, float(second))
        left.append(seconds_left(download.words(float(second))))
    assert max(b / a for a, b in itertools.pairwise(left[20:])) < 1.4
    assert left[-1] > 300


def test_a_pipe_gets_a_line_at_each_interval():
    said = []
    shown = Progress(said.append, None, every=0.05)
    shown.update(start())
    until(said, lambda rows: len(rows) >= 3)
    shown.stop()
    assert len(said) >= 3 and set(said) == {"lock: solving, 0 s"}
    count = len(said)
    time.sleep(0.2)
    assert len(said) == count, "nothing comes after stop"


def test_each_stop_ends_a_thread():
    """The tests of commands are runs in one process: threads that stay would slow all that follow."""
    before = threading.active_count()
    shown = Progress([].append, None, every=0.05)
    for _ in range(3):
        shown.update(start())
        shown.stop()
    until(None, lambda _: threading.active_count() <= before)
    assert threading.active_count() <= before


def test_a_stage_that_ends_soon_prints_nothing():
    said = []
    shown = Progress(said.append, None, every=0.3)
    for _ in range(4):
        shown.update(start())
        time.sleep(0.01)
        shown.update(Event(kind="done", stage="lock", text="solved"))
    time.sleep(0.5)
    assert said == []


def test_bytes_that_a_stage_reports_are_shown_as_a_download():
    said = []
    shown = Progress(said.append, None, every=0.02)
    shown.update(start("downloading", "build", total=2_000_000, unit="bytes", files=2))
    shown.update(Event(kind="progress", stage="build", text="torch", done=500_000, unit="bytes"))
    until(said, len)
    shown.stop()
    assert said[0] == "build: torch, 2 files, 500 kB of 2 MB"


def test_a_terminal_gets_a_spinner_with_seconds(monkeypatch):
    monkeypatch.setattr(progress, "_PATIENCE", 0.0)
    screen = Screen(out=io.StringIO(), err=Terminal(), environ={"TERM": "xterm"})
    show_event(screen, start("verifying /e", "verify"))
    show_event(screen, Event(kind="progress", stage="verify", text="jax: import and convolutions"))
    until(screen.err, lambda err: err.getvalue().count("\r") >= 3)
    screen.stop_activity()
    text = screen.err.getvalue()
    assert text.startswith("verify: verifying /e\n")
    assert re.search(r"\r\x1b\[2K[|/\\-] verify: jax: import and convolutions, 0 s", text)
    assert text.endswith("\r\x1b[2K"), "the live line is gone"


def test_the_live_line_is_gone_before_the_result_is_written():
    """Both streams go to one terminal: what is not flushed comes behind the result."""
    terminal = []

    class Buffered(Terminal):
        def flush(self):
            terminal.append(self.getvalue())
            self.seek(self.truncate(0))

    class Result(io.StringIO):
        def write(self, text):
            terminal.append(text)
            return len(text)

    screen = Screen(out=Result(), err=Buffered(), environ={"TERM": "xterm"})
    screen.progress("| lock: solving, 1 s")
    screen.line("jax 0.12")
    assert "".join(terminal) == "\r\x1b[2K| lock: solving, 1 s\r\x1b[2Kjax 0.12\n"


@rows("columns", [20, 50, 200])
def test_a_live_line_is_no_longer_than_the_terminal_so_that_it_can_be_erased(columns):
    screen = Screen(
        out=io.StringIO(), err=Terminal(), environ={"TERM": "xterm", "NO_COLOR": "1", "COLUMNS": str(columns)}
    )
    screen.progress("| build: downloading " + "long-name-" * 30)
    row = screen.err.getvalue().removeprefix("\r\x1b[2K")
    assert len(row) == columns - 1
    show_error(screen, GpuenvError("no"), 1)
    assert screen.err.getvalue().endswith("\r\x1b[2Kerror: no\n")


@rows("how", [{"quiet": True}, {"err": io.StringIO(), "environ": {}}])
def test_quiet_and_a_pipe_have_no_live_line(how):
    screen = Screen(**{"out": io.StringIO(), "err": Terminal(), **how})
    show_event(screen, start())
    time.sleep(0.3)
    screen.stop_activity()
    assert "\r" not in screen.err.getvalue()


def test_the_thread_ends_where_nobody_reads_any_more():
    def broken(_row):
        raise BrokenPipeError

    before = threading.active_count()
    shown = Progress(broken, None, every=0.01)
    shown.update(start())
    until(None, lambda _: threading.active_count() <= before)
    assert threading.active_count() <= before


@rows(
    ("line", "read"),
    [
        ("torch      ------------------------------ 120.00 MiB/514.25 MiB", ("torch", 125829120, 539230208)),
        ("\x1b[2mnumpy\x1b[0m --- 1.5 KB/2 MB", ("numpy", 1500, 2_000_000)),
        ("nothing of the kind", None),
        ("numpy --- 1..5 KB/2 MB", ("numpy", 0, 2_000_000)),
    ],
)
def test_the_progress_of_uv_is_bytes(line, read):
    assert uv_install.parse_progress(line) == read


def test_the_downloads_of_an_installation_are_told_together(tmp_path, monkeypatch):
    """The file that the run waits for is counted, and files that the cache has are not reported."""
    told = []

    def run(_words, _sources, *, settings, **_):
        for line in ("torch -- 100 MB/500 MB", "numpy -- 1 MB/9 MB", "Prepared 2", "torch -- 499 MB/500 MB"):
            settings.on_line(line)
        return Finished(returncode=0, stdout="", stderr="", timed_out=False, signal=None, report=b"")

    monkeypatch.setattr(uv_install.uv, "run_uv", run)
    target = Target(platform="linux-x86_64")
    plan = Plan(
        builds=(), python="3.12", platform="linux-x86_64", manager="venv", device="cpu", target=target
    )
    lock = Lock(manager="venv", target=target, plan=plan, packages=())
    for offline in (True, False):
        uv_install.UvInstall(lock, tmp_path, PackageSources(), emit=told.append).install(offline=offline)
    assert [(e.text, e.done) for e in told] == [
        ("downloading torch", 100_000_000),
        ("downloading torch", 101_000_000),
        ("downloading numpy", 500_000_000),
    ]


@rows(
    ("environ", "tty", "coloured"),
    [
        ({}, False, False),
        ({}, True, True),
        ({"TERM": "dumb"}, True, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"FORCE_COLOR": "0"}, False, False),
        ({"FORCE_COLOR": ""}, False, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
    ],
)
def test_colours_depend_on_terminal_and_variables(environ, tty, coloured):
    out = Terminal() if tty else io.StringIO()
    screen = Screen(out=out, err=io.StringIO(), environ=environ)
    screen.line(screen.colour("works", "green"))
    assert ("\x1b[32m" in out.getvalue()) == coloured
    assert "works" in out.getvalue()


def test_the_downloads_of_a_bundle_are_told_a_few_times_a_second(tmp_path):
    told = []
    tell = BundleWriter(folder=tmp_path, before=None, locks=(), emit=told.append)._make_progress(10)
    tell(3, "a.whl")
    tell(4, "a.whl")
    assert [(e.kind, e.stage, e.done, e.total, e.unit) for e in told] == [
        ("progress", "bundle", 3, 10, "bytes")
    ]
