"""The simple repository API (PEP 503, PEP 691): files and versions of a project."""

from __future__ import annotations

import functools
import json
import re
import urllib.parse
from typing import TYPE_CHECKING, Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import (
    InvalidSdistFilename,
    canonicalize_name,
    parse_sdist_filename,
)
from packaging.version import InvalidVersion, Version

from ..errors import LockError
from ..model.values import Value
from ..system.redaction import clean_line, redact
from ..system.untrusted import UnsafeNameError, check_file_name, file_name_of_url
from .refusals import UNREADABLE_HINT

if TYPE_CHECKING:
    from .http import Http

ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
VARIANTS = "-variants.json"
"""The end of the name of the file with the properties of a release's variants (PEP 825)."""


class File(Value):
    """A file on an index.

    `size` is in bytes. `yanked` is the reason ("" without one), or None. `uploaded` is the time of the upload (PEP
    700).
    """

    name: str
    url: str
    sha256: str | None = None
    size: int | None = None
    requires_python: str | None = None
    yanked: str | None = None
    uploaded: str | None = None


def project_files(http: Http, index: str, project: str) -> list[File]:
    """Return the files of a project, in the index's order, or [] for an unknown project.

    `index` is a simple index (http, https or file). Raises LockError if it does not answer.
    """
    answer = http.get(project_url(index, project), accept=ACCEPT, missing_ok=True)
    return parse_project(answer.url, answer.body) if answer else []


def project_url(index: str, project: str) -> str:
    """Return the URL of a project's page. An index in a folder has a page per project."""
    base = index.rstrip("/") + "/" + canonicalize_name(project) + "/"
    return base + "index.html" if base.startswith("file:") else base


def parse_project(url: str, body: bytes) -> list[File]:
    """Return the files on an index's page. Raises LockError if it is neither HTML nor JSON."""
    return list(_parse_files(url, body))


@functools.lru_cache(maxsize=128)  # several parts of a run read the same page, with thousands of files
def _parse_files(url: str, body: bytes) -> tuple[File, ...]:
    text = body.decode("utf-8", "replace")
    if text.lstrip().startswith(("{", "[", '"')):
        try:
            entries = json.loads(text)["files"]
            return tuple(f for entry in entries if (f := _parse_entry(url, entry)) is not None)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
            raise _explain_no_index(url, clean_line(f"{type(e).__name__} at {e}", 200)) from e
    page = _read_html(url, text)
    if not page.files and page.foreign:
        raise _explain_no_index(url, "a page that lists no files, with forms or scripts")
    if not page.files and b"\0" in body:
        raise _explain_no_index(url, "neither HTML nor JSON")
    return tuple(page.files)


def parse_links(url: str, body: bytes) -> list[str]:
    """Return the addresses that a page links to, in its order."""
    return list(_read_html(url, body.decode("utf-8", "replace")).links)


def _find_file_name(url: str) -> str | None:
    """Return the file name at the end of a link, or None without a valid one."""
    try:
        return file_name_of_url(url)
    except ValueError:
        return None


def _is_file_name(text: str) -> bool:
    try:
        check_file_name(text)
    except UnsafeNameError:
        return False
    return True


def _explain_no_index(url: str, what: str) -> LockError:
    return LockError(
        f"{redact(url)} is not a simple index: the response was {what}",
        hint=UNREADABLE_HINT,
    )


_ABSOLUTE = re.compile(r"https?://[a-z0-9.-]+(?::[0-9]+)?/[A-Za-z0-9/._+~!-]+")
"""An address without encoded or relative parts."""


def _parse_entry(base: str, entry: dict[str, object]) -> File | None:
    name, url = str(entry["filename"]), str(entry["url"])
    if not _ABSOLUTE.fullmatch(url) or not url.endswith(
        f"/{name}"
    ):  # otherwise the name is that of the address
        url = urllib.parse.urljoin(base, url)
        if _find_file_name(url) is None:
            return None
    if not _is_file_name(name):
        return None
    hashes, yanked, size = entry.get("hashes"), entry.get("yanked", False), entry.get("size")
    requires = entry.get("requires-python")
    return File(
        name=name,
        url=url,
        sha256=str(hashes["sha256"]) if isinstance(hashes, dict) and "sha256" in hashes else None,
        size=size if isinstance(size, int) else None,
        requires_python=str(requires) if requires else None,
        yanked=(yanked if isinstance(yanked, str) else "") if yanked else None,
        uploaded=str(entry["upload-time"]) if entry.get("upload-time") else None,
    )


def _read_html(base: str, text: str) -> Any:
    """Return the `files` and `links` of a page. `foreign`: it has elements of a login page that a page of links never has."""
    import html.parser  # few indexes answer in HTML

    class Links(html.parser.HTMLParser):
        def __init__(self, base: str) -> None:
            super().__init__()
            self._base = base
            self.files: list[File] = []
            self.links: list[str] = []
            self.foreign = False

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            attributes = dict(attrs)
            href = attributes.get("href")
            self.foreign |= tag in ("form", "input", "script", "iframe")
            if tag == "base" and href:
                self._base = urllib.parse.urljoin(self._base, href)
            if tag != "a" or not href:
                return
            url, _, fragment = urllib.parse.urljoin(self._base, href).partition("#")
            self.links.append(url)
            name = _find_file_name(url)
            if name is None or not name.endswith((".whl", ".tar.gz", ".zip", VARIANTS)):
                return
            hashed = urllib.parse.parse_qs(fragment).get("sha256", [None])[0]
            yanked = (attributes.get("data-yanked") or "") if "data-yanked" in attributes else None
            self.files.append(
                File(
                    name=name,
                    url=url,
                    sha256=hashed,
                    requires_python=attributes.get("data-requires-python") or None,
                    yanked=yanked,
                )
            )

    parser = Links(base)
    parser.feed(text)
    return parser


@functools.lru_cache(maxsize=1 << 14)
def _version(text: str) -> Version:
    """A version; many files have the same. Raises InvalidVersion."""
    return Version(text)


def version_of(file: str, name: str) -> Version | None:
    """The version in a file's name, None for a file that no installer takes. The wheel's other parts are not read."""
    try:
        if file.endswith(".whl"):
            return _version(file.split("-", 2)[1].replace("_", "-"))
        sdist_name, version = parse_sdist_filename(file)
    except (InvalidSdistFilename, InvalidVersion, IndexError):
        return None
    return version if sdist_name == name else None


@functools.lru_cache(maxsize=1 << 12)
def allows_python(bounds: str | None, python: str) -> bool:
    """Whether a Requires-Python allows the newest releases of a Python minor. One that cannot be read forbids
    nothing."""
    try:
        return not bounds or SpecifierSet(bounds).contains(f"{python}.99", prereleases=True)
    except InvalidSpecifier:
        return True
