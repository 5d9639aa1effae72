"""What `lock`, `resolve` and `create` say and refuse of a conda environment, as they do of a venv."""

import sys
from pathlib import Path

import conda_channel as cc
import pytest
from environment_facts import ok

MANAGER = ("--manager", "conda")
UNASKED_CPU = "No NVIDIA GPU found: building for the CPU"


@pytest.fixture
def jax(gpuenv):
    """(gpuenv, the words that name jax of a channel on disk)."""
    gpuenv.env["RATTLER_CACHE_DIR"] = str(cc.home() / "rattler-cache")
    return gpuenv, (*MANAGER, "--framework", "jax", "--channel", cc.bare())


def test_resolve_notes_a_cpu_plan_that_was_not_asked_for_and_names_the_next_command(jax):
    gpuenv, words = jax
    ran = ok(gpuenv("resolve", *words))
    assert UNASKED_CPU in " ".join(ran.out.split())
    assert f"gpuenv create --framework jax --manager conda --channel {cc.bare()}" in ran.out
    assert UNASKED_CPU not in " ".join(ok(gpuenv("resolve", *words, "--device", "cpu")).out.split())


def test_lock_warns_of_a_cpu_lock_that_was_not_asked_for(jax):
    gpuenv, words = jax
    ran = gpuenv("lock", *words)
    assert ran.code == 0 and f"warning: {UNASKED_CPU}" in ran.err
    assert "gpuenv create --locked --manager conda" in ran.out
    assert "warning" not in ok(gpuenv("lock", *words, "--device", "cpu")).err


def test_a_lock_without_the_named_framework_is_refused(jax):
    gpuenv, words = jax
    assert gpuenv("lock", *words, "--device", "cpu").code == 0
    ran = gpuenv("create", *MANAGER, "--framework", "torch", "--lock", "conda-lock.yml", "--no-verify")
    assert ran.code == 6 and "torch is required; the lock has jax 0.7.0" in ran.err
    assert not (gpuenv.work / ".venv").exists()


@pytest.mark.parametrize(
    "argv", [("lock", "--check"), ("create", "--locked"), ("create", "--lock", "conda-lock.yml")]
)
def test_a_damaged_conda_lock_is_refused_and_kept(jax, argv):
    gpuenv, words = jax
    assert gpuenv("lock", *words, "--device", "cpu").code == 0
    path = gpuenv.work / "conda-lock.yml"
    damaged = path.read_text()[:-200]
    path.write_text(damaged)
    ran = gpuenv(*argv, *words, "--device", "cpu")
    assert ran.code == 6 and "conda-lock.yml is not valid" in ran.err and "gpuenv lock" in ran.err, ran.err
    assert path.read_text() == damaged and not (gpuenv.work / ".venv").exists()
    path.write_text("")
    assert "does not have the form" in " ".join(gpuenv(*argv, *words, "--device", "cpu").err.split())


@pytest.mark.parametrize("command", ["create", "lock"])
@pytest.mark.parametrize("missing", ["conda_lock", "rattler"])
def test_the_extra_is_required_from_the_start(gpuenv, monkeypatch, command, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    ran = gpuenv(command, "--manager", "conda", "--framework", "jax", "--device", "cpu")
    *command, file = ran.err.partition("hint: ")[2].split()
    assert ran.code == 2 and command[1:5] == ["-m", "uv", "pip", "install"] and Path(file).is_file()
    assert not list(gpuenv.work.iterdir())
