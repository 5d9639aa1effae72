"""One environment on a disk of several hosts: who may change it, whose verdict is whose, and disks without hard links.

A host is a mount namespace and a host name of its own, with another id of its kernel's start. Its locks are its own: the
kernel answers flock with success and does nothing, as NFS with `local_lock=flock` does for other hosts' locks.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import counting_program
import kernel_calls
import pytest
from programs import run_program

from provision.environment import place_lock, record
from provision.model import Verdict

ROOT = Path(__file__).resolve().parents[2]
HOLD = """
import sys
from pathlib import Path
from provision.environment import place, place_lock
from provision.errors import BuildError
try:
    with place.lock_place(Path(sys.argv[1]), lambda event: print(event.text, flush=True)):
        print("held", flush=True)
        sys.stdin.readline()
        place_lock.assert_held(Path(sys.argv[1]))
        print("still held", flush=True)
except BuildError as error:
    print(error.message, "hint:", error.hint, flush=True)
"""


def can_unshare():
    return subprocess.run(["unshare", "-m", "-u", "true"], capture_output=True, check=False).returncode == 0


pytestmark = pytest.mark.skipif(not can_unshare(), reason="mount namespaces need root (unshare -m -u)")


@pytest.fixture(scope="module")
def filtered(tmp_path_factory):
    return kernel_calls.build(tmp_path_factory.mktemp("filtered"))


@pytest.fixture
def hosts(filtered, tmp_path):
    """Hosts that share the disk of tmp_path and no locks."""
    return [Host(name, filtered, tmp_path) for name in ("node1", "node2", "node3")]


class Host:
    """A host: the words before a command that make it run there. The kernel of node2 tells no id of its start."""

    def __init__(self, name, filtered, folder):
        self.name = name
        boot = folder / f"boot-{name}"
        boot.write_text(f"{uuid.uuid4()}\n")
        mount = f"--bind {boot} /proc/sys/kernel/random/boot_id"
        mount = "-t tmpfs none /proc/sys/kernel/random" if name == "node2" else mount
        inside = f'mount {mount} && hostname {name} && exec "$@"'
        self.words = [
            "unshare",
            "-m",
            "-u",
            "sh",
            "-c",
            inside,
            "sh",
            *kernel_calls.command(filtered, flock=0),
        ]

    def python(self, code, *arguments, **more):
        return subprocess.Popen(
            [*self.words, sys.executable, "-c", code, *map(str, arguments)], cwd=ROOT, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, **more,
        )  # fmt: skip

    @contextlib.contextmanager
    def holding(self, path):
        """A process of this host that holds a place within the block."""
        with self.python(HOLD, path) as child:
            try:
                yield child
            finally:
                child.kill()

    def tries(self, path):
        """What a process of this host says that wants the place, and gives it back at once."""
        with self.python(HOLD, path) as child:
            return child.communicate("\n", timeout=60)[0].splitlines()


def test_two_hosts_do_not_work_on_one_place_at_once(hosts, tmp_path):
    one, two, _ = hosts
    env = tmp_path / "shared" / "env"
    with one.holding(env) as child:
        assert child.stdout.readline() == "held\n"
        (refused,) = two.tries(env)
        assert refused.startswith(f"another gpuenv process is using {env}: process ")
        assert "of host node1, since 20" in refused and "hint: wait for it to end" in refused
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == "still held\n"
        child.wait(60)
    assert two.tries(env) == ["held", "still held"]
    assert not env.parent.exists(), "nothing stays beside the place"


def test_hosts_that_count_in_one_file_lose_no_number(hosts, tmp_path):
    """All take the place at the same moments, and only the claims exclude one another."""
    number = tmp_path / "number"
    number.write_text("0")
    children = [host.python(counting_program.PROGRAM, tmp_path / "env", number, 25) for host in hosts]
    for child in children:
        child.communicate(timeout=100)
    assert [c.returncode for c in children] == [0] * 3
    assert number.read_text() == "75"


def test_a_host_that_died_is_waited_for_and_then_its_lock_is_taken_over(hosts, tmp_path):
    one, two, _ = hosts
    env = tmp_path / "env"
    with one.holding(env) as child:
        assert child.stdout.readline() == "held\n"
        child.send_signal(signal.SIGKILL)
    (refused,) = two.tries(env)
    assert "of host node1" in refused
    assert f"the lock expires after {place_lock.STALE:g} s without activity" in refused
    _age(place_lock.lock_file(env))
    first, *rest = two.tries(env)
    assert first.startswith(f"taking over the lock on {env}, inactive for 180 s: process ")
    assert "of host node1" in first and rest == ["held", "still held"]
    assert not [p.name for p in tmp_path.iterdir() if p.name.startswith(".")]


def test_a_killed_run_of_the_same_host_is_not_waited_for(hosts, tmp_path):
    code = HOLD.replace("print(event.text, flush=True)", "print('said', flush=True)")
    argv = [sys.executable, "-c", code, tmp_path / "env"]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(argv, cwd=ROOT, **streams) as child:
        assert child.stdout.readline() == "held\n"
        child.kill()
    with subprocess.Popen(argv, cwd=ROOT, **streams) as child:
        assert child.communicate("\n", timeout=60)[0].splitlines() == ["held", "still held"]


def test_a_run_that_was_stopped_too_long_does_not_commit(hosts, tmp_path):
    one, two, _ = hosts
    env = tmp_path / "env"
    with one.holding(env) as stopped:
        assert stopped.stdout.readline() == "held\n"
        _age(place_lock.lock_file(env))
        with two.holding(env) as other:
            assert "taking over the lock" in other.stdout.readline() and other.stdout.readline() == "held\n"
            told = stopped.communicate("\n", timeout=60)[0]
            assert told.startswith("this process was paused") and f"the lock on {env}: process " in told
            assert "of host node2" in told
            assert place_lock.lock_file(env).exists(), "the lock is the other host's now"


def _age(path):
    old = time.time() - place_lock.STALE - 60
    os.utime(path, (old, old))


def test_a_long_run_gives_signs_of_life(tmp_path, monkeypatch):
    monkeypatch.setattr(place_lock, "BEAT", 0.05)
    with place_lock.locked(tmp_path / "env"):
        path = place_lock.lock_file(tmp_path / "env")
        _age(path)
        before, end = path.stat().st_mtime, time.monotonic() + 30
        while path.stat().st_mtime == before and time.monotonic() < end:
            time.sleep(0.01)
        assert path.stat().st_mtime > before
        assert json.loads(path.read_text())["pid"] == os.getpid()


@pytest.mark.parametrize("left", ["", "{", '{"host": 1}', "[]", "x" * 10000])
def test_what_an_older_version_left_is_no_claim(left, hosts, tmp_path):
    place_lock.lock_file(tmp_path / "env").write_text(left)
    assert hosts[0].tries(tmp_path / "env") == ["held", "still held"]


@pytest.mark.parametrize("left", [None, "", '{"host": "x", "boot": "x", "pid": 1, "since": 1}'])
def test_a_full_disk_does_not_keep_an_environment_from_being_removed(left, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    lock = place_lock.lock_file(disk / "env")
    before = f"printf %s '{left}' > {lock}; touch -d '1 hour ago' {lock};" if left is not None else ""
    inside = f'mount -t tmpfs -o size=256k none {disk} && {before} dd if=/dev/zero of={disk}/full status=none; exec "$@"'
    command = ["unshare", "-m", "sh", "-c", inside, "sh", sys.executable, "-c", HOLD, disk / "env"]
    done = run_program(command, cwd=ROOT, input="\n")
    assert "No space left" in done.stderr, "the disk is full"
    assert done.stdout.splitlines()[-2:] == ["held", "still held"], done.stdout + done.stderr


# --- verdicts ----------------------------------------------------------------------------------------------


KEEP = """
import json, sys
from pathlib import Path
from provision.environment import record
from provision.model import Verdict
env, outcome, driver = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
under = {"driver": driver}
if outcome != "read":
    record.keep_verdict(env, Verdict(env=str(env), python="python", verdict=outcome), under)
