"""Conda environments when something goes wrong: a clear error, nothing half-made, and a second run
that succeeds. The channel is one of tiny packages; the engine, the server and the files are real."""
# ruff: noqa: F811  # fixtures are imported by their names

import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import conda_channel as cc
import pytest
from conda_channel import CREATE, folder  # noqa: F401
from environment_facts import ok, refused
from programs import run_program


def package(folder, name):
    (found,) = folder.glob(f"*/{name}-*.conda")
    return found


def spoil(path):
    before = path.read_bytes()
    path.write_bytes(cc.spoiled(before))
    return before


def whole(gpuenv):
    """Whether the folder holds a finished environment and nothing beside it."""
    names = {p.name for p in gpuenv.work.iterdir() if "gpuenv" in p.name or p.name == ".venv"}
    return names == {".venv"} and not (gpuenv.work / ".venv" / ".gpuenv" / "building").exists()


def nothing_made(gpuenv):
    return not [p for p in gpuenv.work.iterdir() if p.name.startswith(".")]


def test_a_tampered_package_of_a_file_channel_is_refused(gpuenv, folder):
    before = spoil(package(folder, "jaxlib"))
    ran = gpuenv(*CREATE, "--channel", folder)
    assert ran.code == 7 and "hash differs" in ran.err and "jaxlib" in ran.err
    assert nothing_made(gpuenv)
    package(folder, "jaxlib").write_bytes(before)
    assert gpuenv(*CREATE, "--channel", folder).code == 0
    assert whole(gpuenv)


def test_a_tampered_package_of_a_served_channel_is_refused(gpuenv, folder):
    with cc.serving(folder) as server:
        server.faults = {"jaxlib-0.7.0-cpu_py311h0_0.conda": "tampered"}
        ran = gpuenv(*CREATE, "--channel", server.url)
        assert ran.code == 7 and "hash" in ran.err and "jaxlib" in ran.err
        assert nothing_made(gpuenv)
        server.faults = {}
        assert gpuenv(*CREATE, "--channel", server.url).code == 0
    assert whole(gpuenv)


def test_a_tampered_package_leaves_the_old_environment(gpuenv, folder):
    assert gpuenv(*CREATE, "--channel", folder).code == 0
    mark = gpuenv.work / ".venv" / "mine"
    mark.touch()
    before = spoil(package(folder, "jax"))
    assert gpuenv(*CREATE, "--channel", folder, "--recreate").code == 7
    assert mark.exists() and whole(gpuenv)
    package(folder, "jax").write_bytes(before)
    assert gpuenv(*CREATE, "--channel", folder, "--recreate").code == 0
    assert not mark.exists() and whole(gpuenv)


def test_a_wrong_hash_in_the_lock_is_refused(gpuenv, folder):
    assert gpuenv("lock", *CREATE[1:-1], "--channel", folder).code == 0
    path = gpuenv.work / "conda-lock.yml"
    text = path.read_text()
    index = json.loads((folder / "linux-64" / "repodata.json").read_text())["packages.conda"]
    digest = next(r["sha256"] for r in index.values() if r["name"] == "jaxlib")
    path.write_text(text.replace(digest, digest[:-4] + "0000"))
    ran = gpuenv("create", "--lock", path, "--no-verify")
    assert ran.code == 7 and "hash differs" in ran.err and nothing_made(gpuenv)
    path.write_text(text)
    ok(gpuenv("create", "--lock", path, "--no-verify"))
    assert whole(gpuenv)


@pytest.mark.parametrize(
    ("file", "fault", "code", "told"),
    [
        ("", "404", 6, "the conda channel does not exist"),
        ("", "401", 9, "requires credentials for"),
        ("jax-0.7.0-pyh0_0.conda", "404", 7, "no longer available"),
    ],
)
def test_a_channel_that_answers_with_an_error_is_named(gpuenv, folder, file, fault, code, told):
    with cc.serving(folder) as server:
        server.faults = {file: fault}
        ran = refused(gpuenv(*CREATE, "--channel", server.url), code)
    assert told in ran.err and "127.0.0.1" in ran.err
    assert nothing_made(gpuenv)


