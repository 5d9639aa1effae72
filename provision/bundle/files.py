"""Bring files into a bundle and out of it: downloads, archives of Python, and channels of conda packages.

uv downloads the archive of a Python for any platform (UV_PYTHON_INSTALL_MIRROR names a mirror) and compares it with its
built-in hash. On the target uv unpacks it, after a comparison with the bundle's hash, for one environment.
"""

from __future__ import annotations

import dataclasses
import json
import queue
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..environment import registry
from ..errors import BuildError
from ..index import uv
from ..index.config import plain_sources
from ..index.downloads import Download, has_hashes, part_path
from ..index.http import AT_ONCE, Http
from ..model import BundlePython, LockedPackage
from ..system import process
from ..system.files import make_folder, write_file
from ..system.redaction import clean
from ..system.scratch import make_scratch
from ..system.untrusted import file_name_of_url, last_segments
from . import work_folder

_READERS = 4


def find_missing(items: Sequence[Download]) -> tuple[list[Download], int]:
    """Return the items that are missing or have another hash, and their bytes, which partial downloads reduce."""
    with ThreadPoolExecutor(_READERS) as pool:
        there = list(pool.map(lambda i: i.path.is_file() and has_hashes(i.path, i.hashes), items))
    missing = [item for item, good in zip(items, there, strict=True) if not good]
    return missing, sum(max(0, (item.size or 0) - _size(part_path(item.path))) for item in missing)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


class _StoppedError(Exception):
    """The download stops because another failed or the user interrupted it."""


def collect(http: Http, items: Sequence[Download], on_progress: Callable[[int, str], None]) -> None:
    """Download items in parallel. The first failure stops all downloads and is raised.

    `on_progress` receives the existing bytes and the name of the largest file under way, from several threads. The threads are daemons, so that an interrupt does
    not wait for a silent server.
    """
    todo: queue.SimpleQueue[Download | None] = queue.SimpleQueue()
    ended: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
    stop, lock = threading.Event(), threading.Lock()
    received = -sum(_size(part_path(i.path)) for i in items)  # existing parts are reported first
    under_way: dict[str, int] = {}

    def count(more: int) -> None:
        nonlocal received
        if stop.is_set():
            raise _StoppedError
        with lock:
            received += more
            on_progress(received, max(under_way, key=lambda path: under_way[path]).rpartition("/")[2])

    def work() -> None:
        while (item := todo.get()) is not None:
            with lock:
                under_way[item.inside] = item.size or 0
            failed: BaseException | None = None
            try:
                item.fetch(http, count)
            except BaseException as error:  # noqa: BLE001  # raised in the waiting thread
                failed = error
            ended.put(failed)
            with lock:
                del under_way[item.inside]

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


_BUILDS = {
    "linux-x86_64": ("linux", "x86_64", "gnu"),
    "linux-aarch64": ("linux", "aarch64", "gnu"),
}
_TIMEOUT = 1800.0


def fetch_archive(folder: Path, minor: str, platform: str) -> tuple[BundlePython | None, str]:
    """Put a Python archive into a bundle, or return None and the reason. Raises BuildError for a disk error."""
    words = [
        "python",
        "list",
        "--only-downloads",
        "--all-platforms",
        "--all-arches",
        "--output-format",
        "json",
        minor,
    ]
    rows = json.loads(_run(words, timeout=60).stdout or "[]")
    wanted = ("cpython", "default", *_BUILDS[platform])
    fitting = (
        r for r in rows if tuple(r[k] for k in ("implementation", "variant", "os", "arch", "libc")) == wanted
    )
    if (row := next(fitting, None)) is None:
        return None, f"uv has no Python {minor} for {platform}"
    with work_folder(folder) as work:
        cache = work / "archive"
        make_folder(cache, root=folder)
        variables = {"UV_PYTHON_CACHE_DIR": str(cache.absolute()), "UV_HTTP_RETRIES": "1"}
        unpacked = str((work / "unpacked").absolute())
        words = ["python", "install", row["key"], "--install-dir", unpacked, "--no-bin"]
        finished = _run(words, variables)
        archives = sorted(cache.iterdir())
        if not finished.ok or len(archives) != 1:
            host = re.search(r"https?://([^/\s)]+)", finished.stderr)
            place = f" from {host[1]}" if host else ""
            why = f"Python {row['version']} cannot be downloaded{place} ({_get_reason(finished.stderr)})"
            return None, f"{why}. Allow that host, or name a mirror: UV_PYTHON_INSTALL_MIRROR"
        path = folder / "python" / file_name_of_url(row["url"])
        make_folder(path.parent, root=folder)
        archives[0].replace(path)
    return BundlePython(key=row["key"], version=row["version"], path=f"python/{path.name}"), ""


