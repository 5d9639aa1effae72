"""gpuenv.yaml, read strictly: its keys and their forms, its checks, and the same table in pyproject.toml."""

from __future__ import annotations

import datetime as dt
import keyword
import re
import shlex
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from ..errors import DataError
from ..model import (
    FRAMEWORK_ALIASES,
    FRAMEWORKS,
    MANAGERS,
    PLATFORMS,
    PROJECT_FRAMEWORKS,
    TORCH_COMPANIONS,
    Check,
    CheckKind,
    ProjectConfig,
    ProjectTarget,
    is_cpu_build,
)
from ..requirements.nodes import MAX_BYTES, MAX_DEPTH, NotReadError, YamlNode, decode_yaml, parse_yaml
from ..requirements.quote import LONGEST, parse_requirement, quote_text, suggest_version, take_first_line
from ..system import trust

if TYPE_CHECKING:
    from collections.abc import Iterable


class Mistakes:
    """The mistakes in a file, each with its place."""

    def __init__(self, name: str) -> None:
        self.name, self.found = name, list[tuple[str, str]]()
        self.language = "TOML" if name.endswith(".toml") else "YAML"

    def add(self, at: YamlNode | NotReadError, text: str) -> None:
        place, key = self.name if at.line is None else f"{self.name}:{at.line}", at.path
        self.found.append((f"{place}: {key}" if key else place, text))


def read_table(node: YamlNode, known: Iterable[str], mistakes: Mistakes) -> dict[str, YamlNode]:
    """Return the entries of a table with their paths, and record unknown and duplicate keys."""
    known = tuple(known)
    if node.kind != "table":
        what = f"expected a table with {' or '.join(known)}" if known else "expected a table"
        mistakes.add(node, what)
        return {}
    table: dict[str, YamlNode] = {}
    for key, value in node.pairs:
        key.path = node.path
        if key.kind != "scalar":
            mistakes.add(key, "a key must be one word")
            continue
        name = quote_text(key.text)
        key.path = value.path = f"{node.path}.{name}" if node.path else name
        if key.text in table:
            mistakes.add(key, "duplicate key")
        elif known and key.text not in known:
            mistakes.add(key, f"unknown key{suggest_word(key.text, known)}")
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


def read_text(node: YamlNode, form: ValueForm, mistakes: Mistakes) -> str | None:
    """Return the text of a scalar, or None after recording a mistake."""
    if node.kind != "scalar":
        mistakes.add(node, f"expected one value, such as {form.example}, not a {node.kind}")
        return None
    text = node.text
    if node.taken_for == "nothing" and text.lower() in ("", "~", "null"):
        mistakes.add(node, f'is empty: write a value such as "{form.example}", or remove the key')
        return None
    if node.taken_for:
        meant = f" ({float(text)})" if _loses_zero(text) else ""
        mistakes.add(
            node,
            f'{mistakes.language} reads {quote_text(text)} as {node.taken_for}{meant}: write "{quote_text(text)}"',
        )
        return None
    if problem := form.problem(text):
        mistakes.add(node, f"{quote_text(text)!r}: {problem}")
        return None
    return text


def _loses_zero(text: str) -> bool:
    """Return whether YAML drops the last zero of a number, as in 3.10."""
    try:
        return "." in text and len(text) < 20 and str(float(text)) != text
    except ValueError:
        return False


def read_list(node: YamlNode, form: ValueForm, mistakes: Mistakes) -> list[tuple[str, YamlNode]]:
    """Return the texts of a list with their nodes. An empty value is an empty list."""
    if node.kind == "scalar" and node.taken_for == "nothing":
        return []
    if node.kind != "list":
        written = quote_text(node.text) if node.kind == "scalar" else form.example
        mistakes.add(node, f'expected a list: write ["{written}"]')
        return []
    values: list[tuple[str, YamlNode]] = []
    for i, item in enumerate(node.items):
        item.path = f"{node.path}[{i}]"
        text = read_text(item, form, mistakes)
        if text is not None and text in [t for t, _ in values]:
            mistakes.add(item, f"{quote_text(text)!r} is a duplicate")
        elif text is not None:
            values.append((text, item))
    return values


CONFIG_NAME = "gpuenv.yaml"
"""The project's file that `gpuenv init` writes."""
YAML_NAMES = (CONFIG_NAME, "gpuenv.yml")
PYPROJECT = "pyproject.toml"
"""A project's file with the same keys, if it has the table `tool.gpuenv`."""