def test_a_missing_channel_is_named_with_the_reason(gpuenv, tmp_path):
    assert "no such folder" in refused(gpuenv(*CREATE, "--channel", tmp_path / "nowhere"), 6).err
    ran = gpuenv(*CREATE, "--channel", "http://127.0.0.1:9/conda-forge")
    assert ran.code == 9 and "refuses the connection" in ran.err
    (tmp_path / "empty" / "noarch").mkdir(parents=True)
    ran = gpuenv(*CREATE, "--channel", tmp_path / "empty")
    assert ran.code == 6 and "the conda channel does not exist" in ran.err


def test_credentials_are_used_and_never_shown_or_kept(gpuenv, folder):
    with cc.serving(folder) as server:
        server.needs = "Basic bWU6czNjcjN0LXdvcmQ="  # me:s3cr3t-word
        url = server.url.replace("://", "://me:s3cr3t-word@")
        ran = ok(gpuenv(*CREATE, "--channel", url, "-v"))
        wrong = refused(gpuenv("create", "other", *CREATE[1:], "--channel", url.replace("me:", "you:")), 9)
    for text in (ran.out, ran.err, wrong.out, wrong.err):
        assert "s3cr3t-word" not in text
    kept = run_program(["grep", "-rl", "s3cr3t-word", gpuenv.work])
    assert kept.stdout == ""


def test_offline_works_from_the_cache_and_says_what_it_lacks(gpuenv, folder):
    with cc.serving(folder) as server:
        url = server.url
        ran = gpuenv(*CREATE, "--channel", url, "--offline")
        assert ran.code == 6 and "the channel is not in the cache" in ran.err, ran.err
        assert gpuenv(*CREATE, "--channel", url).code == 0
    assert gpuenv("create", "again", *CREATE[1:], "--channel", url, "--offline").code == 0
    shutil.rmtree(gpuenv.folder / "cache" / "rattler" / "cache" / "pkgs")
    ran = gpuenv("create", "third", *CREATE[1:], "--channel", url, "--offline")
    assert ran.code == 7 and "not in the cache: " in ran.err and "jaxlib" in ran.err


def test_a_package_with_an_absolute_path_ends_the_engine_not_gpuenv(gpuenv, folder):
    bad = [cc.Member("/gpuenv-escaped", data=b"out")]
    cc.write_package(folder, "jax", "0.8.0", "pyh0_0", ["jaxlib 0.7.0"], bad, noarch="generic")
    cc.index(folder)
    ran = gpuenv(*CREATE, "--channel", folder)
    assert ran.code == 7 and nothing_made(gpuenv), ran.err
    assert "Traceback" not in ran.err
    package(folder, "jax-0.8.0").unlink()
    cc.index(folder)
    assert gpuenv(*CREATE, "--channel", folder).code == 0


def test_a_cached_package_without_a_hash_is_not_taken_for_another(gpuenv, folder):
    """What came by its md5 alone, or from who knows where, has no sha256 in the cache: the engine then takes it
    for any package of that name, version and build."""
    python = package(folder, "python")
    lock = gpuenv.work / "explicit.txt"

    def created(name, address, digest):
        lock.write_text(f"@EXPLICIT\n{address}#{digest}\n")
        return gpuenv("create", name, "--lock", lock, "--no-verify", "--allow-md5")

    data = python.read_bytes()
    assert created("first", python.as_uri(), hashlib.md5(data).hexdigest()).code == 0
    with cc.serving(gpuenv.folder / "empty") as server:
        elsewhere = f"{server.url}/linux-64/{python.name}"
        assert created("sha256", elsewhere, "a" * 64).code == 7
        assert created("md5", elsewhere, "b" * 32).code == 7
        assert created("hashed", python.as_uri(), hashlib.sha256(data).hexdigest()).code == 0
        (note,) = gpuenv.folder.rglob(f"pkgs/{python.stem}.lock")
        note.write_bytes(note.read_bytes()[:8])  # as the engine has it where the sha256 was not known
        assert created("older", elsewhere, "a" * 64).code == 7
    assert sorted(p.name for p in gpuenv.work.iterdir()) == ["explicit.txt", "first", "hashed"]