kept, stands = record.read_verdict(env), record.find_valid_verdict(env, under)
print(json.dumps([kept and kept.verdict, stands and stands.verdict]))
"""


@pytest.fixture
def verdicts(hosts, tmp_path):
    """Keep a verdict as one of the hosts, or read it: the one that is shown, and the one that stands."""
    (tmp_path / "env" / ".gpuenv").mkdir(parents=True)

    def ask(number, outcome, driver):
        with hosts[number].python(KEEP, tmp_path / "env", outcome, driver) as child:
            return json.loads(child.communicate(timeout=60)[0])

    return ask


def test_a_verdict_of_one_host_does_not_replace_that_of_another(verdicts, tmp_path):
    mark = tmp_path / "env" / ".gpuenv"
    assert verdicts(0, "works", "535.1") == ["works", "works"]
    assert [p.name for p in mark.iterdir()] == ["verdict.json"], "one host needs one file"
    assert verdicts(1, "fails", "580.1") == ["fails", None]
    assert verdicts(0, "read", "535.1") == ["works", "works"]
    assert verdicts(1, "read", "580.1") == ["fails", None]
    assert verdicts(2, "read", "580.1") == ["fails", None], "a host without a verdict shows the last one"
    assert sorted(p.name for p in (mark / "verdicts").iterdir()) == ["node1.json", "node2.json"]
    assert verdicts(0, "fails", "535.1") == ["fails", None]
    assert verdicts(1, "works", "580.1") == ["works", "works"]
    assert verdicts(0, "read", "535.1") == ["fails", None]


def test_an_older_version_reads_and_writes_the_last_verdict(verdicts, tmp_path):
    file = tmp_path / "env" / ".gpuenv" / "verdict.json"
    verdicts(0, "works", "535.1")
    verdicts(1, "works", "580.1")
    document = json.loads(file.read_text())
    assert document["verdict"]["verdict"] == "works" and document["under"] == {"driver": "580.1"}
    older = {"verdict": {**document["verdict"], "verdict": "fails"}, "under": {"driver": "535.1"}}
    file.write_text(json.dumps(older))
    assert verdicts(0, "read", "535.1") == ["fails", None]


@pytest.mark.parametrize("name", ["../../x", "a/b", ".hidden", "ü", "x" * 250, "", "con"])
def test_a_host_name_never_leads_out_of_the_folder(name, tmp_path):
    from provision.environment import record

    folder, _, file = record.name_verdict_file(name).rpartition("/")
    assert folder == "verdicts" and "/" not in file and not file.startswith(".") and len(file) < 130
    assert file != record.name_verdict_file(name + "_").rpartition("/")[2]
    assert name != "a/b" or file == "a_b-c14cddc033f6.json", "another release finds it"


def test_a_damaged_record_is_no_project_is_never_vouched_for_and_is_replaced(tmp_path):
    mark = tmp_path / ".gpuenv"
    site = tmp_path / "lib/python3.12/site-packages"
    (mark / "plan.json").mkdir(parents=True)
    (site / "a-1.dist-info").mkdir(parents=True)
    (mark / "request.json").write_text("{")
    (mark / "verdict.json").write_text("[")
    assert not record.is_of_project(tmp_path)
    assert "plan.json unreadable" in record.digest_record(tmp_path)
    verdict = Verdict(env=str(tmp_path), python="", verdict="works")
    record.keep_verdict(tmp_path, verdict, {})
    assert record.read_verdict(tmp_path) == verdict
    before = record.digest_installed(tmp_path)  # conda and Debian leave RECORD out
    (site / "a-1.dist-info" / "RECORD").touch()
    assert record.digest_installed(tmp_path) != before


def test_a_changed_copy_of_an_environment_has_no_verdicts_of_other_hosts(verdicts, tmp_path):
    from provision.environment import transaction

    verdicts(0, "works", "535.1")
    verdicts(1, "works", "580.1")
    transaction.copy_environment(tmp_path / "env", tmp_path / "copy")
    assert [p.name for p in (tmp_path / "copy" / ".gpuenv").iterdir()] == ["verdict.json"]


# --- hard links --------------------------------------------------------------------------------------------


@pytest.fixture
def made(gpuenv, index):
    """What makes an environment of small wheels, on a file system that gives `answers` or is mounted by `mount`."""
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    words = [
        "--framework",
        "torch",
        "--python",
        here,
        "--index",
        "pypi",
        "--driver",
        "580.65.06",
        "--gpu",
        "9.0",
    ]
    index.add_plan(gpuenv("resolve", "--json", *words).json)
    gpuenv.env |= {"PIP_INDEX_URL": index.url, "UV_COMPILE_BYTECODE": "1"}

    def run(before, env, *more):
        command = [
            *before,
            sys.executable,
            "-m",
            "provision",
            "create",
            str(env),
            *words,
            "--no-verify",
            *more,
        ]
        done = run_program(command, env=gpuenv.env, cwd=gpuenv.work, check=True)
        return done.stderr

    return run


def shared_files(env):
    return [p for p in env.rglob("*") if p.is_file() and not p.is_symlink() and p.stat().st_nlink > 1]


def test_an_environment_is_made_and_changed_without_hard_links(made, filtered, gpuenv):
    before = kernel_calls.command(filtered, link="EPERM")
    env = gpuenv.work / "env"
    made(before, env)
    assert not shared_files(env)
    made(before, env, "--recreate")
    made(before, gpuenv.work / "second")
    assert subprocess.run([env / "bin" / "python", "-c", "import torch"], check=False).returncode == 0


def test_cache_and_environment_may_be_on_different_file_systems(made, gpuenv):
    disk = gpuenv.work / "disk"
    disk.mkdir()
    inside = f'mount -t tmpfs none {disk} && "$@" && cp -a {disk}/env {gpuenv.work}/kept'
    said = made(["unshare", "-m", "sh", "-c", inside, "sh"], disk / "env")
    assert "cross-device" not in said.lower()
    assert (gpuenv.work / "kept" / "bin" / "python").exists() and not list(disk.iterdir())
