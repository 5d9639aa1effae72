"""Connections to hosts whose addresses are looked up once.

A search asks one index for dozens of pages, each by a connection of its own. A lost answer of a name server costs five
seconds each time.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

_KEPT = 60.0
"""Seconds for which the addresses of a host are kept."""


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
    refused: OSError | None = None
    for place in _addresses(host, address):
        try:
            return socket.create_connection((place, address[1]), timeout, source_address)
        except OSError as error:
            refused = error
    host.until = 0.0  # the next try looks them up again
    raise refused or OSError(f"{address[0]} has no address")


def _addresses(host: _Host, address: tuple[str, int]) -> tuple[str, ...]:
    """The addresses of a host, in the system's order. Requests that need them wait for the first one that asks."""
    with host.lock:
        if time.monotonic() >= host.until:
            found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
            host.addresses = tuple(dict.fromkeys(str(place[0]) for *_, place in found))
            host.until = time.monotonic() + _KEPT
        return host.addresses
