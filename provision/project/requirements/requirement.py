"""One requirement of a file: a name with bounds, an address, a commit or a path."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.markers import Marker

from provision.errors import UsageError
from provision.model import RequirementLine
from provision.system import grants
from provision.system.untrusted import file_name_of_url

from .. import quote_for_messages_and_parse_requirement
from ..tree import BUILDABLE, refuse_outside

_ARCHIVES = (".whl", ".zip", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar")
_NAMED = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(?:\s*\[(?P<extras>[^\]]*)\])?\s*@\s*(?P<url>\S.*)")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_SCP = re.compile(r"(git\+)?[A-Za-z0-9._-]+@[A-Za-z0-9._-]+:(?!//)")
_EXTRAS = re.compile(r"[A-Za-z0-9._,\s-]*")
_MARKED = re.compile(r"\s;|;\s")


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceLine:
    """A requirement as written in a file. A relative path may start from any of `folders`.

    Paths lead only into the trees `roots`; without roots the user typed them, and they may lead anywhere.
    """

    text: str
    origin: str
    folders: tuple[Path, ...] = ()
    hashes: tuple[str, ...] = ()
    editable: bool = False
    constraint: bool = False
    override: bool = False
    index: str | None = None
    roots: tuple[Path, ...] = ()

    def error(self, what: str, hint: str) -> UsageError:
        return UsageError(
            f"{self.origin}: {quote_for_messages_and_parse_requirement.quote_text(self.text)!r}: {what}",
            hint=hint,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ParsedRequirement:
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
        return RequirementLine(
            text=self.text, origin=self.line.origin, name=self.name, hashes=self.line.hashes,
            local=self.local, editable=self.line.editable, vcs=self.vcs, constraint=self.line.constraint,
            override=self.line.override, index=self.line.index,
        )  # fmt: skip


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
    if len(text) > quote_for_messages_and_parse_requirement.LONGEST:
        raise line.error(
            f"the requirement is too long: {len(text)} characters", "write a shorter requirement"
        )
    marked = _MARKED.search(text)
    body = text[: marked.start()].strip() if marked else text
    if _SCP.match(body):
        raise line.error("scp-style git addresses are not supported", "write git+ssh://git@HOST/PATH")
    if "@" in body and (meant := quote_for_messages_and_parse_requirement.suggest_version(body)):
        raise line.error("a version follows ==, not @", f"write {meant}")
    if named := _NAMED.fullmatch(body):
        name, extras, place = named["name"], _split_words(named["extras"]), named["url"]
    elif "://" in body.split(" ")[0] or body.startswith("file:") or line.editable or _is_path(body):
        name, (place, extras) = None, _split_extras(body)
    else:
        grants.refuse_reference(line.text, line.origin)
        return _parse_plain(line)
    marker = _parse_marker(line, text[marked.end() :].strip(" ;")) if marked else None
    if place.startswith("${") or (_SCHEME.match(place) and not place.startswith("file:")):
        if any(c.isspace() for c in place):
            raise line.error("the address contains a space", "write the space as %20")
        url = place if environ is None else grants.expand(place, line.origin, environ)
        return _parse_address(line, url, name, extras, marker)
    grants.refuse_reference(place, line.origin)
    return _parse_path(line, _resolve_path(line, place), name, extras, marker)


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
    return "/" in head or head.startswith(".") or head.lower().endswith(_ARCHIVES)


def _parse_marker(line: SourceLine, text: str) -> Marker | None:
    from packaging.markers import Marker

    try:
        return Marker(text) if text else None
    except (ValueError, RecursionError) as error:
        raise line.error(
            f"invalid marker: {quote_for_messages_and_parse_requirement.take_first_line(error)}",
            "correct the marker (PEP 508), or remove it",
        ) from error


def _parse_plain(line: SourceLine) -> ParsedRequirement:
    """Parse a name with extras, bounds and a marker."""
    conda = re.fullmatch(r"([A-Za-z0-9._-]+)=([^=<>!~\s][^=\s]*)(=\S*)?", line.text)
    if conda:
        raise line.error("a single = is conda syntax", f"write {conda[1]}=={conda[2]}")
    try:
        need = quote_for_messages_and_parse_requirement.parse_requirement(line.text)
    except ValueError as error:
        raise line.error(
            quote_for_messages_and_parse_requirement.take_first_line(error),
            "write it as name==1.0, or as a path ./name",
        ) from error
    return ParsedRequirement(
        line=line, name=need.name, extras=tuple(sorted(need.extras)), specifier=str(need.specifier),
        marker=need.marker,
    )  # fmt: skip


# --- addresses and paths -----------------------------------------------------------------------


def _parse_address(
    line: SourceLine, url: str, name: str | None, extras: tuple[str, ...], marker: Marker | None
) -> ParsedRequirement:
    """Parse an address: git+https://...@REV#egg=NAME&subdirectory=DIR, or that of a wheel or archive."""
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
    return ParsedRequirement(
        line=line, name=name or (None if vcs else find_archive_name(address)), extras=extras, url=url,
        marker=marker, vcs=vcs,
    )  # fmt: skip


def find_archive_name(address: str) -> str | None:
    """Return the distribution name in the file name of a wheel or source archive, or None."""
    name = parse_archive_name(address)
    return name[0] if name else None


def parse_archive_name(address: str) -> tuple[str, str] | None:
    """Return the name and version in the file name of a wheel or source archive, or None."""
    from packaging import utils

    try:
        file = file_name_of_url(address)
        if file.endswith(".whl"):
            name, version, _, _ = utils.parse_wheel_filename(file)
            return str(name), str(version)
        sdist = utils.parse_sdist_filename(file)
        return str(sdist[0]), str(sdist[1])
    except ValueError:
        return None


def _parse_path(
    line: SourceLine, path: Path, name: str | None, extras: tuple[str, ...], marker: Marker | None
) -> ParsedRequirement:
    """Parse the path of a folder, wheel or archive."""
    from .read_project_toml_and_setup_files import find_project_name

    if path.is_dir():
        return ParsedRequirement(
            line=line, name=name or find_project_name(path), extras=extras, url=path.as_uri(), marker=marker,
            local=str(path),
        )  # fmt: skip
    if not path.name.lower().endswith(_ARCHIVES):
        raise line.error("not a wheel or source archive", "name a requirements file with -r")
    return ParsedRequirement(
        line=line, name=name or find_archive_name(path.name), extras=extras, url=path.as_uri(), marker=marker
    )


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
        raise line.error(
            quote_for_messages_and_parse_requirement.take_first_line(error), "check the path"
        ) from error
    if good:
        if line.roots:
            refuse_outside(good[0], line.roots, line.origin, "name it on the command line with --with")
        return good[0].resolve()
    if there:
        raise line.error(
            "nothing to install in this folder: no pyproject.toml, setup.py or setup.cfg", "check the path"
        )
    freeze = ", or use `pip list --format=freeze`, which writes versions in place of such paths"
    raise line.error("no such path", "check the path" + freeze * text.startswith("file:"))
