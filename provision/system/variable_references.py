"""Expands variables in addresses (`${TOKEN}`) for requests, and restores the references elsewhere.

Files of the project name the variables, as in pip and uv. `expand` inserts their values and records the
address. `restore` puts the references back into every text that is written or shown. It compares origins and
path segments. It does not search for a value, because a short value would match other texts. Answers of
servers pass through `escape_references` first, so that they cannot name a variable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from ..errors import MissingVariableError, UsageError

REFERENCE = re.compile(r"\$\{([A-Z0-9_]+)\}")

_SCHEME = re.compile(r"[A-Za-z0-9+.-]")
_LONGEST_SCHEME = 20
_END = re.compile(r"[\s\"'`<>]")
_END_OF_AUTHORITY = re.compile(r"[/?#]")
_END_OF_PATH = re.compile(r"[?#]")
_AFTER_A_NAME = ")].,:;}"
"""Characters that may follow an address in a sentence."""
_ARCHIVES = (".whl", ".zip", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar")
_MOST = 50
"""The most variables in one line, because the time for an address grows with their square."""
_LEAST = 8
"""The least characters of a value to recognize it in another position."""


@dataclass(frozen=True, slots=True)
class _Span:
    """The position of a variable's value in an expanded text."""

    start: int
    end: int
    reference: str


@dataclass(frozen=True, slots=True)
class _Parts:
    """The positions of an address's parts: [start, host) is scheme and user, [host, path) the host."""

    start: int
    host: int
    path: int
    query: int
    end: int


@dataclass(frozen=True, slots=True)
class _Known:
    """An expanded address: its text, and the positions of its parts and values."""

    text: str
    parts: _Parts
    spans: tuple[_Span, ...]

    def template(self, start: int, end: int) -> str:
        """Return a part of the address with its references."""
        pieces, done = [], start
        for span in self.spans:
            if start <= span.start and span.end <= end:
                pieces += [self.text[done : span.start], span.reference]
                done = span.end
        return "".join([*pieces, self.text[done:end]])

    def has_value(self, start: int, end: int) -> bool:
        return any(span.end > start and span.start < end for span in self.spans)

    def cuts_value(self, at: int) -> bool:
        return any(span.start < at < span.end for span in self.spans)


_known: dict[str, list[_Known]] = {}
"""The expanded addresses by scheme and host."""
_segments: dict[str, str] = {}
"""Value of a path segment -> its template."""


def expand(text: str, environ: Mapping[str, str], origin: str | None) -> str:
    """Return a text with the values of its variables, and record its addresses.

    Raises MissingVariableError with `origin` for an unset variable, which stays as written without an origin. Raises
    UsageError for too many variables.
    """
    pieces, spans, done, length = list[str](), list[_Span](), 0, 0
    for reference in REFERENCE.finditer(text):
        value = environ.get(reference[1])
        if not value:
            if origin is None:
                continue
            raise MissingVariableError(reference[1], origin, is_empty=value is not None)
        pieces += [text[done : reference.start()], value]
        length += reference.start() - done
        spans.append(_Span(length, length + len(value), reference[0]))
        length, done = length + len(value), reference.end()
        if len(spans) > _MOST and origin is not None:
            raise UsageError(
                f"{origin} names more than {_MOST} variables", hint="use fewer variables in one line"
            )
    expanded = "".join([*pieces, text[done:]])
    if spans and len(spans) <= _MOST:
        _remember(expanded, spans)
    return expanded


def escape_references(url: str) -> str:
    """Return an address of a server's answer without references to variables."""
    return url.replace("${", "$%7B")


def names_in(text: str) -> list[str]:
    """Return the variables that a text names."""
    return REFERENCE.findall(text)


def _remember(text: str, spans: list[_Span]) -> None:
    for parts in _iterate_addresses(text):
        within = [span for span in spans if span.end > parts.start and span.start < parts.end]
        if not within or text[parts.start :].startswith("file:"):
            continue
        url = text[parts.start : parts.end]
        moved = [_Span(max(0, s.start - parts.start), s.end - parts.start, s.reference) for s in within]
        parts_of_url = next(_iterate_addresses(url))
        name = url.rfind("/", parts_of_url.path, parts_of_url.query)
        if url[: parts_of_url.query].lower().endswith(_ARCHIVES):  # a file name is not secret
            moved = [s for s in moved if not name < s.start < s.end <= parts_of_url.query]
        known = _Known(url, parts_of_url, tuple(moved))
        listed = _known.setdefault(_get_origin(url, known.parts), [])
        if known not in listed:
            listed.append(known)
        for start, end in _list_segments(url, known.parts):
            whole = any(s.end - s.start >= _LEAST for s in moved if start <= s.start and s.end <= end)
            if whole and not known.cuts_value(start) and not known.cuts_value(end):
                _segments[unquote(url[start:end])] = known.template(start, end)


