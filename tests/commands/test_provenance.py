"""Whose record of an environment counts: that of this user's gpuenv at this path, with these contents."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from environment_facts import HERE, installed, ok, own
from loopback import Index, serving
from made_env import PROJECT, jax_env, jax_index
from programs import run_program

from provision.environment import registry
from provision.errors import BuildError
from provision.index import uv

JAX = ("--framework", "jax", "--device", "cpu", "--python", HERE)


@pytest.fixture
def go(gpuenv, index):
    jax_index(gpuenv, index)
    return gpuenv


@pytest.fixture
def evil(go, index):
    """A stranger's index. It has everything, and it writes down who asks it."""
    with serving(Index()) as running:
        running.wheels = {name: dict(files) for name, files in index.wheels.items()}
        running.add("more", "9.9")
        yield running


def name_index(env, index):
    """Let the options in a record name this index."""
    path = env / ".gpuenv/request.json"
    record = json.loads(path.read_text())
    for options in (record["given"], record["choices"]):
        options["index"] = index.url
    path.write_text(json.dumps(record))


@pytest.fixture
def cloned(go, index, evil):
    """A project that a stranger made with an index of their own, .venv included, in this user's folder."""
    jax_env(go, index, "", "--with", "more")
    name_index(go.work / ".venv", evil)
    lock = go.work / ".venv/.gpuenv/pylock.toml"
    lock.write_text(lock.read_text().replace(index.url, evil.url))
    shutil.rmtree(go.folder / "home/.local/share/gpuenv/environments")
    return go


def test_a_record_that_came_with_a_project_decides_no_index(cloned, evil):
    for argv in (
        ("create", *JAX, "--no-verify"),
        ("add", "more", "--no-verify"),
        ("drop", "more", "--no-verify"),
        ("add", "more", "--dry-run"),
        ("repair", "--no-verify"),
        ("repair", "--dry-run"),
    ):
        ran = cloned(*argv)
        assert ran.code == 2 and ".venv/.gpuenv" in ran.err and "--recreate" in ran.err, (argv, ran.err)
        assert not evil.requests, argv
    ran = ok(cloned("create", *JAX, "--recreate", "--no-verify"))
    assert ".gpuenv" in ran.err and "more" not in installed(cloned.work / ".venv")
    assert not evil.requests
    ok(cloned("add", "more", "--no-verify"))  # now it is this user's
    assert installed(cloned.work / ".venv")["more"] == "1.0" and not evil.requests


def test_the_lock_in_a_record_is_installed_for_nobody_else(cloned, evil):
    """Its addresses are the stranger's, and its hashes are genuine."""
    shutil.rmtree(cloned.folder / "uv-cache", ignore_errors=True)
    ran = cloned("create", "--recreate", "--no-verify")
    assert ran.code == 2 and "no --framework given" in ran.err and not evil.requests
    ran = cloned("create", "--locked", "--manager", "venv")
    assert ".venv/.gpuenv/pylock.toml" not in ran.err.replace("\n", "")
    ok(cloned("create", "--no-verify"))  # it is what it is: nothing is fetched
    assert not evil.requests


def test_contents_count_and_not_the_path_alone(go, index, evil):
    """As `git pull` replaces a record that this user's gpuenv wrote."""
    env = go.work / ".venv"
    jax_env(go, index, "", "--with", "more")
    path = env / ".gpuenv/request.json"
    mine = path.read_text()
    name_index(env, evil)
    for argv in (("drop", "more"), ("repair",), ("create", "--with", "more", "--recreate")):
        assert go(*argv, "--no-verify").code == 2 and not evil.requests
    path.write_text(mine)
    ok(go("repair", "--no-verify"))
    (entry,) = (Path(go.env["HOME"]) / ".local/share/gpuenv/environments").glob("*.json")
    if os.geteuid() == 0:  # only root can give a file away
        os.chown(entry, 4242, -1)
        assert go("repair", "--no-verify").code == 2
        os.chown(entry, 0, -1)
    lock = env / ".gpuenv/pylock.toml"
    lock.write_text(lock.read_text().replace(go.env["PIP_INDEX_URL"], evil.url))
    shutil.rmtree(next(env.glob("lib/python3*/site-packages/more-*")))
    assert go("repair", "--no-verify").code == 2 and not evil.requests