class ValueForm(NamedTuple):
    """The form of a string: one of `words`, or `pattern`, which `example` illustrates. With both, `pattern` is that of URLs."""

    example: str
    words: tuple[str, ...] = ()
    pattern: str = ""

    def problem(self, text: str) -> str | None:
        """Return the mistake in a text, or None."""
        if text in self.words or (self.pattern and re.fullmatch(self.pattern, text)):
            return None
        if self.words and self.pattern:
            return f"not {', '.join(self.words)} or a URL"
        return f"not one of {', '.join(self.words)}" if self.words else f"expected a form like {self.example}"


_ADDRESS = r"[A-Za-z][A-Za-z0-9+.-]*://\S+"
_LINE = r"[^\x00-\x1f\x7f]+"

_MINOR_OR_PATCH = r"3\.\d{1,3}(\.\d{1,3})?"
PYTHON = ValueForm("3.11", pattern=rf"{_MINOR_OR_PATCH}t?")
_PYTHON_BOUND = (
    rf"((>=|<=|>|<)\s*\d(\.\d{{1,3}}){{0,2}}|(==|!=)\s*{_MINOR_OR_PATCH}(\.\*)?|~=\s*{_MINOR_OR_PATCH})"
)
PYTHON_OR_BOUNDS = ValueForm(
    '3.11 or ">=3.9,<3.13"', pattern=rf"{_MINOR_OR_PATCH}t?|{_PYTHON_BOUND}(\s*,\s*{_PYTHON_BOUND})*"
)
CUDA = ValueForm("12.6", pattern=r"\d{1,3}(\.\d{1,3})?")
MANAGER = ValueForm("venv", words=MANAGERS)
DEVICE = ValueForm("cuda", words=("auto", "cuda", "cpu"))
PATH = ValueForm("a/path", pattern=_LINE)
NAME = ValueForm("dev", pattern=r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")

# Key of gpuenv.yaml -> form of its value
WORDS = {
    "python": PYTHON_OR_BOUNDS,
    "manager": MANAGER,
    "device": DEVICE,
    "cuda": CUDA,
    "index": ValueForm("https://host/simple", words=("auto", "pypi", "pytorch"), pattern=_ADDRESS),
}
# Key of gpuenv.yaml -> form of each value of its list. Frameworks and packages must be requirements as well.
LISTS = {
    "frameworks": ValueForm("torch>=2.6", pattern=_LINE),
    "packages": ValueForm("numpy>=1.26", pattern=_LINE),
    "requirements": ValueForm("requirements.txt", pattern=_LINE),
    "extras": NAME,
    "groups": NAME,
    "find_links": ValueForm("wheels/", pattern=_LINE),
    "channels": ValueForm("conda-forge", pattern=_LINE),
}
# The fields of the table `project`, in which `path` is the project. A path alone is allowed as well.
PROJECT = ("project", "install")
INDEXES = {
    "pypi": ValueForm("https://host/simple", pattern=_ADDRESS),
    "pytorch": ValueForm("https://host/whl", pattern=_ADDRESS),
}
TARGET_NAME = ValueForm("node-a", pattern=r"[a-z0-9][a-z0-9._-]{0,63}")
TARGET_WORDS = {
    "file": PATH,
    "driver": ValueForm("535.129.03", pattern=r"\d{3,4}(\.\d{1,6}){0,3}"),
    "driver_os": ValueForm("linux", words=("linux", "windows")),
    "platform": ValueForm("linux-x86_64", words=PLATFORMS),
    "glibc": ValueForm("2.28", pattern=r"2\.\d{1,3}"),
    "python": PYTHON,
    "cuda": CUDA,
    "device": DEVICE,
    "manager": MANAGER,
}
TARGET_LISTS = {"gpus": ValueForm("9.0", pattern=_LINE)}
# The keys that the file of a target states
SAID_BY_FILE = ("driver", "driver_os", "gpus", "platform", "glibc")


KINDS: tuple[CheckKind, ...] = get_args(CheckKind)
COMPILED = "torch"
"""The framework that the built-in check `compile` runs."""
_CHECK_LINE = ValueForm("a line", pattern=r"[^\x00-\x1f\x7f]+")
_SECONDS = ValueForm("120", pattern=r"(?!0+(\.0+)?$)\d{1,6}(\.\d{1,3})?")
_QUOTED = r"""\\.|'[^']*'|"((?:\\.|[^"\\])*)\""""
_SYNTAX = "write bash -c '...', or quote it"


def read_checks(node: YamlNode, mistakes: Mistakes) -> tuple[Check, ...]:
    """Return the checks of a list, and record each mistake."""
    if node.kind == "scalar" and node.taken_for == "nothing":
        return ()
    if node.kind != "list":
        mistakes.add(node, "expected a list of entries such as - import: cv2")
        return ()
    checks: dict[str, Check] = {}
    lines: dict[str, int] = {}
    for i, item in enumerate(node.items):
        item.path = f"checks[{i}]"
        check = _read_entry(item, mistakes)
        if check is None:
            continue
        if check.label in checks:
            mistakes.add(item, f"{quote_text(check.label)!r} is already in line {lines[check.label]}")
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


def _read_entry(node: YamlNode, mistakes: Mistakes) -> Check | None:
    if node.kind == "scalar":
        if node.text == "compile":
            return Check(kind="compile", subject=COMPILED)
        mistakes.add(node, _suggest_entry(node.text))
        return None
    before = len(mistakes.found)
    table = read_table(node, (*KINDS, "name", "timeout"), mistakes)
    kinds = [kind for kind in KINDS if kind in table]
    if len(kinds) != 1 and len(mistakes.found) == before:
        mistakes.add(node, f"expected one of {', '.join(KINDS)}, found {len(kinds)}")
    if len(kinds) != 1:
        return None
    subject = read_text(table[kinds[0]], _CHECK_LINE, mistakes)
    if subject is not None and (problem := _find_mistake(kinds[0], subject)):
        mistakes.add(table[kinds[0]], problem)
        subject = None
    name = read_text(table["name"], _CHECK_LINE, mistakes) if "name" in table else None
    timeout = _read_timeout(table["timeout"], mistakes) if "timeout" in table else None
    return None if subject is None else Check(kind=kinds[0], subject=subject, name=name, timeout=timeout)


def _suggest_entry(text: str) -> str:
    """Return the advice for an entry that is only a text."""
    if text.split()[:1] == ["import"]:
        return f"write import: {quote_text(' '.join(text.split()[1:]))}"
    return f'{quote_text(text)!r} is not a built-in check; write run: "{quote_text(text)}" for a command'


def _read_timeout(node: YamlNode, mistakes: Mistakes) -> float | None:
    """Return a number of seconds. Unlike a version, it may be written without quotes."""
    if node.kind != "scalar" or _SECONDS.problem(node.text):
        mistakes.add(node, "expected seconds, such as 120")
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
    if len(line) > LONGEST or _CHECK_LINE.problem(line):
        return "expected one line"
    try:
        words: list[Any] = shlex.split(line)
    except ValueError as error:
        return f"{quote_text(line)!r} cannot be split into words: {error}"
    if not words or not words[0]:
        return "expected a command"
    bare = re.sub(_QUOTED, "", line)
    expanded = re.sub(
        _QUOTED, lambda match: re.sub(r"\\.", "", match[1] or ""), line
    )  # also between double quotes
    for pattern, text in ((r"[|&;<>()*]", bare), (r"\$[\w({]|`", expanded)):
        if syntax := re.search(pattern, text):
            return f"{quote_text(line)!r}: checks do not run in a shell, so {syntax[0]!r} is not supported: {_SYNTAX}"
    if re.match(r"[A-Za-z_]\w*=", words[0]):
        return f'checks do not run in a shell. To set {words[0].partition("=")[0]}, write: "env {quote_text(line)}"'
    return None


TABLE = "tool.gpuenv"
_WORD = b"gpuenv"


class _Number(str):
    """The written text of a number: 3.10 stays 3.10."""

    __slots__ = ()


def parse_document(data: bytes) -> dict[str, Any]:
    """Parse a pyproject.toml. Raises NotReadError."""
    from ..system.toml import parse_toml

    text = decode_yaml(data)
    try:
        return parse_toml(text, parse_float=_Number)
    except ValueError as error:
        raise NotReadError(str(error)) from error


def read_table_of(data: bytes) -> dict[str, Any] | None:
    """Return the table `tool.gpuenv`, or None. Raises NotReadError."""
    if _WORD not in data:
        return None
    tool = parse_document(data).get("tool")
    table = tool.get("gpuenv") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise NotReadError(f"{TABLE}: expected a table")
    return table


def remove_table(data: bytes) -> dict[str, Any]:
    """Return a pyproject.toml without its table `tool.gpuenv`. Raises NotReadError."""
    whole = parse_document(data)
    whole["tool"] = {key: value for key, value in whole["tool"].items() if key != "gpuenv"}
    return whole


def parse_table(data: bytes) -> YamlNode | None:
    """Return the table `tool.gpuenv` as nodes with the lines of their keys. Raises NotReadError."""
    table = read_table_of(data)
    if table is None:
        return None
    from ..requirements.toml import TomlFile  # most projects have a gpuenv.yaml

    return _build_node(table, TABLE, 1, TomlFile(PYPROJECT, decode_yaml(data)).keys)


def _build_node(value: Any, name: str, line: int, lines: dict[str, int], depth: int = 0) -> YamlNode:
    """Return a value as a node. An entry without its own line has the line of the key above it."""
    if depth > MAX_DEPTH:
        raise NotReadError(f"lists and tables are nested more than {MAX_DEPTH} deep")
    line = lines.get(name, line)
    if isinstance(value, dict):
        pairs = []
        for key, item in value.items():
            below = _build_node(item, f"{name}.{key}", line, lines, depth + 1)
            pairs.append((YamlNode(kind="scalar", line=below.line, text=key), below))
        return YamlNode(kind="table", line=line, pairs=pairs)
    if isinstance(value, list):
        return YamlNode(
            kind="list", line=line, items=[_build_node(x, name, line, lines, depth + 1) for x in value]
        )
    return YamlNode(
        kind="scalar",
        line=line,
        text=str(value).lower() if isinstance(value, bool) else str(value),
        taken_for=_name_type(value),
    )


def _name_type(value: Any) -> str | None:
    """Return the type that TOML gives a value, or None for a string."""
    if isinstance(value, bool):
        return "yes or no"
    if isinstance(value, (int, _Number)):
        return "a number"
    return "a date" if isinstance(value, (dt.date, dt.time)) else None


_KEYS = [f.name for f in fields(ProjectConfig) if f.name not in PROJECT[1:]]


def read_config(path: Path) -> ProjectConfig:
    """Read a gpuenv.yaml. Raises DataError with every mistake, each as "file:line: key: the mistake and the advice"."""
    return parse_config(path.name, read_bytes(path))


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a gpuenv.yaml, up to just above the size limit. Raises DataError, UntrustedError."""
    try:
        return trust.read_project(path, MAX_BYTES + 1)
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror}",
            hint="make it readable, or remove it and write one: gpuenv init",
        ) from error


def parse_config(name: str, data: bytes) -> ProjectConfig:
    """Parse the bytes of the gpuenv.yaml or pyproject.toml called `name`. Raises DataError."""
    values, mistakes = read_document(name, data)
    if mistakes:
        many = len(mistakes)
        raise DataError(
            f"{name} is invalid: {many} mistake{'s' * (many > 1)}",
            problems=tuple(f"{place}: {text}" for place, text in mistakes),
            hint="correct these lines, and repeat the command",
        )
    return ProjectConfig(**values)


def read_document(name: str, data: bytes) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Return what a project's file says, and the mistakes in it with their places."""
    mistakes = Mistakes(name)
    values: dict[str, Any] = {}
    try:
        root = parse_table(data) if name == PYPROJECT else parse_yaml(decode_yaml(data))
    except NotReadError as error:
        mistakes.add(error, error.text)
    else:
        if root is not None and not (root.kind == "scalar" and root.taken_for == "nothing"):
            values = _read_project(root, mistakes)
    return values, mistakes.found


def _read_values(
    table: Mapping[str, YamlNode], words: Mapping[str, ValueForm], lists: Mapping[str, ValueForm],
    mistakes: Mistakes,
) -> dict[str, Any]:  # fmt: skip
    """Return the plain keys of a table as fields of its class."""
    values: dict[str, Any] = {}
    for key, node in table.items():
        if key in words:
            values[key] = read_text(node, words[key], mistakes)
        elif key in lists:
            entries = read_list(node, lists[key], mistakes)
            if key in ("frameworks", "packages"):
                _check_requirements(key, entries, mistakes)
            values[key] = tuple(text for text, _ in entries)
    return values


def _read_project(root: YamlNode, mistakes: Mistakes) -> dict[str, Any]:
    table = read_table(root, _KEYS, mistakes)
    values = _read_values(table, WORDS, LISTS, mistakes)
    if "project" in table:
        values |= _read_folder(table["project"], mistakes)
    if "indexes" in table:
        addresses = read_table(table["indexes"], INDEXES, mistakes)
        values["indexes"] = _read_values(addresses, INDEXES, {}, mistakes)
    if "targets" in table:
        named = read_table(table["targets"], (), mistakes)
        values["targets"] = {name: _read_target(name, node, mistakes) for name, node in named.items()}
    if "guard" in table:
        values |= _read_switch(table["guard"], mistakes)
    if "checks" in table:
        values["checks"] = read_checks(table["checks"], mistakes)
    for key in ("extras", "groups"):
        if values.get(key) and "project" not in table:
            mistakes.add(table[key], 'requires a project: also write project: "."')
    return values


def _read_folder(node: YamlNode, mistakes: Mistakes) -> dict[str, Any]:
    """Read the project's folder: a path, or a table of path and install."""
    if node.kind != "table":
        return {"project": read_text(node, PATH, mistakes)}
    table = read_table(node, ("path", "install"), mistakes)
    values: dict[str, Any] = {}
    if "path" in table:
        values["project"] = read_text(table["path"], PATH, mistakes)
    else:
        mistakes.add(node, 'has no path: write {path: ".", install: false}')
    if "install" in table:
        values |= _read_switch(table["install"], mistakes)
    return values


def _read_switch(node: YamlNode, mistakes: Mistakes) -> dict[str, bool]:
    """Return the value of a key that is true or false, by its name. None after recording a mistake."""
    if node.kind == "scalar" and node.text in ("true", "false"):
        return {node.path.rpartition(".")[2]: node.text == "true"}
    mistakes.add(node, "expected true or false")
    return {}


def _read_target(name: str, node: YamlNode, mistakes: Mistakes) -> ProjectTarget:
    if problem := TARGET_NAME.problem(name):
        mistakes.add(node, f"a target's name: {problem}")
    table = read_table(node, [f.name for f in fields(ProjectTarget)], mistakes)
    if node.kind == "table" and not node.pairs:
        mistakes.add(node, "is empty: expected the key `file`, or the keys `driver` and `gpus`")
    doubled = [key for key in SAID_BY_FILE if key in table and "file" in table]
    if doubled:
        mistakes.add(
            table[doubled[0]],
            "the target's `file` states this too: remove one of them",
        )
    values = _read_values(table, TARGET_WORDS, TARGET_LISTS, mistakes)
    return ProjectTarget(**values)


def _check_requirements(key: str, entries: list[tuple[str, YamlNode]], mistakes: Mistakes) -> None:
    """Record entries that are not requirements, belong to another list, or repeat a package."""
    from packaging.utils import canonicalize_name

    seen: dict[str, int] = {}
    for text, node in entries:
        if meant := suggest_version(text):
            mistakes.add(node, f'{quote_text(text)!r}: a version follows ==: write "{meant}"')
            continue
        if key == "packages" and (belongs := _suggest_folder_key(text)):
            mistakes.add(node, f"{quote_text(text)!r} is a folder, not a package: {belongs}")
            continue
        try:
            need = parse_requirement(text)
        except ValueError as error:
            hint = "; a requirements file may name paths and addresses" if key == "packages" else ""
            mistakes.add(node, f"{quote_text(text)!r} is not a requirement: {take_first_line(error)}{hint}")
            continue
        name = canonicalize_name(need.name)
        if name in seen and not (key == "packages" and need.marker):
            mistakes.add(node, f"{name} is already in line {seen[name]}")
        seen.setdefault(name, node.line)
        if problem := _find_misplacement(key, text, name, need):
            mistakes.add(node, problem)


def _suggest_folder_key(text: str) -> str | None:
    """Return where to write a folder ("-e .", "./library"), or None for any other text."""
    editable = re.fullmatch(r"(?:-e|--editable)[\s=]*(.+)", text)
    place = (editable[1] if editable else text).strip().strip("'\"")
    if "://" in place or not (editable or place.startswith((".", "/"))):
        return None
    if place in (".", "./"):
        return 'for this folder, write project: "."; for its extras, write extras:'
    return f'write "{"-e " if editable else ""}{quote_text(place)}" in a requirements file, and list that file under requirements:'


def _find_misplacement(key: str, text: str, name: str, need: Any) -> str | None:
    """Return why a requirement cannot be in this list, or None."""
    meant = FRAMEWORK_ALIASES.get(name)
    if key == "packages":
        if (name in PROJECT_FRAMEWORKS or meant) and not is_cpu_build(name, need.extras, str(need.specifier)):
            return f'{meant or name} is a framework: write it under frameworks: ["{meant or name}"]'
        return None
    if name not in (*FRAMEWORKS, *TORCH_COMPANIONS):
        return f"unknown framework {name!r}{suggest_word(meant or name, FRAMEWORKS)}"
    if need.url or need.marker:
        return f"{quote_text(text)!r}: write a framework as a name with bounds, such as torch>=2.6. gpuenv selects the wheel"
    if "+" in str(need.specifier):
        without = str(need.specifier).partition("+")[0]
        return (
            f'gpuenv selects the build. Write "{name}{without}", and to require this CUDA, write cuda: "12.6"'
        )
    return None
