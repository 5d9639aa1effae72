"""Sends HTTP requests with bounded retries, deadlines and range reads. No message contains credentials."""

from __future__ import annotations

import base64
import datetime as dt
import email.utils
import functools
import http.client
import io
import re
import socket
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from email.message import Message
from pathlib import Path
from typing import Any, NamedTuple

from .. import __version__
from ..errors import LockError
from ..system import process
from ..system.redaction import clean_line, redact
from .config import PipConfig
from .refusals import Cause, Refusal, explain_cause, explain_status, unreadable

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
    body: io.BufferedIOBase


class Http:
    """A client for indexes, with pip's proxy and certificates.

    If `config` has none, proxies and certificates of the environment (https_proxy, SSL_CERT_FILE) apply.
    """

    def __init__(
        self, config: PipConfig | None = None, *, timeout: float | None = None, tries: int = TRIES
    ) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._openers: dict[bool, urllib.request.OpenerDirector] = {}
        self._trusted = frozenset(config.trusted_hosts if config else ())
        self._timeout = timeout or (config and config.timeout) or TIMEOUT
        self._tries = tries

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
        return self._retry(_request(url, headers, "HEAD" if head else "GET"), missing_ok, most)

    @contextmanager
    def stream(self, url: str, *, start: int = 0) -> Iterator[Stream]:
        """Send a request once, and yield its response from byte `start`, or from 0 if the server has no ranges.

        The reader knows the received bytes, and can request the rest. Raises OSError and HTTPException of the network
        (urllib.error.HTTPError for a refusal).
        """
        if url.startswith("file:"):
            with _get_path(url).open("rb") as file:
                size = file.seek(0, 2)
                file.seek(start)
                yield Stream(start, size, file)
            return
        request = _request(url, {"Range": f"bytes={start}-"} if start else {})
        with self._open(request) as answer:
            first, total = 0, _read_size(answer.headers, "Content-Length")
            if answer.status == 206:
                first, _, total = parse_content_range(answer.headers.get("Content-Range"))
            yield Stream(first, total, answer)

    @property
    def patience(self) -> float:
        """Seconds without a byte before a request counts as failed."""
        return self._timeout

    @contextmanager
    def _open(self, request: urllib.request.Request) -> Iterator[Any]:
        """Open a request. Raises OSError and HTTPException of the network."""
        try:
            answer = self._get_opener(request).open(request, timeout=self._timeout)
        except ValueError as e:  # a redirect to an invalid address
            raise AnswerError(f"it redirects to an invalid address: {e}") from e
        with answer:
            yield answer

    def _get_opener(self, request: urllib.request.Request) -> urllib.request.OpenerDirector:
        host = urllib.parse.urlsplit(request.full_url)
        trusted = bool({host.hostname, host.netloc} & self._trusted)
        with self._lock:  # opened at first use: reading certificates takes 30 ms, and a folder needs none
            if trusted not in self._openers:
                self._openers[trusted] = urllib.request.build_opener(
                    urllib.request.ProxyHandler(self._read_proxies()), _HttpHandler(),
                    _HttpsHandler(self._make_context(trusted)), _Redirects(),
                )  # fmt: skip
            return self._openers[trusted]

    def _read_proxies(self) -> dict[str, str] | None:
        """Return proxies by scheme: pip's, else those of the environment. urllib ignores ALL_PROXY."""
        if self._config and self._config.proxy:
            return dict.fromkeys(_PORTS, self._config.proxy)
        proxies = urllib.request.getproxies()
        return dict.fromkeys(_PORTS, proxies["all"]) | proxies if "all" in proxies else None

    def _make_context(self, trusted: bool) -> ssl.SSLContext:
        """Return the TLS context. Certificates of hosts that the user trusts are not checked."""
        if trusted:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            return context
        environ = process.environ()
        variables = tuple(environ.get(name) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"))
        return _make_checked_context(self._config.cert if self._config else None, variables)

    def _retry(self, request: urllib.request.Request, missing_ok: bool, most: int) -> Response | None:
        url = request.full_url
        for left in reversed(range(self._tries)):
            try:
                with self._open(request) as answer:
                    headers = {k.lower(): v for k, v in answer.headers.items()}
                    _read_size(answer.headers, "Content-Length")
                    # A server without range support would send gigabytes: the status is enough.
                    whole = answer.status == 200 and request.has_header("Range")
                    empty = whole or request.get_method() == "HEAD"
                    content = b"" if empty else _read_body(answer, most)
                    return Response(answer.status, headers, content, answer.url)
            except urllib.error.HTTPError as e:
                e.close()
                if missing_ok and e.code in (403, 404, 410):
                    return None
                wait = _find_pause(e.headers, self._tries - 1 - left)
                if e.code not in PASSING or not left or wait is None:
                    raise read_error(url, e) from None
            except (OSError, http.client.HTTPException, EOFError) as e:
                if not left or is_permanent(e):
                    raise read_error(url, e) from None
                wait = _find_pause(None, self._tries - 1 - left)
            time.sleep(wait or 0.0)
        raise AssertionError("internal error: the last retry neither returned nor raised")

    def sizes(self, urls: Iterable[str]) -> dict[str, int | None]:
        """Return the size in bytes of each URL's file, by HEAD, or None if the server does not state it."""

        def size(url: str) -> int | None:
            answer = self.get(url, head=True, missing_ok=True)
            return _read_size(answer.headers, "content-length") if answer else None

        wanted = list(dict.fromkeys(urls))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return dict(zip(wanted, pool.map(size, wanted), strict=True))


def _request(url: str, headers: Mapping[str, str], method: str = "GET") -> urllib.request.Request:
    url, credentials = _split_credentials(url)
    all_headers = {"User-Agent": f"gpuenv/{__version__}", "Accept-Encoding": "identity", **headers}
    if credentials:
        all_headers["Authorization"] = credentials
    return urllib.request.Request(url, headers=all_headers, method=method)  # noqa: S310


def parse_content_range(text: str | None) -> tuple[int, int, int | None]:
    """Return the first and last byte of a range, and the size of the file. Raises AnswerError."""
    said = re.fullmatch(r"bytes ([0-9]{1,15})-([0-9]{1,15})/([0-9]{1,15}|\*)", (text or "").strip())
    if not said:
        raise AnswerError(
            f"the Content-Range header of the response is not a range: {clean_line(text or '', 40)!r}"
        )
    return int(said[1]), int(said[2]), None if said[3] == "*" else int(said[3])


@functools.lru_cache(maxsize=8)
def _make_checked_context(cert: str | None, _variables: tuple[str | None, ...]) -> ssl.SSLContext:
    """Return a TLS context with the certificates of a file, otherwise of the variables or the system.

    Clients share it, because reading the certificates of a system takes 20 ms.
    """
    return ssl.create_default_context(cafile=cert)


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
            hint="write the address of an index as an http, https or file URL",
        )
    user, at, host = parts.netloc.rpartition("@")
    bare = urllib.parse.urlunsplit((parts.scheme, host, parts.path, parts.query, ""))
    if not at:
        return bare, None
    text = urllib.parse.unquote(user if ":" in user else f"{user}:")
    return bare, "Basic " + base64.b64encode(text.encode()).decode()


