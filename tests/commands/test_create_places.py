"""Creating environments in folders that exist, are full or belong to others."""
# ruff: noqa: F811  # fixtures are imported by their names

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from environment_facts import installed, ok, refused
from made_env import JAX, jax_env
from programs import run_program
from torch_project import GPU, HERE, torch  # noqa: F401

from provision.environment import place
from provision.errors import UsageError


def test_create_refuses_a_file_in_the_place_of_the_environment(torch, gpuenv):
    (gpuenv.work / ".venv").write_text("mine")
    assert "is a file" in refused(torch("--json"), 2).json["error"]["message"]
    assert (gpuenv.work / ".venv").read_text() == "mine"


@pytest.mark.parametrize("more", [(), ("--recreate",)])
def test_a_foreign_folder_is_left_alone(torch, gpuenv, more):
    (gpuenv.work / ".venv").mkdir()
    (gpuenv.work / ".venv" / "thesis.txt").write_text("mine")
    assert "did not make" in refused(torch("--json", *more), 2).json["error"]["message"]
    assert (gpuenv.work / ".venv" / "thesis.txt").read_text() == "mine"


def test_a_folder_that_cannot_be_written_is_named(torch, gpuenv):
    assert "/proc" in refused(torch("--json", "/proc/nowhere/env"), 7).json["error"]["message"]


def test_another_request_and_an_environment_without_a_python_ask_for_recreate(gpuenv, index):
    jax_env(gpuenv, index)
    env = gpuenv.work / ".venv"
    other = ("--framework", f"jax=={installed(env)['jax']}", *JAX[2:])
    assert "--recreate" in refused(gpuenv("create", *other, "--json"), 2).json["error"]["hint"]
    for part in ("pyvenv.cfg", "bin/python"):
        (env / part).unlink()
        for words in (("create", *JAX), ("add", "x"), ("repair",), ("run", "python"), ("verify",)):
            ran = refused(gpuenv(*words), 8)
            assert f"has no Python: {part} is missing" in ran.err and "--recreate" in ran.err


def test_an_environment_is_changed_from_inside(gpuenv, index):
    jax_env(gpuenv, index)
    gpuenv.work /= ".venv"
    ok(gpuenv("create", ".", *JAX, "--with", "kept", "--no-verify"))
    ok(gpuenv("add", "more", "--env", ".", "--no-verify"))
    gone = ["sh", "-c", 'rm -r "$PWD"; exec "$0" -m provision run python', sys.executable]
    ran = run_program(gone, env=gpuenv.env, cwd=gpuenv.work)
    assert ran.returncode == 2 and "does not exist any more" in ran.stderr


def test_a_second_create_of_the_same_environment_waits_and_says_so(torch, gpuenv):
    """Also one with another cache. It is let go once it has said that it waits."""
    argv = [sys.executable, "-m", "provision", "create", "--framework", "torch", "--python", HERE, "--index", "pypi", *GPU,
            "--no-verify", "--cache-dir", "other"]  # fmt: skip
    env = gpuenv.work / ".venv"
    with place.lock_place(env):
        second = subprocess.Popen(argv, env=gpuenv.env, cwd=gpuenv.work, stderr=subprocess.PIPE, text=True)
        said = next((line for line in second.stderr if "waiting" in line), None)
        assert said == f"note: waiting: another gpuenv process is using {env}\n"
        assert not env.exists()
    err = second.communicate(timeout=300)[1]
    assert second.returncode == 0 and "waiting" not in err, err
    assert torch("--json").json["environment"]["changed"] is False


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root")
def test_a_disk_that_fills_up_is_named_and_nothing_is_left(torch, gpuenv, index):
    index.add("triton", "3.9.0", content=f"blob = {os.urandom(2_000_000).hex()!r}\n")
    pinned = next(r for r in torch.plan["builds"][0]["requirements"] if r.startswith("triton"))
    assert "3.9.0" in pinned
    small = gpuenv.folder / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", small], check=False)
    if mounted.returncode:
        pytest.skip("this kernel lets nobody mount a tmpfs here")
    try:
        told = refused(torch("--json", small / "env"), 7).json["error"]
        assert "full" in told["message"] or "disk" in told["message"], told
        assert not list(small.iterdir())
    finally:
        subprocess.run(["umount", small], check=True)


def test_a_cache_on_another_file_system_is_named_with_what_is_copied(gpuenv, index):
    """/dev/shm is a file system of its own on Linux."""
    shm = Path("/dev/shm")
    if not shm.is_dir() or shm.stat().st_dev == gpuenv.work.stat().st_dev:
        pytest.skip("/dev/shm is not on a file system of its own")
    jax_env(gpuenv, index)
    with tempfile.TemporaryDirectory(dir=shm) as cache:
        more = ("create", *JAX, "--no-verify", "--cache-dir", cache, "--with")
        text = " ".join(ok(gpuenv(*more, "kept")).err.split())
        assert re.findall(r"[\d.]+ [kKM]?B were copied", text), text
        assert f"because the cache {cache}/uv is on another file system than {gpuenv.work}. A cache" in text
        gpuenv.env["UV_LINK_MODE"] = "copy"
        assert "were copied" not in ok(gpuenv(*more, "more")).err


def test_a_python_that_is_not_here_is_downloaded_by_uv(gpuenv, index):
    nowhere = {
        "PYENV_ROOT": "/nowhere",
        "UV_PYTHON_INSTALL_MIRROR": "file:///nowhere",
        "PIP_INDEX_URL": index.url,
    }
    ask = ("--framework", "jax", "--device", "cpu", "--python", "3.13", "--json")
    index.add_plan(gpuenv("resolve", *ask).json)
    gpuenv.env |= nowhere
    ran = gpuenv("create", "--no-verify", *ask)
    assert ran.code == 7 and "downloading Python 3.13" in ran.err
    assert "Python 3.13 is not on this machine" in ran.json["error"]["message"]


def test_a_link_to_no_environment_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    for target in ("missing", "empty"):
        (tmp_path / f"to {target}").symlink_to(target)
        with pytest.raises(UsageError, match=f"is a symbolic link to {target}"):
            place.check_place(tmp_path / f"to {target}")
