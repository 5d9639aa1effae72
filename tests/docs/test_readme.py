"""README.md is short, and each of its statements has a test or a figure of a script."""

import functools
import re
import sys

import pytest
from doc_pages import ROOT, read
from programs import run_program
from rows import rows
from uv import find_uv_bin

from provision.cli.verbs import COMMANDS

sys.path.insert(0, str(ROOT / "scripts"))
import session_picture  # scripts/ is no package
import sessions
from benches import tables

TEXT = read("README.md")


def test_the_readme_has_at_most_150_lines():
    assert len(TEXT.splitlines()) <= 150


@functools.cache
def written(page):
    return sessions.SESSION.search(page.read_text(encoding="utf-8"))[2]


SESSIONS = [
    pytest.param(page, marks=pytest.mark.slow) if "gpuenv create" in written(page) else page
    for page in sessions.pages()
]
"""A real framework is proved in `make test-slow`."""


@pytest.mark.parametrize("page", SESSIONS, ids=lambda page: page.name)
def test_a_session_is_what_a_run_prints_today(page):
    assert sessions.masked(written(page)) == sessions.masked(sessions.rerun(written(page))), "run make readme"


@rows("page", sessions.pages(), ids=lambda page: page.name)
def test_no_line_of_output_is_wider_than_a_terminal(page):
    for line in written(page).splitlines():
        is_command = line.startswith("$ ") or line.strip().startswith("`")  # in one row, to be copied
        assert len(line) <= 80 or is_command or " " not in line.strip()


def test_the_readme_and_the_tutorial_have_a_session():
    assert {page.name for page in sessions.pages()} >= {"README.md", "tutorial.md"}


def test_the_picture_is_drawn_from_the_recorded_run():
    session = session_picture.TEXT.read_text(encoding="utf-8")
    assert session_picture.PICTURE.read_text(encoding="utf-8") == session_picture.draw(session)
    assert "[![" in TEXT and "](docs/gpu.svg)](docs/gpu-session.txt)" in TEXT


def test_every_command_is_in_the_table():
    table = TEXT.partition("## Commands")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.+?) \|", table, re.MULTILINE))))
    assert named == {name.split()[0] for name in COMMANDS}


def test_the_speeds_are_rows_of_the_measured_table():
    marked = re.search(r"<!-- speeds -->\n(.*?)<!-- /speeds -->", TEXT, re.DOTALL)[1]
    assert marked == tables.speeds(read("docs/explanation/benchmarks.md"))
    assert len(marked.splitlines()) > 2 and "compiled" not in marked


# --- the comparison --------------------------------------------------------------------------------------------


def row(name):
    line = next(line for line in TEXT.splitlines() if line.startswith(f"| {name} |"))
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


@functools.cache
def uv_help(*words):
    return run_program([find_uv_bin(), "help", *words], check=True).stdout


def test_uv_chooses_a_build_of_torch_by_the_driver():
    assert "--torch-backend auto" in row("Build for this driver")[1]
    text = uv_help("pip", "install")
    assert "--torch-backend" in text
    assert re.search(r"- auto: +Select the appropriate PyTorch index [^-]*driver", text)
    assert not re.search(r"--(jax|tensorflow)-backend", text)


def test_uv_has_locks_with_hashes_and_no_proof_or_diagnosis():
    assert row("Lock with hashes")[1] == "`uv.lock`, `pylock.toml`"
    assert "pylock.toml" in uv_help("export")
    commands = set(re.findall(r"^  (\w+) ", uv_help().partition("Commands:")[2], re.MULTILINE))
    assert {"pip", "lock", "venv"} <= commands
    assert not {"verify", "diagnose"} & commands
    assert {"verify", "diagnose", "lock"} <= set(COMMANDS)


def test_gpuenv_plans_the_frameworks_of_the_table(gpuenv):
    frameworks = row("Build for this driver")[0].lower().split(", ")
    for framework in frameworks:
        asked = (
            "resolve",
            "--framework",
            framework,
            "--driver",
            "550.54.15",
            "--gpu",
            "T4",
            "--python",
            "3.12",
        )
        assert gpuenv(*asked).code == 0
    assert len(frameworks) == 4
