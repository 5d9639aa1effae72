"""Resolves each host name once, and opens connections to hosts.

A search reads dozens of pages of one index, each over a new connection. A lost response of a name server costs five
seconds each time.
"""

from __future__ import annotations

import functools
import socket
import threading
import time
import urllib.request
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from .http_refusals import Cause, explain_cause

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


_SECONDS = 5.0
_PORTS = {"http": 80, "https": 443}


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
        cause = find_cause(error)
        return (
            explain_cause(cause).words
            if cause
            else f"is unreachable: {getattr(error, 'strerror', None) or error}"
        )
    return None


def find_cause(error: Exception) -> Cause | None:
    """Return the cause of a failed connection, or None if its type names none."""
    causes: tuple[tuple[type[Exception], Cause], ...] = (
        (socket.gaierror, "host_name"),
        (TimeoutError, "timeout"),
        (ConnectionRefusedError, "no_connection"),
        (ConnectionResetError, "reset"),
        (BrokenPipeError, "reset"),
    )
    return next((cause for kind, cause in causes if isinstance(error, kind)), None)


def _find_proxy(scheme: str, host: str) -> str | None:
    if urllib.request.proxy_bypass(host):
        return None
    proxies = urllib.request.getproxies()
    return proxies.get(scheme) or proxies.get("all")
