"""Download the missing files of a bundle in parallel."""

from __future__ import annotations

import queue
import shutil
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ..index.download_files import FileRequest, download, is_right, part
from ..index.http import AT_ONCE, Http

_READERS = 4


@dataclass(frozen=True, kw_only=True)
class Item:
    """A file of a bundle: its path inside, and its source."""

    path: str
    wanted: FileRequest


@dataclass(frozen=True, kw_only=True)
class MissingFiles:
    """The missing downloads with their `bytes`, and the free bytes of the disk."""

    items: tuple[Item, ...]
    bytes: int
    free: int


def needed(folder: Path, items: Sequence[Item]) -> MissingFiles:
    """Return the items that are missing or have another hash. Partial downloads reduce the bytes."""
    with ThreadPoolExecutor(_READERS) as pool:
        there = list(pool.map(_is_there, items))
    missing = tuple(item for item, good in zip(items, there, strict=True) if not good)
    total = sum(max(0, (item.wanted.size or 0) - _begun(item)) for item in missing)
    place = folder
    while not place.exists():
        place = place.parent
    return MissingFiles(items=missing, bytes=total, free=shutil.disk_usage(place).free)


def bytes_there(items: Sequence[Item]) -> int:
    """Return the existing bytes of items, complete and partial, regardless of their hashes."""
    return sum(min(_there(item), item.wanted.size or 0) for item in items)


def _there(item: Item) -> int:
    path = item.wanted.path
    return path.stat().st_size if path.is_file() else _begun(item)


def _is_there(item: Item) -> bool:
    path = item.wanted.path
    return path.is_file() and is_right(path, item.wanted.hashes)


def _begun(item: Item) -> int:
    half = part(item.wanted.path)
    return half.stat().st_size if half.exists() else 0


class _StoppedError(Exception):
    """The download stops because another failed or the user interrupted it."""


def collect(http: Http, items: Sequence[Item], on_progress: Callable[[int, str], None]) -> None:
    """Download items in parallel. The first failure stops all downloads and is raised.

    `on_progress` receives the existing bytes and the name of the largest file under way, from several threads. The threads are daemons, so that an interrupt does
    not wait for a silent server.
    """
    todo: queue.SimpleQueue[Item | None] = queue.SimpleQueue()
    ended: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
    stop, lock = threading.Event(), threading.Lock()
    done = -sum(map(_begun, items))  # existing parts are reported first
    under_way: dict[str, int] = {}

    def count(more: int) -> None:
        nonlocal done
        if stop.is_set():
            raise _StoppedError
        with lock:
            done += more
            on_progress(done, max(under_way, key=lambda path: under_way[path]).rpartition("/")[2])

    def work() -> None:
        while (item := todo.get()) is not None:
            with lock:
                under_way[item.path] = item.wanted.size or 0
            try:
                download(http, item.wanted, count)
            except BaseException as error:  # noqa: BLE001  # raised in the waiting thread
                ended.put(error)
            else:
                ended.put(None)
            with lock:
                del under_way[item.path]

    for item in items:
        todo.put(item)
    for _ in range(min(AT_ONCE, len(items))):
        todo.put(None)
        threading.Thread(target=work, daemon=True).start()
    try:
        for _ in items:
            if error := ended.get():
                raise error
    finally:
        stop.set()
