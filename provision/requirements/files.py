"""Read requirement files and conda environment files, with the files that they include."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from optparse import Values
from pathlib import Path

from ..errors import UsageError
from ..model import CONDA_LOCK, Profiles, is_venv_lock, normalize_name, requirement_name
from ..system import grants, untrusted
from . import poetry
from .lines import SourceLine, has_file_options, split_lines, split_options
from .nodes import NotReadError, YamlNode, decode_yaml, parse_yaml
from .quote import parse_requirement, quote_text
from .toml import TomlFile, read_toml
from .tree import find_root, read_bytes, refuse_outside

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


PIXI, PIPFILE = "pixi.toml", "Pipfile"
FILES = ("environment.yml", "environment.yaml", "conda.yml", "conda.yaml", PIXI, PIPFILE)
_SPEC = re.compile(r"(?:[\w.:/-]+::)?([A-Za-z0-9_][A-Za-z0-9_.-]*)\s*(.*)", re.DOTALL)
_INCLUDE = re.compile(r"(?:-r|--requirement)[\s=]*(\S+)")
_CARRIED_KEYS = ("name", "dependencies", "prefix")


_PIP_INSTALL = re.compile(r"\bpip[\d.]* install\b([^&|;\n]*)")
_WITH_VALUE = re.compile(
    r"-[rcitef]|--(?:requirement|constraint|index-url|extra-index-url|target|editable|find-links|python)"
)
_INSTALLERS = ("pip", "setuptools", "wheel")


@dataclass(kw_only=True, slots=True)
class CondaEnvironment:
    """The requirements of an environment.yml in `folder`, or of another file that gpuenv.yaml cannot list.

    `lines` have the names of wheels. `included` are the requirements files of the pip section. `python` is a minor
    version ("3.10") or a specifier (">=3.8"), `cuda` a release ("11.8"); `origins` has the
    place of each. `left` lists what was not carried over. `entries` counts the conda packages, and `exact` those with a
    release (numpy=1.26.4, with its build or not).
    """

    folder: Path
    known: Profiles
    environ: Mapping[str, str]
    lines: list[SourceLine] = field(default_factory=list)
    included: list[str] = field(default_factory=list)
    find_links: list[str] = field(default_factory=list)
    python: str | None = None
    cuda: str | None = None
    device: str | None = None
    origins: dict[str, str] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    entries: int = 0
    exact: int = 0

    @property
    def is_export(self) -> bool:
        """Whether the file lists what one machine had installed, and not what a project requires."""
        return self.exact > max(20, 0.9 * self.entries)

    def read(self, name: str) -> None:
        """Read an environment.yml, pixi.toml or Pipfile without running or fetching anything. Raises UsageError."""
        if name in (PIXI, PIPFILE):
            file = read_toml(self.folder / name, name)
            (self._read_pixi if name == PIXI else self._read_pipfile)(file)
            return
        try:
            root = parse_yaml(decode_yaml(read_bytes(self.folder / name, name)))
        except NotReadError as error:
            raise UsageError(f"{name} cannot be read: {error}") from error
        for key, value in root.pairs if root else []:
            if key.text == "dependencies":
                self._read_entries(name, value)
            elif key.text == "channels":
                shown_channels = ", ".join(quote_text(item.text) for item in value.items)
                self.left.append(f"{name}: the channels {shown_channels} apply only with manager: conda")
            elif key.text not in _CARRIED_KEYS:
                self.left.append(f"{name} line {key.line}: {quote_text(key.text)} is ignored")

    def _read_entries(self, name: str, listed: YamlNode) -> None:
        for item in listed.items:
            if item.kind == "scalar":
                self._read_spec(item.text, f"{name} line {item.line}")
            for key, value in item.pairs:
                for wheel in value.items if key.text == "pip" else ():
                    if wheel.kind == "scalar":
                        self._read_pip_line(name, wheel.text.strip(), f"{name} line {wheel.line}")

    def _read_pixi(self, file: TomlFile) -> None:
        """Read the packages that the default environment of pixi.toml has on Linux. Other features are left to the user."""
        default = file.at("environments").get("default", [])
        named = default.get("features") if isinstance(default, dict) else default
        features = [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
        for part in ((), *(("feature", name) for name in features)):
            for keys in (part, *((*part, "target", system) for system in ("unix", "linux", "linux-64"))):
                for name, value in file.at(*keys, "dependencies").items():
                    version = value.get("version", "*") if isinstance(value, dict) else value
                    origin = file.locate_key(name, ".".join((*keys, "dependencies")))
                    self._read_spec(f"{name} {version}", origin)
                self._read_wheels(file, *keys, "pypi-dependencies")
        self.left += [
            f"{PIXI}: feature {quote_text(name)} is not included"
            for name in file.at("feature")
            if name not in features
        ]

    def _read_pipfile(self, file: TomlFile) -> None:
        self._read_wheels(file, "packages")
        if isinstance(version := file.at("requires").get("python_version"), str):
            self.python, self.origins["python"] = version, file.locate_key("python_version", "requires")

    def _read_wheels(self, file: TomlFile, *keys: str) -> None:
        wheels = poetry.read_dependencies(file, *keys)
        self.lines += [SourceLine(text=line, origin=o, folders=(self.folder,)) for line, o, _ in wheels]

    def read_commands(self, texts: Iterable[tuple[str, str]]) -> None:
        """Read the packages that commands of pip install, from pairs of a file's name and text. The first mention of one counts."""
        named = set(_INSTALLERS)
        for name, text in texts:
            number, unit = 1, "cell" if name.endswith(".ipynb") else "line"
            for line in text.replace("\r\n", "\n").replace("\\\n", " \0").split("\n"):
                for command in _PIP_INSTALL.findall(line) if not line.startswith("#") else ():
                    try:
                        words = shlex.split(command.replace("\0", " "), comments=True)
                    except ValueError:
                        continue
                    for before, word in pairwise(["", *words]):
                        options = word.startswith(("-", ".")) or "$" in word or _WITH_VALUE.fullmatch(before)
                        if not options and requirement_name(word) not in named:
                            named.add(requirement_name(word))
                            self._read_pip_line(name, word, f"{name} {unit} {number}")
                number += 1 + line.count("\0")

    def _read_pip_line(self, name: str, text: str, origin: str) -> None:
        """Read a line of the pip section as a line of a requirements file in the same folder."""
        folder, reading = self.folder, ReadingState(environ=self.environ, base=self.folder)
        try:
            if include := _INCLUDE.fullmatch(text):
                refuse_outside(
                    folder / include[1], [find_root(folder)], origin, "name it on the command line with -r"
                )
                self.included.append(include[1])
                return
            read_line(reading, text, origin, (folder / name,), constraint=False)
        except UsageError as error:
            self.left.append(error.message)
            return
        self.lines += reading.lines
        self.find_links += reading.find_links
        self.left += reading.notes
        indexes = [*([reading.index_url] if reading.index_url else []), *reading.extra_index_urls]
        self.left += [f"the index {quote_text(url)} ({origin}) is ignored" for url in indexes]

    def _read_spec(self, text: str, origin: str) -> None:
        """Read one conda package under its name and version outside of conda."""
        spec = _SPEC.fullmatch(text.strip())
        conda = spec[1].lower() if spec else ""
        bounds, build = convert_specifier(spec[2]) if spec else (None, None)
        row = next((row for row in self.known.conda_names if row.conda == conda), None)
        self.entries += 1
        self.exact += bool(build) or bool(spec and re.fullmatch(r"=[^=*|,]+", spec[2]))
        if conda == "python" and bounds is not None:
            self.python = self.python or _find_minor(bounds) or bounds or None
            self.origins.setdefault("python", origin)
        elif row and row.means == "cuda" and bounds and (release := _find_release(bounds)):
            self.cuda = self.cuda or release
            self.origins.setdefault("cuda", origin)
        elif row and row.means == "cpu":
            self.device = "cpu"
            self.origins.setdefault("device", origin)
        elif row and row.means in ("cuda", "plan"):
            self.left.append(
                f"{quote_text(text)} ({origin}) is ignored, because gpuenv selects this package itself"
            )
        elif bounds is None:
            self.left.append(f"{quote_text(text)} ({origin}) has a version that is not in PEP 440 form")
        elif (
            wheel := row.package if row else conda if normalize_name(conda) in self.known.wheels else None
        ) is None:
            why = "is a program, not a Python package" if row else "has no known wheel"
            self.left.append(f"{quote_text(text)} ({origin}) {why}: install it separately, or add its wheel")
        else:
            self.lines.append(SourceLine(text=f"{wheel}{bounds}", origin=origin))
            in_build = re.search(r"cuda_?(\d+\.\d+)", build or "")
            if in_build and not self.cuda:
                self.cuda, self.origins["cuda"] = in_build[1], origin


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
        return operator  # _validate_bounds rejects an operator alone
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
