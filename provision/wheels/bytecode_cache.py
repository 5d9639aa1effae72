"""Cache of compiled bytecode: each wheel is compiled once for each Python.

It is used only if the user requests compiled environments, with uv's variable UV_COMPILE_BYTECODE. uv compiles each
environment again. For torch this takes ten times as long as the rest of a `create` with warm caches.

A copy matches its source by Python's rule: modification time and size. It is also compared with its digest.
Environments and the cache share no files, so a write into one does not change another.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import hashlib
import json
import os
import shutil
import struct
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..environment import state
from ..environment.distributions import read_distributions
from ..environment.draft_and_replace_folder import MARK
from ..environment.gpuenv_cache import cache_folder
from ..errors import BuildError
from ..model import LockedPackage, normalize_name
from ..system import trust

_INDEX = "index.json"
_UNUSED = 90 * 24 * 3600.0  # seconds after which unused entries are removed
_LEFT = 24 * 3600.0  # seconds after which an unfinished entry has no writer any more
_TIMEOUT = 3600.0
_TAG = (
    "import importlib.util as u, sys; print(sys.implementation.cache_tag, u.MAGIC_NUMBER.hex(), "
    "'.'.join(map(str, sys.version_info)) + getattr(sys, 'abiflags', ''))"
)
_PROGRAM = Path(__file__).resolve().parents[1] / "probes" / "compile_bytecode.py"

NOTED = "bytecode.json"
"""The file in an environment's `.gpuenv/` with the digests of its compiled modules."""

Mark = tuple[int, int, str]
"""Modification time and size of the source, and the bytecode's sha256."""

Marks = dict[str, "Mark | None"]
"""Source file (relative) -> its mark, or None for a source that cannot be compiled (templates in an old Python)."""

Job = tuple[str, str, str]
"""Paths: a source, its bytecode, and a copy of the bytecode, or "" for no copy."""


def wanted(environ: Mapping[str, str]) -> bool:
    """Return whether the user requests compiled environments, in a way that this module supports."""
    is_requested = environ.get("UV_COMPILE_BYTECODE", "").lower() in ("1", "true", "yes", "on", "t", "y")
    usual = environ.get("PYC_INVALIDATION_MODE", "TIMESTAMP").upper() == "TIMESTAMP"
    return is_requested and usual and not environ.get("SOURCE_DATE_EPOCH")


def filled(packages: Sequence[LockedPackage], env: Path, python: Path, cache: Path) -> list[Part]:
    """Copy the cached bytecode of `packages` into an environment, and return the wheels there. Raises BuildError.

    The modules to compile are their `lacking`. Bytecode that is already in the environment is not trusted, because
    other environments would get it.
    """
    tag, *rest = _tag_of(python)
    shelf = cache_folder(cache, "compiled") / "-".join((tag, *rest))
    parts = [p for p in _find_parts(packages, env, shelf, tag) if p.sources]
    for part in parts:
        part.fill()
    return parts


def compile_jobs(jobs: Sequence[Job], python: Path, *, idle: bool = False) -> str | None:
    """Compile modules, with `idle` at the lowest priority. Return why they could not be cached. Raises BuildError."""
    from ..environment import interpreter

    arguments = ["-I", "-S", str(_PROGRAM), *(["idle"] if idle else [])]
    done = interpreter.start(python, arguments, stdin=json.dumps(jobs), timeout=_TIMEOUT)
    if not done.ok:
        raise BuildError("the modules could not be compiled", log=done.stderr)
    return done.stdout.partition("\n")[0] or None


def tidy(cache: Path) -> None:
    """Remove entries that were not used for a long time, and the remains of a killed run. Raises OSError."""
    now = time.time()
    for index in cache.glob(f"compiled/*/*/{_INDEX}"):
        if index.stat().st_mtime < now - _UNUSED:
            shutil.rmtree(index.parent, ignore_errors=True)
    for draft in cache.glob("compiled/*/.*"):
        if draft.stat().st_mtime < now - _LEFT:
            shutil.rmtree(draft, ignore_errors=True)


@functools.cache
def _tag_of(python: Path) -> tuple[str, ...]:
    """Return the properties of a Python that its bytecode depends on. Raises BuildError."""
    from ..environment import interpreter

    done = interpreter.start(python, ("-I", "-S", "-c", _TAG), timeout=60)
    if not done.ok:
        raise BuildError(f"{python} does not run", log=done.stderr)
    return tuple(done.stdout.split())


def _find_parts(packages: Iterable[LockedPackage], env: Path, shelf: Path, tag: str) -> list[Part]:
    shas = {normalize_name(p.name): p.sha256 for p in packages if p.sha256}
    parts = []
    for name, one in ((n, d) for n, several in read_distributions(env).items() for d in several):
        record = one.folder / "RECORD"
        if (sha := shas.get(name)) and record.is_file():
            parts.append(Part(name, record.parent.parent, shelf / sha, tag, _list_sources(record)))
    return parts


def _list_sources(record: Path) -> list[str]:
    """Return the modules in a wheel's RECORD, without those outside site-packages."""
    with record.open(newline="", encoding="utf-8") as file:
        lines = [line for line in file if ".py" in line]  # torch also lists 10,000 headers
    names = [row[0] for row in csv.reader(lines) if row and row[0].endswith(".py")]
    return [n for n in dict.fromkeys(names) if not {"", ".."} & set(n.split("/")) and n.isprintable()]


