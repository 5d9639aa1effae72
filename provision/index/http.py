"""Sends HTTP requests with bounded retries, deadlines and range reads. No message contains credentials."""

from __future__ import annotations

import base64
import functools
import http.client
import io
import math
import re
import socket
import ssl
import string
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any, NamedTuple, TypeVar

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, InvalidHeader, ProxyError

from .. import __version__
from ..errors import LockError
from ..system import process
from ..system.redaction import clean_line, redact, redact_text
from ..system.untrusted import path_of_url
from .config import PipConfig, find_origin, pip_settings
from .refusals import Cause, Refusal, explain_cause, explain_status, make_read_error

Item = TypeVar("Item")
Answer = TypeVar("Answer")

TRIES = 4
TIMEOUT = 60.0
"""The seconds without a byte before a request fails."""
AT_ONCE = 8
"""The number of simultaneous requests, which an index can serve for one client without slowing it down."""
PASSING = frozenset({408, 429, 500, 502, 503, 504})
"""The error statuses that may be temporary."""


MOST = 256 << 20
"""The most bytes of one body. The largest page of a package index has some 50 MB. Wheels are read in parts."""
LONGEST = 600.0
"""The most seconds for one body, also if its bytes come steadily."""
PATIENCE = 60.0
"""The longest wait in seconds that a server may request. For a longer one the user decides."""
_REDIRECTS = 10
_PIECE = 1 << 20
_DIGITS = 15
"""The most digits of a valid number of bytes or seconds."""
_PORTS = {"http": 80, "https": 443}


