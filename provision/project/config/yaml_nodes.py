"""The nodes of a gpuenv.yaml as tables, lists and texts, with every mistake in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..quoted_text import shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .key_forms import Form
    from .yaml_tree import Node


class Mistakes:
    """The mistakes found so far, as they are shown."""

    def __init__(self, name: str) -> None:
        self.name, self.found = name, list[str]()
        self.language = "TOML" if name.endswith(".toml") else "YAML"

    def add(self, line: int | None, key: str, text: str) -> None:
        at = self.name if line is None else f"{self.name}:{line}"
        self.found.append(f"{at}: {key}: {text}" if key else f"{at}: {text}")


def read_table(node: Node, where: str, known: Iterable[str], mistakes: Mistakes) -> dict[str, Node]:
    """The pairs of a table: keys that are read here, each once."""
    known = tuple(known)
    if node.kind != "table":
        what = f"expected a table with {' or '.join(known)}" if known else "expected a table"
        mistakes.add(node.line, where, what)
        return {}
    found: dict[str, Node] = {}
    for key, value in node.pairs:
        path = f"{where}.{shown(key.text)}" if where else shown(key.text)
        if key.kind != "scalar":
            mistakes.add(key.line, where, "a key must be one word")
        elif key.text in found:
            mistakes.add(key.line, path, "stands twice")
        elif known and key.text not in known:
            mistakes.add(key.line, path, f"unknown key{near(key.text, known)}")
        else:
            found[key.text] = value
    return found


def near(word: str, known: Iterable[str]) -> str:
    """A question with the known word that is nearest, or the list of them all."""
    import difflib

    known = tuple(known)
    folded = word.lower().replace("-", "_")[:64]
    close = difflib.get_close_matches(folded, known, n=1, cutoff=0.6)
    return f". Did you mean {close[0]}?" if close else f"; there is {', '.join(known)}"


def read_text(node: Node, where: str, form: Form, mistakes: Mistakes) -> str | None:
    """A scalar in its form; None (and a mistake) where it is none."""
    if node.kind != "scalar":
        mistakes.add(node.line, where, f"expected one value, as {form.example}, not a {node.kind}")
        return None
    text = node.text
    if node.taken_for == "nothing" and text.lower() in ("", "~", "null"):
        mistakes.add(node.line, where, f'is empty: write a value, as "{form.example}", or leave the key out')
        return None
    if node.taken_for:
        meant = f" ({float(text)})" if _loses(text) else ""
        mistakes.add(
            node.line,
            where,
            f'{mistakes.language} takes {shown(text)} for {node.taken_for}{meant}: write "{shown(text)}"',
        )
        return None
    if problem := form.problem(text):
        mistakes.add(node.line, where, f"{shown(text)!r}: {problem}")
        return None
    return text


def _loses(text: str) -> bool:
    """Whether a number loses its last zero, as 3.10 does."""
    try:
        return "." in text and len(text) < 20 and str(float(text)) != text
    except ValueError:
        return False


def read_list(node: Node, where: str, form: Form, mistakes: Mistakes) -> list[tuple[str, Node]]:
    """The texts of a list, each with its node; an empty value is an empty list."""
    if node.kind == "scalar" and node.taken_for == "nothing":
        return []
    if node.kind != "list":
        written = shown(node.text) if node.kind == "scalar" else form.example
        mistakes.add(node.line, where, f'expected a list: write ["{written}"]')
        return []
    found: list[tuple[str, Node]] = []
    for i, item in enumerate(node.items):
        text = read_text(item, f"{where}[{i}]", form, mistakes)
        if text is not None and text in [t for t, _ in found]:
            mistakes.add(item.line, f"{where}[{i}]", f"{shown(text)!r} stands twice")
        elif text is not None:
            found.append((text, item))
    return found
