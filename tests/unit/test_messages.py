"""scripts/messages.py lists every text that a user reads."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import messages  # noqa: E402

MODULE = '''
"""The docstring of a module."""
import re
_WORDS = re.compile("no such file")

def refuse(name, event):
    """The docstring of a function."""
    if "some words here" in name:
        event(Event(kind="note", stage="lock", text="the lock is old"))
    error = UsageError(f"{name!r} is not a framework{near(' of the plan')}", hint="gpuenv create --help")
    error.hint = "write another name"
    raise error

device: str = option("auto", help="Device of the environment.")
'''


@pytest.fixture(scope="module")
def listed() -> list[messages.Message]:
    return messages.list_messages()


def of_module(kind: str) -> list[str]:
    return [m.text for m in messages.read_code(MODULE, "provision/actions/new.py") if m.kind == kind]


def test_errors_are_listed_with_their_values_in_braces() -> None:
    assert "{name} is not a framework{...}" in of_module("error")
    assert "{name} is not a framework{...}" in [m.text for m in messages.read_code(MODULE, "x.py")]


def test_hints_notes_and_help_are_listed() -> None:
    assert of_module("hint") == ["gpuenv create --help", "write another name"]
    assert of_module("event") == ["the lock is old"]
    assert of_module("help") == ["Device of the environment."]


def test_docstrings_patterns_and_compared_words_are_not_listed() -> None:
    texts = [m.text for m in messages.read_code(MODULE, "provision/actions/new.py")]
    assert not [t for t in texts if "docstring" in t or "no such file" in t or "some words" in t]


def test_line_numbers_are_those_of_the_file() -> None:
    note = next(m for m in messages.read_code(MODULE, "x.py") if m.kind == "event")
    assert MODULE.splitlines()[note.line - 1].strip().endswith('text="the lock is old"))')


@pytest.mark.parametrize(
    ("kind", "folder", "text"),
    [
        ("error", "provision/config/", "unknown framework"),
        ("error", "provision/actions/", "--locked and --frozen cannot be used together"),
        ("hint", "provision/cli/", "ulimit"),
        ("help", "provision/config/options.py", "Python"),
        ("screen", "provision/show/", "possible fix"),
        ("file", "provision/export/", "docker build"),
        ("profile", "profiles/failures.yaml", "driver"),
    ],
)
def test_known_texts_of_the_tree_are_listed(
    listed: list[messages.Message], kind: str, folder: str, text: str
) -> None:
    assert [m for m in listed if m.kind == kind and m.file.startswith(folder) and text in m.text]


def test_each_place_names_a_line_of_the_tree(listed: list[messages.Message]) -> None:
    lines = {
        file: len((ROOT / file).read_text(encoding="utf-8").splitlines()) for file in {m.file for m in listed}
    }
    assert all(1 <= m.line <= lines[m.file] for m in listed)
    assert {m.kind for m in listed} == {*messages.KINDS}


def test_a_kind_and_a_path_restrict_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    messages.main(["help", "provision/config"])
    rows = capsys.readouterr().out.splitlines()
    assert rows
    assert all(row.startswith("provision/config") and ": help: " in row for row in rows)
