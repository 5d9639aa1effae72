"""Requirements files and those that they include, to requirement lines and where packages come from."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from optparse import Values
from pathlib import Path

from provision.errors import UsageError
from provision.system import variable_references

from ..quoted_text import shown
from .requirement import Line
from .requirements_text import decoded, is_of_a_line, logical_lines, read_bytes, split_options

_MOST_FILES = 500
_MOST_DEEP = 40
_MOST_LINES = 100_000


@dataclass(kw_only=True, slots=True)
class Reading:
    """What was read so far. `base` is the folder below which origins name files. With `skip_missing` an
    included file that does not exist is noted under `missing`, and the others are read; a variable that is not set
    stays as written."""

    environ: Mapping[str, str]
    base: Path
    lines: list[Line] = field(default_factory=list)
    index_url: str | None = None
    extra_index_urls: list[str] = field(default_factory=list)
    find_links: list[str] = field(default_factory=list)
    no_index: bool = False
    exclude_newer: str | None = None
    pre: bool = False
    notes: list[str] = field(default_factory=list)
    files: dict[str, None] = field(default_factory=dict)
    seen: set[tuple[str, bool]] = field(default_factory=set)
    skip_missing: bool = False
    missing: list[str] = field(default_factory=list)

    def expanded(self, text: str, origin: str) -> str:
        """Return a text of another file with the values of its variables. Raises MissingVariableError."""
        return variable_references.expand(text, self.environ, None if self.skip_missing else origin)

    def name(self, path: Path) -> str:
        """A file's name for origins: below the base, else as an absolute path."""
        relative = os.path.relpath(path, self.base)
        return str(path) if relative.startswith(os.pardir + os.sep) else relative


def base_of(files: Sequence[Path], folder: Path | None) -> Path:
    """The folder below which files are named: the project's, else the one that all of them share."""
    if folder is not None:
        return folder.absolute()
    return Path(os.path.commonpath([f.absolute().parent for f in files])) if files else Path.cwd()


def read(
    reading: Reading,
    path: Path,
    *,
    constraint: bool = False,
    within: tuple[Path, ...] = (),
    by: str | None = None,
) -> None:
    """Read one file, and what it includes, into `reading`. Raises UsageError naming file and line."""
    path = Path(os.path.normpath(path.absolute()))
    name = reading.name(path)
    if path in within:
        loop = " -> ".join(reading.name(p) for p in (*within[within.index(path) :], path))
        raise UsageError(f"requirements files include each other: {loop}", hint="take one -r line out")
    if len(within) > _MOST_DEEP:
        raise UsageError(f"{name}: files include each other more than {_MOST_DEEP} deep", hint="name fewer")
    if (str(path), constraint) in reading.seen:
        return
    reading.seen.add((str(path), constraint))
    data = read_bytes(path, name, by)
    reading.files[str(path)] = None
    if len(reading.files) > _MOST_FILES:
        raise UsageError(f"more than {_MOST_FILES} requirements files are included", hint="name fewer")
    text = decoded(data, name)
    refuse_other_formats(path, name, text)
    for number, line in logical_lines(text, reading.environ, None if reading.skip_missing else name):
        read_line(reading, line, f"{name} line {number}", (*within, path), constraint)
        if len(reading.lines) > _MOST_LINES:
            raise UsageError(f"{name}: more than {_MOST_LINES} requirements", hint="name fewer")


def read_line(reading: Reading, line: str, origin: str, within: tuple[Path, ...], constraint: bool) -> None:
    """Read one logical line into `reading`; `within` are the files that it stands in, the innermost last.
    Raises UsageError."""
    text, given = split_options(line, origin)
    folder = within[-1].parent
    folders = tuple(dict.fromkeys((folder, within[0].parent, reading.base, Path.cwd())))
    if text or given.editables:
        if text and given.editables:
            raise UsageError(
                f"{origin}: {shown(line)!r}: -e follows a requirement", hint="write them in two lines"
            )
        hashes = tuple(_hash(given_hash, origin) for given_hash in given.hashes)
        for body in [text] if text else given.editables:
            reading.lines.append(
                Line(
                    text=body, origin=origin, folders=folders, hashes=hashes if text else (),
                    editable=not text, constraint=constraint,
                )
            )  # fmt: skip
        reading.notes += [f"{shown(word)} ({origin}) is not followed" for word in given.not_followed]
        if is_of_a_line(given):
            reading.notes.append(
                f"the options behind a requirement ({origin}) are not followed, nor does pip follow them: "
                "they go into a line of their own"
            )
        return
    if given.hashes:
        raise UsageError(f"{origin}: a --hash without a requirement", hint="join it to the line before")
    for nested, kind in [(f, False) for f in given.requirements] + [(f, True) for f in given.constraints]:
        path = _included(nested, folder, origin)
        if reading.skip_missing and not path.exists():
            reading.missing.append(f"{reading.name(path)}, included by {origin}, does not exist")
            continue
        read(reading, path, constraint=kind, within=within, by=origin)
    _take_sources(reading, given, folder, origin)


