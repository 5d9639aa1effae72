"""gpuenv.yaml -> Project, strictly: every mistake at once, with its line and key."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from provision.errors import DataError
from provision.model import FRAMEWORKS, Project, ProjectTarget
from provision.system import foreign

from ..words import first_line, shown
from . import kinds
from .strict import MAX_BYTES, Node, NotReadError, decode, tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


_KEYS = [f.name for f in fields(Project) if f.name not in kinds.PROJECT[1:]]


def read_config(path: Path) -> Project:
    """The project that a gpuenv.yaml describes. Raises DataError with every mistake, each as
    "file:line: key: what is wrong and what to write"."""
    return parse_config(path.name, read_bytes(path))


def read_bytes(path: Path) -> bytes:
    """The bytes of a gpuenv.yaml, a few more than are read at most. Raises DataError."""
    try:
        return foreign.read_bytes(path, MAX_BYTES + 1)
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror}", hint="`gpuenv init` writes one"
        ) from error


def parse_config(name: str, data: bytes) -> Project:
    """The project that the bytes of a gpuenv.yaml describe. Raises DataError."""
    mistakes = _Mistakes(name)
    values: dict[str, Any] = {}
    try:
        root = tree(decode(data))
    except NotReadError as error:
        mistakes.add(error.line, "", error.text)
    else:
        if root is not None and not (root.kind == "scalar" and root.taken_for == "nothing"):
            values = _project(root, mistakes)
    if mistakes.found:
        many = len(mistakes.found)
        raise DataError(
            f"{name} is invalid: {many} mistake{'s' * (many > 1)}",
            problems=tuple(mistakes.found),
            hint="README, section gpuenv.yaml, has every key",
        )
    return Project(**values)


class _Mistakes:
    """The mistakes found so far, as they are shown."""

    def __init__(self, name: str) -> None:
        self.name, self.found = name, list[str]()

    def add(self, line: int | None, key: str, text: str) -> None:
        at = self.name if line is None else f"{self.name}:{line}"
        self.found.append(f"{at}: {key}: {text}" if key else f"{at}: {text}")


def _table(node: Node, where: str, known: Iterable[str], mistakes: _Mistakes) -> dict[str, Node]:
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


def _text(node: Node, where: str, form: kinds.Form, mistakes: _Mistakes) -> str | None:
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
            node.line, where, f'YAML takes {shown(text)} for {node.taken_for}{meant}: write "{shown(text)}"'
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


def _list(node: Node, where: str, form: kinds.Form, mistakes: _Mistakes) -> list[tuple[str, Node]]:
    """The texts of a list, each with its node; an empty value is an empty list."""
    if node.kind == "scalar" and node.taken_for == "nothing":
        return []
    if node.kind != "list":
        written = shown(node.text) if node.kind == "scalar" else form.example
        mistakes.add(node.line, where, f'expected a list: write ["{written}"]')
        return []
    found: list[tuple[str, Node]] = []
    for i, item in enumerate(node.items):
        text = _text(item, f"{where}[{i}]", form, mistakes)
        if text is not None and text in [t for t, _ in found]:
            mistakes.add(item.line, f"{where}[{i}]", f"{shown(text)!r} stands twice")
        elif text is not None:
            found.append((text, item))
    return found


def _values(
    given: Mapping[str, Node], words: Mapping[str, kinds.Form], lists: Mapping[str, kinds.Form],
    where: str, mistakes: _Mistakes,
) -> dict[str, Any]:  # fmt: skip
    """The plain keys of a table as the fields of its class."""
    found: dict[str, Any] = {}
    for key, node in given.items():
        path = f"{where}{key}"
        if key in words:
            found[key] = _text(node, path, words[key], mistakes)
        elif key in lists:
            entries = _list(node, path, lists[key], mistakes)
            if key in ("frameworks", "packages"):
                _check_requirements(key, entries, mistakes)
            found[key] = tuple(text for text, _ in entries)
    return found


def _project(root: Node, mistakes: _Mistakes) -> dict[str, Any]:
    given = _table(root, "", _KEYS, mistakes)
    found = _values(given, kinds.WORDS, kinds.LISTS, "", mistakes)
    if "project" in given:
        found |= _folder(given["project"], mistakes)
    if "indexes" in given:
        addresses = _table(given["indexes"], "indexes", kinds.INDEXES, mistakes)
        found["indexes"] = _values(addresses, kinds.INDEXES, {}, "indexes.", mistakes)
    if "targets" in given:
        named = _table(given["targets"], "targets", (), mistakes)
        found["targets"] = {name: _target(name, node, mistakes) for name, node in named.items()}
    for key in ("extras", "groups"):
        if found.get(key) and "project" not in given:
            mistakes.add(given[key].line, key, 'belongs to a project: write project: "." beside it')
    return found


def _folder(node: Node, mistakes: _Mistakes) -> dict[str, Any]:
    """The project's folder: a path, or a table of path and install."""
    if node.kind != "table":
        return {"project": _text(node, "project", kinds.PATH, mistakes)}
    given = _table(node, "project", ("path", "install"), mistakes)
    found: dict[str, Any] = {}
    if "path" in given:
        found["project"] = _text(given["path"], "project.path", kinds.PATH, mistakes)
    else:
        mistakes.add(node.line, "project", 'has no path: write {path: ".", install: false}')
    if "install" in given:
        value = given["install"]
        if value.kind == "scalar" and value.text in ("true", "false"):
            found["install"] = value.text == "true"
        else:
            mistakes.add(value.line, "project.install", "expected true or false")
    return found


