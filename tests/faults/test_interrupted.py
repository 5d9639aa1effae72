"""An interrupted run leaves an environment and the files of a project as they were."""

import json
import signal
import subprocess
import sys

import pytest
from made_env import JAX, PROJECT, jax_env, jax_index

from provision.environment import place

HINT = "run the same command again: it undoes or continues what was begun"
SAID = f"interrupted\nhint: {HINT}\n"


@pytest.fixture
def jax(gpuenv, index):
    """`gpuenv` with tiny wheels of jax on an index, and `more`."""
    jax_index(gpuenv, index)
    return gpuenv


@pytest.fixture
def interrupt(jax, index):
    """Run a command until a file is asked for that never comes, and interrupt it: the end of its stderr."""

    def run(*words, file="more-1.0-py3-none-any.whl", number=signal.SIGINT):
        index.faults[file] = "stalled"
        argv = [sys.executable, "-m", "provision", *map(str, words)]
        with subprocess.Popen(
            argv, env=jax.env, cwd=jax.work, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        ) as child:  # fmt: skip
            assert index.stalled.wait(100)
            child.send_signal(number)
            out, err = child.communicate(timeout=100)
        index.released.set()
        index.faults.clear()
        assert child.returncode == 128 + number, err
        return json.loads(out)["error"] if "--json" in words else err

    return run


def test_an_interrupted_create_leaves_nothing(jax, interrupt):
    err = interrupt("create", *JAX, "--with", "more", "--no-verify")
    assert err.endswith(SAID)
    assert not [*jax.work.iterdir()]


def test_an_interrupted_create_with_json_says_it_in_the_error(jax, interrupt):
    error = interrupt("create", *JAX, "--with", "more", "--no-verify", "--json", number=signal.SIGTERM)
    assert (error["message"], error["hint"]) == ("terminated", HINT)


def test_an_interrupted_recreate_leaves_the_old_environment(jax, index, interrupt):
    jax_env(jax, index)
    env = jax.work / ".venv"
    err = interrupt("create", *JAX, "--with", "more", "--no-verify", "--recreate")
    assert err.endswith(SAID)
    assert place.is_undisturbed(env) and place.made_by_gpuenv(env)


def test_an_interrupted_add_leaves_the_project_as_it_was(jax, index, interrupt):
    jax_env(jax, index, PROJECT)

    def read_files():
        return {file.name: file.read_bytes() for file in jax.work.iterdir() if file.is_file()}

    before = read_files()
    assert interrupt("add", "more", "--no-verify").endswith(SAID)
    assert read_files() == before
    assert place.is_undisturbed(jax.work / ".venv")