def _included(text: str, folder: Path, origin: str) -> Path:
    if re.match(r"https?://", text):
        raise UsageError(
            f"{origin}: {shown(text)} is not fetched", hint="download the file and name it with -r"
        )
    if text.startswith("file://"):
        text = text.removeprefix("file://")
    if "\0" in text:
        raise UsageError(f"{origin}: {shown(text)!r} is no path", hint="check the path")
    return folder / text


def _hash(text: str, origin: str) -> str:
    if not re.fullmatch(r"(sha256|sha384|sha512):[0-9A-Fa-f]{64,128}", text):
        raise UsageError(
            f"{origin}: {shown(text)!r} is no hash like sha256:<64 hex digits>", hint="see pip hash"
        )
    return text.lower()


def _take_sources(reading: Reading, given: Values, folder: Path, origin: str) -> None:
    """Where packages come from; relative folders of wheels start at the file, as with pip."""
    if given.index_url:
        reading.index_url = given.index_url
    reading.extra_index_urls += given.extra_index_urls
    for place in given.find_links:
        beside = folder / place
        is_path = "://" not in place and not place.startswith("file:") and "\0" not in place
        reading.find_links.append(os.path.normpath(beside.absolute()) if is_path else place)
    reading.no_index = reading.no_index or given.no_index
    reading.pre = reading.pre or given.pre
    reading.notes += [f"{shown(text)} ({origin}) is not followed" for text in given.not_followed]


# --- files that are none -----------------------------------------------------------------------

_BY_NAME = {
    "pyproject.toml": "name its folder with --project",
    "setup.py": "name its folder with --project",
    "setup.cfg": "name its folder with --project",
    "pipfile": "`pipenv requirements > requirements.txt` writes a requirements file",
    "pipfile.lock": "`pipenv requirements > requirements.txt` writes a requirements file",
    "poetry.lock": "name the project's folder with --project",
    "uv.lock": "name the project's folder with --project, or `uv export > requirements.txt`",
    "conda-lock.yml": "gpuenv create --manager conda --lock conda-lock.yml",
    "pixi.lock": "gpuenv create --manager conda --lock pixi.lock",
}
_CONDA = "conda's packages have other names; name wheels in a requirements file, or use --manager conda"


def refuse_other_formats(path: Path, name: str, text: str) -> None:
    """Raises UsageError for a file of another program that people hand in as requirements."""
    lower = path.name.lower()
    if lower in _BY_NAME or (lower.startswith("pylock.") and lower.endswith(".toml")):
        hint = _BY_NAME.get(lower, f"gpuenv create --lock {name}")
        raise UsageError(f"{name} is no requirements file", hint=hint)
    if lower.endswith((".yml", ".yaml")) or re.search(r"(?m)^dependencies:\s*$", text):
        what = "is an environment file of conda" if "dependencies:" in text else "is YAML"
        raise UsageError(f"{name} {what}, no requirements file", hint=_CONDA)
    if lower.endswith((".py", ".ipynb", ".json", ".toml", ".lock", ".whl", ".zip", ".gz")):
        raise UsageError(f"{name} is no requirements file", hint="name a file with one requirement a line")
    if re.search(r"(?m)^@EXPLICIT\s*$", text):
        raise UsageError(
            f"{name} is an explicit list of conda, no requirements file",
            hint=f"gpuenv create --manager conda --lock {name}",
        )
    if re.search(r"(?m)^# \$ conda create --name|^# packages in environment at", text):
        raise UsageError(f"{name} is a list of conda packages, no requirements file", hint=_CONDA)
    if re.match(r"\s*Package +Version[^\n]*\n-+ -+", text):
        raise UsageError(
            f"{name} is the table of `pip list`", hint="`pip freeze > requirements.txt` writes requirements"
        )
    if re.match(r"\s*(<!doctype|<html)", text, re.IGNORECASE):
        raise UsageError(f"{name} is a web page, no requirements file", hint="download the file itself")