class Response(NamedTuple):
    """A body and its headers. `status` is 200 or 206, and `url` the address after redirects."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str


class Stream(NamedTuple):
    """A body that is not read yet, from byte `start` of the file.

    `total` is the size of the complete file in bytes, or None if the server does not state it.
    """

    start: int
    total: int | None
    body: io.BufferedReader | urllib3.BaseHTTPResponse


class Http:
    """A client for indexes, with pip's proxy and certificates.

    `config` is by default the user's. If it has none, proxies and certificates of the environment (https_proxy,
    SSL_CERT_FILE) apply.
    """

    def __init__(
        self, config: PipConfig | None = None, *, timeout: float | None = None, tries: int = TRIES
    ) -> None:
        config = config or pip_settings(process.environ())
        self._proxy, self._cert, self._trusted = config.proxy, config.cert, frozenset(config.trusted_hosts)
        self._timeout = timeout or config.timeout or TIMEOUT
        self._tries = tries
        self._lock = threading.Lock()
        self._pools: dict[tuple[str | None, ssl.SSLContext | None], urllib3.PoolManager] = {}

    def get(
        self,
        url: str,
        *,
        accept: str | None = None,
        span: tuple[int, int] | None = None,
        head: bool = False,
        missing_ok: bool = False,
    ) -> Response | None:
        """Fetch a URL. Returns None for a missing file with `missing_ok`.

        `span` is a first byte and a length. A negative first byte counts from the end. Raises LockError, with
        `unreachable` set, if the host does not answer or refuses.
        """
        headers = {"Accept": accept} if accept else {}
        if span:
            first, length = span
            headers["Range"] = f"bytes={first}" if first < 0 else f"bytes={first}-{first + length - 1}"
        if url.startswith("file:"):
            return _read_local(url, span, missing_ok, head=head)
        most = (-span[0] if span[0] < 0 else span[1]) if span else MOST
        for left in reversed(range(self._tries)):
            try:
                with self._open("HEAD" if head else "GET", url, headers) as answer:
                    _read_size(answer.headers, "Content-Length")
                    # A server without range support would send gigabytes: the status is enough.
                    whole = span and answer.status == 200
                    content = b"" if whole or head else _read_body(answer, most)
                    return Response(answer.status, answer.headers, content, answer.url or url)
            except (OSError, http.client.HTTPException) as e:
                if missing_ok and isinstance(e, StatusError) and e.status in (403, 404, 410):
                    return None
                wait = _find_pause(e, self._tries - 1 - left)
                if not left or wait is None or is_permanent(e):
                    raise read_error(url, e) from None
            time.sleep(wait)
        raise AssertionError("internal error: the last retry neither returned nor raised")

    @contextmanager
    def stream(self, url: str, *, start: int = 0) -> Iterator[Stream]:
        """Send a request once, and yield its response from byte `start`, or from 0 if the server has no ranges.

        The reader knows the received bytes, and can request the rest. Raises OSError and HTTPException of the network
        (StatusError for a refusal).
        """
        if url.startswith("file:"):
            with path_of_url(url).open("rb") as file:
                size = file.seek(0, 2)
                file.seek(start)
                yield Stream(start, size, file)
            return
        with self._open("GET", url, {"Range": f"bytes={start}-"} if start else {}) as answer:
            first, total = 0, _read_size(answer.headers, "Content-Length")
            if answer.status == 206:
                first, _, total = parse_content_range(answer.headers.get("Content-Range"))
            yield Stream(first, total, answer)

    @property
    def patience(self) -> float:
        """Seconds without a byte before a request counts as failed."""
        return self._timeout

    @contextmanager
    def _open(self, method: str, url: str, headers: Mapping[str, str]) -> Iterator[urllib3.BaseHTTPResponse]:
        """Send a request and follow its redirects.

        Raises OSError and HTTPException of the network, and LockError for an address or a proxy that no try can use.
        """
        url, credentials = _split_credentials(url)
        headers = {"User-Agent": f"gpuenv/{__version__}", "Accept-Encoding": "identity", **headers}
        if credentials:
            headers["Authorization"] = credentials
        try:
            for left in reversed(range(_REDIRECTS + 1)):
                with closing(self._send(method, url, headers)) as answer:
                    if method == "HEAD" or answer.headers.get("Content-Length") == "0":
                        answer.read1(_PIECE)  # the end, without a wait: its connection can then be used again
                    if 200 <= answer.status < 300:
                        answer.url = url
                        yield answer
                        return
                    place = answer.get_redirect_location()
                    if not place or not left:
                        raise StatusError(answer.status, answer.reason, answer.headers)
                url, headers = _redirect(url, place, headers)
        except HTTPError as e:
            raise _find_reason(e) from None

    def _send(self, method: str, url: str, headers: Mapping[str, str]) -> urllib3.BaseHTTPResponse:
        """Send one request, again for each kept connection that the server closes as it is used."""
        proxy = _find_proxy(url, self._proxy)
        while True:
            try:
                return self._find_pools(url, proxy).urlopen(
                    method, url, headers=headers, timeout=self._timeout, retries=False, redirect=False,
                    preload_content=False, decode_content=False, enforce_content_length=False,
                )  # fmt: skip
            except HTTPError as e:
                reason = _find_reason(e)
                passing = isinstance(reason, ssl.SSLEOFError)  # also a proxy that is busy
                if isinstance(e, ProxyError) and not passing:
                    raise _explain_proxy(url, proxy or "", reason) from None
                if not isinstance(reason, _KeptError):
                    raise

    def _find_pools(self, url: str, proxy: str | None) -> urllib3.PoolManager:
        """Return the connections through the proxy for a URL.

        Certificates of hosts that the user trusts are not checked. That of a proxy always is: it gets the proxy's password.
        """
        parts = urllib.parse.urlsplit(url)
        trusted = bool({parts.hostname, parts.netloc} & self._trusted)
        environ = process.environ()
        variables = tuple(environ.get(name) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"))
        with self._lock:
            # Plain HTTP needs no certificates, and reading them takes 20 ms.
            checked = (proxy or "").lower().startswith("https:")
            try:
                of_proxy = _make_context(self._cert, False, variables) if checked else None
                context = (
                    _make_context(self._cert, trusted, variables) if parts.scheme == "https" else of_proxy
                )
            except OSError as e:
                raise make_read_error(
                    url,
                    f"the CA certificates {_name_setting(self._cert or '')} cannot be read: {e.strerror or e}",
                    "write the path of a file of certificates: PIP_CERT, or cert in pip.conf",
                ) from None
            if (proxy, context) not in self._pools:
                self._pools[proxy, context] = _make_pools(proxy, context, of_proxy)
            return self._pools[proxy, context]

    def sizes(self, urls: Iterable[str]) -> dict[str, int | None]:
        """Return the size in bytes of each URL's file, by HEAD, or None if the server does not state it."""

        def size(url: str) -> int | None:
            answer = self.get(url, head=True, missing_ok=True)
            return _read_size(answer.headers, "content-length") if answer else None

        return fetch_all(urls, size)


