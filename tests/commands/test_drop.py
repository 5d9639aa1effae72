"""`gpuenv drop`: the inverse of `gpuenv add`, in the project's file, the lock and the environment."""

import re

import pytest
from environment_facts import HERE, installed, ok, refused
from made_env import JAX, PROJECT, jax_env, jax_index
from rows import rows

YAML = (
    f'# ours\nframeworks: [jax]\ndevice: cpu\nindex: pypi\npython: "{HERE}"\npackages:\n  - kept  # stays\n'
)
TABLE = f'[project]\nname = "x"  # ours\nversion = "1"\n\n[tool.gpuenv]\nframeworks = ["jax"]\ndevice = "cpu"\nindex = "pypi"\npython = "{HERE}"\npackages = ["kept"]\n'


@pytest.fixture
def go(gpuenv, index):
    jax_index(gpuenv, index)
    return gpuenv


@pytest.fixture
def made(gpuenv, index):
    jax_env(gpuenv, index, PROJECT)
    return gpuenv


@pytest.mark.parametrize(("name", "text"), [("gpuenv.yaml", YAML), ("pyproject.toml", TABLE)])
def test_drop_takes_back_what_add_did(made, name, text):
    go = made
    file, lock, env = go.work / name, go.work / "pylock.toml", go.work / ".venv"
    (go.work / "gpuenv.yaml").unlink()
    file.write_text(text)
    ok(go("lock"))
    first = lock.read_text()
    ok(go("create", "--no-verify"))  # of the same packages, for either file
    before = installed(env)
    below = go.work / "src"
    below.mkdir()
    go.work = below  # the project is found from below as well
    ran = ok(go("add", "more", "needs-base", "--no-verify"))
    assert f"{env}: added base 1.0, more 1.0, needs-base 1.0" in " ".join(ran.out.split())
    assert installed(env) == {**before, "more": "1.0", "needs-base": "1.0", "base": "1.0"}
    assert "more" in file.read_text() and '"needs-base"' in lock.read_text()
    assert not (below / "pylock.toml").exists() and not (below / ".venv").exists()
    ran = ok(go("drop", "More", "needs_base", "--no-verify"))
    assert installed(env) == before
    assert file.read_text() == text and lock.read_text() == first
    assert "-more" in ran.err and "-base" in ran.err
    assert f"{env}: removed base 1.0, more 1.0, needs-base 1.0" in " ".join(ran.out.split())
    ran = ok(go("create", "--no-verify", "--json"))
    assert ran.json["environment"]["changed"] is False


def test_what_another_package_requires_stays_and_is_named(made):
    go = made
    (go.work / "gpuenv.yaml").write_text(YAML.replace("kept  # stays", "base\n  - needs-base"))
    ok(go("create", "--no-verify"))
    ran = ok(go("drop", "base", "--no-verify"))
    assert re.search("note: base remains .*: needs-base requires it", ran.err)
    assert installed(go.work / ".venv")["base"] == "1.0"
    assert "- base" not in (go.work / "gpuenv.yaml").read_text()


def test_a_package_of_the_command_line_is_dropped_from_the_environment(gpuenv, index):
    go = gpuenv
    jax_env(go, index)
    ok(go("create", *JAX, "--with", "kept", "--with", "more", "--no-verify"))
    before = installed(go.work / ".venv")
    ok(go("drop", "more", "--no-verify"))
    assert installed(go.work / ".venv") == {n: v for n, v in before.items() if n != "more"}
    assert ok(go("create", "--no-verify", "--json")).json["environment"]["changed"] is False


def test_without_an_environment_the_file_and_the_lock_change(go):
    (go.work / "gpuenv.yaml").write_text(YAML)
    ran = ok(go("drop", "kept"))
    assert (go.work / "gpuenv.yaml").read_text() == YAML.replace("\n  - kept  # stays", "")
    assert '"kept"' not in (go.work / "pylock.toml").read_text()
    assert "gpuenv create" in ran.out


@rows(
    ("word", "says"),
    [
        ("jax", "is a framework"),
        ("jaxlib", "jaxlib is not among the packages of gpuenv.yaml"),
        ("nonsense", "drop one of these: kept"),
        ("kept==1.0", "gpuenv drop kept"),
        ("kept[x]", "gpuenv drop kept"),
        ("-- -", "is not a package name"),
    ],
)
def test_what_cannot_be_dropped_is_refused_and_nothing_changes(go, word, says):
    (go.work / "gpuenv.yaml").write_text(YAML)
    assert says in " ".join(refused(go("drop", *word.split()), 2).err.split())
    assert (go.work / "gpuenv.yaml").read_text() == YAML and len(list(go.work.iterdir())) == 1


def test_without_a_project_and_an_environment_there_is_nothing_to_drop(gpuenv):
    assert "no environment of gpuenv" in refused(gpuenv("drop", "more"), 2).err
