"""Whose code runs: the table of docs/explanation/security.md, with every command in one hostile folder."""

import re
import shutil
from pathlib import Path

import pytest
from hostile_folder import HostileFolder
from loopback import Index, serving
from rows import sampled

from provision.cli.verbs import COMMANDS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "security.md"
COLUMNS = {"Environment": "environment", "Build code": "build", "Checks": "checks"}
RUNS = {
    "detect": "", "init": "--framework jax", "resolve": "; --explain", "list": "", "remove": ".venv",
    "report": "; .venv", "report --hosts": "hosts.json",
    "export": "--format dockerfile -o Dockerfile; --format cyclonedx; --format requirements",
    "create --dry-run": "; new", "sync --dry-run": "", "add --dry-run": "spare", "drop --dry-run": "extra", "repair --dry-run": "",
    "diagnose LOG": "log.txt", "diagnose --env": ".venv", "run": "python -c pass",
    "profiles list": "", "profiles show": "jax", "profiles check": "", "profiles update": "jax",
    "cache dir": "", "cache prune": "", "cache clean": "",
    "lock": "--upgrade", "lock --check": "", "lock --no-build": "--upgrade", "bundle": "stick", "bundle --no-build": "stick",
    "verify": "", "verify --no-checks": "", "verify --quick": "--device cpu",
    "create": "new", "create --no-checks": "new", "create --no-build": "new", "create --no-verify": ".venv --with spare",
    "sync": "new", "add": "spare", "add --no-verify": "spare", "drop": "extra", "repair": "",
}  # fmt: skip
"""What is typed after each command of the table, in the hostile folder; "; " is between two runs."""


def read_table():
    """The columns with "yes" of each command of the page's table."""
    head, _, *rows = [
        re.split(r"\s*\|\s*", line.strip(" |")) for line in PAGE.read_text().splitlines() if line[:1] == "|"
    ]
    columns = [COLUMNS[name] for name in head[1:]]
    table = {}
    for first, *cells in rows:
        assert set(cells) <= {"yes", "no"}, first
        for command in re.findall(r"`([^`]+)`", first):
            assert command not in table, command
            table[command] = {c for c, cell in zip(columns, cells, strict=True) if cell == "yes"}
    return table


TABLE = read_table()
READING = [command for command, columns in TABLE.items() if not columns]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    with serving(Index()) as index:
        yield HostileFolder(tmp_path_factory.mktemp("hostile"), index)


@pytest.fixture
def folder(place):
    place.fresh()
    return place


def typed(command):
    """The command lines of a row."""
    words = [w for w in command.split() if w != "LOG"]
    return [[*words, *more.split()] for more in RUNS[command].split(";")]


def test_each_command_has_a_row_and_each_row_a_command():
    named = {name for row in TABLE for name in COMMANDS if f"{row} ".startswith(f"{name} ")}
    assert named == set(COMMANDS) and set(TABLE) == set(RUNS)


@pytest.mark.parametrize("command", RUNS)
def test_a_command_runs_exactly_the_code_that_the_table_says(folder, command):
    codes = [folder.gpuenv(*argv).code for argv in typed(command)]
    assert folder.ran() == TABLE[command]
    if (
        command in READING
        and "--no-build" not in command
        and command not in ("report --hosts", "profiles update")
    ):
        assert set(codes) == {0}  # it did all that it does


@pytest.mark.parametrize("command", sampled(READING, 3))
def test_a_command_that_reads_runs_nothing_of_an_environment_of_another_tool(folder, command):
    shutil.rmtree(folder.work / ".venv" / ".gpuenv")
    for argv in typed(command):
        folder.gpuenv(*argv)
    assert folder.ran() == set()
