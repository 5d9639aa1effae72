"""Send HTTP requests with bounded retries, deadlines and range reads. No message contains credentials."""

from __future__ import annotations

import base64
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

from provision import __version__
from provision.errors import LockError
from provision.system.redaction import redact

from . import connections
from .connections import opener
from .http_refusals import NETWORK_HINT, Refusal
from .pip_config import PipConfig

TRIES = 4
TIMEOUT = 60.0
"""Seconds without a byte before a request counts as failed."""
AT_ONCE = 8
"""Requests in flight together: what an index bears from one client without slowing it down."""
PASSING = frozenset({408, 429, 500, 502, 503, 504})
"""Refusals of a server that may be gone a moment later."""


class Response(NamedTuple):
    """A body and its headers; `status` is 200 or 206. `url` is where redirects ended."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str


class Stream(NamedTuple):
    """A body as it comes, from byte `start` of the file on; `total` is the whole file's size where the
    server tells it."""

    start: int
    total: int | None
    body: io.BufferedIOBase


class Http:
    """A way out to indexes, with the proxy and certificates that pip is configured with.

    Proxies and certificates of the environment (https_proxy, SSL_CERT_FILE) hold where `config`
    names none.
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
        """Fetch a URL; None where it does not exist and `missing_ok` is set.

        `span` is a first byte and a length; a negative first byte counts from the end. Raises
        LockError, with `unreachable` set, when the host does not answer or refuses.
        """
        headers = {"Accept": accept} if accept else {}
        if span:
            first, length = span
            headers["Range"] = f"bytes={first}" if first < 0 else f"bytes={first}-{first + length - 1}"
        if url.startswith("file:"):
            return _local(url, span, missing_ok, head=head)
        most = (-span[0] if span[0] < 0 else span[1]) if span else connections.MOST
        return self._retry(_request(url, headers, "HEAD" if head else "GET"), missing_ok, most)

    @contextmanager
    def stream(self, url: str, *, start: int = 0) -> Iterator[Stream]:
        """One answer as it comes, from byte `start` on where the server gives parts, else from the
        beginning. Asked once: whoever reads knows how far it came, and asks again from there. Raises
        OSError and HTTPException as the network does (urllib.error.HTTPError for a refusal)."""
        if url.startswith("file:"):
            with _path(url).open("rb") as file:
                size = file.seek(0, 2)
                file.seek(start)
                yield Stream(start, size, file)
            return
        request = _request(url, {"Range": f"bytes={start}-"} if start else {})
        with self._open(request) as answer:
            first, total = _place(answer.status, answer.headers)
            yield Stream(first, total, answer)

    @property
    def patience(self) -> float:
        """Seconds without a byte before a request counts as failed."""
        return self._timeout

    @contextmanager
    def _open(self, request: urllib.request.Request) -> Iterator[Any]:
        """Open a request. Raises OSError and HTTPException as the network does."""
        try:
            answer = self._opener_for(request).open(request, timeout=self._timeout)
        except ValueError as e:  # a redirect to what is no address
            raise connections.AnswerError(f"it redirects to an invalid address: {e}") from e
        with answer:
            yield answer

    def _opener_for(self, request: urllib.request.Request) -> urllib.request.OpenerDirector:
        host = urllib.parse.urlsplit(request.full_url)
        trusted = bool({host.hostname, host.netloc} & self._trusted)
        with self._lock:  # made when it is needed: certificates take 30 ms to read, and a folder needs none
            if trusted not in self._openers:
                self._openers[trusted] = opener(_proxies(self._config), self._context(trusted))
            return self._openers[trusted]

    def _context(self, trusted: bool) -> ssl.SSLContext:
        """What is taken for a certificate; of hosts that the user trusts whatever they show."""
        if trusted:
            return _believing()
        return ssl.create_default_context(cafile=self._config.cert if self._config else None)

    def _retry(
        self, request: urllib.request.Request, missing_ok: bool, most: int = connections.MOST
    ) -> Response | None:
        url = request.full_url
        for left in reversed(range(self._tries)):
            try:
                with self._open(request) as answer:
                    headers = {k.lower(): v for k, v in answer.headers.items()}
                    connections.number(answer.headers, "Content-Length")
                    # A server that gives no parts would send gigabytes: the answer's status is enough.
                    whole = answer.status == 200 and request.has_header("Range")
                    empty = whole or request.get_method() == "HEAD"
                    return Response(
                        answer.status, headers, b"" if empty else connections.body(answer, most), answer.url
                    )
            except urllib.error.HTTPError as e:
                e.close()
                if missing_ok and e.code in (403, 404, 410):
                    return None
                wait = connections.pause(e.headers, self._tries - 1 - left)
                if e.code not in PASSING or not left or wait is None:
                    raise read_error(url, e) from None
            except (OSError, http.client.HTTPException, EOFError) as e:
                if not left or lasting(e):
                    raise read_error(url, e) from None
                wait = connections.delay(self._tries - 1 - left)
            time.sleep(wait)
        raise AssertionError("internal error: the last retry neither returned nor raised")

    def sizes(self, urls: Iterable[str]) -> dict[str, int | None]:
        """The size in bytes of each URL's file, by HEAD; None where the server does not tell."""

        def size(url: str) -> int | None:
            answer = self.get(url, head=True, missing_ok=True)
            return connections.number(answer.headers, "content-length") if answer else None

        wanted = list(dict.fromkeys(urls))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return dict(zip(wanted, pool.map(size, wanted), strict=True))