def test_a_moved_or_copied_environment_is_read_and_not_changed(go, index):
    jax_env(go, index)
    env, copy = go.work / ".venv", go.work / "copy"
    shutil.copytree(env, copy, symlinks=True)
    ok(go("create", "copy", *JAX, "--index", "pypi", "--no-verify"))
    ok(go("export", "copy", "--format", "requirements"))
    assert go("add", "more", "--env", "copy", "--no-verify").code == 2
    ok(go("add", "more", "--no-verify"))


def test_another_home_has_no_record(go, index, tmp_path):
    """As in a container that the project is mounted in."""
    jax_env(go, index, PROJECT)
    (go.work / "gpuenv.yaml").write_text(f"{PROJECT}checks:\n- run: touch ran\n")
    go.env["HOME"] = str(tmp_path / "other")
    ran = ok(go("create", "--no-verify", "--json"))
    assert ran.json["environment"]["changed"] is False
    checks = [s for s in go("verify", "--json", "--device", "cpu").json["stages"] if s["stage"] == "checks"]
    assert [s["status"] for s in checks] == ["warn"] and not (go.work / "ran").exists()
    assert go("add", "more", "--no-verify").code == 2
    assert "more" not in (go.work / "gpuenv.yaml").read_text()


def test_a_run_with_umask_0_does_not_refuse_its_own_files(go):
    """Some runners of CI set it, and groups that share folders have umask 002."""
    (go.work / "gpuenv.yaml").write_text(f"frameworks: [jax]\ndevice: cpu\nindex: pypi\npython: '{HERE}'\n")
    for argv in (("create",), ("add", "more"), ("create",), ("drop", "more")):
        done = run_program(
            [sys.executable, "-m", "provision", *argv, "--no-verify"], env=go.env, cwd=go.work, umask=0
        )
        assert done.returncode == 0, done.stderr
    made = (go.work / ".venv", go.work / "gpuenv.yaml", go.folder / "cache", *(go.work / ".venv").rglob("*"))
    open_ = {path.name for path in made if not path.is_symlink() and path.stat().st_mode & 0o022}
    assert open_ <= {".lock"}  # of uv, which everybody may lock


# --- the line that names the index ---------------------------------------------------------------


def test_the_line_names_the_address_that_is_used(go, index, evil):
    secret = evil.url.replace("http://", "http://me:hunter2@")
    (go.work / "requirements.txt").write_text(f"--index-url {secret}\nmore\n")
    ask = (*JAX, "-r", "requirements.txt")
    for argv in (("resolve", *ask), ("create", *ask, "--dry-run"), ("lock", *ask)):
        ran = ok(go(*argv))
        said = ran.out + ran.err
        assert f"from {evil.url.rstrip('/')}" in said and "default index" not in said, argv
        assert index.url not in said and "hunter2" not in said, argv
    file, lock = go.work / "pylock.toml", ("--lock", "pylock.toml")
    written = file.read_text()
    planted = written.replace(
        'index = "pypi"', 'index = "pypi"\nindex_urls = ["https://mirror.example/simple"]'
    )
    assert planted != written
    file.write_text(planted)
    assert go("create", "locked", *lock).code == 6  # no lock states an address
    file.write_text(written)
    index.wheels = {
        name: dict(files) for name, files in evil.wheels.items()
    }  # a lock is installed by hash, from the configured indexes
    ran = ok(go("create", "locked", *lock, "--dry-run"))
    assert index.url.rstrip("/") in ran.out and f"from {evil.url.rstrip('/')}" not in ran.out
    assert "PyPI" not in ran.out


def test_no_index_is_named_where_all_is_up_to_date(go, index):
    jax_env(go, index)
    for argv in (JAX, ("--lock", ".venv/.gpuenv/pylock.toml")):
        assert "  from " not in ok(go("create", *argv, "--no-verify")).out


