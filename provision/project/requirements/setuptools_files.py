"""setup.cfg and setup.py: what they state of requirements, parsed and never run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .folders import Computed, cfg, setup_words

if TYPE_CHECKING:
    from pathlib import Path

    from .files import Reading


@dataclass(kw_only=True, slots=True)
class Found:
    """Requirements with origins; a text that begins with "file:" names files. `computed` says where the
    requirements are computed, if they are."""

    requires: list[tuple[str, str]] = field(default_factory=list)
    extras: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    requires_python: str = ""
    python_origin: str | None = None
    computed: str | None = None


def read(reading: Reading, folder: Path) -> Found:
    """setup.cfg's [options], and what it leaves out from setup.py. Raises UsageError."""
    found = Found()
    options: dict[str, str] = {}
    if (path := folder / "setup.cfg").is_file():
        name = reading.name(path)
        reading.files[str(path)] = None
        sections = cfg(path, name)
        options = sections.get("options", {})
        found.requires = _listed(options.get("install_requires", ""), f"{name} [options.install_requires]")
        for extra, text in sections.get("options.extras_require", {}).items():
            found.extras[extra] = _listed(text, f"{name} [options.extras_require]")
        if python := options.get("python_requires", "").strip():
            found.requires_python, found.python_origin = python, f"{name} [options.python_requires]"
    if (path := folder / "setup.py").is_file():
        name = reading.name(path)
        reading.files[str(path)] = None
        _from_setup(found, setup_words(path, name) or {}, name, stated="install_requires" in options)
    return found


def _listed(text: str, origin: str) -> list[tuple[str, str]]:
    if text.strip().startswith("file:"):
        return [(text.strip(), origin)]
    rows = [row.partition(" #")[0].strip() for row in text.splitlines()]
    return [(row, origin) for row in rows if row and not row.startswith("#")]


def _from_setup(found: Found, words: dict[str, Any], name: str, *, stated: bool) -> None:
    requires = words.get("install_requires", words.get("**"))
    if not stated and isinstance(requires, Computed):
        found.computed = f"{name} line {requires.line}"
    elif not stated and requires is not None:
        found.requires = _strings(requires, f"{name} [install_requires]")
    extras = words.get("extras_require")
    if isinstance(extras, dict) and not found.extras:
        for extra, value in extras.items():
            found.extras[str(extra)] = _strings(value, f"{name} [extras_require]")
    python = words.get("python_requires")
    if isinstance(python, str) and not found.requires_python:
        found.requires_python, found.python_origin = python, f"{name} [python_requires]"


def _strings(value: Any, origin: str) -> list[tuple[str, str]]:
    rows = value.splitlines() if isinstance(value, str) else value
    if not isinstance(rows, (list, tuple, set)):
        return []
    return [(str(row).strip(), origin) for row in rows if str(row).strip()]
