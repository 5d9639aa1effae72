"""conda's environment.yml as requirements: packages under their wheels' names, CUDA, device and Python."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from provision.errors import UsageError
from provision.model import CondaName, normalize_name

from ..config.yaml_tree import Node, NotReadError, decode, tree
from ..quoted_text import requirement, shown
from .requirement import Line
from .requirements_files import Reading, read_line
from .requirements_text import read_bytes

FILES = ("environment.yml", "environment.yaml", "conda.yml", "conda.yaml")
_SPEC = re.compile(r"(?:[\w.:/-]+::)?([A-Za-z0-9_][A-Za-z0-9_.-]*)\s*(.*)", re.DOTALL)
_INCLUDE = re.compile(r"(?:-r|--requirement)[\s=]*(\S+)")
_CARRIED_KEYS = ("name", "dependencies", "prefix")


@dataclass(kw_only=True, slots=True)
class CondaEnvironment:
    """What an environment.yml asks for. `lines` are requirements as wheels are named, `included` the
    requirements files of its pip section, `python` a minor version ("3.10") or a specifier (">=3.8"), `cuda` a
    release ("11.8"). `left` says what is not carried over, an entry each."""

    lines: list[Line] = field(default_factory=list)
    included: list[str] = field(default_factory=list)
    find_links: list[str] = field(default_factory=list)
    python: str | None = None
    cuda: str | None = None
    device: str | None = None
    left: list[str] = field(default_factory=list)


def read(
    folder: Path,
    name: str,
    names: Mapping[str, CondaName],
    wheels: frozenset[str],
    environ: Mapping[str, str],
) -> CondaEnvironment:
    """Read an environment.yml of a folder. `names` are rows by conda's name; `wheels` are canonical names of
    distributions that conda names alike. Nothing is run or fetched. Raises UsageError."""
    try:
        root = tree(decode(read_bytes(folder / name, name)))
    except NotReadError as error:
        raise UsageError(f"{name} cannot be read: {error}") from error
    found = CondaEnvironment()
    for key, value in root.pairs if root else []:
        if key.text == "dependencies":
            _read_entries(found, folder, name, value, (names, wheels), environ)
        elif key.text == "channels":
            shown_channels = ", ".join(shown(item.text) for item in value.items)
            found.left.append(f"{name}: the channels {shown_channels} apply only with manager: conda")
        elif key.text not in _CARRIED_KEYS:
            found.left.append(f"{name} line {key.line}: {shown(key.text)} is not carried over")
    return found


def _read_entries(
    found: CondaEnvironment,
    folder: Path,
    name: str,
    listed: Node,
    known: tuple[Mapping[str, CondaName], frozenset[str]],
    environ: Mapping[str, str],
) -> None:
    for item in listed.items:
        origin = f"{name} line {item.line}"
        if item.kind == "scalar":
            _read_spec(found, item.text, origin, known)
        for wheel in _pip_section(item):
            _read_pip_line(found, folder, name, wheel, environ)


def _pip_section(item: Node) -> Iterator[Node]:
    for key, value in item.pairs:
        if key.text == "pip" and value.kind == "list":
            yield from (wheel for wheel in value.items if wheel.kind == "scalar")


def _read_pip_line(
    found: CondaEnvironment, folder: Path, name: str, item: Node, environ: Mapping[str, str]
) -> None:
    """One line of the pip section, read as a line of a requirements file in the same folder."""
    origin = f"{name} line {item.line}"
    if include := _INCLUDE.fullmatch(item.text.strip()):
        found.included.append(include[1])
        return
    reading = Reading(environ=environ, base=folder)
    try:
        read_line(reading, item.text.strip(), origin, (folder / name,), constraint=False)
    except UsageError as error:
        found.left.append(error.message)
        return
    found.lines += reading.lines
    found.find_links += reading.find_links
    found.left += reading.notes
    indexes = [*([reading.index_url] if reading.index_url else []), *reading.extra_index_urls]
    found.left += [f"the index {shown(url)} ({origin}) is not carried over" for url in indexes]


def _read_spec(
    found: CondaEnvironment, text: str, origin: str, known: tuple[Mapping[str, CondaName], frozenset[str]]
) -> None:
    """One package of conda: what it is outside of conda, with its version as PEP 440 has it."""
    names, wheels = known
    spec = _SPEC.fullmatch(text.strip())
    conda = spec[1].lower() if spec else ""
    bounds, build = pep440(spec[2]) if spec else (None, None)
    row = names.get(conda)
    if conda == "python" and bounds is not None:
        found.python = found.python or _minor(bounds) or bounds or None
    elif row and row.means == "cuda" and bounds and (release := _release(bounds)):
        found.cuda = found.cuda or release
    elif row and row.means == "cpu":
        found.device = "cpu"
    elif row and row.means == "plan":
        found.left.append(f"{shown(text)} ({origin}) is left to the plan")
    elif bounds is None:
        found.left.append(f"{shown(text)} ({origin}) has no version that wheels can be asked for")
    elif (wheel := row.package if row else conda if normalize_name(conda) in wheels else None) is None:
        why = "is a program, not a Python package" if row else "has no known wheel"
        found.left.append(f"{shown(text)} ({origin}) {why}: install it by other means, or add its wheel")
    else:
        found.lines.append(Line(text=f"{wheel}{bounds}", origin=origin))
        in_build = re.search(r"cuda_?(\d+\.\d+)", build or "")
        found.cuda = found.cuda or (in_build[1] if in_build else None)


def pep440(text: str) -> tuple[str | None, str | None]:
    """A version part of a conda package specification as a PEP 440 specifier ("" for any), and its build
    string. None where PEP 440 has no such form.

    The rules are those of conda's documentation of package match specifications: "=1.2" is any 1.2.x, "1.2"
    and "=1.2=build" are exactly 1.2, "|" is "or" and has no counterpart.
    """
    packed = re.sub(r" ?([<>=!~,|]) ?", r"\1", " ".join(text.split()))
    version, _, build = packed.partition(" ")
    if exact := re.fullmatch(r"={1,2}([^=<>!~,|\s]+)=(\S+)", version):
        return _checked(_clause("", exact[1])), exact[2]
    if fuzzy := re.fullmatch(r"=([^=<>!~,|\s]+)", version):
        series = fuzzy[1].removesuffix(".*").rstrip("*")
        longer = series.count(".") >= 2  # 1.11.0 has no patch releases
        return _checked(f"=={series}" if longer else f"=={series}.*"), build or None
    clauses = [_clause(*re.fullmatch(r"([<>=!~]*)(.*)", c, re.DOTALL).groups()) for c in version.split(",")]  # type: ignore[union-attr]  # matches any text
    return _checked(",".join(filter(None, clauses))), build or None


def _clause(operator: str, version: str) -> str:
    if version in ("", "*"):
        return operator  # an operator alone is refused by the check
    if version.endswith("*"):
        series = version.rstrip("*").rstrip(".")
        return f"{operator or '=='}{series}.*" if operator in ("", "=", "==", "!=") else f"{operator}{series}"
    return f"{'==' if operator in ('', '=') else operator}{version}"


def _checked(bounds: str) -> str | None:
    try:
        return str(requirement(f"name{bounds}").specifier)
    except ValueError:
        return None


def _minor(bounds: str) -> str | None:
    """The one minor version that bounds on Python allow: "3.8" of "==3.8.5" and of "==3.8.*"."""
    found = re.fullmatch(r"==(3\.\d+)(\.\d+|\.\*)*", bounds)
    return found[1] if found else None


def _release(bounds: str) -> str | None:
    """The CUDA release that bounds name: "11.8" of "==11.8.*" and of "==11.8.0"."""
    found = re.fullmatch(r"==(\d+(?:\.\d+)?)(\.\d+|\.\*)*", bounds)
    return found[1] if found else None
