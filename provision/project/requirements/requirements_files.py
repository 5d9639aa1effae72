"""Read requirements files, and the files that they include, as requirement lines and package sources."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from optparse import Values
from pathlib import Path

from provision.errors import UsageError
from provision.system import grants, untrusted

from ...model import CONDA_LOCK, is_venv_lock
from ..quote_for_messages_and_parse_requirement import quote_text
from ..tree import find_root, refuse_outside
from .requirement import SourceLine
from .requirements_text import has_file_options, read_bytes, split_lines, split_options

_MOST_FILES = 500
_MOST_DEEP = 40
_MOST_LINES = 100_000


@dataclass(kw_only=True, slots=True)
class ReadingState:
    """The state of reading requirements files.

    `base` is the folder that file names in origins are relative to, and `roots` has the tree of the project's folder.
    With `skip_missing`, an included file that does not exist is recorded in `missing`, and variables are not replaced.
    """

    environ: Mapping[str, str]
    base: Path
    roots: tuple[Path, ...] = ()
    lines: list[SourceLine] = field(default_factory=list)
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

    def expand(self, address: str, origin: str) -> str:
        """Return an address with the values of its variables. Raises UsageError."""
        return address if self.skip_missing else grants.expand(address, origin, self.environ)

    def name_file(self, path: Path) -> str:
        """Return a file's name for origins: relative to the base, or the absolute path outside of it."""
        relative = os.path.relpath(path, self.base)
        return str(path) if relative.startswith(os.pardir + os.sep) else relative


def find_common_folder(files: Sequence[Path], folder: Path | None) -> Path:
    """Return the project's folder, else the common folder of the files."""
    if folder is not None:
        return folder.absolute()
    return Path(os.path.commonpath([f.absolute().parent for f in files])) if files else Path.cwd()


def read_requirements_file(
    reading: ReadingState,
    path: Path,
    *,
    constraint: bool = False,
    within: tuple[Path, ...] = (),
    by: str | None = None,
) -> None:
    """Read a file, and the files that it includes, into `reading`. Raises UsageError with file and line."""
    path = Path(os.path.normpath(path.absolute()))
    name = reading.name_file(path)
    if path in within:
        loop = " -> ".join(reading.name_file(p) for p in (*within[within.index(path) :], path))
        raise UsageError(f"requirements files include each other: {loop}", hint="remove one -r line")
    if len(within) > _MOST_DEEP:
        raise UsageError(
            f"{name}: files include each other more than {_MOST_DEEP} deep", hint="include fewer files"
        )
    if (str(path), constraint) in reading.seen:
        return
    reading.seen.add((str(path), constraint))
    data = read_bytes(path, name, by)
    reading.files[str(path)] = None
    if len(reading.files) > _MOST_FILES:
        raise UsageError(
            f"more than {_MOST_FILES} requirements files are included", hint="include fewer files"
        )
    text = untrusted.decode(data, name)
    refuse_other_formats(path, name, text)
    for number, line in split_lines(text):
        read_line(reading, line, f"{name} line {number}", (*within, path), constraint)
        if len(reading.lines) > _MOST_LINES:
            raise UsageError(f"{name}: more than {_MOST_LINES} requirements", hint="list fewer requirements")


def read_line(
    reading: ReadingState, line: str, origin: str, within: tuple[Path, ...], constraint: bool
) -> None:
    """Read one logical line into `reading`. Raises UsageError.

    `within` are the files that include it, with the file of the line last.
    """
    text, options = split_options(line, origin)
    folder = within[-1].parent
    folders = tuple(dict.fromkeys((folder, within[0].parent, reading.base, Path.cwd())))
    roots = (find_root(within[0].parent), *reading.roots)
    if text or options.editables:
        if text and options.editables:
            raise UsageError(
                f"{origin}: {quote_text(line)!r}: -e follows a requirement", hint="write them on two lines"
            )
        hashes = tuple(_parse_hash(digest, origin) for digest in options.hashes)
        for body in [text] if text else options.editables:
            reading.lines.append(
                SourceLine(
                    text=body, origin=origin, folders=folders, hashes=hashes if text else (),
                    editable=not text, constraint=constraint, roots=roots,
                )
            )  # fmt: skip
        reading.notes += [f"{quote_text(word)} ({origin}) is ignored" for word in options.not_followed]
        if has_file_options(options):
            reading.notes.append(
                f"options after a requirement ({origin}) are ignored, as in pip. "
                "Write them on a separate line"
            )
        return
    if options.hashes:
        raise UsageError(f"{origin}: a --hash without a requirement", hint="join it to the line before")
    for nested, kind in [(f, False) for f in options.requirements] + [(f, True) for f in options.constraints]:
        path = _resolve_include(nested, folder, origin)
        refuse_outside(path, roots, origin, "name it on the command line with -r")
        if reading.skip_missing and not path.exists():
            reading.missing.append(f"{reading.name_file(path)}, included by {origin}, does not exist")
            continue
        read_requirements_file(reading, path, constraint=kind, within=within, by=origin)
    _take_sources(reading, options, folder, origin, roots)


