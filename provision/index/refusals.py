"""One table of HTTP refusals and network failures, with causes and hints, and the errors that are made of them.

uv, rattler and gpuenv's own requests fail in the same ways. Each failure has one cause here. It is reported as a
status, as an exception of Python, or as text of the HTTP library of uv and rattler.
"""

from __future__ import annotations

import functools
import http.client
import re
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from ..errors import LockError
from ..system.redaction import clean_line, redact
from .connection import AnswerError, DeadlineError, read_retry_after

Cause = Literal[
    "credentials", "forbidden", "missing", "withdrawn", "proxy", "tunnel", "rate_limited", "failing", "refused", "certificate",
    "host_name", "no_connection", "truncated", "reset", "timeout", "redirects", "content", "unreachable",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerKind:
    """A kind of server: its name in messages, and the hints that differ from the table."""

    name: str
    hints: Mapping[Cause, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """The cause of a failed request. `words` follow the name of the server in a message."""

    cause: Cause
    words: str
    hint: str


@dataclass(frozen=True, kw_only=True, slots=True)
class _Row:
    """`words` follow the name of the server. {item} is the file or the package that was requested.

    `pattern` matches the cause without a status in texts of the HTTP library of uv and rattler.
    """

    words: str
    hint: str
    pattern: str | None = None


NETWORK_HINT = "check the network, the proxy and pip's index-url, or use --offline --find-links DIR"
UNREADABLE_HINT = "open the address in a browser and check for a login page, a proxy or a broken mirror"
_CREDENTIALS = "put the user name and the password into the index's address in pip.conf, or into ~/.netrc"
_OTHER_INDEX = "name an index or a folder that has it: pip's index-url, or --find-links DIR"
_SLOW = "allow more time with UV_HTTP_TIMEOUT=SECONDS on a slow network"
_CHANNEL_NETWORK = (
    "check the network, proxies and mirrors of .condarc and of rattler's config.toml, or use --offline"
)

PACKAGE_INDEX = ServerKind(name="the package index")
CONDA_CHANNEL = ServerKind(
    name="the conda channel",
    hints={
        "credentials": "add credentials of the channel to the auth file of rattler and pixi (RATTLER_AUTH_FILE)",
        "forbidden": "add credentials of the channel to the auth file of rattler and pixi (RATTLER_AUTH_FILE)",
        "missing": "check the name given with --channel, and channel_alias in .condarc",
        "withdrawn": "check the name given with --channel, and channel_alias in .condarc",
        "proxy": "put the user name and the password into the proxy's address: HTTPS_PROXY, or proxy_servers in .condarc",
        "certificate": "set the path of your CA certificates: ssl_verify in .condarc, or SSL_CERT_FILE",
        "timeout": f"check the network, proxies and mirrors; {_SLOW}",
        **dict.fromkeys(
            ("refused", "host_name", "no_connection", "tunnel", "truncated", "reset", "unreachable"),
            _CHANNEL_NETWORK,
        ),
    },
)

_OF_STATUS: dict[int, Cause] = {
    401: "credentials", 403: "forbidden", 404: "missing", 407: "proxy", 410: "withdrawn", 429: "rate_limited",
}  # fmt: skip
# The first matching pattern decides: specific causes are before general ones.
_ROWS: dict[Cause, _Row] = {
    "credentials": _Row(words="requires credentials for {item}", hint=_CREDENTIALS),
    "forbidden": _Row(words="denies access to {item}", hint=_CREDENTIALS),
    "missing": _Row(words="does not have {item}", hint=_OTHER_INDEX),
    "withdrawn": _Row(words="has withdrawn {item}", hint=_OTHER_INDEX),
    "proxy": _Row(
        words="is behind a proxy that requires a user name and a password",
        hint="put the user name and the password into the proxy's address: HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT",
        pattern=r"proxy auth(?:oriz|entic)ation required",
    ),
    "tunnel": _Row(
        words="cannot be reached through the proxy",
        hint="check the proxy's address: HTTPS_PROXY, HTTP_PROXY or proxy in pip.conf",
        pattern=r"tunnel error",
    ),
    "rate_limited": _Row(
        words="rate-limited the request for {item}",
        hint="wait some minutes, then run the command again: downloaded files are kept",
    ),
    "failing": _Row(words="cannot serve {item} now", hint="try again later, or name a mirror"),
    "refused": _Row(words="refused the request for {item}", hint=NETWORK_HINT),
    "certificate": _Row(
        words="has a certificate that is not trusted",
        hint="set the path of your CA certificates: SSL_CERT_FILE=FILE, or cert in pip.conf",
        pattern=r"certificate",
    ),
    "host_name": _Row(
        words="has a host name that cannot be resolved",
        hint=NETWORK_HINT,
        pattern=r"dns error|failed to lookup address",
    ),
    "no_connection": _Row(words="refuses the connection", hint=NETWORK_HINT, pattern=r"connection refused"),
    "truncated": _Row(
        words="ended the response too early",
        hint=NETWORK_HINT,
        pattern=r"end of file before message length|IncompleteBody|unexpected end of file",
    ),
    "reset": _Row(
        words="closed the connection",
        hint=NETWORK_HINT,
        pattern=r"connection reset|connection closed|broken pipe",
    ),
    "timeout": _Row(
        words="does not respond in time",
        hint=f"{NETWORK_HINT}; {_SLOW}",
        pattern=r"timed out|timeout|no data arrived for",
    ),
    "redirects": _Row(words="redirects endlessly", hint=UNREADABLE_HINT, pattern=r"redirect"),
    "content": _Row(
        words="sent a page that is not a package index",
        hint=UNREADABLE_HINT,
        pattern=r"Unsupported `Content-Type`",
    ),
    "unreachable": _Row(
        words="does not respond",
        hint=NETWORK_HINT,
        pattern=r"error sending request|tcp connect|could not connect|failed to fetch:? `",
    ),
}
STATUS_OF_URL = re.compile(r"\((\d{3})(?: ([^()]*))?\) for url")
_STATUS = re.compile(
    r"\b([45]\d\d) (Unauthorized|Forbidden|Not Found|Proxy Authentication Required|Gone|Too Many Requests|"
    r"Internal Server Error|Bad Gateway|Service Unavailable|Gateway Time-?out)\b"
)


def explain_cause(cause: Cause, item: str = "the file", server: ServerKind = PACKAGE_INDEX) -> Refusal:
    """Return the words and the hint of a cause for a request for `item`."""
    row = _ROWS[cause]
    return Refusal(cause=cause, words=row.words.format(item=item), hint=server.hints.get(cause, row.hint))


def explain_status(
    code: int, reason: str = "", item: str = "the file", server: ServerKind = PACKAGE_INDEX
) -> Refusal:
    """Return the meaning of an error status for a request for `item`."""
    if 300 <= code < 400:
        return explain_cause("redirects", item, server)
    cause = _OF_STATUS.get(code, "failing" if code >= 500 else "refused")
    refusal = explain_cause(cause, item, server)
    evidence = f"HTTP {code} {reason}".strip()
    return Refusal(cause=cause, words=f"{refusal.words} ({evidence})", hint=refusal.hint)


def find_refusal(log: str, item: str = "the file", server: ServerKind = PACKAGE_INDEX) -> Refusal | None:
    """Return the refusal that a log of uv or rattler reports, or None."""
    if status := STATUS_OF_URL.search(log) or _STATUS.search(log):
        return explain_status(int(status[1]), status[2] or "", item, server)
    for cause, row in _ROWS.items():
        if row.pattern and re.search(row.pattern, log, re.IGNORECASE):
            return explain_cause(cause, item, server)
    return None


# --- gpuenv's own requests ---------------------------------------------------------------------------

_CAUSES: tuple[tuple[type[Exception], Cause], ...] = (
    (ssl.SSLCertVerificationError, "certificate"),
    (http.client.IncompleteRead, "truncated"),
    (socket.gaierror, "host_name"),
    (TimeoutError, "timeout"),
    (ConnectionRefusedError, "no_connection"),
    (ConnectionResetError, "reset"),
    (BrokenPipeError, "reset"),
)
_PERMANENT = (AnswerError, FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
_SECONDS = 5.0
_PORTS = {"http": 80, "https": 443}


def is_permanent(error: Exception) -> bool:
    """Return whether the same request would fail again."""
    reason = getattr(error, "reason", None)
    return isinstance(error, _PERMANENT) or isinstance(reason, ssl.SSLCertVerificationError)


def explain_error(error: Exception) -> Refusal | None:
    """Return the meaning of a failed request, or None if only the error's text explains it.

    That of a status says the wait that the server requests.
    """
    if isinstance(error, urllib.error.HTTPError):
        wait, said = clean_line(str(error.headers.get("Retry-After", "")), 40), str(error.reason)
        if wait and read_retry_after(error.headers) is None:
            said += f"; its Retry-After is neither seconds nor a date: {wait!r}"
        elif wait:
            said += f"; retry after {wait}{' s' if wait.isdigit() else ''}"
        return explain_status(error.code, said)
    reason = getattr(error, "reason", None) or error
    # The text of an AnswerError or a DeadlineError is more precise than its type.
    causes = () if isinstance(reason, DeadlineError) else _CAUSES
    return next((explain_cause(cause) for kind, cause in causes if isinstance(reason, kind)), None)


def read_error(url: str, error: Exception) -> LockError:
    """Return the error for a URL whose request failed with a status or an exception."""
    if refusal := explain_error(error):
        return unreadable(url, f"the server {refusal.words}", refusal.hint)
    return unreadable(url, str(getattr(error, "reason", None) or error or type(error).__name__))


def unreadable(url: str, reason: str, hint: str = NETWORK_HINT) -> LockError:
    """Return the error for a URL that cannot be read."""
    shown = redact(url)
    return LockError(f"cannot read {shown}: {reason}", hint=hint, unreachable=shown)


@functools.cache
def find_connection_error(url: str, proxy: str | None = None) -> str | None:
    """Return why no connection to an address can be opened, as the end of a sentence, or None.

    No request is sent. With a proxy (`proxy`, else the environment's), the connection is the one to the proxy. The
    result is kept while this process runs. Addresses of files have no connection error.
    """
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        return None
    through = proxy or _find_proxy(parts.scheme, parts.hostname)
    place = urlsplit(through if "://" in through else f"http://{through}") if through else parts
    try:
        port = place.port or _PORTS.get(place.scheme, 80)
        socket.create_connection((place.hostname or "", port), timeout=_SECONDS).close()
    except (OSError, ValueError) as error:
        refusal = explain_error(error)
        return refusal.words if refusal else f"is unreachable: {getattr(error, 'strerror', None) or error}"
    return None


def _find_proxy(scheme: str, host: str) -> str | None:
    if urllib.request.proxy_bypass(host):
        return None
    proxies = urllib.request.getproxies()
    return proxies.get(scheme) or proxies.get("all")
