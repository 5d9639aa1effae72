"""Opens addresses through proxies, and reads responses of bounded size and time.

Each host name is resolved once: a search reads dozens of pages of one index, each over a new connection, and a lost
response of a name server costs five seconds each time.
"""

from __future__ import annotations

import datetime as dt
import email.utils
import http.client
import io
import socket
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.message import Message
from typing import Any

from ..system.redaction import clean_line, redact

_DEFAULT_PORTS = {"http": 80, "https": 443}


def origin(url: str) -> tuple[str, str, int | None]:
    """Return scheme, host and port, which credentials belong to. Raises ValueError."""
    parts = urllib.parse.urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or _DEFAULT_PORTS.get(parts.scheme)


def opener(proxies: dict[str, str] | None, context: ssl.SSLContext) -> urllib.request.OpenerDirector:
    """Make an opener with these proxies (None: those of the environment) and certificates."""
    return urllib.request.build_opener(
        urllib.request.ProxyHandler(proxies), _HttpHandler(), _HttpsHandler(context=context), _Redirects()
    )


class _Redirects(urllib.request.HTTPRedirectHandler):
    """A handler that follows redirects only over HTTP(S), and never from https to http.

    Credentials go to the same scheme, host and port only.
    """

    def http_error_302(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Message
    ) -> Any:
        try:
            return super().http_error_302(req, fp, code, msg, headers)  # type: ignore[arg-type]
        except (ValueError, urllib.error.URLError):
            fp.close()
            raise

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302

    # Six parameters: the signature of the base class.
    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: object,
        code: int,
        msg: str,
        headers: Message,
        newurl: str,
    ) -> urllib.request.Request | None:
        old, new = origin(req.full_url), origin(newurl)
        if new[0] not in _DEFAULT_PORTS or (old[0], new[0]) == ("https", "http"):
            raise urllib.error.URLError(f"redirected to {redact(newurl)}, which is not followed")
        redirected = super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]
        if redirected is not None:
            # The proxy's handler adds it again for a request through a proxy.
            redirected.headers.pop("Proxy-authorization", None)
            if new != old:
                redirected.headers.pop("Authorization", None)
        return redirected


class DeadlineError(TimeoutError):
    """Response headers that were incomplete at their deadline."""


class _Raw(io.RawIOBase):
    """The bytes of a socket until a deadline, also if they come one by one. No deadline applies when `until` is None."""

    def __init__(self, sock: socket.socket, raw: io.RawIOBase) -> None:
        self._sock, self._raw = sock, raw
        self._timeout = sock.gettimeout()
        # Twice the time-out, because a slow server waits first and then sends its headers at once.
        self.until = time.monotonic() + 2 * self._timeout if self._timeout else None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self.until is None or self._timeout is None:
            return self._raw.readinto(buffer)
        left = self.until - time.monotonic()
        endless = DeadlineError("the response headers were not complete in time")
        if left <= 0:
            raise endless
        self._sock.settimeout(min(self._timeout, left))
        try:
            return self._raw.readinto(buffer)
        except TimeoutError:
            if time.monotonic() < self.until:
                raise
            raise endless from None

    def end_deadline(self) -> None:
        if self.until is not None:
            self._sock.settimeout(self._timeout)
        self.until = None

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self._raw = _Raw(sock, self.fp.detach())
        self.fp = io.BufferedReader(self._raw)

    def begin(self) -> None:
        super().begin()
        self._raw.end_deadline()


class _Bounded:
    """What both kinds of connections have: responses with a deadline, and hosts that are resolved once."""

    response_class: Any = _Response

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._create_connection = connect


class _Connection(_Bounded, http.client.HTTPConnection):
    pass


class _SecureConnection(_Bounded, http.client.HTTPSConnection):
    pass


class _HttpHandler(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Connection, req)


class _HttpsHandler(urllib.request.HTTPSHandler):
    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(context=context)
        self._own = context

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_SecureConnection, req, context=self._own)


