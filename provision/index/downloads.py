"""Downloads locked files: finds their addresses, resumes broken downloads, and compares sizes and hashes."""

from __future__ import annotations

import functools
import netrc
import os
import time
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from http import client as http_client
from pathlib import Path

from ..errors import BuildError, LockError
from ..model import LockedPackage
from ..model.values import Value
from ..system import process, trust
from ..system.files import hash_file, open_part, rename, writing
from ..system.redaction import redact
from ..system.untrusted import file_name_of_url
from ..system.wheel_file import plain_name
from .http import TRIES, Http, StatusError, Stream, is_permanent, origin, read_error
from .refusals import make_read_error
from .simple_api import project_files
from .wheel_names import expand_address

_PIECE = 1 << 20
MOST = 64 << 30
"""The most bytes of one file of unknown size. The largest wheels and conda packages have some 4 GB."""
SLOWEST = 1024
"""The least bytes per second of a download, measured over the time-out. A slower download fails."""
_MOST_TRIES = 200
Progress = Callable[[int], None]


class Download(Value):
    """A file to download to `path`. Its part, an incomplete file beside `path`, is resumed.

    `urls` are its possible addresses, the best first. They are read one by one. `shown` is its name in errors.
    `hashes` ({"sha256": "..."}) and `size` are the expected ones, if known. No link may lead out of `root`, by
    default the folder of `path`.
    """

    path: Path
    urls: Iterable[str]
    shown: str
    root: Path | None = None
    hashes: Mapping[str, str] = field(default_factory=dict)
    size: int | None = None

    @property
    def inside(self) -> str:
        """The path below `root`."""
        return self.path.relative_to(self.root or self.path.parent).as_posix()

    def fetch(self, http: Http, report: Progress) -> None:
        """Download the file from the first address with the expected content.

        `report` gets the number of new bytes, negative for discarded ones. An exception of `report` ends the download
        and keeps the part. Raises LockError if no address has the file, BuildError for a wrong file and for a full disk.
        """
        half = part_path(self.path)
        failure: LockError | BuildError = make_read_error(self.shown, "no index has it")
        for url in self.urls:
            try:
                differs = self._fetch_and_compare(http, url, report)
            except LockError as error:
                failure = error
                continue
            if differs is None:
                with writing(half.parent):
                    rename(half, self.path, root=self.root or half.parent)
                return
            failure = BuildError(
                f"{self.shown} is not the locked file: its {differs} differs",
                hint="if the lock was edited, restore it; if the index replaced the file, run gpuenv lock",
            )
        raise failure

    def _fetch_and_compare(self, http: Http, url: str, report: Progress) -> str | None:
        """Fetch the file of an address, and remove a wrong one.

        Returns None for the expected file, else the properties that differ ("hash").
        """
        half, differs = part_path(self.path), ""
        for _ in range(2):
            resumed = _get_size(half) > 0
            try:
                self._fetch(http, url, report)
                if has_hashes(half, self.hashes):
                    return None
                differs = "hash"
            except _OtherFileError:
                differs = "size and hash"
            _discard_part(half, report)
            if not resumed:  # a resumed part may be of an older file
                break
        return differs

    def _fetch(self, http: Http, url: str, report: Progress) -> None:
        """Fetch the rest of the part. Raises _OtherFileError.

        After every try that received bytes, TRIES more follow, at most _MOST_TRIES in all. So a download over a bad
        connection succeeds.
        """
        half = part_path(self.path)
        before = _get_size(half)
        report(before)
        if self.size is not None and before > self.size:
            _discard_part(half, report)
        left, tried, slow = TRIES, 0, False
        while (have := _get_size(half)) == 0 or have != self.size:
            tried += 1
            try:
                with http.stream(url, start=have) as answer:
                    size = self._write_part(answer, have, http.patience, report)
                if answer.total is None or size >= answer.total:
                    break
                failure = make_read_error(
                    self.shown, f"the connection ended after {size} of {answer.total} bytes"
                )
            except (OSError, http_client.HTTPException) as e:
                failure, slow = read_error(self.shown, e), isinstance(e, _SlowError)
                if have and isinstance(e, StatusError) and e.status == 416:
                    _discard_part(half, report)  # the part is not shorter than the file
                elif is_permanent(e):
                    raise failure from None
            left = TRIES if _get_size(half) > have and not slow else left - 1
            if not left or tried >= _MOST_TRIES:
                raise failure
            time.sleep(0.5 * 2 ** (TRIES - left))

    def _write_part(self, answer: Stream, have: int, patience: float, report: Progress) -> int:
        """Append a response to the part, or replace the part if the response starts at 0. Raises _OtherFileError.

        At most `size` bytes are written. A response needs SLOWEST bytes per second over each `patience` seconds.
        """
        half = part_path(self.path)
        root = self.root or half.parent
        if answer.start not in (0, have):
            raise OSError(f"the server sent bytes from {answer.start}, expected {have}")
        most = self.size if self.size is not None else answer.total or MOST
        if (answer.total or most) != most or most > MOST:
            raise _OtherFileError
        if answer.start == 0 and have:
            report(-have)
        with writing(half.parent):
            root.mkdir(parents=True, exist_ok=True)
            file = open_part(half, root=root, append=answer.start > 0)
        with file:
            size, since, came = answer.start, time.monotonic(), 0
            while piece := answer.body.read1(_PIECE):
                size += len(piece)
                if size > most:
                    raise _OtherFileError
                with writing(half.parent):
                    file.write(piece)
                report(len(piece))
                came += len(piece)
                if (passed := time.monotonic() - since) > patience:
                    if came < SLOWEST * passed:
                        raise _SlowError(f"only {came} bytes arrived in {passed:.0f} s")
                    since, came = time.monotonic(), 0
                if size == most:
                    break  # a server may send more, or keep the connection open
            with writing(half.parent):
                os.fsync(file.fileno())
        return half.stat().st_size


class _OtherFileError(Exception):
    """A server has a file of another size than the expected one."""


class _SlowError(OSError):
    """A download is so slow that it would never end."""


def part_path(path: Path) -> Path:
    """Return the path of an incomplete file."""
    return path.with_name(f".{path.name}.part")


def has_hashes(path: Path, hashes: Mapping[str, str]) -> bool:
    """Return whether a file has these hashes."""
    return all(hash_file(path, name) == value.lower() for name, value in hashes.items())


def _discard_part(half: Path, report: Progress) -> None:
    report(-_get_size(half))
    half.unlink(missing_ok=True)  # a response of another size is refused before its first byte is written


def _get_size(half: Path) -> int:
    return half.stat().st_size if half.exists() else 0


class Addresses:
    """Finds addresses of files by their hash, on any mirror and in any folder.

    `folders` are first. For a file from a configured index, the address in the lock is next, and the configured
    indexes last. For other files the configured indexes are before the address, because the lock may come from
    another network. An index that did not answer is not used again.
    """

    def __init__(self, http: Http, folders: Sequence[Path], *, offline: bool = False) -> None:
        self._http, self._folders, self._offline = http, folders, offline
        self._silent: set[str] = set()

    def find(self, package: LockedPackage, indexes: Sequence[str]) -> Iterator[str]:
        """Yield the addresses of a package, on these indexes only."""
        name = plain_name(file_name_of_url(package.url))
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
        for index in indexes:
            if index in self._silent:
                continue
            try:
                files = project_files(self._http, index, package.name)
            except LockError:
                self._silent.add(index)
                continue
            yield from (add_credentials(f.url, [index]) for f in files if f.sha256 == package.sha256)
        if not configured:
            yield locked_address


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
