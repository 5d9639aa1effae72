"""Opens addresses through proxies, and reads responses of bounded size and time."""

from __future__ import annotations

import datetime as dt
import email.utils
import http.client
import io
import socket
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from email.message import Message
from typing import Any

from ..system.redaction import clean_line, redact
from .http_refusals import Refusal, explain_cause, explain_status
from .resolve_and_connect import connect, find_cause

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


class _Connection(http.client.HTTPConnection):
    response_class = _Response

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._create_connection = connect


class _SecureConnection(http.client.HTTPSConnection):
    response_class = _Response

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._create_connection = connect


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


def delay(tried: int) -> float:
    """Return the seconds before the next try: 0.5, 1, 2, ..."""
    return float(0.5 * 2**tried)


def pause(headers: Message, tried: int) -> float | None:
    """Return the seconds before the next try: those of `Retry-After`, else `delay`.

    Returns None if the server requests more than PATIENCE. An invalid header is ignored.
    """
    wanted = _read_retry_after(headers)
    if wanted is None:
        return delay(tried)
    return wanted if wanted <= PATIENCE else None


def _read_retry_after(headers: Message) -> float | None:
    """Return the seconds of `Retry-After` (RFC 9110, 10.2.3), or None without a valid one."""
    said = str(headers.get("Retry-After", "")).strip()
    if said.isascii() and said.isdigit():
        return float(said[:_DIGITS])
    try:
        when = email.utils.parsedate_to_datetime(said)
        return max(0.0, (when - dt.datetime.now(tz=dt.timezone.utc)).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return None


def explain_refusal(error: urllib.error.HTTPError) -> Refusal:
    """Return the meaning of an error status, with the wait that the server requests."""
    wait = clean_line(str(error.headers.get("Retry-After", "")), 40)
    reason = str(error.reason)
    if wait and _read_retry_after(error.headers) is None:
        reason += f"; its Retry-After is neither seconds nor a date: {wait!r}"
    elif wait:
        reason += f"; retry after {wait}{' s' if wait.isdigit() else ''}"
    return explain_status(error.code, reason)


def explain_error(error: Exception) -> Refusal | None:
    """Return the meaning of a failed request, or None if only the error's text explains it."""
    reason = getattr(error, "reason", None) or error
    if isinstance(reason, ssl.SSLCertVerificationError):
        return explain_cause("certificate")
    if isinstance(reason, http.client.IncompleteRead):
        return explain_cause("truncated")
    # The text of an AnswerError or a DeadlineError is more precise than its type.
    cause = (
        find_cause(reason) if isinstance(reason, OSError) and not isinstance(reason, DeadlineError) else None
    )
    return explain_cause(cause) if cause else None
