"""Which project and which environment a command is about that names none."""

import os
import sys
from pathlib import Path

import pytest
from environment_facts import ok, refused

CPU = "frameworks: [torch]\ndevice: cpu\n"


def venv_at(root):
    """An environment of no tool: what `run` needs of one."""
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "python").symlink_to(sys.executable)
    (root / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).parent}\n")
    return root


@pytest.fixture
def below(gpuenv):
    """A folder two levels below a project."""
    (gpuenv.work / "gpuenv.yaml").write_text(CPU)
    folder = gpuenv.work / "src" / "deep"
    folder.mkdir(parents=True)
    gpuenv.work = folder
    return gpuenv


def root_of(below):
    return below.work.parents[1]


@pytest.mark.parametrize("name", ["gpuenv.yaml", "gpuenv.yml", "pyproject.toml"])
def test_the_project_of_a_parent_folder_applies(below, name):
    root = root_of(below)
    (root / "gpuenv.yaml").unlink()
    (root / name).write_text(
        '[tool.gpuenv]\nframeworks = ["torch"]\ndevice = "cpu"\n' if name.endswith("toml") else CPU
    )
    ran = below("resolve")
    assert ran.code == 0 and "torch" in ran.out and "CPU build" in ran.out
    assert f"note: the project is {root} ({name})" in ran.err


@pytest.mark.parametrize(
    ("options", "cuda"),
    [
        (("--device", "cpu"), None),
        (("--target", "laptop"), None),
        (("--device", "cpu", "--cuda", "12.8"), "12.8"),
        (("--driver", "580.65.06", "--gpu", "A100"), "12.8"),
    ],
)
def test_the_cuda_of_a_project_is_that_of_its_gpu_builds(below, options, cuda):
    below.work = root_of(below)
    text = 'frameworks: [torch]\ncuda: "12.8"\ntargets: {laptop: {device: cpu}}\n'
    (below.work / "gpuenv.yaml").write_text(text)
    ran = below("resolve", "--json", "--python", "3.11", *options)
    assert [b["cuda"] for b in ran.json["builds"]] == [cuda], ran.err


def test_a_project_of_ones_own_folder_is_not_noted(below):
    below.work = root_of(below)
    assert "the project is" not in below("resolve").err


def test_the_environment_is_the_projects(below):
    env = venv_at(root_of(below) / ".venv")
    assert below("run", "sh", "-c", "echo $VIRTUAL_ENV").out.strip() == str(env)
    ran = below("verify", "--quick", "--json")
    assert ran.json["env"] == str(env)


def test_a_missing_environment_is_to_be_made_by_create(below):
    ran = below("run", "python", "-V")
    assert ran.code == 2 and f"{root_of(below)}/.venv does not exist" in ran.err
    assert "hint: build it: gpuenv create\n" in ran.err
    assert "gpuenv create other --framework torch\n" in below("run", "other", "--", "python", "-V").err


def test_a_project_above_home_is_not_read(below):
    below.env["HOME"] = str(root_of(below) / "src")
    assert "no gpuenv.yaml here" in refused(below("resolve"), 2).err


def test_two_files_of_one_project_are_an_error(below):
    (root_of(below) / "pyproject.toml").write_text('[tool.gpuenv]\nframeworks = ["jax"]\n')
    for words in (("resolve",), ("create", "--dry-run"), ("lock",), ("add", "einops")):
        ran = below(*words)
        assert ran.code == 3 and "describe the same project" in ran.err, words


def test_init_looks_into_this_folder_only(below):
    ok(below("init", "--framework", "jax"))
    assert "jax" in (below.work / "gpuenv.yaml").read_text()
    assert (root_of(below) / "gpuenv.yaml").read_text() == CPU


@pytest.mark.parametrize("name", ["gpuenv.yml", "pyproject.toml"])
def test_init_keeps_the_projects_file_under_each_name(gpuenv, name):
    text = '[tool.gpuenv]\nframeworks = ["jax"]\n' if name.endswith("toml") else "frameworks: [jax]\n"
    (gpuenv.work / name).write_text(text)
    ran = gpuenv("init")
    assert ran.code == 0 and f"{name}" in ran.out and "kept" in ran.out
    assert not (gpuenv.work / "gpuenv.yaml").exists() and (gpuenv.work / name).read_text() == text


