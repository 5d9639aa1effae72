"""Hides personal data in a text: names, hosts, addresses, serial numbers. `redaction` has removed the secrets before.

It works on the finished text instead of its sources, so that a path in a loader's message is hidden as well. An
ambiguous text is hidden, because a missing version can be requested later.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from ..model import FRAMEWORKS
from ..model.values import dataclass
from ..system.redaction import STARS, redact_text


@dataclass(frozen=True, kw_only=True, slots=True)
class PersonalData:
    """The data that identifies a machine and its user: home folders, user and real names, host names."""

    homes: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


# Names that do not identify a person or a machine, and words of the report
_WORDS = frozenset(
    (
        *FRAMEWORKS, "root", "user", "users", "admin", "home", "ubuntu", "debian", "jovyan", "runner", "vscode",
        "gpu", "cuda", "cudnn", "nvidia", "driver", "runtime", "python", "conda", "linux", "docker", "host",
        "node", "server", "localhost", "lib", "bin", "usr", "opt", "env", "venv", "test", "data", "local",
        "app", "work", "build", "project", "works", "fails", "wrong", "cpu",
    )
)  # fmt: skip
_PUBLIC = re.compile(
    r"(?:^|\.)(?:pytorch\.org|tensorflow\.org|python\.org|pypi\.org|pythonhosted\.org|nvidia\.com|github\.com|"
    r"githubusercontent\.com|anaconda\.org|anaconda\.com|prefix\.dev|jax\.dev|googleapis\.com)$"
)
"""Public addresses, which do not identify a user."""

_URL = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]{1,20})://([^\s'\"`<>|()\[\],;]*)")
_HEX = re.compile(r"(?<![\w/.+-])(?![0-9a-fA-F]{64}(?!\w))[0-9a-fA-F]{32,}(?![\w/.+-])")
"""A long hexadecimal number. It may be a key, unless it has the length of a sha256."""

_MAIL = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_UUID = re.compile(
    r"\b(?:(?:MIG|GPU)-){0,3}[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b|"
    r"\b(?:GPU|MIG)-(?=[a-f-]*\d)[0-9a-f]{4}[0-9a-f-]*(?![\w-])"
)
_SERIAL = re.compile(r"(?i)(\bserial(?:[ _-]?(?:number|no|num))?\b\W{0,4})([A-Z0-9]*\d[A-Z0-9]{4,})")
_MAC = re.compile(r"\b[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){5}\b")
_ADDRESS = re.compile(
    r"\b(?:\d{1,3}\.){3}\d{1,3}(?=:\d{2,5}\b)|\b(?:192\.168|172\.(?:1[6-9]|2\d|3[01]))(?:\.\d{1,3}){2}\b"
)
"""An IPv4 address: four numbers alone may be a version (10.3.9.90 is one of cuRAND's)."""
_LOOPBACK = re.compile(r"127\.|0\.0\.0\.0")


_ANY_HOME = re.compile(r"((?:/home/|/Users/|\b[A-Za-z]:[\\/]+Users[\\/]+))(?!USER\b)[^\s/\\:'\"`,;)]+")


def anonymize_text(text: str, personal: PersonalData) -> tuple[str, dict[str, int]]:
    """Return the text without personal data, with a count by kind."""
    text = redact_text(text)
    counts = Counter(credentials=text.count(STARS))
    uuids: dict[str, int] = {}
    hosts = [name for host in personal.hosts for name in (host, host.partition(".")[0])]
    rows: list[tuple[str, re.Pattern[str], Callable[[re.Match[str]], str]]] = [
        ("addresses", _URL, _replace_address),
        ("e-mail addresses", _MAIL, lambda _: "MAIL"),
        ("UUIDs", _UUID, lambda m: f"(UUID {uuids.setdefault(m[0].lower(), len(uuids) + 1)})"),
        ("serial numbers", _SERIAL, lambda m: f"{m[1]}***"),
        ("hardware addresses", _MAC, lambda _: "(MAC)"),
        ("network addresses", _ADDRESS, lambda m: m[0] if _LOOPBACK.match(m[0]) else "(ADDRESS)"),
        ("credentials", _HEX, lambda _: STARS),
        *(("home folders", pattern, lambda _: "~") for pattern in _find_homes(personal.homes)),
        ("home folders", _ANY_HOME, lambda m: f"{m[1]}USER"),
        *(("user names", pattern, lambda _: "USER") for pattern in _find_names(personal.users)),
        *(("host names", pattern, lambda _: "HOST") for pattern in _find_names(hosts)),
    ]
    for kind, pattern, replace in rows:
        counts[kind] += sum(replace(match) != match[0] for match in pattern.finditer(text))
        text = pattern.sub(replace, text)
    return text, dict(sorted((k, n) for k, n in counts.items() if n))


def _find_homes(homes: Iterable[str]) -> Iterator[re.Pattern[str]]:
    for home in sorted({*homes}, key=len, reverse=True):
        if len(home) > 1:
            yield re.compile(rf"(?<![\w.~-]){re.escape(home)}(?![\w-]|\.\w)")


def _find_names(names: Iterable[str]) -> Iterator[re.Pattern[str]]:
    """Yield a pattern for each name as a whole word, for names of two letters only in their exact case.

    A name that is a common word stays, except in `/home/NAME`, which is always hidden.
    """
    for name in sorted({*names}, key=len, reverse=True):
        if len(name) > 1 and name.lower() not in _WORDS and not (name.isdigit() and len(name) < 5):
            exactly = re.IGNORECASE if len(name) > 2 else 0
            yield re.compile(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", exactly)


def _replace_address(match: re.Match[str]) -> str:
    """Return an address without credentials, query and private host name."""
    scheme, rest = match[1], match[2]
    if scheme.lower() == "file":
        return match[0]
    authority, slash, path = rest.partition("/")
    host = authority.partition(":")[0]
    path = re.split(r"[?#]", path)[0]
    known = _PUBLIC.search(host.lower()) or host in ("127.0.0.1", "localhost")
    shown = authority if known else "HOST"
    # The path of a private index can name repositories, teams and users, so only its end is kept.
    tail = path if known else path.rpartition("/")[2] or path.rstrip("/").rpartition("/")[2]
    between = "/.../" if not known and "/" in path.rstrip("/") else slash
    return f"{scheme}://{shown}{between}{tail}" if tail else f"{scheme}://{shown}{slash}"
