"""What opens addresses: proxies, certificates, redirects, and a deadline for the head of an answer."""

from __future__ import annotations

import http.client
import io
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any

from ..system.redaction import redact

if TYPE_CHECKING:
    import socket
    from email.message import Message

_DEFAULT_PORTS = {"http": 80, "https": 443}


def origin(url: str) -> tuple[str, str, int | None]:
    """Return scheme, host and port: what credentials belong to. Raises ValueError."""
    parts = urllib.parse.urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or _DEFAULT_PORTS.get(parts.scheme)


def opener(proxies: dict[str, str] | None, context: ssl.SSLContext) -> urllib.request.OpenerDirector:
    """Make an opener with these proxies (None: those of the environment) and certificates."""
    return urllib.request.build_opener(
        urllib.request.ProxyHandler(proxies), _HttpHandler(), _HttpsHandler(context=context), _Redirects()
    )


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows a redirect only over HTTP(S), never from https to http. Credentials go to the same scheme, host
    and port only."""

    def http_error_302(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Message
    ) -> Any:
        try:
            return super().http_error_302(req, fp, code, msg, headers)  # type: ignore[arg-type]
        except (ValueError, urllib.error.URLError):
            fp.close()
            raise

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302

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
        made = super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]
        if made is not None:
            made.headers.pop(
                "Proxy-authorization", None
            )  # the proxy's handler adds it where a proxy is asked
            if new != old:
                made.headers.pop("Authorization", None)
        return made


class _Raw(io.RawIOBase):
    """A socket's bytes until a deadline, however slowly they come; without one once `until` is None."""

    def __init__(self, sock: socket.socket, raw: io.RawIOBase) -> None:
        self._sock, self._raw = sock, raw
        self._timeout = sock.gettimeout()
        # Twice the time that a server may be silent: a slow one thinks first, and then sends its head at once.
        self.until = time.monotonic() + 2 * self._timeout if self._timeout else None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self.until is None or self._timeout is None:
            return self._raw.readinto(buffer)
        left = self.until - time.monotonic()
        endless = TimeoutError("the head of the answer had no end")
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


class _SecureConnection(http.client.HTTPSConnection):
    response_class = _Response


class _HttpHandler(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Connection, req)


class _HttpsHandler(urllib.request.HTTPSHandler):
    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(context=context)
        self._own = context

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_SecureConnection, req, context=self._own)
