"""Requirements and their markers, and the lines of requirement files."""

from __future__ import annotations

import dataclasses
import functools
import optparse
import re
import shlex
import urllib.parse
from collections.abc import Iterator, Mapping
from optparse import Values
from pathlib import Path
from typing import Any, NoReturn

from packaging.markers import Marker

from ..errors import MissingPathError, UsageError
from ..model import RequirementLine, normalize_name
from ..model.values import Value
from ..system import grants
from ..system.untrusted import file_name_of_url
from . import quote
from .quote import LONGEST, quote_text
from .tree import BUILDABLE, refuse_outside

# Python versions to try where the target has none, with some that do not exist yet
_MINORS = tuple(f"3.{minor}" for minor in range(6, 31))
_VARIABLES = (
    "os_name", "sys_platform", "platform_machine", "platform_python_implementation", "platform_release",
    "platform_system", "platform_version", "python_version", "python_full_version", "implementation_name",
    "implementation_version",
)  # fmt: skip
_ASSUMED = {"platform_python_implementation": "CPython", "implementation_name": "cpython", "extra": ""}


def may_apply(marker: Marker | None, known: Mapping[str, str]) -> bool:
    """Return whether a marker is true for some machine with the `known` variables.

    An unknown Python version is tried with every version. Any other unknown variable may have any value.
    """
    if marker is None:
        return True
    text = re.sub(r"\"[^\"]*\"|'[^']*'", "''", str(marker))
    used = {name for name in _VARIABLES if re.search(rf"\b{name}\b", text)}
    environment = {**_ASSUMED, **known}
    of_python = {"python_version", "python_full_version"}
    if used - set(environment) - of_python:
        return True
    pythons = _list_pythons(known)
    tries = pythons if used & of_python else pythons[:1]
    return any(_is_true(marker, {**environment, **python}) for python in tries)


def pythons_of(marker: Marker | None, known: Mapping[str, str]) -> tuple[str, ...]:
    """Return the minor versions of Python for which a marker may apply, or none if it does not depend on Python."""
    if marker is None or "python_" not in str(marker) or "python_version" in known:
        return ()
    return tuple(m for m in _MINORS if may_apply(marker, {**known, "python_version": m}))


def _list_pythons(known: Mapping[str, str]) -> list[dict[str, str]]:
    minor, full = known.get("python_version"), known.get("python_full_version")
    if full:
        return [{"python_full_version": full, "python_version": minor or ".".join(full.split(".")[:2])}]
    minors = (minor,) if minor else _MINORS
    return [
        {"python_version": m, "python_full_version": f"{m}.{patch}"} for m in minors for patch in (0, 9, 99)
    ]


def _is_true(marker: Marker, environment: Mapping[str, str]) -> bool:
    from packaging.markers import UndefinedComparison, UndefinedEnvironmentName

    try:
        return marker.evaluate(dict(environment))
    except (UndefinedComparison, UndefinedEnvironmentName, ValueError):
        return True  # the solver reports a comparison that pip rejects


