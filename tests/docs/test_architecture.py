"""docs/architecture.md and CONTRIBUTING.md name files and packages that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
RECIPES = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_every_file_that_is_named_exists():
    named = set(re.findall(r"`((?:provision|tests|profiles|docs|scripts)/[\w./-]+)`", TEXT + RECIPES))
    real = {name for name in named if "NAME" not in name}
    assert len(real) > 30
    assert not [name for name in sorted(real) if not (ROOT / name).exists()]


def test_the_table_has_every_package():
    table = TEXT.split("## The packages")[1].split("`tests/unit")[0]
    named = set(re.findall(r"`(\w+)/`", table))
    packages = {path.parent.name for path in (ROOT / "provision").glob("*/__init__.py")} | {"probes"}
    assert packages <= named


def test_the_readme_names_the_page():
    assert "docs/architecture.md" in (ROOT / "README.md").read_text(encoding="utf-8")