def fetch_all(items: Iterable[Item], fetch: Callable[[Item], Answer]) -> dict[Item, Answer]:
    """Return what `fetch` returns for each item. A bounded number is fetched at a time."""
    wanted = list(dict.fromkeys(items))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(wanted, pool.map(fetch, wanted), strict=True))


def parse_content_range(text: str | None) -> tuple[int, int, int | None]:
    """Return the first and last byte of a range, and the size of the file. Raises AnswerError."""
    match = re.fullmatch(r"bytes ([0-9]{1,15})-([0-9]{1,15})/([0-9]{1,15}|\*)", (text or "").strip())
    if not match:
        raise AnswerError(
            f"the Content-Range header of the response is not a range: {clean_line(text or '', 40)!r}"
        )
    return int(match[1]), int(match[2]), None if match[3] == "*" else int(match[3])


def origin(url: str) -> tuple[str, str, int | None]:
    """Return scheme, host and port, which credentials belong to. Raises ValueError."""
    parts = urllib.parse.urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or _PORTS.get(parts.scheme)


def _split_credentials(url: str) -> tuple[str, str | None]:
    """Return a URL without user and password, and their Authorization header."""
    try:
        parts = urllib.parse.urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known or re.search(r"[\x00-\x20\x7f]", url):
        raise LockError(
            f"{redact(url)} is not an http, https or file URL",
            hint="write the address of the index or the proxy as an http, https or file URL",
        )
    user, at, host = parts.netloc.rpartition("@")
    bare = urllib.parse.urlunsplit((parts.scheme, host, parts.path, parts.query, ""))
    if not at:
        return bare, None
    text = urllib.parse.unquote(user if ":" in user else f"{user}:")
    return bare, "Basic " + base64.b64encode(text.encode()).decode()


def _read_local(
    url: str, span: tuple[int, int] | None, missing_ok: bool, *, head: bool = False
) -> Response | None:
    try:
        with path_of_url(url).open("rb") as file:
            total = file.seek(0, 2)
            if head:
                return Response(200, {"content-length": str(total)}, b"", url)
            if span and not total:
                raise make_read_error(url, "it is empty")
            first, length = span or (0, total)
            start = max(0, total + first) if first < 0 else first
            file.seek(start)
            content = file.read(total - start if first < 0 else length)
    except FileNotFoundError:
        if missing_ok:
            return None
        raise make_read_error(url, "it does not exist") from None
    except OSError as e:
        raise make_read_error(url, e.strerror or str(e)) from None
    headers = {
        "content-length": str(len(content)),
        "content-range": f"bytes {start}-{start + len(content) - 1}/{total}",
    }
    return Response(206 if span else 200, headers, content, url)


# --- responses ---------------------------------------------------------------------------------------


def _read_size(headers: Mapping[str, str], name: str) -> int | None:
    """Return a header's count of bytes, or None if it is missing. Raises AnswerError for an invalid one."""
    text = headers.get(name)
    if text is None:
        return None
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS):
        raise AnswerError(f"the {name} header of the response is not a size: {clean_line(digits, 40)!r}")
    return int(digits)


def _read_body(answer: urllib3.BaseHTTPResponse, most: int) -> bytes:
    """Read a complete body of at most `most` bytes.

    Raises OSError if it ends too early, and AnswerError if it is larger or takes longer than LONGEST.
    """
    expected = _read_size(answer.headers, "Content-Length")
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


def _find_pause(error: Exception, tried: int) -> float | None:
    """Return the seconds before the next try: those of `Retry-After`, else 0.5, 1, 2, ...

    Returns None if the server requests more than PATIENCE. An invalid header is ignored.
    """
    wanted = _read_retry_after(error.headers) if isinstance(error, StatusError) else None
    if wanted is None:
        return float(0.5 * 2**tried)
    return wanted if wanted <= PATIENCE else None


# --- connections -------------------------------------------------------------------------------------


