"""One requirement as a line of a file has it: a name with bounds, an address, a commit or a path."""

from __future__ import annotations

import re
import urllib.parse
from dataclasses import dataclass
from pathlib import Path

from packaging.markers import Marker

from provision.errors import UsageError
from provision.model import RequirementLine
from provision.system.path_names import file_name_of_url

from .. import quoted_text

_ARCHIVES = (".whl", ".zip", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar")
BUILDABLE = ("pyproject.toml", "setup.py", "setup.cfg")
_NAMED = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(?:\s*\[(?P<extras>[^\]]*)\])?\s*@\s*(?P<url>\S.*)")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_SCP = re.compile(r"(git\+)?[A-Za-z0-9._-]+@[A-Za-z0-9._-]+:(?!//)")
_EXTRAS = re.compile(r"[A-Za-z0-9._,\s-]*")
_MARKED = re.compile(r"\s;|;\s")


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A requirement as it stands in a file: `folders` are those that a relative path may start from."""

    text: str
    origin: str
    folders: tuple[Path, ...] = ()
    hashes: tuple[str, ...] = ()
    editable: bool = False
    constraint: bool = False
    override: bool = False
    index: str | None = None

    def wrong(self, what: str, hint: str) -> UsageError:
        return UsageError(f"{self.origin}: {quoted_text.shown(self.text)!r}: {what}", hint=hint)


@dataclass(frozen=True, kw_only=True, slots=True)
class Parsed:
    """A requirement taken apart. `url` is an absolute address, `local` the folder that it means."""

    line: Line
    name: str | None
    extras: tuple[str, ...] = ()
    specifier: str = ""
    url: str | None = None
    marker: Marker | None = None
    local: str | None = None
    vcs: bool = False

    @property
    def text(self) -> str:
        """PEP 508, with the address in place of the name where only the file behind it knows one."""
        extras = f"[{','.join(self.extras)}]" if self.extras else ""
        if self.url is None:
            body = f"{self.name}{extras}{self.specifier}"
        else:
            body = f"{self.name}{extras} @ {self.url}" if self.name else f"{self.url}{extras}"
        return f"{body} ; {self.marker}" if self.marker else body

    def need(self) -> RequirementLine:
        """The value for the solver."""
        return RequirementLine(
            text=self.text, origin=self.line.origin, name=self.name, hashes=self.line.hashes,
            local=self.local, editable=self.line.editable, vcs=self.vcs, constraint=self.line.constraint,
            override=self.line.override, index=self.line.index,
        )  # fmt: skip


def parse(line: Line) -> Parsed:
    """A requirement in any of the forms that pip reads. Raises UsageError naming the line."""
    found = _parse(line)
    if line.constraint and (found.name is None or (found.extras and not line.override) or line.editable):
        raise line.wrong(
            "a constraint is a name with a bound", "take extras, -e and bare addresses to a -r file"
        )
    if line.editable and not (found.vcs or found.local):
        raise line.wrong("only a folder or a commit can be editable", "leave -e out")
    return found


def _parse(line: Line) -> Parsed:
    text = line.text
    if len(text) > quoted_text.LONGEST:
        raise line.wrong(f"{len(text)} characters in one requirement", "name a requirements file")
    marked = _MARKED.search(text)
    body = text[: marked.start()].strip() if marked else text
    if _SCP.match(body):
        raise line.wrong("git's short form of an address", "write git+ssh://git@HOST/PATH")
    if "@" in body and (meant := quoted_text.meant_version(body)):
        raise line.wrong("a version follows ==, not @", f"write {meant}")
    if named := _NAMED.fullmatch(body):
        name, extras, place = named["name"], _words(named["extras"]), named["url"]
    elif "://" in body.split(" ")[0] or body.startswith("file:") or line.editable or _is_path(body):
        name, (place, extras) = None, _extras_behind(body)
    else:
        return _plain(line)
    marker = _marker(line, text[marked.end() :].strip(" ;")) if marked else None
    if _SCHEME.match(place) and not place.startswith("file:"):
        return _addressed(line, place, name, extras, marker)
    return _placed(line, _path(line, place), name, extras, marker)


def _extras_behind(body: str) -> tuple[str, tuple[str, ...]]:
    """Split an address or path from the [EXTRAS] behind it."""
    head, bracket, extras = body[:-1].rpartition("[")
    if body.endswith("]") and bracket and _EXTRAS.fullmatch(extras):
        return head.rstrip(), _words(extras)
    return body, ()


def _words(text: str | None) -> tuple[str, ...]:
    return tuple(word.strip() for word in (text or "").split(",") if word.strip())


def _is_path(body: str) -> bool:
    head = body.partition(";")[0]
    return "/" in head or head.startswith(".") or head.lower().endswith(_ARCHIVES)


def _marker(line: Line, text: str) -> Marker | None:
    from packaging.markers import Marker

    try:
        return Marker(text) if text else None
    except (ValueError, RecursionError) as error:
        raise line.wrong(
            f"no marker: {quoted_text.first_line(error)}", "see PEP 508, or leave what follows the ; out"
        ) from error


def _plain(line: Line) -> Parsed:
    """A name with extras, bounds and a marker."""
    conda = re.fullmatch(r"([A-Za-z0-9._-]+)=([^=<>!~\s][^=\s]*)(=\S*)?", line.text)
    if conda:
        raise line.wrong("one = is conda's form", f"pip's form is {conda[1]}=={conda[2]}")
    try:
        need = quoted_text.requirement(line.text)
    except ValueError as error:
        raise line.wrong(
            quoted_text.first_line(error), "write it as name==1.0, or as a path ./name"
        ) from error
    return Parsed(
        line=line, name=need.name, extras=tuple(sorted(need.extras)), specifier=str(need.specifier),
        marker=need.marker,
    )  # fmt: skip


# --- addresses and paths -----------------------------------------------------------------------


def _addressed(
    line: Line, url: str, name: str | None, extras: tuple[str, ...], marker: Marker | None
) -> Parsed:
    """An address: git+https://...@REV#egg=NAME&subdirectory=DIR, or a wheel's or archive's."""
    address, _, fragment = url.partition("#")
    scheme = address.partition(":")[0].lower()
    if any(c.isspace() for c in url):
        raise line.wrong("an address with a space in it", "write the space as %20")
    if scheme.partition("+")[0] in ("hg", "svn", "bzr"):
        raise line.wrong(f"{scheme} is not served; git is", "name a released version, or a folder")
    vcs = scheme.startswith("git+")
    if not vcs and scheme not in ("http", "https"):
        raise line.wrong(f"{scheme} is no address that is served", "write https://, file:// or git+https://")
    parts = [part for part in fragment.split("&") if part]
    for egg in [part[4:] for part in parts if part.startswith("egg=")]:
        found = re.fullmatch(
            r"([A-Za-z0-9][A-Za-z0-9._-]*?)(\[([^\]]*)\])?([=<>!~].*)?", urllib.parse.unquote(egg)
        )
        if not found:
            raise line.wrong("what follows egg= is no name", "write #egg=NAME")
        name, extras = name or found[1], extras or _words(found[3])
    kept = "&".join(part for part in parts if not part.startswith("egg="))
    url = f"{address}#{kept}" if kept else address
    return Parsed(
        line=line, name=name or (None if vcs else named_by_file(address)), extras=extras, url=url,
        marker=marker, vcs=vcs,
    )  # fmt: skip


def named_by_file(address: str) -> str | None:
    """The distribution that a wheel's or source archive's file name tells, or None."""
    found = file_parts(address)
    return found[0] if found else None


def file_parts(address: str) -> tuple[str, str] | None:
    """The name and version in the file name of a wheel or source archive, or None."""
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


def _placed(
    line: Line, path: Path, name: str | None, extras: tuple[str, ...], marker: Marker | None
) -> Parsed:
    """A folder, or a wheel or archive on this disk."""
    from .project_folder import folder_name

    if path.is_dir():
        return Parsed(
            line=line, name=name or folder_name(path), extras=extras, url=path.as_uri(), marker=marker,
            local=str(path),
        )  # fmt: skip
    if not path.name.lower().endswith(_ARCHIVES):
        raise line.wrong("a file that is no wheel and no source archive", "requirements files go to -r")
    return Parsed(
        line=line, name=name or named_by_file(path.name), extras=extras, url=path.as_uri(), marker=marker
    )


def _path(line: Line, text: str) -> Path:
    """The absolute path that a text means: the first place below the line's folders where there is
    something to install."""
    place = text
    if text.startswith("file:"):
        split = urllib.parse.urlsplit(text)
        if split.netloc not in ("", "localhost"):
            raise line.wrong("a file on another host", "write file:///PATH")
        place = urllib.parse.unquote(split.path)
    elif "#" in text:
        place = text.partition("#")[0]
    if not place or "\0" in place:
        raise line.wrong("names no path", "write the path of a folder or a wheel")
    found = [folder / place for folder in line.folders] or [Path(place)]
    try:
        there = [path for path in found if path.exists()]
        good = [path for path in there if path.is_file() or any((path / b).is_file() for b in BUILDABLE)]
    except (OSError, ValueError) as error:
        raise line.wrong(quoted_text.first_line(error), "check the path") from error
    if good:
        return good[0].resolve()
    if there:
        raise line.wrong(
            "a folder with nothing to install: no pyproject.toml, setup.py or setup.cfg", "check the path"
        )
    freeze = " (`pip list --format=freeze` writes versions where `pip freeze` writes such paths)"
    raise line.wrong("there is no such path here", "check the path" + freeze * text.startswith("file:"))
