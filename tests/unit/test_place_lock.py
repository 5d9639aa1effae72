"""One gpuenv at a time works on a place, whatever the cache folder or the user of the others."""

import contextlib
import errno
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import counting_program
import pytest
from programs import run_program

from provision.environment import place, place_lock
from provision.errors import BuildError

HOLD = """
import sys, time
from pathlib import Path
from provision.environment import place
with place.lock_place(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""
OTHER_USER = 54321
ROOT = Path(place.__file__).parents[2]


WITHOUT_LOCKS = """
import errno, fcntl
def refuse(*_):
    raise OSError(errno.ENOLCK, "No locks available")
fcntl.flock = refuse
"""


@contextlib.contextmanager
def holder(path, program=HOLD):
    """A process that holds the place until it is killed, at the end of the block."""
    with subprocess.Popen(
        [sys.executable, "-c", program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout.readline() == "held\n"
        try:
            yield child
        finally:
            child.send_signal(signal.SIGKILL)


AS_USER = """
import fcntl, os, sys  # all that is needed: another user may not read this Python's folder
from pathlib import Path
from provision.environment import place
from provision.errors import BuildError
os.setgroups([])
os.setgid(int(sys.argv[1]))
os.setuid(int(sys.argv[1]))
try:
    with place.lock_place(Path(sys.argv[2])):
        print("held")
except BuildError as error:
    print(error.message)
"""


def as_user(uid, path):
    """How another user's attempt on the place ends: "held" or the error."""
    argv = [sys.executable, "-c", AS_USER, str(uid), path]
    done = run_program(argv, cwd=ROOT, check=True)
    return done.stdout.strip()


def test_a_second_run_is_refused_and_nothing_is_left(tmp_path):
    path = tmp_path / "a" / "b" / "env"
    with place.lock_place(path):
        assert place_lock.lock_file(path).exists()
        with (
            pytest.raises(BuildError, match="another gpuenv process is using"),
            place.lock_place(path),
        ):
            pass
    assert not [*tmp_path.iterdir()]


def test_the_lock_is_of_the_environment_that_a_link_leads_to(tmp_path):
    (tmp_path / "env").mkdir()
    (tmp_path / "link").symlink_to("env")
    with (
        place.lock_place(tmp_path / "link"),
        pytest.raises(BuildError, match="another gpuenv"),
        place.lock_place(tmp_path / "env"),
    ):
        pass


def test_a_folder_that_was_made_for_the_lock_stays_where_something_is_in_it(tmp_path):
    path = tmp_path / "a" / "env"
    with place.lock_place(path):
        path.mkdir()
    assert [p.name for p in path.parent.iterdir()] == ["env"]


def test_what_a_killed_run_left_locks_nothing(tmp_path):
    path = tmp_path / "env"
    with (
        holder(path),
        pytest.raises(BuildError, match="another gpuenv"),
        place.lock_place(path),
    ):
        pass
    assert place_lock.lock_file(path).exists()
    with place.lock_place(path):
        pass
    assert not [*tmp_path.iterdir()]


def test_many_runs_at_once_exclude_each_other(tmp_path):
    """Each adds one to a number, between others' locks, unlocks and removals of the file."""
    number = tmp_path / "number"
    number.write_text("0")
    argv = [sys.executable, "-c", counting_program.PROGRAM, tmp_path / "deep" / "env", number, "20"]
    children = [subprocess.Popen(argv) for _ in range(4)]
    assert [c.wait(100) for c in children] == [0] * 4
    assert number.read_text() == "80"


@pytest.mark.skipif(os.geteuid() != 0, reason="another user needs root")
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o755], ids=["shared", "like /tmp", "not writable"])
def test_another_user_is_refused_and_has_the_place_afterwards(mode):
    # Not below pytest's own folder, which another pytest of this user closes to all others.
    with tempfile.TemporaryDirectory(prefix="gpuenv-place-") as folder:
        path = Path(folder, "env")
        path.mkdir()
        Path(folder).chmod(mode)
        before = os.umask(0o077)
        try:
            with holder(path):
                assert as_user(OTHER_USER, path) == f"another gpuenv process is using {path}"
        finally:
            os.umask(before)
        assert as_user(OTHER_USER, path) == "held"
        place_lock.lock_file(path).unlink(missing_ok=True)
        assert as_user(OTHER_USER, path) == "held"


