"""Templates: what a slot, a block and a list become, and the scripts themselves as shellcheck reads them."""

import re
import sys
from pathlib import Path

import export_locks as el
import pytest
from programs import run_program
from rows import rows

from provision import templates

FOLDER = Path(templates.__file__).parent


@pytest.fixture
def filled(tmp_path, monkeypatch):
    """The text of a template that is written here."""

    def fill(text, **values):
        (tmp_path / "t").write_text(text)
        monkeypatch.setattr(templates, "__file__", str(tmp_path / "__init__.py"))
        return templates.fill("t", values)

    return fill


@rows(
    ("slot", "value", "text"),
    [
        ("@x@", "a\n#b\x1b", "a #b"),
        ("@sh:x@", "a b\n'c'", "'a b '\"'\"'c'\"'\"''"),
        ("@sh:x@", ["a b", "$c"], "'a b' '$c'"),
        ('"${V:-@double:x@}"', 'a"$b`}\\', '"${V:-a\\"\\$b\\`\\}\\\\}"'),
        ("@json:x@", ['a"', "b\n"], '["a\\"", "b\\n"]'),
        ("@expression:x@", "it's", "'it''s'"),
        ("  @raw:x@", "a\n\nb", "  a\n\n  b"),
        ("# @each:x@", ["a", "b\nc"], "# a\n# b c"),
        ("# @each:x@", [], ""),
    ],
)
def test_a_slot_takes_its_value_as_its_quoting_says(filled, slot, value, text):
    assert filled(f"{slot}\n", x=value).strip("\n") == text.strip("\n")


def test_a_value_with_the_form_of_a_slot_stays_as_it_is(filled):
    assert filled("@x@ @y@\n", x="@y@", y="@if x@") == "@y@ @if x@\n"


@rows(("x", "text"), [(True, "a\nc\n"), ("", "b\nc\n"), (None, "b\nc\n")])
def test_a_block_stands_where_its_value_is_true(filled, x, text):
    assert filled("@if x@\na\n@end@\n@if not x@\nb\n@end@\nc\n", x=x) == text


def test_a_slot_without_a_value_is_an_error(filled):
    with pytest.raises(KeyError):
        filled("@x@\n")


def test_no_slot_is_left_in_an_export():
    for form in el.FORMS:
        made = el.of_conda() if form == "conda-lock" else el.of(el.MIXED)
        assert not templates._SLOT.search(el.text(form, made).replace("thing @ git", "")), form


def script(name):
    """A script of the folder, with a plain value in each slot and all of its blocks."""
    lines = (FOLDER / name).read_text().splitlines()
    kept = [line for line in lines if not templates._BLOCK.fullmatch(line)]
    text = "\n".join(templates._SLOT.sub("value", line) for line in kept) + "\n"
    if name.startswith("make-"):  # make reads @, $(...) and $$ first
        text = re.sub("(?m)^@", "", text)
        while (expanded := re.sub(r"\$\([^()]*\)", "value", text)) != text:
            text = expanded
        text = text.replace("$$", "$")
    return text


@rows("name", sorted(p.name for p in FOLDER.glob("*.sh")))
def test_shellcheck_finds_no_mistake_in_a_script(name):
    shell = "bash" if name == "sbatch.sh" else "sh"
    argv = [Path(sys.executable).parent / "shellcheck", "--shell", shell, "-"]
    run_program(argv, input=script(name), check=True)
