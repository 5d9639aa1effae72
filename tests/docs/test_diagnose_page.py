"""docs/reference/causes.md names causes and tests that exist, and leaves none out that a test decides."""

import re
from pathlib import Path

from provision import profiles

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "reference" / "causes.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `(\w+)` \| (.+) \| (.+) \| `(test_\w+)` \|$", TEXT, re.MULTILINE)
TESTS = "\n".join(
    (ROOT / "tests" / "unit" / f"test_diagnose_{part}.py").read_text(encoding="utf-8")
    for part in ("decides", "env_decides", "library_decides", "machine_decides", "uvm_decides")
)


def test_every_row_names_a_cause_and_a_test_that_asserts_it():
    causes = {c.cause for c in profiles.load().causes}
    assert len(ROWS) == TEXT.count("\n| `") > 20
    assert {label for label, *_ in ROWS} <= causes
    assert [t for *_, t in ROWS if f"def {t}(" not in TESTS] == []
    assert [label for label, *_ in ROWS if f'"{label}"' not in TESTS] == []


def test_every_cause_that_these_tests_expect_is_in_the_table():
    causes = {c.cause for c in profiles.load().causes}
    expected = causes & set(re.findall(r'"(\w+)"', TESTS))
    assert expected == {label for label, *_ in ROWS}


def test_the_list_of_pages_names_the_page():
    assert "reference/causes.md" in (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
