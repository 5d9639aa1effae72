"""Why an index, a proxy or a file fails: what uv says of it, as one sentence and what to do about it.

Whether a connection can be made at all is asked once a run, before the solver tries it again and again."""

from __future__ import annotations

import functools
import re
import socket
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from ..model import normalize_name
from ..system.redaction import redact


@dataclass(frozen=True, kw_only=True, slots=True)
class Refused:
    """A failure that the network, an index or a file of one is to blame for. `silent` is whether the
    index as a whole may be gone, `address` what was asked for, where that is known."""

    message: str
    hint: str
    address: str | None = None
    silent: bool = False


NETWORK_HINT = "check the network, the proxy and pip's index-url, or use --offline --find-links DIR"
_ADDRESS = re.compile(r"https?://[^\s`'\")]+")
_STATUS = re.compile(r"\((\d{3})(?: ([^()]*))?\) for url")
_DENIED = re.compile(r"An index \((\S+)\) returned an? (\d{3}) ([A-Za-z ]+) error")
_NAMES = (
    r"Failed to (?:download|fetch|read|prepare|install)(?: distribution)?[: ]+`([A-Za-z0-9._-]+)[=@ `]",
    r"Because (?:only )?([A-Za-z0-9][A-Za-z0-9._-]*)(?:[=<>~!]\S+)? has invalid metadata",
    r"Failed to extract archive: ([A-Za-z0-9._]+)-\d",
)
_PROXY = "put user and password into the proxy's address: HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT"
_ACCESS = "put user and password into the index's address in pip.conf, or into ~/.netrc"
_STRANGE = "open the address in a browser: a login page, a proxy or a broken mirror may stand in between"
_STATUSES = {
    401: ("wants a user and a password", _ACCESS),
    403: ("refuses", _ACCESS),
    404: ("does not have", "another index may have it: pip's index-url, or --find-links DIR"),
    407: ("is behind a proxy that wants a user and a password", _PROXY),
    410: ("has withdrawn", "another index may have it: pip's index-url, or --find-links DIR"),
    429: ("asks us to come later", "wait some minutes, then run the command again: what is fetched stays"),
}
_CAUSES = (
    (r"proxy authorization required|Proxy Authentication Required", *_STATUSES[407]),
    (r"invalid peer certificate|certificate", "has a certificate that is not trusted",
     "name your certificates: SSL_CERT_FILE=FILE, or cert in pip.conf"),
    (r"dns error|failed to lookup address", "has a name that cannot be looked up", NETWORK_HINT),
    (r"Connection refused", "refuses the connection", NETWORK_HINT),
    (r"end of file before message length|IncompleteBody|unexpected end of file", "ended its answer half-way", NETWORK_HINT),
    (r"Connection reset|connection closed|broken pipe", "broke the connection", NETWORK_HINT),
    (r"timed out|timeout", "does not answer in time",
     f"{NETWORK_HINT}; a slow network is given more time by UV_HTTP_TIMEOUT=SECONDS"),
    (r"redirect", "redirects without an end", _STRANGE),
    (r"Unsupported `Content-Type`", "answered something that is no package index", _STRANGE),
    (r"error sending request|tcp connect|Could not connect|Failed to fetch", "does not answer", NETWORK_HINT),
)  # fmt: skip
_BROKEN = re.compile(
    r"has invalid metadata|Failed to extract archive|Invalid zip file|Metadata field \w+ not found|"
    r"could not be parsed|Bad (?:un)?compressed size|Bad CRC"
)


_STORAGE = re.compile(
    r"(No space left on device|Disk quota exceeded|Read-only file system|Permission denied) \(os error \d+\)"
)


def storage(log: str) -> Refused | None:
    """The disk or the folder that a log of uv blames, None where it blames none."""
    found = _STORAGE.search(log)
    if found is None:
        return None
    paths = re.findall(r"[`'\"](/[^`'\"\n]+)[`'\"]", log[: found.start()])
    path = paths[-1] if paths else None
    if found[1][:2] in ("No", "Di"):
        told = f"the disk of {path} is full" if path else "the disk is full"
        return Refused(message=f"{told}: {found[1]}", hint=ROOM)
    return Refused(message=f"{path or 'a folder'} cannot be used: {found[1]}", hint=_OTHER)


ROOM = "free space, or put ENV, the caches (--cache-dir DIR) or TMPDIR on another disk"
_OTHER = "give the folder back to its user, or name others: ENV, --cache-dir DIR (or UV_CACHE_DIR), TMPDIR"