def _redirect(url: str, place: str, headers: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
    """Return the address and the headers after a redirect, only over HTTP(S) and never from https to http.

    Credentials go to the same scheme, host and port only, and those of the new address nowhere.
    """
    # http.client reads the bytes of a header as Latin-1. As the bytes of UTF-8 they become an address again.
    place = urllib.parse.quote(place, safe=string.punctuation, encoding="latin-1")
    try:
        place = urllib.parse.urljoin(url, place)
        old, new = origin(url), origin(place)
    except ValueError as e:
        raise AnswerError(f"it redirects to an invalid address: {e}") from e
    if new[0] not in _PORTS or (old[0], new[0]) == ("https", "http"):
        raise AnswerError(f"redirected to {redact(place)}, which is not followed")
    parts = urllib.parse.urlsplit(place)
    place = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return place, {k: v for k, v in headers.items() if new == old or k != "Authorization"}


def _find_proxy(url: str, configured: str | None) -> str | None:
    """Return the configured proxy, else that of the environment. Hosts of `no_proxy` have none."""
    parts = urllib.parse.urlsplit(url)
    if urllib.request.proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    proxies = urllib.request.getproxies()
    proxy = configured or proxies.get(parts.scheme) or proxies.get("all")
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy


@functools.lru_cache(maxsize=8)
def _make_context(cert: str | None, trusted: bool, _variables: tuple[str | None, ...]) -> ssl.SSLContext:
    """Return a TLS context with the certificates of a file, otherwise of the variables or the system.

    Clients share it, because reading the certificates of a system takes 20 ms.
    """
    context = ssl.create_default_context(cafile=None if trusted else cert)
    if trusted:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _make_pools(
    proxy: str | None, context: ssl.SSLContext | None, of_proxy: ssl.SSLContext | None
) -> urllib3.PoolManager:
    if context and not context.check_hostname:
        urllib3.disable_warnings()  # which each connection would print
    if proxy:
        address, credentials = _split_credentials(proxy)
        sent = {"Proxy-Authorization": credentials} if credentials else {}
        pools: urllib3.PoolManager = urllib3.ProxyManager(
            address, proxy_headers=sent, proxy_ssl_context=of_proxy, ssl_context=context, maxsize=AT_ONCE
        )
    else:
        pools = urllib3.PoolManager(ssl_context=context, maxsize=AT_ONCE)
    pools.pool_classes_by_scheme = {"http": _Pool, "https": _SecurePool}
    return pools


class _Raw(io.RawIOBase):
    """The bytes of a response. Those of its headers have a deadline, also if they come one by one."""

    def __init__(self, raw: io.RawIOBase, until: float) -> None:
        self._raw, self.until = raw, until

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if time.monotonic() > self.until:
            raise DeadlineError("the response headers were not complete in time")
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        # Twice the time-out, because a slow server waits first and then sends its headers at once.
        self._raw = _Raw(self.fp.detach(), time.monotonic() + 2 * (sock.gettimeout() or TIMEOUT))
        self.fp = io.BufferedReader(self._raw)

    def begin(self) -> None:
        super().begin()
        self._raw.until = math.inf


class _Connection(HTTPConnection):
    response_class = _Response
    _answered: socket.socket | None = None

    def getresponse(self) -> urllib3.HTTPResponse:  # type: ignore[override]  # as urllib3's own
        kept = self.sock is self._answered
        try:
            answer = super().getresponse()
        except (ConnectionResetError, BrokenPipeError) as e:
            raise _KeptError(*e.args) if kept else e from None
        self._answered = self.sock
        return answer


class _SecureConnection(_Connection, HTTPSConnection):
    pass


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


# --- failures ----------------------------------------------------------------------------------------


class DeadlineError(TimeoutError):
    """Response headers that were incomplete at their deadline."""


class _KeptError(ConnectionResetError):
    """A kept connection that the server closed, as it may at any time, instead of a response."""


class AnswerError(OSError):
    """A response that breaks the rules of HTTP or a limit of gpuenv. Another try would get the same."""


class ProxyFailedError(OSError):
    """A proxy that no connection could be opened to."""


class StatusError(OSError):
    """A response with an error status."""

    def __init__(self, status: int, reason: str | None, headers: Mapping[str, str]) -> None:
        super().__init__(f"HTTP {status}")
        self.status, self.reason, self.headers = status, reason, headers


def _find_reason(error: HTTPError) -> Exception:
    """Return the error of the system, of TLS or of http.client that an error of urllib3 has, else an AnswerError."""
    inner = error.__cause__ or next((a for a in error.args if isinstance(a, Exception)), None)
    if isinstance(inner, HTTPError):
        return _find_reason(inner)
    return inner if isinstance(inner, Exception) else AnswerError(redact_text(str(error)))


def _explain_proxy(url: str, proxy: str, error: Exception) -> Exception:
    """Return the error for a proxy that no connection can be opened to: final if TLS fails, otherwise for another try."""
    named, refusal = f"the proxy {_name_setting(proxy)}", explain_error(error)
    if not isinstance(error, ssl.SSLError):
        return ProxyFailedError(f"{named} {refusal.words}") if refusal else error
    if refusal:
        return make_read_error(url, f"{named} {refusal.words}", refusal.hint)
    return make_read_error(
        url,
        f"the TLS connection to {named} failed ({error.reason or error})",
        "write it as http:// if the proxy has no TLS: HTTPS_PROXY, HTTP_PROXY or proxy in pip.conf",
    )


def _name_setting(value: str) -> str:
    """Return an address or a path of the configuration, with the variable or the file that names it."""
    origin = find_origin(value)
    return f"{redact(value)} ({origin})" if origin else redact(value)


def _read_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of `Retry-After` (RFC 9110, 10.2.3), or None without a valid one."""
    try:
        return urllib3.Retry().parse_retry_after(headers.get("Retry-After", ""))
    except (InvalidHeader, ValueError, OverflowError):
        return None


_CAUSES: tuple[tuple[type[Exception], Cause], ...] = (
    (ssl.SSLCertVerificationError, "certificate"),
    (http.client.IncompleteRead, "truncated"),
    (socket.gaierror, "host_name"),
    (TimeoutError, "timeout"),
    (ConnectionRefusedError, "no_connection"),
    (ConnectionResetError, "reset"),
    (BrokenPipeError, "reset"),
)
_PERMANENT = (
    AnswerError, FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, ssl.SSLCertVerificationError,
)  # fmt: skip
_SECONDS = 5.0


def is_permanent(error: Exception) -> bool:
    """Return whether the same request would fail again."""
    if isinstance(error, StatusError):
        return error.status not in PASSING
    return isinstance(error, _PERMANENT)


def explain_error(error: Exception) -> Refusal | None:
    """Return the meaning of a failed request, or None if only the error's text explains it.

    That of a status says the wait that the server requests.
    """
    if isinstance(error, StatusError):
        wait, reason = clean_line(error.headers.get("Retry-After", ""), 40), str(error.reason)
        if wait and _read_retry_after(error.headers) is None:
            reason += f"; its Retry-After is neither seconds nor a date: {wait!r}"
        elif wait:
            reason += f"; retry after {wait}{' s' if wait.isdigit() else ''}"
        return explain_status(error.status, reason)
    # The text of an AnswerError or a DeadlineError is more precise than its type.
    causes = () if isinstance(error, DeadlineError) else _CAUSES
    return next((explain_cause(cause) for kind, cause in causes if isinstance(error, kind)), None)


def read_error(url: str, error: Exception) -> LockError:
    """Return the error for a URL whose request failed with a status or an exception."""
    if refusal := explain_error(error):
        return make_read_error(url, f"the server {refusal.words}", refusal.hint)
    return make_read_error(url, str(error) or type(error).__name__)


@functools.cache
def find_connection_error(url: str, proxy: str | None = None) -> str | None:
    """Return why no connection to an address can be opened, as the end of a sentence, or None.

    No request is sent. With a proxy (`proxy`, else the environment's), the connection is the one to the proxy. The
    result is kept while this process runs. Addresses of files have no connection error.
    """
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        return None
    proxy = _find_proxy(url, proxy)
    place = urllib.parse.urlsplit(proxy or url)
    try:
        port = place.port or _PORTS.get(place.scheme, 80)
        socket.create_connection((place.hostname or "", port), timeout=_SECONDS).close()
    except (OSError, ValueError) as error:
        refusal = explain_error(error)
        words = refusal.words if refusal else f"is unreachable: {getattr(error, 'strerror', None) or error}"
        return f"is behind the proxy {_name_setting(proxy)}, which {words}" if proxy else words
    return None