def _get_path(url: str) -> Path:
    return Path(urllib.request.url2pathname(urllib.parse.urlsplit(url).path))


def _read_local(
    url: str, span: tuple[int, int] | None, missing_ok: bool, *, head: bool = False
) -> Response | None:
    try:
        with _get_path(url).open("rb") as file:
            total = file.seek(0, 2)
            if head:
                return Response(200, {"content-length": str(total)}, b"", url)
            first, length = span or (0, total)
            start = max(0, total + first) if first < 0 else first
            file.seek(start)
            content = file.read(total - start if first < 0 else length)
    except FileNotFoundError:
        if missing_ok:
            return None
        raise unreadable(url, "it does not exist") from None
    except OSError as e:
        raise unreadable(url, e.strerror or str(e)) from None
    headers = {
        "content-length": str(len(content)),
        "content-range": f"bytes {start}-{start + len(content) - 1}/{total}",
    }
    return Response(206 if span else 200, headers, content, url)


# --- responses ---------------------------------------------------------------------------------------


def _read_size(headers: Mapping[str, Any] | Message, name: str) -> int | None:
    """Return a header's count of bytes, or None if it is missing. Raises AnswerError for an invalid one."""
    text = headers.get(name)
    if text is None:
        return None
    digits = str(text).strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS):
        raise AnswerError(f"the {name} header of the response is not a size: {clean_line(digits, 40)!r}")
    return int(digits)