_NAMED = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(?:\s*\[(?P<extras>[^\]]*)\])?\s*@\s*(?P<url>\S.*)")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_SCP = re.compile(r"(git\+)?[A-Za-z0-9._-]+@[A-Za-z0-9._-]+:(?!//)")
_EXTRAS = re.compile(r"[A-Za-z0-9._,\s-]*")
_MARKED = re.compile(r"\s;|;\s")


class SourceLine(RequirementLine):
    """A requirement as written in a file. A relative path may start from any of `folders`.

    Paths lead only into the trees `roots`; without roots the user typed them, and they may lead anywhere.
    """

    folders: tuple[Path, ...] = ()
    roots: tuple[Path, ...] = ()

    def error(self, what: str, hint: str, kind: type[UsageError] = UsageError) -> UsageError:
        return kind(f"{self.origin}: {quote.quote_text(self.text)!r}: {what}", hint=hint)


class ParsedRequirement(Value):
    """The parts of a requirement. `url` is an absolute address, `local` the folder that it names."""

    line: SourceLine
    name: str | None
    extras: tuple[str, ...] = ()
    specifier: str = ""
    url: str | None = None
    marker: Marker | None = None
    local: str | None = None
    vcs: bool = False

    @property
    def package(self) -> str:
        """The name in normal form, or "" if only the file states it."""
        return normalize_name(self.name or "")

    @property
    def text(self) -> str:
        """Return the requirement as PEP 508. The address alone replaces a name that only its file states."""
        extras = f"[{','.join(self.extras)}]" if self.extras else ""
        if self.url is None:
            body = f"{self.name}{extras}{self.specifier}"
        else:
            body = f"{self.name}{extras} @ {self.url}" if self.name else f"{self.url}{extras}"
        return f"{body} ; {self.marker}" if self.marker else body

    def as_line(self) -> RequirementLine:
        """Return the requirement for the solver."""
        return dataclasses.replace(self.line, text=self.text, name=self.name, local=self.local, vcs=self.vcs)


def parse_line(line: SourceLine, environ: Mapping[str, str] | None = None) -> ParsedRequirement:
    """Parse a requirement in any form that pip reads. Raises UsageError with file and line.

    `environ` has the values of variables in addresses. Without it they stay references.
    """
    requirement = _parse_forms(line, environ)
    if line.constraint and (
        requirement.name is None or (requirement.extras and not line.override) or line.editable
    ):
        raise line.error(
            "a constraint must be a name with a bound", "move extras, -e and bare addresses to a -r file"
        )
    if line.editable and not (requirement.vcs or requirement.local):
        raise line.error("only a folder or a commit can be editable", "remove -e")
    return requirement


def _parse_forms(line: SourceLine, environ: Mapping[str, str] | None) -> ParsedRequirement:
    text = line.text
    if len(text) > quote.LONGEST:
        raise line.error(
            f"the requirement is too long: {len(text)} characters", "write a shorter requirement"
        )
    marked = _MARKED.search(text)
    body = text[: marked.start()].strip() if marked else text
    if _SCP.match(body):
        raise line.error("scp-style git addresses are not supported", "write git+ssh://git@HOST/PATH")
    if "@" in body and (meant := quote.suggest_version(body)):
        raise line.error("a version follows ==, not @", f"write {meant}")
    if named := _NAMED.fullmatch(body):
        place = named["url"]
        parsed = ParsedRequirement(line=line, name=named["name"], extras=_split_words(named["extras"]))
    elif "://" in body.split(" ")[0] or body.startswith("file:") or line.editable or _is_path(body):
        place, extras = _split_extras(body)
        parsed = ParsedRequirement(line=line, name=None, extras=extras)
    else:
        grants.refuse_reference(line.text, line.origin)
        return _parse_plain(line)
    if marked:
        marker = _parse_marker(line, text[marked.end() :].strip(" ;"))
        parsed = dataclasses.replace(parsed, marker=marker)
    if place.startswith("${") or (_SCHEME.match(place) and not place.startswith("file:")):
        if any(c.isspace() for c in place):
            raise line.error("the address contains a space", "write the space as %20")
        url = place if environ is None else grants.expand(place, line.origin, environ)
        return _parse_address(parsed, url)
    grants.refuse_reference(place, line.origin)
    return _parse_path(parsed, _resolve_path(line, place))


def _split_extras(body: str) -> tuple[str, tuple[str, ...]]:
    """Split an address or path from the [EXTRAS] behind it."""
    head, bracket, extras = body[:-1].rpartition("[")
    if body.endswith("]") and bracket and _EXTRAS.fullmatch(extras):
        return head.rstrip(), _split_words(extras)
    return body, ()


def _split_words(text: str | None) -> tuple[str, ...]:
    return tuple(word.strip() for word in (text or "").split(",") if word.strip())


def _is_path(body: str) -> bool:
    head = body.partition(";")[0]
    return "/" in head or head.startswith(".") or head.lower().endswith(grants.ARCHIVES)


def _parse_marker(line: SourceLine, text: str) -> Marker | None:
    from packaging.markers import Marker

    try:
        return Marker(text) if text else None
    except (ValueError, RecursionError) as error:
        raise line.error(
            f"invalid marker: {quote.take_first_line(error)}",
            "correct the marker (PEP 508), or remove it",
        ) from error


def _parse_plain(line: SourceLine) -> ParsedRequirement:
    """Parse a name with extras, bounds and a marker."""
    conda = re.fullmatch(r"([A-Za-z0-9._-]+)=([^=<>!~\s][^=\s]*)(=\S*)?", line.text)
    if conda:
        raise line.error(
            "a single = is conda syntax",
            f"write {quote.suggest_version(line.text) or f'{conda[1]}=={conda[2]}'}",
        )
    try:
        need = quote.parse_requirement(line.text)
    except ValueError as error:
        raise line.error(
            quote.take_first_line(error),
            "write it as name==1.0, or as a path ./name",
        ) from error
    return ParsedRequirement(
        line=line, name=need.name, extras=tuple(sorted(need.extras)), specifier=str(need.specifier),
        marker=need.marker,
    )  # fmt: skip


# --- addresses and paths -----------------------------------------------------------------------


def _parse_address(parsed: ParsedRequirement, url: str) -> ParsedRequirement:
    """Parse an address: git+https://...@REV#egg=NAME&subdirectory=DIR, or that of a wheel or archive."""
    line, name, extras = parsed.line, parsed.name, parsed.extras
    address, _, fragment = url.partition("#")
    scheme = address.partition(":")[0].lower()
    if scheme.partition("+")[0] in ("hg", "svn", "bzr"):
        raise line.error(f"{scheme} is not supported, only git is", "name a released version, or a folder")
    vcs = scheme.startswith("git+")
    if scheme == "git+file" and line.roots:
        folder = re.sub(r"@[^/]*$", "", urllib.parse.unquote(urllib.parse.urlsplit(address[4:]).path))
        refuse_outside(Path(folder), line.roots, line.origin, "name it on the command line with --with")
    if not vcs and scheme not in ("http", "https"):
        raise line.error(f"{scheme} is not a supported scheme", "write https://, file:// or git+https://")
    parts = [part for part in fragment.split("&") if part]
    for egg in [part[4:] for part in parts if part.startswith("egg=")]:
        match = re.fullmatch(
            r"([A-Za-z0-9][A-Za-z0-9._-]*?)(\[([^\]]*)\])?([=<>!~].*)?", urllib.parse.unquote(egg)
        )
        if not match:
            raise line.error("no name follows egg=", "write #egg=NAME")
        name, extras = name or match[1], extras or _split_words(match[3])
    kept = "&".join(part for part in parts if not part.startswith("egg="))
    url = f"{address}#{kept}" if kept else address
    name = name or (None if vcs else find_archive_name(address))
    return dataclasses.replace(parsed, name=name, extras=extras, url=url, vcs=vcs)


def find_archive_name(address: str) -> str | None:
    """Return the distribution name in the file name of a wheel or source archive, or None."""
    return (parse_archive_name(address) or (None,))[0]


def parse_archive_name(address: str) -> tuple[str, str] | None:
    """Return the name and version in the file name of a wheel or source archive, or None."""
    from packaging import utils

    from ..system.wheel_file import parse_wheel

    try:
        file = file_name_of_url(address)
        if file.endswith(".whl"):
            wheel = parse_wheel(file)
            return wheel.name, str(wheel.version)
        sdist = utils.parse_sdist_filename(file)
        return str(sdist[0]), str(sdist[1])
    except ValueError:
        return None


def _parse_path(parsed: ParsedRequirement, path: Path) -> ParsedRequirement:
    """Parse the path of a folder, wheel or archive."""
    from .toml import find_project_name

    is_folder = path.is_dir()
    if not is_folder and not path.name.lower().endswith(grants.ARCHIVES):
        raise parsed.line.error("not a wheel or source archive", "name a requirements file with -r")
    name = parsed.name or (find_project_name(path) if is_folder else find_archive_name(path.name))
    return dataclasses.replace(parsed, name=name, url=path.as_uri(), local=str(path) if is_folder else None)


def _resolve_path(line: SourceLine, text: str) -> Path:
    """Return the absolute path of a text. It is the first below the line's folders with something to install."""
    place = text
    if text.startswith("file:"):
        split = urllib.parse.urlsplit(text)
        if split.netloc not in ("", "localhost"):
            raise line.error("a file on another host is not supported", "write file:///PATH")
        place = urllib.parse.unquote(split.path)
    elif "#" in text:
        place = text.partition("#")[0]
    if not place or "\0" in place:
        raise line.error("the path is empty", "write the path of a folder or a wheel")
    paths = [folder / place for folder in line.folders] or [Path(place)]
    try:
        there = [path for path in paths if path.exists()]
        good = [path for path in there if path.is_file() or any((path / b).is_file() for b in BUILDABLE)]
    except (OSError, ValueError) as error:
        raise line.error(quote.take_first_line(error), "check the path") from error
    if good:
        if line.roots:
            refuse_outside(good[0], line.roots, line.origin, "name it on the command line with --with")
        return good[0].resolve()
    what, hint = "no such path", "check the path"
    if any((root / ".gitmodules").is_file() for root in line.roots):
        hint += ", or run `git submodule update --init`"
    if there:
        what = "nothing to install in this folder: no pyproject.toml, setup.py or setup.cfg"
    elif text.startswith("file:"):
        hint += ", or use `pip list --format=freeze`, which writes versions in place of such paths"
    raise line.error(what, hint, MissingPathError)


_COMMENT = re.compile(r"(^|\s)#.*$")


def split_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers: joined at a final backslash, without comments. Variables stay."""
    for number, line in _join_lines(text):
        bare = _COMMENT.sub("", line).strip()
        if bare:
            yield number, bare


def _join_lines(text: str) -> Iterator[tuple[int, str]]:
    """Join lines that end with a backslash with the next. A comment ends a joined line."""
    pieces: list[str] = []
    first = 0
    for number, line in enumerate(text.splitlines(), start=1):
        comment = line.lstrip().startswith("#")
        if line.endswith("\\") and not comment:
            first = first if pieces else number
            pieces.append(line.strip("\\"))
            continue
        pieces.append(" " + line if comment else line)
        yield (first if len(pieces) > 1 else number), "".join(pieces)
        pieces = []
    if pieces:
        yield first, "".join(pieces)


# Options of a whole line that gpuenv reads: requirements, constraints, editables, package sources and --pre.
# All others configure pip. uv and the plan decide those matters here.
_LISTS = {
    ("-r", "--requirement"): "requirements",
    ("-c", "--constraint"): "constraints",
    ("-e", "--editable"): "editables",
    ("--extra-index-url",): "extra_index_urls",
    ("-f", "--find-links"): "find_links",
    ("--trusted-host",): "not_followed",
    ("--no-binary",): "not_followed",
    ("--only-binary",): "not_followed",
    ("--use-feature",): "ignored",
    ("--hash",): "hashes",
    ("--config-settings", "--config-setting", "-C"): "not_followed",
    ("--global-option",): "not_followed",
    ("--install-option",): "not_followed",
}
_LONGEST_LINE = 100_000
"""The most characters in a line with its hashes. A package with 300 wheels has about 30,000."""
_FLAGS = {
    ("--no-index",): "no_index",
    ("--pre",): "pre",
    ("--prefer-binary",): "prefer_binary",
    ("--require-hashes",): "require_hashes",
}


class _Parser(optparse.OptionParser):
    """The option parser that pip uses, except that a mistake raises ValueError instead of ending the program."""

    def error(self, msg: str) -> NoReturn:
        raise ValueError(msg)


def _build_parser() -> _Parser:
    parser = _Parser(add_help_option=False, usage=optparse.SUPPRESS_USAGE)
    for names, field in _LISTS.items():
        if field == "not_followed":
            parser.add_option(
                *names, action="callback", type="str", callback=_record_ignored, default=[], dest=field
            )
        else:
            parser.add_option(*names, action="append", dest=field, default=[])
    parser.add_option("-i", "--index-url", "--pypi-url", action="store", dest="index_url", default=None)
    for names, field in _FLAGS.items():
        parser.add_option(*names, action="store_true", dest=field, default=False)
    return parser


@functools.cache
def _no_options() -> Values:
    """Return the options of a line without options."""
    return _build_parser().get_default_values()


def has_file_options(options: Values) -> bool:
    """Return whether a line has an option of the whole file. pip ignores those behind a requirement."""
    lists = (options.requirements, options.constraints, options.index_url, options.extra_index_urls)
    return any(lists) or bool(options.find_links or options.no_index or options.pre)


def _record_ignored(option: Any, name: str, value: str, parser: Any) -> None:
    del option
    parser.values.not_followed = [*parser.values.not_followed, f"{name} {value}"]


def split_options(line: str, origin: str) -> tuple[str, Values]:
    """Split a logical line into its requirement ("" if there is none) and its options. Raises UsageError."""
    if len(line) > _LONGEST_LINE or any(len(word) > LONGEST for word in line.split()):
        # shlex copies a word once for each of its characters
        raise UsageError(
            f"{origin}: {quote_text(line)!r}: {len(line)} characters in one line",
            hint="split it into several lines",
        )
    words = line.split(" ")
    cut = next((i for i, word in enumerate(words) if word.startswith("-")), len(words))
    requirement, rest = " ".join(words[:cut]).strip(), " ".join(words[cut:])
    if not rest:
        return requirement, _no_options()
    # pip ignores what follows -e PATH. The author meant a marker there.
    marker = re.search(r"\s;.*", rest) if re.match(r"-e|--e", rest) else None
    try:
        options, surplus = _build_parser().parse_args(shlex.split(rest[: marker.start()] if marker else rest))
    except ValueError as error:
        raise UsageError(
            f"{origin}: {quote_text(line)!r}: {quote_text(str(error))}",
            hint="use the requirements file format that pip documents",
        ) from error
    if surplus:
        raise UsageError(
            f"{origin}: {quote_text(line)!r}: unexpected {quote_text(surplus[0])!r} after the options",
            hint="write it on a line of its own",
        )
    if marker and options.editables:
        options.editables[-1] += marker[0]
    return requirement, options