def _get_reason(log: str) -> str:
    causes = [x.partition("cause:")[2].strip() for x in log.splitlines() if "cause:" in x]
    return clean(causes[-1] if causes else (log.strip().splitlines() or ["no reason given"])[-1])


def _run(
    words: Sequence[str], variables: Mapping[str, str] | None = None, timeout: float = _TIMEOUT
) -> process.Finished:
    """Run a uv command, which may download only the archive that it names."""
    variables_of_uv = {"UV_PYTHON_DOWNLOADS": "manual", "UV_OFFLINE": "0", **(variables or {})}
    return uv.run_uv(
        words, plain_sources(), python=None, settings=uv.Settings(variables=variables_of_uv, timeout=timeout)
    )


def unpack_archive(folder: Path, archive: BundlePython, sha256: str, env: Path) -> str:
    """Make uv unpack a bundle's Python for an environment, and return the path of the interpreter. Raises BuildError."""
    parts = re.fullmatch(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})(.*)", archive.version)
    assert parts  # guaranteed by BundlePython
    _, _, system, machine, libc = archive.key.split("-")
    entry = {
        "name": "cpython", "arch": {"family": machine, "variant": None}, "os": system, "libc": libc,
        "major": int(parts[1]), "minor": int(parts[2]), "patch": int(parts[3]), "prerelease": parts[4],
        "url": (folder / archive.path).resolve().as_uri(), "sha256": sha256, "variant": None, "build": None,
    }  # fmt: skip
    home = registry.claim_python(env, sha256)
    with make_scratch("python") as scratch:
        listed = scratch / "listed.json"
        listed.write_text(json.dumps({archive.key: entry}), encoding="utf-8")
        variables = {"UV_PYTHON_DOWNLOADS_JSON_URL": str(listed)}
        finished = _run(["python", "install", archive.key, "--no-bin", "--install-dir", str(home)], variables)
    path = home / archive.key / "bin/python3"
    if not finished.ok or not path.exists():
        raise BuildError(
            f"the bundle's Python {archive.version} ({archive.path}) cannot be unpacked",
            log=clean(finished.stderr), hint="install that Python, or copy the bundle again",
        )  # fmt: skip
    return str(path)


def channel_file(package: LockedPackage) -> str:
    """Return the path of a conda package in a bundle: "channel/conda-forge/linux-64/NAME.conda"."""
    *channel, subdir, file = last_segments(package.url, 3, hidden=True)
    return f"channel/{channel[0] if channel else 'channel'}/{subdir}/{file}"


def local_packages(packages: Iterable[LockedPackage], folder: Path) -> tuple[LockedPackage, ...]:
    """Return a lock's packages with addresses in the bundle: conda packages, and wheels without an index."""

    def moved(package: LockedPackage) -> LockedPackage:
        if package.is_conda:
            return dataclasses.replace(package, url=(folder / channel_file(package)).resolve().as_uri())
        if package.index is None:
            wheel = folder / "wheels" / file_name_of_url(package.url)
            return dataclasses.replace(package, url=wheel.resolve().as_uri())
        return package

    return tuple(map(moved, packages))


def name_origins(prefix: Path, packages: Iterable[LockedPackage], folder: Path) -> None:
    """Write the lock's addresses into conda-meta in place of the bundle's, which may not exist later."""
    packages = tuple(packages)
    origins = {here.url: p.url for p, here in zip(packages, local_packages(packages, folder), strict=True)}
    for path in (prefix / "conda-meta").glob("*.json"):
        data = json.loads(path.read_text(encoding="utf-8"))
        origin = origins.get(data.get("url") or "")
        if origin:
            addresses = {"url": origin, "channel": origin.rsplit("/", 2)[0]}
            write_file(path, json.dumps(data | addresses, indent=2) + "\n", root=prefix)
