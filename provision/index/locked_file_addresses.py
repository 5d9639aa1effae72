"""Finds the addresses of locked files by their hash, and adds credentials to them."""

from __future__ import annotations

import functools
import netrc
import urllib.parse
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..errors import LockError
from ..model import LockedPackage
from ..system import process, trust
from ..system.redaction import redact
from ..system.untrusted import file_name_of_url
from .connection import origin
from .http import Http
from .simple_api import project_files
from .wheel_folders import expand_address


class Addresses:
    """Finds addresses of files by their hash, on any mirror and in any folder.

    `folders` are first. For a file from a configured index, the address in the lock is next, and the configured
    indexes last. For other files the configured indexes are before the address, because the lock may come from
    another network. An index that did not answer is not used again.
    """

    def __init__(self, http: Http, folders: Sequence[Path], *, offline: bool = False) -> None:
        self._http, self._folders, self._offline = http, folders, offline
        self._silent: set[str] = set()

    def of(self, package: LockedPackage, indexes: Sequence[str]) -> Iterator[str]:
        """Yield the addresses of a package, on these indexes only."""
        name = file_name_of_url(package.url)
        for path in (folder / name for folder in self._folders):
            if path.is_file():
                yield path.as_uri()
        local = package.url.startswith("file:")
        if local or self._offline:
            yield from [package.url] if local else []
            return
        locked_address = add_credentials(expand_address(package), indexes)
        configured = package.index is None or package.index.rstrip("/") in {
            redact(i).rstrip("/") for i in indexes
        }
        if configured:
            yield locked_address
        yield from self._iterate_listed(package, indexes)
        if not configured:
            yield locked_address

    def _iterate_listed(self, package: LockedPackage, indexes: Sequence[str]) -> Iterator[str]:
        for index in indexes:
            if index in self._silent:
                continue
            try:
                files = project_files(self._http, index, package.name)
            except LockError:
                self._silent.add(index)
                continue
            yield from (add_credentials(f.url, [index]) for f in files if f.sha256 == package.sha256)


def add_credentials(url: str, indexes: Sequence[str]) -> str:
    """Return an address with user and password, as pip and uv send them.

    They are those of the index of the same scheme, host and port, else those of the netrc file for the host.
    """
    try:
        parts, requested = urllib.parse.urlsplit(url), origin(url)
    except ValueError:  # an invalid address, whose request reports it
        return url
    if parts.scheme not in ("http", "https") or "@" in parts.netloc:
        return url
    for index in indexes:
        user, at, _ = urllib.parse.urlsplit(index).netloc.rpartition("@")
        if at and origin(index) == requested:
            return parts._replace(netloc=f"{user}@{parts.netloc}").geturl()
    if login := _read_netrc().get(parts.hostname or ""):
        user, password = (urllib.parse.quote(word, safe="") for word in login)
        return parts._replace(netloc=f"{user}:{password}@{parts.netloc}").geturl()
    return url


@functools.cache
def _read_netrc() -> dict[str, tuple[str, str]]:
    """Return users and passwords by host. A missing or damaged file has none, as for pip."""
    path = process.environ().get("NETRC") or str(Path("~/.netrc").expanduser())
    try:
        if trust.read_configuration(Path(path), named=path == process.environ().get("NETRC")) is None:
            return {}
        hosts = netrc.netrc(path).hosts
    except (OSError, netrc.NetrcParseError, RuntimeError):
        return {}
    return {host: (user, password or "") for host, (user, _, password) in hosts.items()}
