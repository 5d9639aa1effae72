"""One table of HTTP refusals and network failures, with causes and hints, and the errors that are made of them.

uv, rattler and gpuenv's own requests fail in the same ways. Each failure has one cause here. It is reported as a
status, as an exception of Python, or as text of the HTTP library of uv and rattler.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Literal
from urllib.parse import unquote, urlsplit

from ..errors import LockError
from ..model import normalize_name
from ..model.values import Value
from ..system.redaction import redact
from .config import find_origin

Cause = Literal[
    "credentials", "forbidden", "missing", "withdrawn", "proxy", "tunnel", "rate_limited", "failing", "refused", "certificate",
    "host_name", "no_connection", "truncated", "reset", "timeout", "redirects", "content", "unreachable",
]  # fmt: skip


class ServerKind(Value):
    """A kind of server: its name in messages, and the hints that differ from the table."""

    name: str
    hints: Mapping[Cause, str] = field(default_factory=dict)


class Refusal(Value):
    """The cause of a failed request. `words` follow the name of the server in a message."""

    cause: Cause
    words: str
    hint: str


class _Row(Value):
    """`words` follow the name of the server. {item} is the file or the package that was requested.

    `pattern` matches the cause without a status in texts of the HTTP library of uv and rattler.
    """

    words: str
    hint: str
    pattern: str | None = None


NETWORK_HINT = (
    "check the network, the proxy and the index-url of pip or uv, or use --offline --find-links DIR"
)
UNREADABLE_HINT = "open the address in a browser and check for a login page, a proxy or a broken mirror"
_CREDENTIALS = (
    "put the user name and the password into the index's address (in uv.toml or pip.conf), or into ~/.netrc"
)
_OTHER_INDEX = "name an index or a folder that has it: pip's index-url, or --find-links DIR"
_SLOW = "allow more time with UV_HTTP_TIMEOUT=SECONDS on a slow network"
_CHANNEL_NETWORK = "check the network, and the proxies and mirrors in .condarc and ~/.config/rattler/config.toml, or use --offline"

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
STATUS_OF_URL = r"\((\d{3})(?: ([^()]*))?\) for url"
_STATUS = (
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
    if status := re.search(STATUS_OF_URL, log) or re.search(_STATUS, log):
        return explain_status(int(status[1]), status[2] or "", item, server)
    for cause, row in _ROWS.items():
        if row.pattern and re.search(row.pattern, log, re.IGNORECASE):
            return explain_cause(cause, item, server)
    return None


def make_read_error(url: str, reason: str, hint: str = NETWORK_HINT) -> LockError:
    """Return the error for a URL that cannot be read."""
    shown = redact(url)
    return LockError(f"cannot read {shown}: {reason}", hint=hint, unreachable=shown)


# --- logs of uv --------------------------------------------------------------------------------------


class UvFailure(Value):
    """A failure of uv with its cause. `address` is the requested URL, or None if uv does not name it.

    `index_unavailable` is True if other requests to the same index would fail too.
    """

    message: str
    hint: str
    address: str | None = None
    index_unavailable: bool = False


_ADDRESS = r"https?://[^\s`'\")]+"
_DENIED = r"An index (?:URL )?\((\S+)\) (?:returned an? |could not be queried .{0,80}?\()(\d{3}) ([A-Za-z ]+?)(?: error|\))"
_NAMES = (
    r"Failed to (?:download|fetch|read|prepare|install)(?: distribution)?[: ]+`([A-Za-z0-9._-]+)[=@ `]",
    r"Because (?:only )?([A-Za-z0-9][A-Za-z0-9._-]*)(?:[=<>~!]\S+)? has invalid metadata",
    r"Failed to extract archive: ([A-Za-z0-9._]+)-\d",
)
_BROKEN = (
    r"has invalid metadata|Failed to extract archive|Invalid zip file|Metadata field \w+ not found|"
    r"could not be parsed|Bad (?:un)?compressed size|Bad CRC"
)
_STORAGE = (
    r"(No space left on device|Disk quota exceeded|Read-only file system|Permission denied) \(os error \d+\)"
)
SPACE_HINT = "free space, or put ENV, the caches (--cache-dir DIR) or TMPDIR on another disk"
_FOLDER_HINT = "correct the folder's owner and permissions, or name other folders: ENV, --cache-dir DIR (or UV_CACHE_DIR), TMPDIR"


def find_storage_failure(log: str) -> UvFailure | None:
    """Return the failure of a disk or a folder that a log of uv reports, or None."""
    match = re.search(_STORAGE, log)
    if match is None:
        return None
    paths = re.findall(r"[`'\"](/[^`'\"\n]+)[`'\"]", log[: match.start()])
    path = paths[-1] if paths else None
    if match[1].startswith(("No space", "Disk quota")):
        disk = f"the disk of {path}" if path else "the disk"
        return UvFailure(message=f"{disk} is full: {match[1]}", hint=SPACE_HINT)
    return UvFailure(message=f"{path or 'a folder'} is not writable: {match[1]}", hint=_FOLDER_HINT)


def find_failure(
    log: str, indexes: Mapping[str, str | None] | None = None, *, configured: str | None = None
) -> UvFailure | None:
    """Return the failure of the network, an index or a wheel that a log of uv reports, or None.

    `indexes` are the indexes that a lock names by package. `configured` names the indexes of all others. The log must
    be without credentials.
    """
    match = re.search(_ADDRESS, log)
    address = redact(match[0].rstrip(".,:")) if match else None
    package = _find_package(log, address)
    index = (indexes or {}).get(package or "") or (_find_index(address) if address else configured)
    server = f"{PACKAGE_INDEX.name} {index}" if index else PACKAGE_INDEX.name
    if denied := re.search(_DENIED, log):
        # uv reports this status for a missing package. The address before it is of another request.
        url, package = denied[1], find_absent_package(log)
        refusal = explain_status(int(denied[2]), denied[3], package or url)
        return _describe(url, refusal, url, package)
    if re.search(_BROKEN, log) and not re.search(STATUS_OF_URL, log):
        source = f" of {server}" if index else ""
        message = f"{package or 'a package'}{source} is not a readable wheel"
        return UvFailure(message=message, hint=UNREADABLE_HINT, address=address)
    found_refusal = find_refusal(log, package or address or "a package")
    return _describe(index, found_refusal, address, package) if found_refusal else None


def _describe(index: str | None, refusal: Refusal, address: str | None, package: str | None) -> UvFailure:
    item = package if package and package not in refusal.words else None
    origin = find_origin(index) if index else None
    return UvFailure(
        message=" ".join(filter(None, (PACKAGE_INDEX.name, index, refusal.words)))
        + (f" ({item})" if item else ""),
        hint=refusal.hint + (f". The index is from {origin}" if origin else ""),
        address=address,
        index_unavailable=refusal.cause not in ("proxy", "content"),
    )


def _find_package(log: str, address: str | None) -> str | None:
    for pattern in _NAMES:
        if match := re.search(pattern, log):
            return normalize_name(match[1])
    if not address:
        return None
    *_, before, last = ["", "", *(unquote(p) for p in urlsplit(address).path.split("/") if p)]
    name = re.match(r"([A-Za-z0-9._]+)-\d", last) if ".whl" in last or ".tar" in last else None
    return normalize_name(name[1] if name else last) if before or name else None


def _find_index(address: str) -> str:
    """Return the index of an address: the parent of a project's page, or the host of a file."""
    parts = urlsplit(address)
    return (
        address.rstrip("/").rpartition("/")[0]
        if parts.path.strip("/") and parts.path.endswith("/")
        else f"{parts.scheme}://{parts.netloc}"
    )


_ABSENT = (
    r"Because (?:only )?([A-Za-z0-9][A-Za-z0-9._-]*) was not found|"
    r"there (?:is|are) no versions? of ([A-Za-z0-9._-]+)"
)


def find_absent_package(log: str) -> str | None:
    """Return the package that no index has in a requested version, or None if the log of uv names none."""
    match = re.search(_ABSENT, " ".join(log.split()))
    return normalize_name(match[1] or match[2]) if match else None