def _resolve_include(text: str, folder: Path, origin: str) -> Path:
    grants.refuse_reference(text, origin)
    if re.match(r"https?://", text):
        raise UsageError(
            f"{origin}: {quote_text(text)} is not downloaded by gpuenv",
            hint="download the file and name it with -r",
        )
    if text.startswith("file://"):
        text = text.removeprefix("file://")
    if "\0" in text:
        raise UsageError(f"{origin}: {quote_text(text)!r} is not a path", hint="check the path")
    return folder / text


def _parse_hash(text: str, origin: str) -> str:
    if not re.fullmatch(r"(sha256|sha384|sha512):[0-9A-Fa-f]{64,128}", text):
        raise UsageError(
            f"{origin}: {quote_text(text)!r} is not a hash like sha256:<64 hex digits>", hint="see pip hash"
        )
    return text.lower()


def _take_sources(
    reading: ReadingState, options: Values, folder: Path, origin: str, roots: Sequence[Path]
) -> None:
    """Record where packages come from. A relative --find-links starts at the file, as with pip."""
    if options.index_url:
        reading.index_url = reading.expand(options.index_url, origin)
    reading.extra_index_urls += [reading.expand(url, origin) for url in options.extra_index_urls]
    for place in options.find_links:
        written = reading.expand(place, origin)
        if "://" in written and not written.startswith("file:"):
            reading.find_links.append(written)
            continue
        path = _resolve_include(written, folder, origin)
        refuse_outside(path, roots, origin, "name it on the command line with --find-links")
        reading.find_links.append(os.path.normpath(path.absolute()))
    reading.no_index = reading.no_index or options.no_index
    reading.pre = reading.pre or options.pre
    reading.notes += [f"{quote_text(text)} ({origin}) is ignored" for text in options.not_followed]


# --- files of other formats ------------------------------------------------------------------

_BY_NAME = {
    "pyproject.toml": "name its folder with --project",
    "setup.py": "name its folder with --project",
    "setup.cfg": "name its folder with --project",
    "pipfile": "write a requirements file with `pipenv requirements > requirements.txt`",
    "pipfile.lock": "write a requirements file with `pipenv requirements > requirements.txt`",
    "poetry.lock": "name the project's folder with --project",
    "uv.lock": "name the project's folder with --project, or `uv export > requirements.txt`",
    CONDA_LOCK: "gpuenv create --manager conda --lock conda-lock.yml",
    "pixi.lock": "gpuenv create --manager conda --lock pixi.lock",
}
_CONDA = "name wheels in a requirements file, or use --manager conda: conda's packages have other names"


def refuse_other_formats(path: Path, name: str, text: str) -> None:
    """Raise UsageError for a file of another program that is not a requirements file."""
    lower = path.name.lower()
    if lower in _BY_NAME or is_venv_lock(lower):
        hint = _BY_NAME.get(lower, f"gpuenv create --lock {name}")
        raise UsageError(f"{name} is not a requirements file", hint=hint)
    if lower.endswith((".yml", ".yaml")) or re.search(r"(?m)^dependencies:\s*$", text):
        what = "is an environment file of conda" if "dependencies:" in text else "is YAML"
        raise UsageError(f"{name} {what}, not a requirements file", hint=_CONDA)
    if lower.endswith((".py", ".ipynb", ".json", ".toml", ".lock", ".whl", ".zip", ".gz")):
        raise UsageError(f"{name} is not a requirements file", hint="name a file with one requirement a line")
    if re.search(r"(?m)^@EXPLICIT\s*$", text):
        raise UsageError(
            f"{name} is an explicit list of conda, not a requirements file",
            hint=f"gpuenv create --manager conda --lock {name}",
        )
    if re.search(r"(?m)^# \$ conda create --name|^# packages in environment at", text):
        raise UsageError(f"{name} is a list of conda packages, not a requirements file", hint=_CONDA)
    if re.match(r"\s*Package +Version[^\n]*\n-+ -+", text):
        raise UsageError(
            f"{name} is the table of `pip list`",
            hint="write requirements with `pip freeze > requirements.txt`",
        )
    if re.match(r"\s*(<!doctype|<html)", text, re.IGNORECASE):
        raise UsageError(f"{name} is a web page, not a requirements file", hint="download the file itself")