def refused(
    log: str, indexes: Mapping[str, str | None] | None = None, *, configured: str | None = None
) -> Refused | None:
    """The failure that a log of uv tells, None where it tells of none of these kinds. `indexes` are the
    indexes of packages that a lock names, `configured` the ones that are asked for all others. The log
    must be without credentials."""
    found = _ADDRESS.search(log)
    address = redact(found[0].rstrip(".,:")) if found else None
    package = _package(log, address)
    index = (indexes or {}).get(package or "") or (_index_of(address) if address else configured)
    where = f"the package index {index}" if index else "the package index"
    named = f" ({package})" if package else ""
    if denied := _DENIED.search(log):
        return _of_status(int(denied[2]), denied[3], f"the package index {denied[1]}", absent(log), denied[1])
    if status := _STATUS.search(log):
        return _of_status(int(status[1]), status[2] or "", where, package, address)
    if _BROKEN.search(log):
        of = f" of {where}" if index else ""
        return Refused(
            message=f"{package or 'a package'}{of} is no wheel that can be read",
            hint=_STRANGE,
            address=address,
        )
    for pattern, said, hint in _CAUSES:
        if re.search(pattern, log, re.IGNORECASE):
            silent = said not in (_STATUSES[407][0], "answered something that is no package index")
            return Refused(message=f"{where} {said}{named}", hint=hint, address=address, silent=silent)
    return None


def _of_status(code: int, words: str, where: str, package: str | None, address: str | None) -> Refused:
    told = f"{code} {words}".strip()
    silent = code != 407
    if code >= 500:
        said = f"{where} is failing: it answered {told} when asked for {package or address}"
        return Refused(message=said, hint="try again later, or name a mirror", address=address, silent=silent)
    said, hint = _STATUSES.get(code, ("refuses", NETWORK_HINT))
    if said in ("refuses", "does not have", "has withdrawn"):
        message = f"{where} {said} {package or address or 'a package'}: {told}"
    else:
        message = f"{where} {said}{f' ({package})' if package else ''}: {told}"
    return Refused(message=message, hint=hint, address=address, silent=silent)


def _package(log: str, address: str | None) -> str | None:
    for pattern in _NAMES:
        if found := re.search(pattern, log):
            return normalize_name(found[1])
    if not address:
        return None
    *_, before, last = ["", *(unquote(p) for p in urlsplit(address).path.split("/") if p)]
    name = re.match(r"([A-Za-z0-9._]+)-\d", last) if ".whl" in last or ".tar" in last else None
    return normalize_name(name[1] if name else last) if before or name else None


def _index_of(address: str) -> str:
    """The index that an address is of: a project's page lies one below it; of a file only the host says
    where it is from."""
    parts = urlsplit(address)
    return (
        address.rstrip("/").rpartition("/")[0]
        if parts.path.endswith("/")
        else f"{parts.scheme}://{parts.netloc}"
    )


_ABSENT = re.compile(
    r"Because (?:only )?([A-Za-z0-9][A-Za-z0-9._-]*) was not found|"
    r"there (?:is|are) no versions? of ([A-Za-z0-9._-]+)"
)


def absent(log: str) -> str | None:
    """The package that no index has, or not in the version asked for, where a log of uv says so."""
    found = _ABSENT.search(" ".join(log.split()))
    return normalize_name(found[1] or found[2]) if found else None


_SECONDS = 5.0
_PORTS = {"http": 80, "https": 443}


@functools.cache
def connection_error(url: str, proxy: str | None = None) -> str | None:
    """Return why no connection to an address can be made, as the end of a sentence, or None.

    No request is sent. Where a proxy is configured (`proxy`, else the environment), the connection is the one to
    the proxy. The answer is kept as long as this process runs. Addresses of files can always be reached.
    """
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        return None
    through = proxy or _proxy_of_environment(parts.scheme, parts.hostname)
    place = urlsplit(through if "://" in through else f"http://{through}") if through else parts
    try:
        port = place.port or _PORTS.get(place.scheme, 80)
        socket.create_connection((place.hostname or "", port), timeout=_SECONDS).close()
    except socket.gaierror:
        return "has a name that cannot be looked up"
    except TimeoutError:
        return "does not answer in time"
    except ConnectionRefusedError:
        return "refuses the connection"
    except (OSError, ValueError) as error:
        return f"cannot be reached: {getattr(error, 'strerror', None) or error}"
    return None


def _proxy_of_environment(scheme: str, host: str) -> str | None:
    if urllib.request.proxy_bypass(host):
        return None
    proxies = urllib.request.getproxies()
    return proxies.get(scheme) or proxies.get("all")
