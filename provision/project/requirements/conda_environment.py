"""Read conda's environment.yml: requirements under wheel names, CUDA, device and Python."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from provision.errors import UsageError
from provision.model import CondaName, normalize_name

from ..config.yaml_tree import NotReadError, YamlNode, decode_yaml, parse_yaml
from ..quote_for_messages_and_parse_requirement import parse_requirement, quote_text
from ..tree import find_root, refuse_outside
from .requirement import SourceLine
from .requirements_files import ReadingState, read_line
from .requirements_text import read_bytes

FILES = ("environment.yml", "environment.yaml", "conda.yml", "conda.yaml")
_SPEC = re.compile(r"(?:[\w.:/-]+::)?([A-Za-z0-9_][A-Za-z0-9_.-]*)\s*(.*)", re.DOTALL)
_INCLUDE = re.compile(r"(?:-r|--requirement)[\s=]*(\S+)")
_CARRIED_KEYS = ("name", "dependencies", "prefix")


@dataclass(kw_only=True, slots=True)
class CondaEnvironment:
    """The requirements of an environment.yml.

    `lines` have the names of wheels. `included` are the requirements files of the pip section. `python` is a minor
    version ("3.10") or a specifier (">=3.8"), `cuda` a release ("11.8"). `left` lists what was not carried over.
    """

    lines: list[SourceLine] = field(default_factory=list)
    included: list[str] = field(default_factory=list)
    find_links: list[str] = field(default_factory=list)
    python: str | None = None
    cuda: str | None = None
    device: str | None = None
    left: list[str] = field(default_factory=list)


def read_environment_file(
    folder: Path,
    name: str,
    names: Mapping[str, CondaName],
    wheels: frozenset[str],
    environ: Mapping[str, str],
) -> CondaEnvironment:
    """Read an environment.yml without running or fetching anything. Raises UsageError.

    `names` maps a conda name to its row. `wheels` are normalized names that conda and the index share.
    """
    try:
        root = parse_yaml(decode_yaml(read_bytes(folder / name, name)))
    except NotReadError as error:
        raise UsageError(f"{name} cannot be read: {error}") from error
    result = CondaEnvironment()
    for key, value in root.pairs if root else []:
        if key.text == "dependencies":
            _read_entries(result, folder, name, value, (names, wheels), environ)
        elif key.text == "channels":
            shown_channels = ", ".join(quote_text(item.text) for item in value.items)
            result.left.append(f"{name}: the channels {shown_channels} apply only with manager: conda")
        elif key.text not in _CARRIED_KEYS:
            result.left.append(f"{name} line {key.line}: {quote_text(key.text)} is ignored")
    return result


# Six parameters: the result, the file with its folder and its entries, and the facts to read them by.
def _read_entries(
    result: CondaEnvironment,
    folder: Path,
    name: str,
    listed: YamlNode,
    known: tuple[Mapping[str, CondaName], frozenset[str]],
    environ: Mapping[str, str],
) -> None:
    for item in listed.items:
        origin = f"{name} line {item.line}"
        if item.kind == "scalar":
            _read_spec(result, item.text, origin, known)
        for wheel in _pip_section(item):
            _read_pip_line(result, folder, name, wheel, environ)


def _pip_section(item: YamlNode) -> Iterator[YamlNode]:
    for key, value in item.pairs:
        if key.text == "pip" and value.kind == "list":
            yield from (wheel for wheel in value.items if wheel.kind == "scalar")


def _read_pip_line(
    result: CondaEnvironment, folder: Path, name: str, item: YamlNode, environ: Mapping[str, str]
) -> None:
    """Read a line of the pip section as a line of a requirements file in the same folder."""
    origin = f"{name} line {item.line}"
    reading = ReadingState(environ=environ, base=folder)
    try:
        if include := _INCLUDE.fullmatch(item.text.strip()):
            refuse_outside(
                folder / include[1], [find_root(folder)], origin, "name it on the command line with -r"
            )
            result.included.append(include[1])
            return
        read_line(reading, item.text.strip(), origin, (folder / name,), constraint=False)
    except UsageError as error:
        result.left.append(error.message)
        return
    result.lines += reading.lines
    result.find_links += reading.find_links
    result.left += reading.notes
    indexes = [*([reading.index_url] if reading.index_url else []), *reading.extra_index_urls]
    result.left += [f"the index {quote_text(url)} ({origin}) is ignored" for url in indexes]


def _read_spec(
    result: CondaEnvironment, text: str, origin: str, known: tuple[Mapping[str, CondaName], frozenset[str]]
) -> None:
    """Read one conda package under its name and version outside of conda."""
    names, wheels = known
    spec = _SPEC.fullmatch(text.strip())
    conda = spec[1].lower() if spec else ""
    bounds, build = convert_specifier(spec[2]) if spec else (None, None)
    row = names.get(conda)
    if conda == "python" and bounds is not None:
        result.python = result.python or _find_minor(bounds) or bounds or None
    elif row and row.means == "cuda" and bounds and (release := _find_release(bounds)):
        result.cuda = result.cuda or release
    elif row and row.means == "cpu":
        result.device = "cpu"
    elif row and row.means == "plan":
        result.left.append(
            f"{quote_text(text)} ({origin}) is ignored, because gpuenv selects this package itself"
        )
    elif bounds is None:
        result.left.append(f"{quote_text(text)} ({origin}) has a version that is not in PEP 440 form")
    elif (wheel := row.package if row else conda if normalize_name(conda) in wheels else None) is None:
        why = "is a program, not a Python package" if row else "has no known wheel"
        result.left.append(f"{quote_text(text)} ({origin}) {why}: install it separately, or add its wheel")
    else:
        result.lines.append(SourceLine(text=f"{wheel}{bounds}", origin=origin))
        in_build = re.search(r"cuda_?(\d+\.\d+)", build or "")
        result.cuda = result.cuda or (in_build[1] if in_build else None)


def convert_specifier(text: str) -> tuple[str | None, str | None]:
    """Return the PEP 440 specifier ("" for any version) and the build string of a conda specification.

    Returns None where PEP 440 has no such form. conda documents the rules under package match specifications:
    "=1.2" is any 1.2.x, "1.2" and "=1.2=build" are exactly 1.2, and "|" means "or".
    """
    packed = re.sub(r" ?([<>=!~,|]) ?", r"\1", " ".join(text.split()))
    version, _, build = packed.partition(" ")
    if exact := re.fullmatch(r"={1,2}([^=<>!~,|\s]+)=(\S+)", version):
        return _validate_bounds(_convert_clause("", exact[1])), exact[2]
    if fuzzy := re.fullmatch(r"=([^=<>!~,|\s]+)", version):
        series = fuzzy[1].removesuffix(".*").rstrip("*")
        longer = series.count(".") >= 2  # 1.11.0 has no patch releases
        return _validate_bounds(f"=={series}" if longer else f"=={series}.*"), build or None
    matches = (re.fullmatch(r"([<>=!~]*)(.*)", c, re.DOTALL) for c in version.split(","))
    clauses = [
        _convert_clause(match[1], match[2]) for match in matches if match
    ]  # the pattern matches any text
    return _validate_bounds(",".join(filter(None, clauses))), build or None


def _convert_clause(operator: str, version: str) -> str:
    if version in ("", "*"):
        return operator  # _checked rejects an operator alone
    if version.endswith("*"):
        series = version.rstrip("*").rstrip(".")
        return f"{operator or '=='}{series}.*" if operator in ("", "=", "==", "!=") else f"{operator}{series}"
    return f"{'==' if operator in ('', '=') else operator}{version}"


def _validate_bounds(bounds: str) -> str | None:
    try:
        return str(parse_requirement(f"name{bounds}").specifier)
    except ValueError:
        return None


def _find_minor(bounds: str) -> str | None:
    """Return the only minor version that bounds on Python allow: "3.8" for "==3.8.5" and "==3.8.*"."""
    match = re.fullmatch(r"==(3\.\d+)(\.\d+|\.\*)*", bounds)
    return match[1] if match else None


def _find_release(bounds: str) -> str | None:
    """Return the CUDA release that bounds name: "11.8" for "==11.8.*" and "==11.8.0"."""
    match = re.fullmatch(r"==(\d+(?:\.\d+)?)(\.\d+|\.\*)*", bounds)
    return match[1] if match else None