def test_a_lock_without_a_framework_is_a_plan_too(gpuenv, folder):
    python = package(folder, "python")
    digest = hashlib.sha256(python.read_bytes()).hexdigest()
    (gpuenv.work / "explicit.txt").write_text(f"@EXPLICIT\n{python.as_uri()}#{digest}\n")
    ran = gpuenv("create", "--lock", "explicit.txt", "--dry-run", "--json")
    assert (ran.code, ran.json["builds"]) == (0, []), ran.err


def test_a_channel_without_sha256_needs_allow_md5(gpuenv, folder):
    for path in folder.glob("*/repodata.json"):
        data = json.loads(path.read_text())
        for row in data["packages.conda"].values():
            row.pop("sha256", None)
        path.write_text(json.dumps(data))
    ran = gpuenv(*CREATE, "--channel", folder)
    assert ran.code == 6 and "has no sha256 for 3 of 3" in ran.err and "--allow-md5" in ran.err
    before = spoil(package(folder, "jaxlib"))
    ran = gpuenv(*CREATE, "--channel", folder, "--allow-md5")
    assert ran.code == 7 and "hash differs" in ran.err, "md5 is checked where it is all there is"
    package(folder, "jaxlib").write_bytes(before)
    assert gpuenv(*CREATE, "--channel", folder, "--allow-md5").code == 0


def test_a_removed_temporary_folder_is_named_and_leaves_nothing(gpuenv, folder, tmp_path):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    gpuenv.env |= {"TMPDIR": str(temporary)}
    with cc.serving(folder) as server:
        server.faults = {"repodata.json": "stalled"}
        argv = [sys.executable, "-m", "provision", *CREATE, "--channel", server.url]
        running = subprocess.Popen(argv, env=gpuenv.env, cwd=gpuenv.work, stderr=subprocess.PIPE, text=True)
        assert server.stalled.wait(300)
        shutil.rmtree(temporary)
        server.released.set()
        told = running.communicate(timeout=300)[1]
    assert running.returncode == 6 and "was removed" in told and "TMPDIR" in told, told
    assert "Traceback" not in told and nothing_made(gpuenv)


def start(gpuenv, *args):
    argv = [sys.executable, "-m", "provision", *map(str, args)]
    return subprocess.Popen(
        argv, env=gpuenv.env, cwd=gpuenv.work, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


@pytest.mark.slow
def test_killed_at_any_moment_a_second_run_succeeds(gpuenv, folder):
    kills = 20
    again = (*CREATE, "--channel", folder, "--recreate")
    began = time.monotonic()
    assert gpuenv(*again).code == 0
    took = time.monotonic() - began
    rng = random.Random(20)  # the moments are spread over the whole run, and the same in each run
    for i in range(kills):
        running = start(gpuenv, *again)
        time.sleep(took * (i + rng.random()) / kills)
        running.send_signal(signal.SIGKILL)
        running.wait()
        if i % 4 == 3:
            ok(gpuenv(*CREATE, "--channel", folder))
            assert whole(gpuenv)
    assert gpuenv(*again).code == 0 and whole(gpuenv)


EVENTS = """
import sys
from provision import cli, show
draw = show.show_event
def both(screen, event):
    print("event:", event.kind, event.text, flush=True)
    draw(screen, event)
show.show_event = both
sys.exit(cli.run(sys.argv[1:]))
"""
"""gpuenv that also prints what it tells its live line, which is drawn only of what takes a second."""


def test_downloads_and_links_are_reported_as_they_happen(gpuenv, folder):
    with cc.serving(folder) as server:
        done = run_program(
            [sys.executable, "-c", EVENTS, *CREATE, "--channel", server.url], env=gpuenv.env, cwd=gpuenv.work
        )
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stdout.splitlines() if line.startswith("event: ")]
    assert any("(3 packages)" in line for line in told), told
    assert any("linking 3 of 3 packages" in line for line in told), told
    assert any("progress" in line and "jaxlib" in line for line in told), told


