"""Bytecode of wheels, compiled once for each wheel and each Python, and linked from then on.

Only where the user wants environments compiled, and says so as to uv: UV_COMPILE_BYTECODE. uv compiles each
environment anew, which for torch takes ten times as long as all else that a warm `create` does. What is
linked is held against its source first, by the rule that Python itself has: time of change and size.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import struct
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .. import process
from ..errors import BuildError
from ..model import Event, Package
from .installed import normal

_INDEX = "index.json"
_UNUSED = 90 * 24 * 3600.0  # seconds after which what no environment asked for is thrown away
_TIMEOUT = 3600.0
_TAG = (
    "import importlib.util as u, sys; print(sys.implementation.cache_tag, u.MAGIC_NUMBER.hex(), "
    "'.'.join(map(str, sys.version_info)) + getattr(sys, 'abiflags', ''))"
)
# Run by the environment's own Python with -I -S: nothing of what was installed is executed. What bytecode
# lies there already is not believed: it would be handed on to other environments.
_COMPILE = """
import compileall, concurrent.futures, functools, sys
one = functools.partial(compileall.compile_file, quiet=2, force=True)
with concurrent.futures.ProcessPoolExecutor() as pool:
    list(pool.map(one, sys.stdin.read().splitlines(), chunksize=16))
"""

Marks = dict[str, "tuple[int, int] | None"]
"""Source file (relative) to the time of change and size that its bytecode is for; None for a source that no
bytecode can be made of (templates in an old Python)."""


def wanted(environ: Mapping[str, str]) -> bool:
    """Whether environments are to be compiled, in the way that this module can."""
    told = environ.get("UV_COMPILE_BYTECODE", "").lower() in ("1", "true", "yes", "on", "t", "y")
    usual = environ.get("PYC_INVALIDATION_MODE", "TIMESTAMP").upper() == "TIMESTAMP"
    return told and usual and not environ.get("SOURCE_DATE_EPOCH")


def fill(
    packages: Sequence[Package], env: Path, python: Path, cache: Path, emit: Callable[[Event], None]
) -> None:
    """Bytecode for the wheels of `packages` that an environment holds: linked from `cache` where it was
    compiled before, else compiled and kept there. Raises BuildError."""
    asked = process.run([str(python), "-I", "-S", "-c", _TAG], timeout=60)
    if not asked.ok:
        raise BuildError(f"{python} does not run", log=asked.stderr)
    tag, *rest = asked.stdout.split()
    shelf = cache / "compiled" / "-".join((tag, *rest))
    parts = [p for p in _parts(packages, env, shelf, tag) if p.sources]
    for part in parts:
        part.link()
    lacking = [f"{part.site}/{s}" for part in parts for s in part.lacking]
    if not lacking:
        return
    emit(Event(kind="start", stage="build", text=f"compiling {len(lacking)} modules"))
    done = process.run([str(python), "-I", "-S", "-c", _COMPILE], stdin="\n".join(lacking), timeout=_TIMEOUT)
    if not done.ok:
        raise BuildError("the modules could not be compiled", log=done.stderr)
    try:
        for part in parts:
            if part.lacking:
                part.keep()
        _tidy(cache / "compiled")
    except OSError as error:
        told = f"the compiled modules are not kept for the next environment: {error.strerror}"
        emit(Event(kind="note", stage="build", text=told))


def _parts(packages: Iterable[Package], env: Path, shelf: Path, tag: str) -> list[_Part]:
    shas = {normal(p.name): p.sha256 for p in packages if p.sha256}
    found = []
    for record in sorted(env.glob("lib/python3*/site-packages/*.dist-info/RECORD")):
        site = record.parent.parent
        sha = shas.get(normal(record.parent.name.partition("-")[0]))
        if sha:
            found.append(_Part(site, shelf / sha, tag, _sources(record)))
    return found


def _sources(record: Path) -> list[str]:
    """The modules that a wheel's RECORD lists, none outside site-packages."""
    with record.open(newline="", encoding="utf-8") as file:
        lines = [line for line in file if ".py" in line]  # torch lists 10,000 headers as well
    names = [row[0] for row in csv.reader(lines) if row and row[0].endswith(".py")]
    return [n for n in names if not {"", ".."} & set(n.split("/")) and n.isprintable()]