def _request(url: str, headers: Mapping[str, str], method: str = "GET") -> urllib.request.Request:
    url, credentials = _split_credentials(url)
    told = {"User-Agent": f"gpuenv/{__version__}", "Accept-Encoding": "identity", **headers}
    if credentials:
        told["Authorization"] = credentials
    return urllib.request.Request(url, headers=told, method=method)  # noqa: S310


def _place(status: int, headers: Mapping[str, Any]) -> tuple[int, int | None]:
    """Return the first byte of an answer, and the size of the whole file (RFC 9110, 14.4). Raises AnswerError."""
    if status == 206:
        said = content_range(headers.get("Content-Range"))
        return said[0], said[2]
    return 0, connections.number(headers, "Content-Length")


def content_range(text: str | None) -> tuple[int, int, int | None]:
    """Return the first and last byte of a part, and the size of the whole. Raises AnswerError."""
    said = re.fullmatch(r"bytes ([0-9]{1,15})-([0-9]{1,15})/([0-9]{1,15}|\*)", (text or "").strip())
    if not said:
        raise connections.AnswerError(
            f"the Content-Range header of the response is not a range: {(text or '')[:40]!r}"
        )
    return int(said[1]), int(said[2]), None if said[3] == "*" else int(said[3])


def lasting(error: Exception) -> bool:
    """Whether asking again would fail in the same way."""
    final = (
        connections.AnswerError,
        FileNotFoundError,
        PermissionError,
        IsADirectoryError,
        NotADirectoryError,
    )
    return isinstance(getattr(error, "reason", None), ssl.SSLCertVerificationError) or isinstance(
        error, final
    )


def _proxies(config: PipConfig | None) -> dict[str, str] | None:
    """Proxies by scheme: pip's, else those of the environment, of which urllib does not know ALL_PROXY."""
    if config and config.proxy:
        return {"http": config.proxy, "https": config.proxy}
    found = urllib.request.getproxies()
    return {"http": found["all"], "https": found["all"], **found} if "all" in found else None


def _believing() -> ssl.SSLContext:
    """For hosts that the user trusts whatever certificate they show."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _split_credentials(url: str) -> tuple[str, str | None]:
    """A URL without user and password, and the Authorization header that they make."""
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


def _path(url: str) -> Path:
    return Path(urllib.request.url2pathname(urllib.parse.urlsplit(url).path))


def _local(
    url: str, span: tuple[int, int] | None, missing_ok: bool, *, head: bool = False
) -> Response | None:
    try:
        with _path(url).open("rb") as file:
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


def read_error(url: str, error: Exception) -> LockError:
    """Return the error for a URL whose request failed with a status or an exception."""
    if isinstance(error, urllib.error.HTTPError):
        refusal: Refusal | None = connections.explain_refusal(error)
    else:
        refusal = connections.explain_error(error)
    if refusal:
        return unreadable(url, f"the server {refusal.words}", refusal.hint)
    return unreadable(url, str(getattr(error, "reason", None) or error or type(error).__name__))


def unreadable(url: str, reason: str, hint: str = NETWORK_HINT) -> LockError:
    """Return the error for a URL that cannot be read."""
    shown = redact(url)
    return LockError(f"cannot read {shown}: {reason}", hint=hint, unreachable=shown)