def test_pypi_is_named_where_it_is_asked(gpuenv):
    ran = ok(gpuenv("resolve", *JAX, "--index", uv.own_index()))
    assert "from PyPI" in ran.out


# --- links -----------------------------------------------------------------------------------------


@pytest.fixture
def other(go, index):
    """An environment of this user outside of the project, and a project whose .venv leads to it."""
    jax_env(go, index, "", "--with", "more")
    outside = (go.work / ".venv").rename(go.folder / "elsewhere")
    own(outside, go.env)
    (go.work / ".venv").symlink_to(outside)
    return outside


@pytest.mark.parametrize(
    "argv",
    [
        ("drop", "more"),
        ("add", "more"),
        ("create", *JAX),
        ("sync",),
        ("repair",),
        pytest.param(("create", *JAX, "--recreate"), marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_a_link_out_of_the_project_is_not_changed_by_default(go, other, argv):
    if argv == ("sync",):
        (go.work / "gpuenv.yaml").write_text(f"frameworks: [jax]\ndevice: cpu\npython: '{HERE}'\n")
    record = other / ".gpuenv"
    before = {p.name: p.read_bytes() for p in record.iterdir() if p.is_file()}
    ran = go(*argv, "--no-verify")
    said = ran.err.replace("\n", "").replace(" ", "")
    assert ran.code == 2 and str(other) in said and ".venv" in said
    assert {p.name: p.read_bytes() for p in record.iterdir() if p.is_file()} == before
    assert (go.work / ".venv").is_symlink()


def test_a_link_is_followed_where_it_is_named_or_stays_inside(go, index, other):
    ok(go("export", "--format", "requirements"))
    record = {p.name: p.read_bytes() for p in (other / ".gpuenv").iterdir() if p.is_file()}
    ran = go("verify", "--device", "cpu")
    assert "not recorded: .venv is a link" in ran.err.replace("\n", "")
    assert {p.name: p.read_bytes() for p in (other / ".gpuenv").iterdir() if p.is_file()} == record
    ok(go("drop", "more", "--env", ".venv", "--no-verify"))
    assert "more" not in installed(go.work / ".venv")
    (go.work / ".venv").unlink() if (go.work / ".venv").is_symlink() else shutil.rmtree(go.work / ".venv")
    (go.work / "envs").mkdir()
    jax_env(go, index)
    own((go.work / ".venv").rename(go.work / "envs" / "one"), go.env)
    (go.work / ".venv").symlink_to("envs/one")
    ok(go("repair", "--no-verify"))
    ok(go("add", "more", "--no-verify"))


# --- Pythons of bundles ----------------------------------------------------------------------------


def test_a_bundles_python_goes_with_the_last_environment_that_uses_it(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    one, two, half = (tmp_path / name for name in ("one", "two", "half"))
    first, second = "a" * 64, "b" * 64

    def build(env, sha256):
        folder = registry.claim_python(env, sha256)
        (env / ".gpuenv").mkdir(parents=True, exist_ok=True)
        (env / "pyvenv.cfg").write_text(f"home = {folder}/cpython/bin\n")
        registry.remove_unused_pythons(env)
        return folder

    old = build(one, first)
    assert build(two, first) == old and old.is_dir()
    new = build(one, second)  # --recreate with another bundle
    assert old.is_dir() and new.is_dir(), "the other environment uses the old one"
    registry.claim_python(half, second)  # a run that failed
    registry.remove_unused_pythons(half)
    assert new.is_dir()
    build(two, second)
    assert not old.exists() and new.is_dir()
    (one / "pyvenv.cfg").write_text("home = /usr/bin\n")  # --recreate without a bundle
    registry.remove_unused_pythons(one)
    assert new.is_dir()
    shutil.rmtree(two)
    registry.remove_unused_pythons(two)
    assert not new.exists() and registry.list_environments() == [one]


def test_the_hash_of_a_manifest_is_no_path(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    for name in ("", "..", "../environments", "A" * 64):
        with pytest.raises(BuildError):
            registry.claim_python(tmp_path / "env", name)
    assert not (tmp_path / "data").exists()
