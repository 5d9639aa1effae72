"""Whole files from indexes and channels: resumed where they broke off, and held against their hash."""

from __future__ import annotations

import errno
import hashlib
import os
import time
import urllib.error
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import client as http_client
from pathlib import Path

from provision.errors import BuildError, LockError

from .http import PASSING, TRIES, Http, Stream, failed, in_words, lasting

_PIECE = 1 << 20
Told = Callable[[int], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """A file to be had: `urls` are where it may lie, the best first (looked for one by one, as they are
    needed), and `shown` what an error calls it. `hashes` are what it must have ({"sha256": "..."}; empty
    where nobody knows), `size` its bytes."""

    path: Path
    urls: Iterable[str]
    shown: str
    hashes: Mapping[str, str] = field(default_factory=dict)
    size: int | None = None


def download(http: Http, wanted: Wanted, told: Told) -> None:
    """Fetch a file from the first address that has the right one, or go on with what a broken run left.

    `told` gets bytes as they come, negative where some were thrown away; what it raises ends the download
    and leaves the part. Raises LockError where no address has the file, BuildError for a wrong file and
    for a disk that is full.
    """
    half = part(wanted.path)
    failure: LockError | BuildError = failed(wanted.shown, "no index has it")
    for url in wanted.urls:
        try:
            right = _fetched(http, url, half, wanted, told)
        except LockError as error:
            failure = error
            continue
        if right:
            half.replace(wanted.path)
            return
        failure = BuildError(
            f"{wanted.shown} is not the file that was locked: its hash differs",
            hint="if the index really changed the file, lock again: gpuenv lock",
        )
    raise failure


def _fetched(http: Http, url: str, half: Path, wanted: Wanted, told: Told) -> bool:
    """Whether the file behind an address is the one that is wanted; a wrong one is thrown away."""
    resumed = _fetch(http, url, half, wanted, told)
    if is_right(half, wanted.hashes):
        return True
    _forget(half, told)
    if resumed:  # the file there may be another than the one that the part was of
        _fetch(http, url, half, wanted, told)
        if is_right(half, wanted.hashes):
            return True
        _forget(half, told)
    return False


def part(path: Path) -> Path:
    """Where a file lies until it is whole."""
    return path.with_name(f".{path.name}.part")


def is_right(path: Path, hashes: Mapping[str, str]) -> bool:
    """Whether a file has these hashes; it is read once."""
    found = digests(path, hashes)
    return all(found[name] == value.lower() for name, value in hashes.items())


def digests(path: Path, names: Iterable[str]) -> dict[str, str]:
    """The hashes of a file ("sha256", "md5")."""
    states = {name: hashlib.new(name, usedforsecurity=False) for name in names}
    with path.open("rb") as file:
        while states and (piece := file.read(_PIECE)):
            for state in states.values():
                state.update(piece)
    return {name: state.hexdigest() for name, state in states.items()}


def _forget(half: Path, told: Told) -> None:
    told(-_size(half))
    half.unlink()


def _size(half: Path) -> int:
    return half.stat().st_size if half.exists() else 0


def _fetch(http: Http, url: str, half: Path, wanted: Wanted, told: Told) -> bool:
    """Bring a part to its end; whether some of it was there before. Every try that brought bytes is
    followed by as many more, so that a bad line gets there, and a dead one is given up."""
    before = _size(half)
    told(before)
    if wanted.size is not None and before > wanted.size:
        _forget(half, told)
    left = TRIES
    while (have := _size(half)) == 0 or have != wanted.size:
        try:
            with http.stream(url, start=have) as answer:
                size = _written(answer, half, have, told)
            if answer.total is None or size >= answer.total:
                break
            why = f"the connection ended after {size} of {answer.total} bytes"
        except urllib.error.HTTPError as e:
            e.close()
            why = f"answered {e.code} {e.reason}"
            if e.code == 416 and have:
                _forget(half, told)  # it is no shorter than the file there
            elif e.code not in PASSING:
                raise failed(wanted.shown, why) from None
        except (OSError, http_client.HTTPException) as e:
            why = in_words(e)
            if lasting(e):
                raise failed(wanted.shown, why) from None
        left = TRIES if _size(half) > have else left - 1
        if not left:
            raise failed(wanted.shown, why)
        time.sleep(0.5 * 2 ** (TRIES - left))
    return before > 0


def _written(answer: Stream, half: Path, have: int, told: Told) -> int:
    """Append an answer to a part; an answer from the beginning replaces it."""
    if answer.start not in (0, have):
        raise OSError(f"the server sent bytes from {answer.start} on, not from {have}")
    if answer.start == 0 and have:
        told(-have)
    with _disk(half):
        half.parent.mkdir(parents=True, exist_ok=True)
        file = half.open("ab" if answer.start else "wb", buffering=0)
    with file:
        while piece := answer.body.read1(_PIECE):
            with _disk(half):
                file.write(piece)
            told(len(piece))
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
                hint="free space; what was downloaded stays, and the same command goes on from there",
            ) from error
        raise BuildError(
            f"cannot write in {half.parent}: {error.strerror or error}", hint="name another folder"
        ) from error