@pytest.mark.parametrize("made", ["link", "folder", "pipe"])
def test_something_else_in_the_lock_files_place_is_named_and_left_alone(made, tmp_path):
    file, mine = place_lock.lock_file(tmp_path / "env"), tmp_path / "mine"
    mine.write_text("precious")
    {"link": lambda: file.symlink_to(mine), "folder": file.mkdir, "pipe": lambda: os.mkfifo(file)}[made]()
    with (
        pytest.raises(BuildError, match="cannot be locked") as refused,
        place.lock_place(tmp_path / "env"),
    ):
        pass
    assert str(file) in refused.value.message and "remove this file" in refused.value.hint
    assert mine.read_text() == "precious" and os.path.lexists(file)


def test_a_place_in_a_file_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(BuildError, match="cannot write in"),
        place.lock_place(tmp_path / "file" / "env"),
    ):
        pass


def test_a_file_system_without_locks_gets_a_file_that_says_who(tmp_path, monkeypatch):
    """Such a file system cannot be mounted here: the kernel's answer is given by the call itself."""
    import fcntl

    def refuse(_descriptor, _operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    path = tmp_path / "env"
    with (
        holder(path, WITHOUT_LOCKS + HOLD) as child,
        pytest.raises(BuildError, match=f"another gpuenv process is using .*: process {child.pid} of host"),
        place.lock_place(path),
    ):
        pass
    child.wait()
    with place.lock_place(path):  # what a killed run left locks nothing
        pass
    assert not [*tmp_path.iterdir()]


OTHER = place_lock.make_claim()._replace(pid=1)


@pytest.fixture
def file(tmp_path):
    """The lock's file with the claim of another process that runs, and a descriptor of it."""
    path = place_lock.lock_file(tmp_path / "env")
    path.write_text(json.dumps(OTHER._asdict()))
    return path


@pytest.mark.parametrize("how", [{"is_writable": False}, {"is_new": True}, {}])
def test_the_claim_of_another_process_counts_without_locks_of_the_kernel(file, how):
    with file.open("r+") as opened, contextlib.ExitStack() as stack, pytest.raises(place_lock.BusyError):
        place_lock._claim(place_lock._Opened(opened.fileno(), **how), file, stack, has_locks=False)
    assert file.exists()


def test_a_file_that_cannot_be_claimed_is_no_lock(file, monkeypatch):
    with file.open("rb") as opened, contextlib.ExitStack() as stack, pytest.raises(OSError, match="Bad file"):
        place_lock._claim(place_lock._Opened(opened.fileno()), file, stack, has_locks=True)

    def fail(_descriptor, _operation):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("fcntl.flock", fail)
    with pytest.raises(BuildError, match="Input/output error"), place.lock_place(file.parent / "env"):
        pass


def test_a_lock_file_that_another_run_exchanges_or_removes_is_opened_again(tmp_path, monkeypatch):
    claim, path = place_lock._claim, place_lock.lock_file(tmp_path / "env")
    claimed = []

    def exchanged(*arguments, **more):
        claimed.append(claim(*arguments, **more))
        if len(claimed) == 1:
            path.unlink()
        return claimed[-1]

    monkeypatch.setattr(place_lock, "_claim", exchanged)
    with place.lock_place(tmp_path / "env"):
        assert len(claimed) == 2 and path.exists()
    assert not path.exists() and place_lock.read_takeover(path) is None
    with pytest.raises(FileNotFoundError):
        place_lock._open_existing(path, 0)


@pytest.mark.parametrize("old", [True, False])
def test_a_process_that_was_killed_while_it_judged_a_claim_is_not_waited_for(tmp_path, monkeypatch, old):
    path = place_lock.lock_file(tmp_path / "env")
    folder = path.with_name(f"{path.name}.judged")
    folder.mkdir()
    if old:
        os.utime(folder, (0, 0))
    ticks = itertools.count(0, 6)
    pauses = []

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) > 3:
            raise TimeoutError

    monkeypatch.setattr(place_lock, "time", SimpleNamespace(monotonic=lambda: next(ticks), sleep=pause))
    with (
        contextlib.nullcontext() if old else pytest.raises(TimeoutError),
        place_lock._exclude_other_hosts(path),
    ):
        assert folder.exists()
    assert folder.exists() != old