def restore(text: str) -> str:
    """Return a text with the references of its expanded addresses."""
    if not _known or "://" not in text:
        return text
    pieces, done = [], 0
    for parts in _iterate_addresses(text):
        if parts.start >= done:
            pieces += [text[done : parts.start], _restore_address(text, parts)]
            done = parts.end
    return "".join([*pieces, text[done:]])


def _restore_address(text: str, parts: _Parts) -> str:
    """Return one address with its references."""
    query = text[parts.query : parts.end]
    path = _list_segments(text, parts)
    best, reached, length = "", parts.path, -1
    for known in _known.get(_get_origin(text, parts), ()):
        their = _list_segments(known.text, known.parts)
        same = _count_same_segments(text, path, known, their)
        at = their[same - 1][1] if same else known.parts.path
        whole = same == len(their)
        if known.cuts_value(at) or same <= length or not (whole or known.has_value(known.parts.path, at)):
            continue
        best, length, reached = (
            _make_head(text, parts, known, at, whole=whole),
            same,
            path[same - 1][1] if same else parts.path,
        )
        exact = whole and same == len(path)
        query = text[parts.query : parts.end]
        known_query = known.text[known.parts.query : known.parts.end]
        if exact and known_query and query.partition("#")[0] == known_query.partition("#")[0]:
            kept = known.parts.query + len(known_query.partition("#")[0])
            query = known.template(known.parts.query, kept) + query[len(known_query.partition("#")[0]) :]
    head = best if length >= 0 else text[parts.start : parts.path]
    return head + _restore_segments(text[reached : parts.query]) + query


def _count_same_segments(
    text: str, path: list[tuple[int, int]], known: _Known, their: list[tuple[int, int]]
) -> int:
    """Count the common first segments of an address and an expanded one."""
    count = 0
    for (start, end), (first, last) in zip(path, their, strict=False):
        segment, known_segment = unquote(text[start:end]), unquote(known.text[first:last])
        if segment != known_segment:
            break
        count += 1
    return count


def _make_head(text: str, parts: _Parts, known: _Known, at: int, *, whole: bool) -> str:
    """Return the start of an address up to the known part of its path.

    User and password come from the expanded address if the addresses are equal.
    """
    user = text[parts.start : parts.host].partition("://")[2]
    known_user = known.text[: known.parts.host].partition("://")[2]
    scheme = text[parts.start :].partition("://")[0]
    scheme = scheme if scheme.startswith("git+") and not known.text.startswith("git+") else ""
    if (whole and (user in ("", known_user) or "*" in user)) or known.cuts_value(known.parts.path):
        return ("git+" if scheme else "") + known.template(0, at)
    return text[parts.start : parts.path] + known.template(known.parts.path, at)


def _restore_segments(path: str) -> str:
    """Return a path with the references of segments known from other addresses."""
    if not _segments:
        return path
    return "/".join(_segments.get(unquote(segment), segment) for segment in path.split("/"))


# --- addresses in a text -------------------------------------------------------------------------


def _iterate_addresses(text: str) -> Iterator[_Parts]:
    """Yield the addresses of a text, in order."""
    at = text.find("://")
    while at >= 0:
        start = at
        while start and at - start < _LONGEST_SCHEME and _SCHEME.match(text[start - 1]):
            start -= 1
        following = text.find("://", at + 3)
        limit = following if following >= 0 else len(text)
        stop = _END.search(text, at + 3, limit)
        end = stop.start() if stop else limit
        if end == following:
            while end > at + 3 and _SCHEME.match(text[end - 1]):
                end -= 1
        yield _split_address(text, start, at + 3, end)
        at = following


def _split_address(text: str, start: int, user: int, end: int) -> _Parts:
    close = _END_OF_AUTHORITY.search(text, user, end)
    path = close.start() if close else end
    host = max(user, text.rfind("@", user, path) + 1)
    close = _END_OF_PATH.search(text, path, end)
    query = close.start() if close else end
    if query == end:
        while query > path and text[query - 1] in _AFTER_A_NAME:
            query -= 1
    commit = text.rfind("@", path, query)
    if commit > text.rfind("/", path, query) and text[start:user].startswith(("git+", "ssh")):
        query = commit
    return _Parts(start, host, path, query, end)


def _get_origin(text: str, parts: _Parts) -> str:
    """Return scheme and host. A commit has the origin of its repository."""
    scheme = text[parts.start :].partition("://")[0].lower().removeprefix("git+")
    return f"{scheme}://{text[parts.host : parts.path].lower()}"


def _list_segments(text: str, parts: _Parts) -> list[tuple[int, int]]:
    """Return the positions of path segments, without slashes."""
    positions, at = [], parts.path
    while at < parts.query:
        following = text.find("/", at + 1, parts.query)
        end = following if following >= 0 else parts.query
        if end > at + 1:
            positions.append((at + 1, end))
        at = end
    return positions
