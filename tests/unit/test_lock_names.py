"""Names of lock files are written in one module."""

import ast
import re
from pathlib import Path, PurePath

from rows import rows

from provision.lock.formats import NAMES, find_lock_manager
from provision.model import (
    LOCK_NAMES,
    VENV_CLASS_LOCKS,
    VENV_LOCKS,
    find_lock_target,
    is_venv_lock,
    make_lock_name,
)

PROVISION = Path(__file__).parents[2] / "provision"
LOCK_NAME = re.compile(r"\S*pylock\S*\.\S*|\S*conda-lock\.yml")


@rows("manager", NAMES)
def test_a_name_leads_back_to_its_manager_and_target(manager):
    assert make_lock_name(manager) == make_lock_name(manager, None) == LOCK_NAMES[manager]
    for target in ("h200", "driver-550"):
        name = make_lock_name(manager, target)
        assert name != LOCK_NAMES[manager] and find_lock_target(name) == target
        assert find_lock_manager(PurePath("folder", name), "venv") == manager
    assert find_lock_target(LOCK_NAMES[manager]) is None
    assert find_lock_manager(None, manager) == manager


def test_patterns_match_the_names_of_venv_locks_only():
    project, named, conda = make_lock_name("venv"), make_lock_name("venv", "a"), make_lock_name("conda", "a")
    assert is_venv_lock(project) and is_venv_lock(named) and not is_venv_lock(conda)
    assert [PurePath(n).match(VENV_LOCKS) for n in (project, named, conda)] == [True, True, False]
    assert [PurePath(n).match(VENV_CLASS_LOCKS) for n in (project, named, conda)] == [False, True, False]


def written_names(text):
    """Yield the lock file names that code writes. Sentences and docstrings may contain them."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if LOCK_NAME.fullmatch(node.value):
                yield f"line {node.lineno}: {node.value}"


def test_no_other_module_writes_a_name_of_a_lock_file():
    assert list(written_names('a = f"pylock.{x}.toml"')) and list(written_names('b = "conda-lock.yml"'))
    files = [
        p
        for p in PROVISION.rglob("*.py")
        if p != PROVISION / "model" / "words.py" and "probes" not in p.parts
    ]
    assert len(files) > 100
    texts = {p.name: text for p in files if "pylock" in (text := p.read_text()) or "conda-lock" in text}
    assert {name: n for name, text in texts.items() if (n := list(written_names(text)))} == {}


def test_a_lock_of_another_name_is_recognised_by_its_content(tmp_path):
    path = tmp_path / "x.lock"
    for text, manager in (
        ('lock-version = "1.0"', "venv"),
        ("#\n@EXPLICIT\n", "conda"),
        ("environments:\n", "conda"),
    ):
        path.write_text(text)
        assert find_lock_manager(path, "venv") == manager
    assert find_lock_manager(tmp_path / "missing", "venv") == "venv"
