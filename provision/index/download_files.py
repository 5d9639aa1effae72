"""Download locked files: find their addresses, resume broken downloads, compare hashes."""

from __future__ import annotations

import errno
import functools
import netrc
import os
import time
import urllib.error
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import client as http_client
from pathlib import Path

from provision.system.safe_write import open_part, rename, suggest_fix

from ..errors import BuildError, LockError
from ..model import LockedPackage
from ..system import process
from ..system.file_digest import hash_file
from ..system.redaction import redact
from ..system.untrusted_names import file_name_of_url
from .connections import origin
from .http import PASSING, TRIES, Http, Stream, lasting, read_error, unreadable
from .simple_api import project_files
from .wheel_folders import address_of

_PIECE = 1 << 20
MOST = 64 << 30
"""Bytes of one file whose size nobody says. The largest wheels and conda packages have some 4 GB."""
SLOWEST = 1024
"""Bytes in a second below which a download counts as failed, measured over the seconds of the time-out."""
_MOST_TRIES = 200
Progress = Callable[[int], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class FileRequest:
    """A file to download to `path`. `urls` are its possible addresses, the best first; they are read one by one.
    `shown` is its name in errors. `hashes` ({"sha256": "..."}) and `size` are the expected ones, as far as known. No
    link may lead out of `root`, by default the folder of `path`."""

    path: Path
    urls: Iterable[str]
    shown: str
    root: Path | None = None
    hashes: Mapping[str, str] = field(default_factory=dict)
    size: int | None = None


def download(http: Http, request: FileRequest, report: Progress) -> None:
    """Download a file from the first address with the expected content. Resume a broken download.

    `report` gets the number of new bytes, negative for discarded ones. An exception of `report` ends the download
    and keeps the part. Raises LockError if no address has the file, BuildError for a wrong file and for a full disk.
    """
    half = part(request.path)
    failure: LockError | BuildError = unreadable(request.shown, "no index has it")
    for url in request.urls:
        try:
            differs = _fetched(http, url, half, request, report)
        except LockError as error:
            failure = error
            continue
        if differs is None:
            with _disk(half):
                rename(half, request.path, root=request.root or half.parent)
            return
        failure = BuildError(
            f"{request.shown} is not the locked file: its {differs} differs",
            hint="lock again if the index replaced the file: gpuenv lock",
        )
    raise failure


def _fetched(http: Http, url: str, half: Path, request: FileRequest, report: Progress) -> str | None:
    """Fetch the file behind an address. Return in what it differs from the one expected, None where it does not;
    remove a wrong one."""
    differs = ""
    for _ in range(2):
        resumed = _size(half) > 0
        try:
            _fetch(http, url, half, request, report)
            if is_right(half, request.hashes):
                return None
            differs = "hash"
        except _OtherFileError:
            differs = "size and hash"
        _forget(half, report)
        if not resumed:  # else the part may be of another file than the one that is there now
            break
    return differs


def part(path: Path) -> Path:
    """Where a file lies until it is whole."""
    return path.with_name(f".{path.name}.part")


def is_right(path: Path, hashes: Mapping[str, str]) -> bool:
    """Whether a file has these hashes; it is read once."""
    found = digests(path, hashes)
    return all(found[name] == value.lower() for name, value in hashes.items())


def digests(path: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the digests of a file ("sha256", "md5") in hexadecimal. Without names the file is not read."""
    algorithms = tuple(names)
    return hash_file(path, algorithms) if algorithms else {}


def _forget(half: Path, report: Progress) -> None:
    report(-_size(half))
    half.unlink(missing_ok=True)  # an answer of another size is refused before its first byte is written


def _size(half: Path) -> int:
    return half.stat().st_size if half.exists() else 0


class _OtherFileError(Exception):
    """The server has a file of another size than the one expected."""


class _SlowError(OSError):
    """So few bytes came that the download would never end."""


def _fetch(http: Http, url: str, half: Path, request: FileRequest, report: Progress) -> None:
    """Fetch the rest of a part. Every try that brought bytes is followed by TRIES more, at most _MOST_TRIES in
    all, so that a bad line gets there. Raises _OtherFileError."""
    before = _size(half)
    report(before)
    if request.size is not None and before > request.size:
        _forget(half, report)
    left, tried, slow = TRIES, 0, False
    while (have := _size(half)) == 0 or have != request.size:
        tried += 1
        try:
            with http.stream(url, start=have) as answer:
                size = _written(answer, request, have, http.patience, report)
            if answer.total is None or size >= answer.total:
                break
            failure = unreadable(request.shown, f"the connection ended after {size} of {answer.total} bytes")
        except urllib.error.HTTPError as e:
            e.close()
            failure = read_error(request.shown, e)
            if e.code == 416 and have:
                _forget(half, report)  # it is no shorter than the file there
            elif e.code not in PASSING:
                raise failure from None
        except (OSError, http_client.HTTPException) as e:
            failure, slow = read_error(request.shown, e), isinstance(e, _SlowError)
            if lasting(e):
                raise failure from None
        left = TRIES if _size(half) > have and not slow else left - 1
        if not left or tried >= _MOST_TRIES:
            raise failure
        time.sleep(0.5 * 2 ** (TRIES - left))


def _written(answer: Stream, request: FileRequest, have: int, patience: float, report: Progress) -> int:
    """Append an answer to a part, or replace the part where the answer starts at 0. It brings no more than the
    requested size, and at least SLOWEST bytes in each `patience` seconds. Raises _OtherFileError."""
    half = part(request.path)
    root = request.root or half.parent
    if answer.start not in (0, have):
        raise OSError(f"the server sent bytes from {answer.start}, expected {have}")
    most = request.size if request.size is not None else answer.total or MOST
    if (answer.total or most) != most or most > MOST:
        raise _OtherFileError
    if answer.start == 0 and have:
        report(-have)
    with _disk(half):
        root.mkdir(parents=True, exist_ok=True)
        file = open_part(half, root=root, append=answer.start > 0)
    with file:
        size, since, came = answer.start, time.monotonic(), 0
        while piece := answer.body.read1(_PIECE):
            size += len(piece)
            if size > most:
                raise _OtherFileError
            with _disk(half):
                file.write(piece)
            report(len(piece))
            came += len(piece)
            if (passed := time.monotonic() - since) > patience:
                if came < SLOWEST * passed:
                    raise _SlowError(f"only {came} bytes arrived in {passed:.0f} s")
                since, came = time.monotonic(), 0
            if size == most:
                break  # a server that sends more, or keeps the line open, is not waited for
        with _disk(half):
            os.fsync(file.fileno())
    return half.stat().st_size


@contextmanager
def _disk(half: Path) -> Iterator[None]:
    """What fails in this block is the disk's fault, not the network's."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise BuildError(
                f"the disk of {half.parent} is full",
                hint="free space and run the same command again: downloaded files are kept",
            ) from error
        hint = suggest_fix(error, "choose another folder")
        raise BuildError(f"cannot write in {half.parent}: {error.strerror or error}", hint=hint) from error


class Addresses:
    """Looks files up by their hash, so that any mirror and any folder will do.

    `folders` come first. A file that the lock took from a configured index is asked for where the lock
    says, others on the configured indexes first: the lock may have been made in another network. An index
    that did not answer once is not asked again.
    """

    def __init__(self, http: Http, folders: Sequence[Path], *, offline: bool = False) -> None:
        self._http, self._folders, self._offline = http, folders, offline
        self._silent: set[str] = set()

    def of(self, package: LockedPackage, indexes: Sequence[str]) -> Iterator[str]:
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

    def _listed(self, package: LockedPackage, indexes: Sequence[str]) -> Iterator[str]:
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
