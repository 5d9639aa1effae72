"""Sends HTTP requests with bounded retries, deadlines and range reads. No message contains credentials."""

from __future__ import annotations

import base64
import functools
import http.client
import io
import re
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from .. import __version__
from ..errors import LockError
from ..system import process
from ..system.redaction import clean_line, redact
from . import connection
from .connection import opener
from .pip_config import PipConfig
from .refusals import is_permanent, read_error, unreadable

TRIES = 4
TIMEOUT = 60.0
"""The seconds without a byte before a request fails."""
AT_ONCE = 8
"""The number of simultaneous requests, which an index can serve for one client without slowing it down."""
PASSING = frozenset({408, 429, 500, 502, 503, 504})
"""The error statuses that may be temporary."""


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
        most = (-span[0] if span[0] < 0 else span[1]) if span else connection.MOST
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
            first, total = _read_place(answer.status, answer.headers)
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
            raise connection.AnswerError(f"it redirects to an invalid address: {e}") from e
        with answer:
            yield answer

    def _get_opener(self, request: urllib.request.Request) -> urllib.request.OpenerDirector:
        host = urllib.parse.urlsplit(request.full_url)
        trusted = bool({host.hostname, host.netloc} & self._trusted)
        with self._lock:  # opened at first use: reading certificates takes 30 ms, and a folder needs none
            if trusted not in self._openers:
                self._openers[trusted] = opener(_read_proxies(self._config), self._make_context(trusted))
            return self._openers[trusted]

    def _make_context(self, trusted: bool) -> ssl.SSLContext:
        """Return the TLS context. Certificates of hosts that the user trusts are not checked."""
        if trusted:
            return _make_unchecked_context()
        environ = process.environ()
        variables = tuple(environ.get(name) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"))
        return _make_checked_context(self._config.cert if self._config else None, variables)

    def _retry(
        self, request: urllib.request.Request, missing_ok: bool, most: int = connection.MOST
    ) -> Response | None:
        url = request.full_url
        for left in reversed(range(self._tries)):
            try:
                with self._open(request) as answer:
                    headers = {k.lower(): v for k, v in answer.headers.items()}
                    connection.number(answer.headers, "Content-Length")
                    # A server without range support would send gigabytes: the status is enough.
                    whole = answer.status == 200 and request.has_header("Range")
                    empty = whole or request.get_method() == "HEAD"
                    return Response(
                        answer.status,
                        headers,
                        b"" if empty else connection.body(answer, most),
                        answer.url,
                    )
            except urllib.error.HTTPError as e:
                e.close()
                if missing_ok and e.code in (403, 404, 410):
                    return None
                wait = connection.pause(e.headers, self._tries - 1 - left)
                if e.code not in PASSING or not left or wait is None:
                    raise read_error(url, e) from None
            except (OSError, http.client.HTTPException, EOFError) as e:
                if not left or is_permanent(e):
                    raise read_error(url, e) from None
                wait = connection.pause(None, self._tries - 1 - left)
            time.sleep(wait or 0.0)
        raise AssertionError("internal error: the last retry neither returned nor raised")

    def sizes(self, urls: Iterable[str]) -> dict[str, int | None]:
        """Return the size in bytes of each URL's file, by HEAD, or None if the server does not state it."""

        def size(url: str) -> int | None:
            answer = self.get(url, head=True, missing_ok=True)
            return connection.number(answer.headers, "content-length") if answer else None

        wanted = list(dict.fromkeys(urls))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return dict(zip(wanted, pool.map(size, wanted), strict=True))


def _request(url: str, headers: Mapping[str, str], method: str = "GET") -> urllib.request.Request:
    url, credentials = _split_credentials(url)
    all_headers = {"User-Agent": f"gpuenv/{__version__}", "Accept-Encoding": "identity", **headers}
    if credentials:
        all_headers["Authorization"] = credentials
    return urllib.request.Request(url, headers=all_headers, method=method)  # noqa: S310


def _read_place(status: int, headers: Mapping[str, Any]) -> tuple[int, int | None]:
    """Return the first byte of an answer, and the size of the whole file (RFC 9110, 14.4). Raises AnswerError."""
    if status == 206:
        said = parse_content_range(headers.get("Content-Range"))
        return said[0], said[2]
    return 0, connection.number(headers, "Content-Length")


def parse_content_range(text: str | None) -> tuple[int, int, int | None]:
    """Return the first and last byte of a range, and the size of the file. Raises AnswerError."""
    said = re.fullmatch(r"bytes ([0-9]{1,15})-([0-9]{1,15})/([0-9]{1,15}|\*)", (text or "").strip())
    if not said:
        raise connection.AnswerError(
            f"the Content-Range header of the response is not a range: {clean_line(text or '', 40)!r}"
        )
    return int(said[1]), int(said[2]), None if said[3] == "*" else int(said[3])


def _read_proxies(config: PipConfig | None) -> dict[str, str] | None:
    """Return proxies by scheme: pip's, else those of the environment. urllib ignores ALL_PROXY."""
    if config and config.proxy:
        return {"http": config.proxy, "https": config.proxy}
    proxies = urllib.request.getproxies()
    return {"http": proxies["all"], "https": proxies["all"], **proxies} if "all" in proxies else None


@functools.lru_cache(maxsize=8)
def _make_checked_context(cert: str | None, _variables: tuple[str | None, ...]) -> ssl.SSLContext:
    """Return a TLS context with the certificates of a file, otherwise of the variables or the system.

    Clients share it, because reading the certificates of a system takes 20 ms.
    """
    return ssl.create_default_context(cafile=cert)


def _make_unchecked_context() -> ssl.SSLContext:
    """Return a TLS context without checks, for hosts that the user trusts."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


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
            body = file.read(total - start if first < 0 else length)
    except FileNotFoundError:
        if missing_ok:
            return None
        raise unreadable(url, "it does not exist") from None
    except OSError as e:
        raise unreadable(url, e.strerror or str(e)) from None
    headers = {
        "content-length": str(len(body)),
        "content-range": f"bytes {start}-{start + len(body) - 1}/{total}",
    }
    return Response(206 if span else 200, headers, body, url)
