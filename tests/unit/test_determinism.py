"""The suite itself: the same examples in each run, and no assertion about the time that something takes."""

import ast
from pathlib import Path

import hypothesis

TESTS = sorted(Path(__file__).parents[1].rglob("test_*.py"))


def test_property_tests_draw_the_same_examples_in_each_run():
    now = hypothesis.settings()
    assert now.derandomize and now.database is None and now.deadline is None


def test_no_property_test_has_its_own_seed_deadline_or_database():
    offenders = [
        f"{path.name}:{node.lineno} {keyword.arg}"
        for path in TESTS
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("settings", "seed", "reproduce_failure")
        for keyword in node.keywords or [ast.keyword(arg="no keyword")]
        if keyword.arg != "max_examples"
    ]  # fmt: skip
    assert offenders == []