def _read_body(answer: http.client.HTTPResponse, most: int = MOST) -> bytes:
    """Read a complete body of at most `most` bytes.

    Raises OSError if it ends too early, and AnswerError if it is larger or takes longer than LONGEST.
    """
    expected = _read_size(answer.headers, "Content-Length")
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


def _find_pause(headers: Message | None, tried: int) -> float | None:
    """Return the seconds before the next try: those of `Retry-After`, else 0.5, 1, 2, ...

    Returns None if the server requests more than PATIENCE. An invalid header is ignored.
    """
    wanted = read_retry_after(headers) if headers else None
    if wanted is None:
        return float(0.5 * 2**tried)
    return wanted if wanted <= PATIENCE else None


# --- connections -------------------------------------------------------------------------------------


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
        if new[0] not in _PORTS or (old[0], new[0]) == ("https", "http"):
            raise urllib.error.URLError(f"redirected to {redact(newurl)}, which is not followed")
        redirected = super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]
        if redirected is not None:
            # The proxy's handler adds it again for a request through a proxy.
            redirected.headers.pop("Proxy-authorization", None)
            if new != old:
                redirected.headers.pop("Authorization", None)
        return redirected


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


class _HttpConnection(http.client.HTTPConnection):
    response_class = _Response


class _HttpsConnection(http.client.HTTPSConnection):
    response_class = _Response


class _HttpHandler(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_HttpConnection, req)


class _HttpsHandler(urllib.request.HTTPSHandler):
    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(context=context)
        self._own = context

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_HttpsConnection, req, context=self._own)


# --- failures ----------------------------------------------------------------------------------------


class DeadlineError(TimeoutError):
    """Response headers that were incomplete at their deadline."""


class AnswerError(OSError):
    """A response that breaks the rules of HTTP or a limit of gpuenv. Another try would get the same."""


def read_retry_after(headers: Message) -> float | None:
    """Return the seconds of `Retry-After` (RFC 9110, 10.2.3), or None without a valid one."""
    said = str(headers.get("Retry-After", "")).strip()
    if said.isascii() and said.isdigit():
        return float(said[:15])
    try:
        when = email.utils.parsedate_to_datetime(said)
        return max(0.0, (when - dt.datetime.now(tz=dt.timezone.utc)).total_seconds())
    except (ValueError, TypeError, OverflowError):
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
_PERMANENT = (AnswerError, FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
_SECONDS = 5.0


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


@functools.cache
def find_connection_error(url: str, proxy: str | None = None) -> str | None:
    """Return why no connection to an address can be opened, as the end of a sentence, or None.

    No request is sent. With a proxy (`proxy`, else the environment's), the connection is the one to the proxy. The
    result is kept while this process runs. Addresses of files have no connection error.
    """
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        return None
    through = proxy or _find_proxy(parts.scheme, parts.hostname)
    place = urllib.parse.urlsplit(through if "://" in through else f"http://{through}") if through else parts
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
