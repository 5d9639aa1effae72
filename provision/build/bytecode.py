"""Bytecode of wheels, compiled once for each wheel and each Python, and linked from then on.

Only where the user wants environments compiled, and says so as to uv: UV_COMPILE_BYTECODE. uv compiles each
environment anew, which for torch takes ten times as long as all else that a warm `create` does. What is
linked is held against its source first, by the rule that Python itself has: time of change and size.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import json
import os
import shutil
import struct
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .. import process
from ..errors import BuildError
from ..model import Package
from .installed import normal

_INDEX = "index.json"
_UNUSED = 90 * 24 * 3600.0  # seconds after which what no environment asked for is thrown away
_LEFT = 24 * 3600.0  # seconds after which nobody can be at work any more on an entry that has no name yet
_TIMEOUT = 3600.0
_TAG = (
    "import importlib.util as u, sys; print(sys.implementation.cache_tag, u.MAGIC_NUMBER.hex(), "
    "'.'.join(map(str, sys.version_info)) + getattr(sys, 'abiflags', ''))"
)
_PROGRAM = Path(__file__).resolve().parents[1] / "probes" / "compile.py"

Marks = dict[str, "tuple[int, int] | None"]
"""Source file (relative) to the time of change and size that its bytecode is for; None for a source that no
bytecode can be made of (templates in an old Python)."""

Job = tuple[str, str, str]
"""Paths: a source, its bytecode, and the bytecode's second name, "" for none."""


def wanted(environ: Mapping[str, str]) -> bool:
    """Whether environments are to be compiled, in the way that this module can."""
    told = environ.get("UV_COMPILE_BYTECODE", "").lower() in ("1", "true", "yes", "on", "t", "y")
    usual = environ.get("PYC_INVALIDATION_MODE", "TIMESTAMP").upper() == "TIMESTAMP"
    return told and usual and not environ.get("SOURCE_DATE_EPOCH")


def lacking(packages: Sequence[Package], env: Path, python: Path, cache: Path) -> list[Part]:
    """Link what `cache` has of the wheels of `packages` that an environment holds; returns those of which
    something is to be compiled. Bytecode that lies in the environment already is not believed: it would be
    handed on to others. Raises BuildError."""
    tag, *rest = _asked(python)
    shelf = cache / "compiled" / "-".join((tag, *rest))
    parts = [p for p in _parts(packages, env, shelf, tag) if p.sources]
    for part in parts:
        part.link()
    return [p for p in parts if p.lacking]


def compile_jobs(jobs: Sequence[Job], python: Path, *, idle: bool = False) -> str | None:
    """Compile, `idle` in the time that nobody else wants; returns why it could not be kept. Raises BuildError."""
    argv = [str(python), "-I", "-S", str(_PROGRAM), *(["idle"] if idle else [])]
    done = process.run(argv, stdin=json.dumps(jobs), timeout=_TIMEOUT)
    if not done.ok:
        raise BuildError("the modules could not be compiled", log=done.stderr)
    return done.stdout.partition("\n")[0] or None


def tidy(cache: Path) -> None:
    """Throw away what no environment has asked for in a long time, and what a killed run left. Raises OSError."""
    now = time.time()
    for index in cache.glob(f"compiled/*/*/{_INDEX}"):
        if index.stat().st_mtime < now - _UNUSED:
            shutil.rmtree(index.parent, ignore_errors=True)
    for draft in cache.glob("compiled/*/.*"):
        if draft.stat().st_mtime < now - _LEFT:
            shutil.rmtree(draft, ignore_errors=True)


@functools.cache
def _asked(python: Path) -> tuple[str, ...]:
    """What makes a Python's bytecode another Python's not. Raises BuildError."""
    asked = process.run([str(python), "-I", "-S", "-c", _TAG], timeout=60)
    if not asked.ok:
        raise BuildError(f"{python} does not run", log=asked.stderr)
    return tuple(asked.stdout.split())


def _parts(packages: Iterable[Package], env: Path, shelf: Path, tag: str) -> list[Part]:
    shas = {normal(p.name): p.sha256 for p in packages if p.sha256}
    found = []
    for record in sorted(env.glob("lib/python3*/site-packages/*.dist-info/RECORD")):
        site = record.parent.parent
        sha = shas.get(normal(record.parent.name.partition("-")[0]))
        if sha:
            found.append(Part(site, shelf / sha, tag, _sources(record)))
    return found


def _sources(record: Path) -> list[str]:
    """The modules that a wheel's RECORD lists, none outside site-packages."""
    with record.open(newline="", encoding="utf-8") as file:
        lines = [line for line in file if ".py" in line]  # torch lists 10,000 headers as well
    names = [row[0] for row in csv.reader(lines) if row and row[0].endswith(".py")]
    return [n for n in dict.fromkeys(names) if not {"", ".."} & set(n.split("/")) and n.isprintable()]


@dataclass
class Part:
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

    @property
    def draft(self) -> Path:
        """Where the entry is filled, beside its place."""
        return self.entry.with_name(f".{self.entry.name}.{os.getpid()}")

    def begin(self) -> None:
        """Make the draft. Raises OSError."""
        self.discard()
        self.draft.mkdir(parents=True)

    def jobs(self) -> Iterator[Job]:
        """What is to be compiled: what has a name in the draft is already. Without a draft nothing is kept."""
        draft = str(self.draft) if self.draft.is_dir() else ""
        for source in self.lacking:
            compiled = "/".join(self._compiled(source))
            name = draft and f"{draft}/{compiled}"
            if not name or not os.path.exists(name):  # noqa: PTH110  # thousands of files
                yield f"{self.site}/{source}", f"{self.site}/{compiled}", name

    def discard(self) -> None:
        """Remove the draft, if there is one."""
        shutil.rmtree(self.draft, ignore_errors=True)

    def keep(self) -> None:
        """Put the entry of what was compiled now, and linked, in the place of the one that did not fit. Raises OSError."""
        draft = self.draft
        for source in set(self.sources) - set(self.lacking):
            with contextlib.suppress(FileNotFoundError):  # a source that no bytecode can be made of
                self._put(source, self.site, draft)
        marks: Marks = {s: _mark("/".join((str(draft), *self._compiled(s)))) for s in self.sources}
        (draft / _INDEX).write_text(json.dumps(marks), encoding="utf-8")
        shutil.rmtree(self.entry, ignore_errors=True)
        draft.rename(self.entry)

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