def test_two_creates_at_the_same_time_leave_a_whole_environment(gpuenv, folder):
    args = (*CREATE, "--channel", folder, "--recreate")
    both = [start(gpuenv, *args) for _ in range(2)]
    codes = sorted(p.wait(60) for p in both)
    assert codes in ([0, 7], [0, 0]), codes
    assert whole(gpuenv)


def test_a_cache_on_another_file_system_is_named_with_what_is_copied(gpuenv, folder):
    """/dev/shm is a file system of its own on Linux."""
    shm = Path("/dev/shm")
    if not shm.is_dir() or shm.stat().st_dev == gpuenv.work.stat().st_dev:
        pytest.skip("/dev/shm is not on a file system of its own")
    assert "were copied" not in gpuenv(*CREATE, "--channel", folder).err
    with tempfile.TemporaryDirectory(dir=shm) as cache:
        ran = gpuenv(*CREATE, "--channel", folder, "--recreate", "--cache-dir", cache)
        text = " ".join(ran.err.split())
        env = gpuenv.work / ".venv"
        records = [json.loads(p.read_text()) for p in env.glob("conda-meta/*.json")]
        size = sum((env / name).stat().st_size for record in records for name in record["files"])
    said = re.findall(
        r"note: ([\d.]+) (B|kB|MB) were copied, because the cache (\S+) is on another file", text
    )
    assert ran.code == 0 and len(said) == 1 and said[0][2] == f"{cache}/conda", ran.err
    copied = float(said[0][0]) * {"B": 1, "kB": 1e3, "MB": 1e6}[said[0][1]]
    assert size > 0 and 0.99 * size < copied <= 1.01 * size and "--cache-dir DIR" in text


def test_room_is_asked_for_what_the_cache_lacks(gpuenv, folder):
    """A lock that tells of more than any disk holds: refused before anything is fetched, and no matter where
    the packages are in the cache already."""
    assert gpuenv("lock", *CREATE[1:-1], "--channel", folder).code == 0
    path = gpuenv.work / "conda-lock.yml"
    path.write_text(re.sub(r'"jaxlib":\s+\d+', f'"jaxlib": {10**15}', path.read_text()))
    ran = refused(gpuenv("create", "--lock", path, "--no-verify"), 7)
    assert "downloading and unpacking needs about 5100" in ran.err and nothing_made(gpuenv)
    assert gpuenv("create", "--channel", folder, *CREATE[1:]).code == 0
    assert gpuenv("create", "again", "--lock", path, "--no-verify").code == 0


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() == 0 and shutil.which("unshare") is None, reason="no way to a small disk")
def test_a_full_disk_is_named_and_leaves_no_environment(gpuenv, folder, tmp_path):
    cc.write_package(
        folder, "jax", "0.9.0", "pyh0_0", ["jaxlib 0.7.0"],
        [cc.Member("share/big", data=os.urandom(1 << 20) * 24)], noarch="generic",
    )  # fmt: skip
    cc.index(folder)
    small = tmp_path / "disk"
    small.mkdir()
    gpuenv.env |= {"RATTLER_CACHE_DIR": str(small / "cache"), "TMPDIR": str(tmp_path)}
    create = [*CREATE[:1], str(small / "env"), *CREATE[1:], "--channel", str(folder)]
    argv = [sys.executable, "-m", "provision", *create]
    script = f'mount -t tmpfs -o size=8m none {small} && "$@"; echo "code $?"; ls -a {small}'
    done = run_program(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", *argv],
        env=gpuenv.env,
        cwd=gpuenv.work,
    )
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"no mount namespace here: {done.stderr.splitlines()[0]}")
    assert "code 7" in done.stdout and "disk" in done.stderr, done.stdout + done.stderr
    assert "full" in done.stderr, done.stdout + done.stderr
    assert "env" not in done.stdout.split("code 7")[1].split()
