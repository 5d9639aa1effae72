"""Removes credentials from addresses, texts and documents: user and password, query, conda channel token.

Everything that gpuenv writes or shows passes through here. References to variables (`${TOKEN}`) are not secret and stay.
Every function takes linear time, because the texts are untrusted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from . import grants

_REFERENCES = re.compile(r"(?:\$\{[A-Z0-9_]+\})+")
_WORD = re.compile(r"[^\s\0]+")
_END_OF_QUERY = {True: re.compile("#"), False: re.compile(r"[\"'`<>#]")}
_END_OF_AUTHORITY = re.compile(r"[/?#]")
_PORT = re.compile(r":\d*$")
_TOKEN = re.compile(r"/t/([^/?#]+)(?=/|$)(?!/\d+(?![\w-]))")  # but not /t/TITLE/NUMBER of a forum
_SCHEME = re.compile(r"[A-Za-z0-9+.-]")
_PLACEHOLDERS = ("USER", "USER:PASSWORD")
_LONGEST_PASSWORD = 1000
"""The most characters to search for the `@` after a password with a slash."""


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret in a text, [start, end), and the range to remove with it, [first, last)."""

    start: int
    end: int
    first: int
    last: int


def redact(url: str) -> str:
    """Return an address without credentials, for the screen, a lock or a report."""
    url = grants.restore(url)
    if "://" not in url:
        return url.partition("?")[0] if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", url) else url
    return _without(url, list(_find_in_word(url, 0, exact=True)), stars=False)


def redact_text(text: str, *, stars: bool = False) -> str:
    """Return a text without the credentials of its addresses; with `stars`, `***` marks their places."""
    if "://" not in text:
        return text
    text = grants.restore(text)
    return _without(text, list(find_secrets(text)), stars=stars)


def redact_value(value: Any) -> Any:
    """Return a JSON value with all of its texts redacted."""
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, dict):
        return {redact_text(k) if isinstance(k, str) else k: redact_value(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact_value(v) for v in value]
    return value


def find_secrets(text: str) -> Iterator[Secret]:
    """Find the credentials of all addresses in a text, in order."""
    for word in _WORD.finditer(text):
        if "://" in word[0]:
            yield from _find_in_word(word[0], word.start(), exact=False)


def _without(text: str, secrets: list[Secret], *, stars: bool) -> str:
    pieces, done = [], 0
    for secret in secrets:
        if stars:
            pieces += [text[done : secret.start], "***"]
            done = secret.end
        else:
            pieces.append(text[done : secret.first])
            done = secret.last
    return "".join([*pieces, text[done:]])


def _find_in_word(word: str, offset: int, *, exact: bool) -> Iterator[Secret]:
    """Find the secrets of a word's addresses; an `exact` word is one address and nothing else."""
    at = word.find("://")
    while at >= 0:
        begin = at + len("://")
        following = -1 if exact else word.find("://", begin)
        end = len(word) if following < 0 else following
        scheme = _read_scheme(word, at)
        login, authority_end = _find_user(word, begin, end, scheme)
        path_end, query = _find_query(word, authority_end, end, exact=exact)
        token = _find_token(word, authority_end, path_end) if scheme != "file" else None
        for secret in (login, token, query):
            if secret:
                yield Secret(*(n + offset for n in (secret.start, secret.end, secret.first, secret.last)))
        at = -1 if exact else word.find("://", max(path_end, query.end if query else 0))


def _read_scheme(word: str, at: int) -> str:
    start = at
    while start and _SCHEME.match(word[start - 1]):
        start -= 1
    return word[start:at].lower()


def _find_user(word: str, begin: int, end: int, scheme: str) -> tuple[Secret | None, int]:
    """Find user and password, and where the host ends."""
    close = _END_OF_AUTHORITY.search(word, begin, end)
    authority_end = close.start() if close else end
    at = word.rfind("@", begin, authority_end)
    authority = word[begin:authority_end]
    if at < 0 and ":" in authority and "[" not in authority and not _PORT.search(authority):
        # No port follows the colon, so the password has a slash, a question mark or a number sign.
        at = word.rfind("@", begin, min(end, begin + _LONGEST_PASSWORD))
        if at >= 0:
            close = _END_OF_AUTHORITY.search(word, at, end)
            authority_end = close.start() if close else end
    if at < 0:
        return None, authority_end
    public = _get_public(word[begin:at], scheme)
    if public == word[begin:at]:
        return None, authority_end
    start = begin + len(public)
    if public:
        return Secret(start + 1, at, start, at), authority_end
    return Secret(start, at, start, at + 1), authority_end


def _get_public(user: str, scheme: str) -> str:
    """Return the public part of `user:password`."""
    name, colon, password = user.partition(":")
    if user in _PLACEHOLDERS or _REFERENCES.fullmatch(password if colon else name):
        return user
    return name if scheme.endswith("ssh") else ""


def _find_token(word: str, begin: int, end: int) -> Secret | None:
    token = _TOKEN.search(word, begin, end)
    return Secret(token.start(1), token.end(1), token.start(), token.end()) if token else None


def _find_query(word: str, begin: int, end: int, *, exact: bool) -> tuple[int, Secret | None]:
    """Find where a path ends, and the query behind it. A query may hold another address."""
    stop = _END_OF_QUERY[exact].search(word, begin, end)
    mark = word.find("?", begin, stop.start() if stop else end)
    if mark < 0:
        return (stop.start() if stop else end), None
    stop = _END_OF_QUERY[exact].search(word, mark)
    close = stop.start() if stop else len(word)
    if not exact and not stop:
        close = max(mark + 1, len(word.rstrip(")].,:;")))
    pairs = word[mark + 1 : close].split("&")
    if pairs == [""] or all(_REFERENCES.fullmatch(pair.partition("=")[2]) for pair in pairs):
        return mark, None
    return mark, Secret(mark + 1, close, mark, close)