@dataclass
class Part:
    """One wheel in one environment, and its cache entry."""

    name: str
    site: Path
    entry: Path
    tag: str
    sources: list[str]
    lacking: list[str] = field(default_factory=list)
    digests: dict[str, str] = field(default_factory=dict)
    _folders: set[str] = field(default_factory=set)

    def fill(self) -> None:
        """Copy matching bytecode. The other modules become `lacking`."""
        marks = self._read_marks()
        self.lacking = [s for s in self.sources if s not in marks or not self._copy(s, marks[s])]
        if marks:
            os.utime(self.entry / _INDEX)

    def _read_marks(self) -> Marks:
        """Return the marks of the entry, or nothing if it is damaged or missing."""
        try:
            data = json.loads(trust.read_cached(self.entry / _INDEX))
            return {str(k): (int(v[0]), int(v[1]), str(v[2])) if v else None for k, v in data.items()}
        except (OSError, ValueError, AttributeError, TypeError, IndexError):
            return {}

    def _copy(self, source: str, mark: Mark | None) -> bool:
        """Copy a source's bytecode from the entry. Return False if it is missing or changed."""
        if mark is None:
            return True
        status = os.stat(f"{self.site}/{source}")  # noqa: PTH116  # thousands of files: Path takes half the time
        if (int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF) != mark[:2]:
            return False
        data = _read("/".join((str(self.entry), *self._locate_compiled(source))))
        if data is None or hashlib.sha256(data).hexdigest() != mark[2]:
            return False
        self._put(source, data, status.st_mode & 0o666 | 0o200)
        self.digests[source] = mark[2]
        return True

    @property
    def draft(self) -> Path:
        """The folder in which a new entry is written, beside the entry."""
        return self.entry.with_name(f".{self.entry.name}.{os.getpid()}")

    def begin(self) -> None:
        """Create the draft. Raises OSError."""
        self.discard()
        self.draft.mkdir(parents=True)

    def jobs(self) -> Iterator[Job]:
        """Return the modules to compile, without those in the draft. Without a draft nothing is cached."""
        draft = str(self.draft) if self.draft.is_dir() else ""
        for source in self.lacking:
            compiled = "/".join(self._locate_compiled(source))
            name = draft and f"{draft}/{compiled}"
            if not name or not os.path.exists(name):  # noqa: PTH110  # thousands of files
                yield f"{self.site}/{source}", f"{self.site}/{compiled}", name

    def discard(self) -> None:
        """Remove the draft if it exists."""
        shutil.rmtree(self.draft, ignore_errors=True)

    def keep(self) -> None:
        """Replace the entry with the draft of compiled and copied modules. Raises OSError."""
        draft = self.draft
        for source in set(self.sources) - set(self.lacking):
            with contextlib.suppress(FileNotFoundError):  # a source that cannot be compiled
                self._keep_copied(source)
        marks: Marks = {s: _mark("/".join((str(draft), *self._locate_compiled(s)))) for s in self.sources}
        (draft / _INDEX).write_text(json.dumps(marks), encoding="utf-8")
        shutil.rmtree(self.entry, ignore_errors=True)
        draft.rename(self.entry)
        self.digests = {s: mark[2] for s, mark in marks.items() if mark}

    def _keep_copied(self, source: str) -> None:
        """Link files of the old entry into the new one, which replaces it."""
        folder, name = self._locate_compiled(source)
        (self.draft / folder).mkdir(parents=True, exist_ok=True)
        os.link(f"{self.entry}/{folder}/{name}", f"{self.draft}/{folder}/{name}")

    def noted(self, env: Path) -> dict[str, str]:
        """Return the digest of each compiled module, by its path in the environment."""
        for source in self.lacking:
            data = (
                None
                if source in self.digests
                else _read("/".join((str(self.site), *self._locate_compiled(source))))
            )
            if data is not None:  # it could not be cached
                self.digests[source] = hashlib.sha256(data).hexdigest()
        site = self.site.relative_to(env).as_posix()
        return {"/".join((site, *self._locate_compiled(s))): digest for s, digest in self.digests.items()}

    def _locate_compiled(self, source: str) -> tuple[str, str]:
        """Return folder and name of a source's bytecode, relative to the source's folder."""
        folder, _, name = source.rpartition("/")
        return f"{folder}/__pycache__" if folder else "__pycache__", f"{name[:-3]}.{self.tag}.pyc"

    def _put(self, source: str, data: bytes, mode: int) -> None:
        """Write bytecode atomically. Python itself checks an existing file."""
        folder, name = self._locate_compiled(source)
        into = f"{self.site}/{folder}"
        if into not in self._folders:
            Path(into).mkdir(parents=True, exist_ok=True)
            self._folders.add(into)
        path, draft = f"{into}/{name}", f"{into}/{name}.new"
        if os.path.lexists(path):
            return
        # Thousands of files: Path and Python's buffers take half the time.
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(file, rest) :]
        finally:
            os.close(file)
        os.rename(draft, path)  # noqa: PTH104  # see above


def _read(path: str) -> bytes | None:
    """Return the bytes of a file, or None if it is missing."""
    try:
        file = os.open(path, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return os.read(file, os.fstat(file).st_size)
    finally:
        os.close(file)


def _mark(compiled: str) -> Mark | None:
    """Return the mark of a .pyc file (PEP 552), or None if it does not match the time and size of its source."""
    data = _read(compiled)
    if data is None or len(data) < 16:
        return None
    flags, changed, size = struct.unpack("<III", data[4:16])
    return None if flags else (changed, size, hashlib.sha256(data).hexdigest())


def note(env: Path, parts: Iterable[Part]) -> None:
    """Write the digests of an environment's compiled modules, for `verify --locked`. Raises BuildError."""
    if not (env / MARK).is_dir():
        return  # a folder that gpuenv did not make
    before = state.read(env, NOTED) or {}
    modules = {part.name: part.noted(env) for part in parts}
    state.write(
        env, NOTED, {"schema": "gpuenv.bytecode/1", "modules": {**before.get("modules", {}), **modules}}
    )
