"""scripts/count_code.py counts what a reader has to read, and nothing else."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import count_code  # noqa: E402

SOURCE = '''"""A docstring."""

import os  # and a comment
from collections.abc import (
    Callable,
)


@dataclass(frozen=True)
class Value:
    """A docstring of
    two lines."""

    run: Callable[[], int]


def make(name):
    from . import other

    def inner():
        import json

    return lambda: f"{name} {other.x + 1}"
'''


def test_comments_docstrings_and_imports_are_no_tokens():
    assert count_code.count_module("# a\n'''b'''\nimport c\n")["tokens"] == 0
    assert count_code.count_module('x = 1\n\n\ndef f():\n    """d"""\n    return x\n')["tokens"] == 3 + 5 + 2


def test_an_fstring_is_one_token():
    assert count_code.count_module("x = f'{a + b} {c!r:>{d}}'\n")["tokens"] == 3


def test_what_makes_a_module_hard_to_follow_is_counted():
    counts = count_code.count_module(SOURCE)
    expected = {"files": 1, "dataclasses": 1, "functions": 2, "lambdas": 1, "Callable": 1, "local imports": 2}
    assert {name: counts[name] for name in expected} == expected


@pytest.mark.parametrize("line", ["from . import low", "from .low import x", "import package.low"])
def test_a_module_with_one_importer_is_found(tmp_path, line):
    folder = tmp_path / "package"
    (folder / "sub").mkdir(parents=True)
    for name in ("__init__.py", "sub/__init__.py", "sub/alone.py"):
        (folder / name).write_text("")
    (folder / "low.py").write_text("x = 1\n")
    (folder / "high.py").write_text(f"{line}\n")
    counts = count_code.count_folder(folder)
    assert counts["."]["one importer"] == 1 and counts["sub"]["one importer"] == 0
    assert counts["."]["files"] == 3


def test_the_page_has_the_line_that_the_script_renews():
    assert "`provision/` has " in (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
