"""Where a locked file may lie today: at its own address, on the indexes that are configured, in a folder."""

from __future__ import annotations

import functools
import netrc
import urllib.parse
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..errors import LockError
from ..model import Package
from ..system import process
from ..system.path_names import file_name_of_url
from ..system.redaction import redact
from .http import Http
from .links import address_of
from .opening import origin
from .simple import project_files


class Addresses:
    """Looks files up by their hash, so that any mirror and any folder will do.

    `folders` come first. A file that the lock took from a configured index is asked for where the lock
    says, others on the configured indexes first: the lock may have been made in another network. An index
    that did not answer once is not asked again.
    """

    def __init__(self, http: Http, folders: Sequence[Path], *, offline: bool = False) -> None:
        self._http, self._folders, self._offline = http, folders, offline
        self._silent: set[str] = set()

    def of(self, package: Package, indexes: Sequence[str]) -> Iterator[str]:
        """The addresses of a package that is named for these indexes, and for no other."""
        name = file_name_of_url(package.url)
        for path in (folder / name for folder in self._folders):
            if path.is_file():
                yield path.as_uri()
        local = package.url.startswith("file:")
        if local or self._offline:
            yield from [package.url] if local else []
            return
        own = with_credentials(address_of(package), indexes)
        configured = package.index is None or package.index.rstrip("/") in {
            redact(i).rstrip("/") for i in indexes
        }
        if configured:
            yield own
        yield from self._listed(package, indexes)
        if not configured:
            yield own

    def _listed(self, package: Package, indexes: Sequence[str]) -> Iterator[str]:
        for index in indexes:
            if index in self._silent:
                continue
            try:
                files = project_files(self._http, index, package.name)
            except LockError:
                self._silent.add(index)
                continue
            yield from (with_credentials(f.url, [index]) for f in files if f.sha256 == package.sha256)


def with_credentials(url: str, indexes: Sequence[str]) -> str:
    """Return an address with user and password of the index of the same scheme, host and port, else with those
    that the netrc file has for the host, as pip and uv send them."""
    try:
        parts, asked = urllib.parse.urlsplit(url), origin(url)
    except ValueError:  # no address at all: whoever asks for it says so
        return url
    if parts.scheme not in ("http", "https") or "@" in parts.netloc:
        return url
    for index in indexes:
        user, at, _ = urllib.parse.urlsplit(index).netloc.rpartition("@")
        if at and origin(index) == asked:
            return parts._replace(netloc=f"{user}@{parts.netloc}").geturl()
    if found := _netrc().get(parts.hostname or ""):
        user, password = (urllib.parse.quote(word, safe="") for word in found)
        return parts._replace(netloc=f"{user}:{password}@{parts.netloc}").geturl()
    return url


@functools.cache
def _netrc() -> dict[str, tuple[str, str]]:
    """Users and passwords by host; none where the file is not there or is damaged, which pip passes by too."""
    path = process.environ().get("NETRC") or str(Path("~/.netrc").expanduser())
    try:
        hosts = netrc.netrc(path).hosts
    except (OSError, netrc.NetrcParseError, RuntimeError):
        return {}
    return {host: (user, password or "") for host, (user, _, password) in hosts.items()}