@dataclass
class _Part:
    """One wheel in one environment, and its entry on the shelf."""

    site: Path
    entry: Path
    tag: str
    sources: list[str]
    lacking: list[str] = field(default_factory=list)
    _folders: set[str] = field(default_factory=set)

    def link(self) -> None:
        """Link what fits; the rest is `lacking`."""
        marks = self._marks()
        self.lacking = [s for s in self.sources if s not in marks or not self._linked(s, marks[s])]
        if marks:
            os.utime(self.entry / _INDEX)

    def _marks(self) -> Marks:
        """What the entry holds; nothing where it is damaged or missing."""
        try:
            data = json.loads((self.entry / _INDEX).read_text(encoding="utf-8"))
            return {str(k): (int(v[0]), int(v[1])) if v else None for k, v in data.items()}
        except (OSError, ValueError, AttributeError, TypeError, IndexError):
            return {}

    def _linked(self, source: str, mark: tuple[int, int] | None) -> bool:
        if mark is None:
            return True
        found = os.stat(f"{self.site}/{source}")  # noqa: PTH116  # thousands of files: Path takes half the time
        if (int(found.st_mtime) & 0xFFFFFFFF, found.st_size & 0xFFFFFFFF) != mark:
            return False
        try:
            self._put(source, self.entry, self.site)
        except FileNotFoundError:
            return False  # somebody cleaned the cache by hand
        return True

    def keep(self) -> None:
        """Put an entry of what was compiled now in the place of the one that did not fit."""
        draft = self.entry.with_name(f".{self.entry.name}.{os.getpid()}")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        marks: Marks = {}
        try:
            for source in self.sources:
                marks[source] = _mark("/".join((str(self.site), *self._compiled(source))))
                if marks[source]:
                    self._put(source, self.site, draft)
            (draft / _INDEX).write_text(json.dumps(marks), encoding="utf-8")
            shutil.rmtree(self.entry, ignore_errors=True)
            draft.rename(self.entry)
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def _compiled(self, source: str) -> tuple[str, str]:
        """Folder and name of a source's bytecode, from where the source's name begins."""
        folder, _, name = source.rpartition("/")
        return f"{folder}/__pycache__" if folder else "__pycache__", f"{name[:-3]}.{self.tag}.pyc"

    def _put(self, source: str, old: Path, new: Path) -> None:
        """A link, or a copy on another disk; a file that is there already is Python's to judge."""
        folder, name = self._compiled(source)
        into = f"{new}/{folder}"
        if into not in self._folders:
            Path(into).mkdir(parents=True, exist_ok=True)
            self._folders.add(into)
        try:
            os.link(f"{old}/{folder}/{name}", f"{into}/{name}")
        except FileExistsError:
            return
        except FileNotFoundError:
            raise
        except OSError:
            shutil.copyfile(f"{old}/{folder}/{name}", f"{into}/{name}")


def _mark(compiled: str) -> tuple[int, int] | None:
    """The time and size of the source in the head of a .pyc (PEP 552); None where there is none of that kind."""
    try:
        file = os.open(compiled, os.O_RDONLY)  # thousands of files: without Python's buffers half the time
    except FileNotFoundError:
        return None
    try:
        head = os.read(file, 16)
    finally:
        os.close(file)
    if len(head) < 16:
        return None
    flags, changed, size = struct.unpack("<III", head[4:])
    return None if flags else (changed, size)


def _tidy(shelves: Path) -> None:
    """Throw away what no environment has asked for in a long time."""
    before = time.time() - _UNUSED
    for index in shelves.glob(f"*/*/{_INDEX}"):
        if index.stat().st_mtime < before:
            shutil.rmtree(index.parent, ignore_errors=True)
