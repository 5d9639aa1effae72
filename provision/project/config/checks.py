"""Read the checks of a gpuenv.yaml and of `gpuenv verify --check`."""

from __future__ import annotations

import keyword
import re
import shlex
from typing import TYPE_CHECKING, Any, get_args

from provision.model import Check, CheckKind

from ..quote_for_messages_and_parse_requirement import LONGEST, quote_text
from .checked_yaml_nodes import read_table, read_text
from .key_forms import ValueForm

if TYPE_CHECKING:
    from .checked_yaml_nodes import Mistakes
    from .yaml_tree import YamlNode

KINDS: tuple[CheckKind, ...] = get_args(CheckKind)
COMPILED = "torch"
"""The framework that the built-in check `compile` runs."""
_LINE = ValueForm("a line", pattern=r"[^\x00-\x1f\x7f]+")
_SECONDS = ValueForm("120", pattern=r"(?!0+(\.0+)?$)\d{1,6}(\.\d{1,3})?")
_QUOTED = re.compile(r"""\\.|'[^']*'|"((?:\\.|[^"\\])*)\"""")
_SYNTAX = "write bash -c '...', or quote it"


def read_checks(node: YamlNode, mistakes: Mistakes) -> tuple[Check, ...]:
    """Return the checks of a list, and record each mistake."""
    if node.kind == "scalar" and node.taken_for == "nothing":
        return ()
    if node.kind != "list":
        mistakes.add(node.line, "checks", "expected a list of entries such as - import: cv2")
        return ()
    checks: dict[str, Check] = {}
    lines: dict[str, int] = {}
    for i, item in enumerate(node.items):
        where = f"checks[{i}]"
        check = _read_entry(item, where, mistakes)
        if check is None:
            continue
        if check.label in checks:
            mistakes.add(
                item.line, where, f"{quote_text(check.label)!r} is already in line {lines[check.label]}"
            )
        checks.setdefault(check.label, check)
        lines.setdefault(check.label, item.line)
    return tuple(checks.values())


def read_check(text: str) -> Check:
    """Parse a check: "import cv2", "compile", or a command. Raises ValueError."""
    words = text.split()
    if words == ["compile"]:
        return Check(kind="compile", subject=COMPILED)
    if words[:1] == ["import"]:
        kind, subject = "import", " ".join(words[1:])
    else:
        kind, subject = "run", text.strip()
    if problem := _find_mistake(kind, subject):
        raise ValueError(problem)
    return Check(kind="import" if kind == "import" else "run", subject=subject)


def _read_entry(node: YamlNode, where: str, mistakes: Mistakes) -> Check | None:
    if node.kind == "scalar":
        if node.text == "compile":
            return Check(kind="compile", subject=COMPILED)
        mistakes.add(node.line, where, _suggest_entry(node.text))
        return None
    before = len(mistakes.found)
    table = read_table(node, where, (*KINDS, "name", "timeout"), mistakes)
    kinds = [kind for kind in KINDS if kind in table]
    if len(kinds) != 1 and len(mistakes.found) == before:
        mistakes.add(node.line, where, f"expected one of {', '.join(KINDS)}, found {len(kinds)}")
    if len(kinds) != 1:
        return None
    subject = read_text(table[kinds[0]], f"{where}.{kinds[0]}", _LINE, mistakes)
    if subject is not None and (problem := _find_mistake(kinds[0], subject)):
        mistakes.add(table[kinds[0]].line, f"{where}.{kinds[0]}", problem)
        subject = None
    name = read_text(table["name"], f"{where}.name", _LINE, mistakes) if "name" in table else None
    timeout = _read_timeout(table["timeout"], f"{where}.timeout", mistakes) if "timeout" in table else None
    return None if subject is None else Check(kind=kinds[0], subject=subject, name=name, timeout=timeout)


def _suggest_entry(text: str) -> str:
    """Return the advice for an entry that is only a text."""
    if text.split()[:1] == ["import"]:
        return f"write import: {quote_text(' '.join(text.split()[1:]))}"
    return f'{quote_text(text)!r} is not a built-in check; write run: "{quote_text(text)}" for a command'


def _read_timeout(node: YamlNode, where: str, mistakes: Mistakes) -> float | None:
    """Return a number of seconds. Unlike a version, it may be written without quotes."""
    if node.kind != "scalar" or _SECONDS.problem(node.text):
        mistakes.add(node.line, where, "expected seconds, such as 120")
        return None
    return float(node.text)


def _find_mistake(kind: str, subject: str) -> str | None:
    """Return the mistake in the subject of a check, or None."""
    if kind == "compile":
        return None if subject == COMPILED else f"{quote_text(subject)!r}: expected {COMPILED}"
    return _check_module(subject) if kind == "import" else _check_command(subject)


def _check_module(name: str) -> str | None:
    if all(part.isidentifier() and not keyword.iskeyword(part) for part in name.split(".")):
        return None
    return f"{quote_text(name)!r} is not a module: write one name, such as cv2 or torch.nn"


def _check_command(line: str) -> str | None:
    """Return why a command line needs a shell or cannot be split, or None."""
    if len(line) > LONGEST or _LINE.problem(line):
        return "expected one line"
    try:
        words: list[Any] = shlex.split(line)
    except ValueError as error:
        return f"{quote_text(line)!r} cannot be split into words: {error}"
    if not words or not words[0]:
        return "expected a command"
    bare = _QUOTED.sub("", line)
    expanded = _QUOTED.sub(
        lambda match: re.sub(r"\\.", "", match[1] or ""), line
    )  # also between double quotes
    for pattern, text in ((r"[|&;<>()*]", bare), (r"\$[\w({]|`", expanded)):
        if syntax := re.search(pattern, text):
            return f"{quote_text(line)!r}: checks do not run in a shell, so {syntax[0]!r} is not supported: {_SYNTAX}"
    if re.match(r"[A-Za-z_]\w*=", words[0]):
        return f'checks do not run in a shell. To set {words[0].partition("=")[0]}, write: "env {quote_text(line)}"'
    return None
