"""Read nodes of a gpuenv.yaml as tables, lists and texts, and record mistakes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..quote_for_messages_and_parse_requirement import quote_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .key_forms import ValueForm
    from .yaml_tree import YamlNode


class Mistakes:
    """The mistakes in a file, as messages."""

    def __init__(self, name: str) -> None:
        self.name, self.found = name, list[str]()
        self.language = "TOML" if name.endswith(".toml") else "YAML"

    def add(self, line: int | None, key: str, text: str) -> None:
        place = self.name if line is None else f"{self.name}:{line}"
        self.found.append(f"{place}: {key}: {text}" if key else f"{place}: {text}")


def read_table(node: YamlNode, where: str, known: Iterable[str], mistakes: Mistakes) -> dict[str, YamlNode]:
    """Return the entries of a table, and record unknown and duplicate keys."""
    known = tuple(known)
    if node.kind != "table":
        what = f"expected a table with {' or '.join(known)}" if known else "expected a table"
        mistakes.add(node.line, where, what)
        return {}
    table: dict[str, YamlNode] = {}
    for key, value in node.pairs:
        path = f"{where}.{quote_text(key.text)}" if where else quote_text(key.text)
        if key.kind != "scalar":
            mistakes.add(key.line, where, "a key must be one word")
        elif key.text in table:
            mistakes.add(key.line, path, "duplicate key")
        elif known and key.text not in known:
            mistakes.add(key.line, path, f"unknown key{suggest_word(key.text, known)}")
        else:
            table[key.text] = value
    return table


def suggest_word(word: str, known: Iterable[str]) -> str:
    """Return a suggestion for an unknown word, or the list of known words."""
    import difflib

    known = tuple(known)
    folded = word.lower().replace("-", "_")[:64]
    close = difflib.get_close_matches(folded, known, n=1, cutoff=0.6)
    return f". Did you mean {close[0]}?" if close else f"; expected one of {', '.join(known)}"


def read_text(node: YamlNode, where: str, form: ValueForm, mistakes: Mistakes) -> str | None:
    """Return the text of a scalar, or None after recording a mistake."""
    if node.kind != "scalar":
        mistakes.add(node.line, where, f"expected one value, such as {form.example}, not a {node.kind}")
        return None
    text = node.text
    if node.taken_for == "nothing" and text.lower() in ("", "~", "null"):
        mistakes.add(node.line, where, f'is empty: write a value such as "{form.example}", or remove the key')
        return None
    if node.taken_for:
        meant = f" ({float(text)})" if _loses_zero(text) else ""
        mistakes.add(
            node.line,
            where,
            f'{mistakes.language} reads {quote_text(text)} as {node.taken_for}{meant}: write "{quote_text(text)}"',
        )
        return None
    if problem := form.problem(text):
        mistakes.add(node.line, where, f"{quote_text(text)!r}: {problem}")
        return None
    return text


def _loses_zero(text: str) -> bool:
    """Return whether YAML drops the last zero of a number, as in 3.10."""
    try:
        return "." in text and len(text) < 20 and str(float(text)) != text
    except ValueError:
        return False


def read_list(node: YamlNode, where: str, form: ValueForm, mistakes: Mistakes) -> list[tuple[str, YamlNode]]:
    """Return the texts of a list with their nodes. An empty value is an empty list."""
    if node.kind == "scalar" and node.taken_for == "nothing":
        return []
    if node.kind != "list":
        written = quote_text(node.text) if node.kind == "scalar" else form.example
        mistakes.add(node.line, where, f'expected a list: write ["{written}"]')
        return []
    values: list[tuple[str, YamlNode]] = []
    for i, item in enumerate(node.items):
        text = read_text(item, f"{where}[{i}]", form, mistakes)
        if text is not None and text in [t for t, _ in values]:
            mistakes.add(item.line, f"{where}[{i}]", f"{quote_text(text)!r} is a duplicate")
        elif text is not None:
            values.append((text, item))
    return values