def _target(name: str, node: Node, mistakes: _Mistakes) -> ProjectTarget:
    where = f"targets.{shown(name)}"
    if problem := kinds.TARGET_NAME.problem(name):
        mistakes.add(node.line, where, f"a target's name: {problem}")
    given = _table(node, where, [f.name for f in fields(ProjectTarget)], mistakes)
    if node.kind == "table" and not node.pairs:
        mistakes.add(node.line, where, 'is empty: write file: "node.json", or driver and gpus')
    doubled = [key for key in kinds.SAID_BY_FILE if key in given and "file" in given]
    if doubled:
        mistakes.add(
            given[doubled[0]].line, f"{where}.{doubled[0]}", "the file says this already: leave one out"
        )
    found = _values(given, kinds.TARGET_WORDS, kinds.TARGET_LISTS, f"{where}.", mistakes)
    return ProjectTarget(**found)


def _check_requirements(key: str, entries: list[tuple[str, Node]], mistakes: _Mistakes) -> None:
    """Refuse what is no requirement, stands in the wrong list, or names a package twice."""
    from packaging.utils import canonicalize_name

    from ..words import meant_version, requirement

    seen: dict[str, int] = {}
    for i, (text, node) in enumerate(entries):
        where = f"{key}[{i}]"
        if meant := meant_version(text):
            mistakes.add(node.line, where, f'{shown(text)!r}: a version follows ==: write "{meant}"')
            continue
        if key == "packages" and (belongs := _folder_key(text)):
            mistakes.add(node.line, where, f"{shown(text)!r} is a folder, not a package: {belongs}")
            continue
        try:
            need = requirement(text)
        except ValueError as error:
            hint = "; a requirements file may name paths and addresses" if key == "packages" else ""
            mistakes.add(node.line, where, f"{shown(text)!r} is no requirement: {first_line(error)}{hint}")
            continue
        name = canonicalize_name(need.name)
        if name in seen and not (key == "packages" and need.marker):
            mistakes.add(node.line, where, f"{name} stands in line {seen[name]} already")
        seen.setdefault(name, node.line)
        if problem := _misplaced(key, text, name, need):
            mistakes.add(node.line, where, problem)


def _folder_key(text: str) -> str | None:
    """Where a folder ("-e .", "./library") is written instead of under packages; None for any other text."""
    editable = re.fullmatch(r"(?:-e|--editable)[\s=]*(.+)", text)
    place = (editable[1] if editable else text).strip().strip("'\"")
    if "://" in place or not (editable or place.startswith((".", "/"))):
        return None
    if place in (".", "./"):
        return 'write project: "." for this folder, with its extras under extras:'
    return f'write "{"-e " if editable else ""}{shown(place)}" into a file that requirements: names'


def _misplaced(key: str, text: str, name: str, need: Any) -> str | None:
    """Why a requirement may not stand in this list, or None."""
    meant = kinds.ALIASES.get(name)
    if key == "packages":
        if name in FRAMEWORKS or meant:
            return f'{meant or name} is a framework: write it under frameworks: ["{meant or name}"]'
        return None
    if meant:
        return f"unknown framework {name!r}. Did you mean {meant}?"
    if need.url or need.marker:
        return f"{shown(text)!r}: a framework is a name with bounds, as torch>=2.6: the plan picks the file"
    if "+" in str(need.specifier):
        without = str(need.specifier).partition("+")[0]
        return (
            f'the plan picks the build: write "{name}{without}", and cuda: "12.6" where it must be that one'
        )
    return None