# --- the active environment ------------------------------------------------------------------------------


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_the_active_environment_is_taken_where_the_project_has_none(gpuenv, variable):
    env = venv_at(gpuenv.folder / "active")
    gpuenv.env[variable] = str(env)
    ran = gpuenv("run", "sh", "-c", "echo $VIRTUAL_ENV")
    assert ran.out.strip() == str(env)
    assert f"note: .venv is missing. Using {env} from {variable}" in ran.err
    assert gpuenv("verify", "--quick", "--json").json["env"] == str(env)
    assert "active" in ok(gpuenv("report")).out


def test_diagnose_offers_the_active_environment_and_runs_nothing_of_it(gpuenv):
    env = venv_at(gpuenv.folder / "active")
    (env / "bin" / "python").unlink()
    (env / "bin" / "python").write_text("#!/bin/sh\ntouch ran\n")
    (env / "bin" / "python").chmod(0o755)
    gpuenv.env["VIRTUAL_ENV"] = str(env)
    assert f"gpuenv diagnose --env {env}" in ok(gpuenv("diagnose")).err
    own = venv_at(gpuenv.work / ".venv")
    assert f"gpuenv diagnose --env {own.name}" in gpuenv("diagnose").err
    (gpuenv.work / "a.log").write_text("epoch 1\n")
    ran = gpuenv("diagnose", "a.log")
    assert "--env" not in ran.err and "no known GPU failure" in ran.out and "gpuenv run python" in ran.out
    assert not (gpuenv.work / "ran").exists()


def test_virtual_env_comes_before_conda_and_the_projects_before_both(gpuenv):
    for name, variable in (("one", "VIRTUAL_ENV"), ("two", "CONDA_PREFIX")):
        gpuenv.env[variable] = str(venv_at(gpuenv.folder / name))
    shown = ("run", "sh", "-c", "echo $VIRTUAL_ENV")
    assert gpuenv(*shown).out.strip() == str(gpuenv.folder / "one")
    (gpuenv.folder / "one" / "bin" / "python").unlink()
    assert gpuenv(*shown).out.strip() == str(gpuenv.folder / "two")
    own = venv_at(gpuenv.work / ".venv")
    assert gpuenv(*shown).out.strip() == str(own)


def test_a_named_environment_comes_before_the_active_one(gpuenv):
    gpuenv.env["VIRTUAL_ENV"] = str(venv_at(gpuenv.folder / "active"))
    assert ".venv does not exist" in refused(gpuenv("run", ".venv", "--", "python", "-V"), 2).err


def test_the_active_environment_never_decides_what_is_changed(gpuenv):
    env = venv_at(gpuenv.folder / "active")
    (env / ".gpuenv").mkdir()
    gpuenv.env |= {"VIRTUAL_ENV": str(env), "CONDA_PREFIX": str(env)}
    before = sorted(os.listdir(env))
    own = str(gpuenv.work / ".venv")
    repaired = gpuenv("repair")
    assert repaired.code == 2 and own in repaired.err and str(env) not in repaired.err
    added = gpuenv("add", "einops")
    assert added.code == 2 and own in added.err and str(env) not in added.err
    removed = gpuenv("remove")
    assert removed.code == 2 and str(env) not in removed.err
    made = gpuenv("create", "--framework", "torch", "--device", "cpu", "--offline")
    assert made.code != 0 and str(env) not in made.err
    assert sorted(os.listdir(env)) == before and not (gpuenv.work / ".venv").exists()


def test_a_relative_or_empty_virtual_env_is_none(gpuenv):
    venv_at(gpuenv.work / "active")
    for value in ("", "active", str(gpuenv.folder / "gone")):
        gpuenv.env["VIRTUAL_ENV"] = value
        assert gpuenv("run", "python", "-V").code == 2


def test_a_file_in_a_folder_is_named_with_its_folder(gpuenv):
    (gpuenv.work / "full").mkdir()
    (gpuenv.work / "full" / "requirements.txt").write_text("torch==1.4.0\n")
    (gpuenv.work / "gpuenv.yaml").write_text("frameworks: [torch]\nrequirements: [full/requirements.txt]\n")
    ran = refused(gpuenv("lock", "--driver", "580.65.06", "--gpu", "A100"), 5)
    assert "torch==1.4.0 in full/requirements.txt line 1" in " ".join(ran.out.split())