MOST = 256 << 20
"""The most bytes of one body. The largest page of a package index has some 50 MB. Wheels are read in parts."""
LONGEST = 600.0
"""The most seconds for one body, also if its bytes come steadily."""
PATIENCE = 60.0
"""The longest wait in seconds that a server may request. For a longer one the user decides."""
_PIECE = 1 << 20
_DIGITS = 15
"""The most digits of a valid number of bytes or seconds."""


class AnswerError(OSError):
    """A response that breaks the rules of HTTP or a limit of gpuenv. Another try would get the same."""


def number(headers: Mapping[str, Any] | Message, name: str) -> int | None:
    """Return a header's count of bytes, or None if it is missing. Raises AnswerError for an invalid one."""
    text = headers.get(name)
    if text is None:
        return None
    digits = str(text).strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS):
        raise AnswerError(f"the {name} header of the response is not a size: {clean_line(digits, 40)!r}")
    return int(digits)


def body(answer: http.client.HTTPResponse, most: int = MOST) -> bytes:
    """Read a complete body of at most `most` bytes.

    Raises OSError if it ends too early, and AnswerError if it is larger or takes longer than LONGEST.
    """
    expected = number(answer.headers, "Content-Length")
    if expected is not None and expected > most:
        raise AnswerError(f"the response has {expected} bytes, expected at most {most}")
    pieces, size, until = [], 0, time.monotonic() + LONGEST
    # `read1` returns the available bytes, so that the deadline is checked even if bytes come one by one.
    while size != expected and (piece := answer.read1(_PIECE)):
        pieces.append(piece)
        size += len(piece)
        if size > most:
            raise AnswerError(f"the response has more than {most} bytes")
        if time.monotonic() > until:
            raise AnswerError(f"the response was not complete after {LONGEST:.0f} s")
    if expected is not None and size < expected:
        raise OSError(f"the response ended after {size} of {expected} bytes")
    return b"".join(pieces)


def pause(headers: Message | None, tried: int) -> float | None:
    """Return the seconds before the next try: those of `Retry-After`, else 0.5, 1, 2, ...

    Returns None if the server requests more than PATIENCE. An invalid header is ignored.
    """
    wanted = read_retry_after(headers) if headers else None
    if wanted is None:
        return float(0.5 * 2**tried)
    return wanted if wanted <= PATIENCE else None


def read_retry_after(headers: Message) -> float | None:
    """Return the seconds of `Retry-After` (RFC 9110, 10.2.3), or None without a valid one."""
    said = str(headers.get("Retry-After", "")).strip()
    if said.isascii() and said.isdigit():
        return float(said[:_DIGITS])
    try:
        when = email.utils.parsedate_to_datetime(said)
        return max(0.0, (when - dt.datetime.now(tz=dt.timezone.utc)).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return None


# --- hosts -------------------------------------------------------------------------------------------

_KEPT = 60.0
"""The seconds for which the addresses of a host are kept."""


@dataclass
class _Host:
    lock: threading.Lock = field(default_factory=threading.Lock)
    until: float = 0.0
    addresses: tuple[str, ...] = ()


_hosts: defaultdict[tuple[str, int], _Host] = defaultdict(_Host)
_all = threading.Lock()


def connect(
    address: tuple[str, int], timeout: float | None = None, source_address: Any = None
) -> socket.socket:
    """Open a connection as socket.create_connection does. Raises OSError."""
    with _all:
        host = _hosts[address]
    last_error: OSError | None = None
    for place in _resolve_host(host, address):
        try:
            return socket.create_connection((place, address[1]), timeout, source_address)
        except OSError as error:
            last_error = error
    host.until = 0.0  # the next try resolves the name again
    raise last_error or OSError(f"the host {address[0]} has no IP address")


def _resolve_host(host: _Host, address: tuple[str, int]) -> tuple[str, ...]:
    """Return the addresses of a host, in the system's order. Concurrent requests share one look-up."""
    with host.lock:
        if time.monotonic() >= host.until:
            addresses = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
            host.addresses = tuple(dict.fromkeys(str(place[0]) for *_, place in addresses))
            host.until = time.monotonic() + _KEPT
        return host.addresses
