"""The words of a command line: options before a command, and the command of `run`."""

import json
import os
import sys

import pytest
from programs import run_program

from provision import __version__
from provision.cli import read_words


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / "src").mkdir()
    (tmp_path / "train.py").touch()
    return tmp_path


RUN = [
    ("python train.py", "", "python train.py"),
    ("--keep-env python train.py --keep-env", "--keep-env", "python train.py --keep-env"),
    ("--cache-dir c --profiles=p pytest -q -x", "--cache-dir c --profiles=p", "pytest -q -x"),
    ("python -c x --json", "", "python -c x --json"),
    ("-- python --json", "", "python --json"),
    ("--exec -- python", "--exec", "python"),
    ("env -- python -V", "env", "python -V"),
    ("env --keep-env --cache-dir c -- x -- y", "env --keep-env --cache-dir c", "x -- y"),
    ("missing -- python", "missing", "python"),
    ("env python -V", "env", "python -V"),
    ("./env python -- -V", "./env", "python -- -V"),
    ("pytest tests -- -x", "", "pytest tests -- -x"),
    ("src", "", "src"),
    ("train.py a b", "", "train.py a b"),
    ("env/bin/python train.py", "", "env/bin/python train.py"),
]


@pytest.mark.parametrize(("typed", "ours", "command"), RUN)
def test_run_separates_its_own_words_from_the_command(here, typed, ours, command):
    found = read_words(["run", *typed.split()])[:2]
    assert found == (["run", *ours.split()], command.split())


@pytest.mark.parametrize("typed", ["", "env", "--help", "--keep-env", "--no-such"])
def test_run_without_a_command_finds_none(here, typed):
    assert read_words(["run", *typed.split()])[:2] == (["run", *typed.split()], None)


def test_run_notes_an_environment_that_is_named_without_dashes(here):
    assert "env is an environment. python runs" in read_words(["run", "env", "python"]).note
    assert read_words(["run", "env", "--", "python"]).note is None
    assert read_words(["run", "python"]).note is None


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("-v list", "list -v"),
        ("--json -q profiles list", "profiles list --json -q"),
        ("--json run python -V", "run --json"),
        ("-v profiles", "profiles -v"),
        ("--json --help", "--help"),
        ("--json", "--json"),
        ("list --json", "list --json"),
    ],
)
def test_options_before_a_command_are_moved_behind_it(here, typed, read):
    assert read_words(typed.split())[0] == read.split()


def test_python_dash_m_gpuenv_is_the_command(tmp_path):
    done = run_program([sys.executable, "-m", "gpuenv", "--version"], check=True, cwd=tmp_path)
    assert done.stdout == f"gpuenv {__version__}\n"
    done = run_program(
        [sys.executable, "-m", "gpuenv", "list", "--json"],
        check=True,
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path), "PYTHONPATH": str(tmp_path)},
    )
    assert json.loads(done.stdout)["schema"] == "gpuenv.list/1"
