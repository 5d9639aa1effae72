"""Reads the requirements that the files of a source archive state, without executing anything.

The files are PKG-INFO, the egg-info of setuptools, pyproject.toml and setup.py.
"""

from __future__ import annotations

import ast
import re
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tomli
from packaging.metadata import parse_email
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from ..errors import UsageError
from ..system import untrusted

_MOST_PYTHON = 1 << 20
_parsing = threading.Lock()
_SINCE_DYNAMIC = (2, 2)  # PEP 643: since this version metadata names the fields that a build may change
_DECIDING = frozenset({"requires-dist", "requires-python", "provides-extra"})
_EXTRA = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_EGG_INFO = re.compile(r"(?:[^/]+/)?[^/]+\.egg-info/(?:PKG-INFO|requires\.txt)")
_OF_SETUPTOOLS = ("setuptools.build_meta", "setuptools.build_meta:__legacy__", "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Stated:
    """The stated metadata of a source archive.

    `requires` are requirements as PEP 508 strings, or None if no file states them. `changeable` says that a build may
    state others. PKG-INFO marks them dynamic, or its version cannot mark them. `file` is the file that states them.
    """

    name: str = ""
    version: str = ""
    metadata_version: str = ""
    requires: tuple[str, ...] | None = None
    requires_python: str | None = None
    extras: tuple[str, ...] = ()
    changeable: bool = True
    file: str = ""


def is_stating(path: str) -> bool:
    """Return whether a file of an archive can state requirements. The path is relative to the archive's top folder."""
    return path in ("PKG-INFO", "pyproject.toml", "setup.py", "setup.cfg") or bool(_EGG_INFO.fullmatch(path))


def read_toml(text: bytes | None) -> dict[str, Any]:
    """Return a TOML file's content, or {} for an unreadable file."""
    try:
        return tomli.loads((text or b"").decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return {}


def parse_python(text: bytes | None) -> ast.Module | None:
    """Return a Python file's syntax tree, or None for an invalid (Python 2) or too long file."""
    if text is None or len(text) > _MOST_PYTHON:
        return None
    # one thread at a time, because filters of warnings belong to the whole process
    with _parsing, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(untrusted.decode(text, ""))
        except (UsageError, SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def read_stated(files: Mapping[str, bytes | None]) -> Stated:
    """Return the metadata that the files of an archive state."""
    about, _ = parse_email(files.get("PKG-INFO") or b"")
    listed = [str(d).lower() for d in about.get("dynamic") or ()]
    version = about.get("metadata_version") or ""
    marks = _numbers(version) >= _SINCE_DYNAMIC
    fixed = _read_project(files.get("pyproject.toml"))
    changeable = fixed is None and (not marks or bool(_DECIDING & set(listed)))
    requires: tuple[str, ...] | None = tuple(about.get("requires_dist") or ())
    file: str = "PKG-INFO"
    if not requires and fixed is not None:
        requires, file = fixed, "pyproject.toml"
    elif not requires and changeable:
        requires, file = _find_requires(files)
    return Stated(
        name=about.get("name") or "", version=about.get("version") or "", metadata_version=version,
        requires=requires if requires is not None and all(map(_is_requirement, requires)) else None,
        requires_python=_parse_specifier(about.get("requires_python")),
        extras=_list_extras_of(about.get("provides_extra") or (), requires or ()),
        changeable=changeable, file=file,
    )  # fmt: skip


def _read_project(text: bytes | None) -> tuple[str, ...] | None:
    """Return the requirements in [project] of a pyproject.toml, or None if a build may change them."""
    project = read_toml(text).get("project")
    if not isinstance(project, dict) or _DECIDING_KEYS & {str(d) for d in _list(project.get("dynamic"))}:
        return None
    requirements = [str(d) for d in _list(project.get("dependencies"))]
    extras = project.get("optional-dependencies")
    for extra, texts in extras.items() if isinstance(extras, dict) else ():
        for requirement, _, marker in (str(t).partition(";") for t in _list(texts)):
            condition = f'({marker.strip()}) and extra == "{extra}"' if marker else f'extra == "{extra}"'
            requirements.append(f"{requirement.strip()} ; {condition}")
    return tuple(requirements)


_DECIDING_KEYS = frozenset({"dependencies", "optional-dependencies", "requires-python"})


def _find_requires(files: Mapping[str, bytes | None]) -> tuple[tuple[str, ...] | None, str]:
    """Return requirements that PKG-INFO lacks, and the file that states them, or None."""
    for path, text in files.items():
        if path.endswith(".egg-info/requires.txt") and text is not None:
            return tuple(_iterate_requires_txt(text.decode("utf-8", "replace"))), path
    # setuptools writes requires.txt beside it if there are requirements
    if about := next((p for p in files if p.endswith(".egg-info/PKG-INFO")), None):
        return (), about
    return (None, "") if _may_state_more(files) else ((), "PKG-INFO")


def _may_state_more(files: Mapping[str, bytes | None]) -> bool:
    """Return whether a build can add requirements to PKG-INFO.

    setup.py or setup.cfg names some, or a build backend decides.
    """
    pyproject = read_toml(files.get("pyproject.toml"))
    system = pyproject.get("build-system")
    backend = str(system.get("build-backend", "")) if isinstance(system, dict) else ""
    if "PKG-INFO" not in files or backend not in _OF_SETUPTOOLS or pyproject.get("project"):
        return True
    if "requires" in (files.get("setup.cfg") or b"").decode("utf-8", "replace"):
        return True
    tree = parse_python(files.get("setup.py"))
    if tree is None:
        return b"requires" in (files.get("setup.py") or b"")
    calls = list(find_setup_calls(tree))
    return not calls or any(k.arg is None or k.arg in _STATING_WORDS for call in calls for k in call.keywords)


_STATING_WORDS = frozenset({"install_requires", "extras_require", "setup_requires", "pbr"})


def find_setup_calls(tree: ast.Module) -> Iterator[ast.Call]:
    """Yield the calls of setup() in a setup.py."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and last_name(node.func) == "setup":
            yield node


def last_name(node: ast.expr) -> str:
    """Return the last part of a dotted name, or "" for another expression."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _iterate_requires_txt(text: str) -> Iterator[str]:
    """Yield the lines of setuptools' requires.txt as PEP 508: sections are "[extra]", "[:marker]", "[extra:marker]"."""
    condition = ""
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.startswith("[") and line.endswith("]"):
            extra, _, marker = line[1:-1].partition(":")
            parts = [f"({marker})" if marker and extra else marker, f'extra == "{extra}"' if extra else ""]
            condition = " and ".join(filter(None, parts))
            continue
        yield f"{line} ; {condition}" if condition else line


def _list_extras_of(named: Sequence[str], requires: Sequence[str]) -> tuple[str, ...]:
    """Return the named extras, or else those in the markers of requirements."""
    extras = [extra for extra in named if _EXTRA.fullmatch(extra)]
    extras = extras or [
        m for text in requires for m in re.findall(r"""extra\s*==\s*["']([\w.-]+)["']""", text)
    ]
    return tuple(dict.fromkeys(extras))


def _is_requirement(text: str) -> bool:
    """Return whether a requirement names releases. An address is left to a build.

    From an archive's metadata uv would read any file or repository at an address.
    """
    try:
        need = Requirement(text)
    except (InvalidRequirement, RecursionError):
        return False
    return need.url is None and _is_plain(need.specifier)


def _parse_specifier(text: str | None) -> str | None:
    try:
        return text if text and _is_plain(SpecifierSet(text)) else None
    except InvalidSpecifier:
        return None


def _is_plain(specifier: SpecifierSet) -> bool:
    """Return whether uv supports a specifier: `===` allows any text, and uv only versions."""
    return all(_is_version(s.version.removesuffix(".*")) for s in specifier)


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
