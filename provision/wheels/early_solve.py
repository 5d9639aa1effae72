"""Repeats the last run of uv of a command in the background, before the search for a lock needs it.

Its answer is taken only if the search asks uv exactly this question. It is then the answer that uv would give. A run
with the same question as the last one waits only for the slower of search and solve. Questions with build code, and
questions with credentials in addresses, are not repeated.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..environment.gpuenv_cache import cache_folder
from ..index import uv
from ..model import PackageSources, as_plain
from ..system import process, scratch_folders, trust
from ..system.redaction import redact_value
from ..system.write_inside_folder import write_file
from .cache_and_disk import own_cache
from .uv_question import UvQuestion

_IN_FOLDER = "{folder}"
_KEYS = {"words", "files", "sources", "bound", "python", "only_wheels", "timeout"}


@dataclass
class EarlySolve:
    """A repeated question. `_record` has that of the last run, and `_next_record` the last one of this run."""

    path: Path
    _record: dict[str, Any] | None = None
    _next_record: dict[str, Any] | None = None
    _digest: str | None = None
    _done: process.Finished | None = None
    _seconds: float = 0.0
    _thread: threading.Thread | None = field(default=None, repr=False)

    def begin(self, sources: PackageSources) -> None:
        """Ask the question of the last run in a thread, if these sources can answer it."""
        self._record = _read(self.path)
        if self._record is None or self._record["sources"] != as_plain(sources):
            return
        uv.program()  # in this thread: it reads `sysconfig`, whose first use is not thread-safe
        scratch = contextlib.ExitStack()
        try:
            folder = scratch.enter_context(scratch_folders.scratch("early"))
            question = _write(self._record, folder, sources)
            self._digest = question.digest()
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            scratch.close()
            return  # the search asks on its own, and says what is wrong
        self._thread = threading.Thread(
            target=self._ask, args=(question, self._record["python"], scratch), daemon=True
        )
        self._thread.start()

    def _ask(self, question: UvQuestion, python: str, scratch: contextlib.ExitStack) -> None:
        with scratch:
            began = time.monotonic()
            with contextlib.suppress(OSError):
                self._done = uv.run_uv(
                    question.words, question.sources, python=python, settings=question.settings
                )
            self._seconds = time.monotonic() - began

    def answer(self, question: UvQuestion, python: str) -> tuple[process.Finished, float] | None:
        """Return uv's answer to a question with its seconds, or None for another question or a refusal."""
        if self._thread is None or self._record is None or self._record["python"] != python:
            return None
        if question.digest() != self._digest:
            return None
        self._thread.join()
        return (self._done, self._seconds) if self._done and self._done.ok else None

    def note(self, question: UvQuestion, python: str) -> None:
        """Note a question that uv answered."""
        record = {
            "words": [word.replace(str(question.folder), _IN_FOLDER) for word in question.words],
            "files": question.files(), "sources": as_plain(question.sources), "bound": dict(question.bound),
            "python": python, "only_wheels": question.settings.only_wheels, "timeout": question.settings.timeout,
        }  # fmt: skip
        self._next_record = record if redact_value(record) == record else None

    def keep(self) -> None:
        """Store the last question of this run. The cache is optional."""
        if self._next_record is None or self._next_record == self._record:
            return
        trust.write_cached(self.path, json.dumps(self._next_record))


_current: ContextVar[EarlySolve | None] = ContextVar("early_solve", default=None)


@contextlib.contextmanager
def repeated(key: object, sources: PackageSources) -> Iterator[None]:
    """Ask the last question of a command again, and keep the new one if the block succeeds.

    `key` has the inputs of the command, as lists, dicts, sets, paths and scalars. A block inside another one changes nothing.
    """
    if _current.get() is not None or sources.offline or sources.no_index or sources.exclude_newer:
        yield
        return
    digest = hashlib.sha256(json.dumps(key, sort_keys=True, default=_as_text).encode()).hexdigest()
    early = EarlySolve(cache_folder(own_cache(sources), "last-questions") / f"{digest}.json")
    early.begin(sources)
    token = _current.set(early)
    try:
        yield
    finally:
        _current.reset(token)
    early.keep()


def _as_text(value: object) -> object:
    """Return a path as text, and a set in the same order in each run."""
    return sorted(map(str, value)) if isinstance(value, (set, frozenset)) else str(value)


def answer(question: UvQuestion, python: str) -> tuple[process.Finished, float] | None:
    """Return uv's answer to a question with its seconds, if it was asked early."""
    early = _current.get()
    return early.answer(question, python) if early else None


def note(question: UvQuestion, python: str) -> None:
    """Note a question that uv answered, for the next run."""
    if early := _current.get():
        early.note(question, python)


def _write(record: Mapping[str, Any], folder: Path, sources: PackageSources) -> UvQuestion:
    """Write the files of a question into a folder."""
    for name, text in record["files"].items():
        write_file(folder / name, text, root=folder)
    return UvQuestion(
        words=[str(word).replace(_IN_FOLDER, str(folder)) for word in record["words"]],
        folder=folder, sources=sources, bound=record["bound"],
        settings=uv.Settings(only_wheels=bool(record["only_wheels"]), timeout=float(record["timeout"])),
    )  # fmt: skip


def _read(path: Path) -> dict[str, Any] | None:
    """Return the question of the last run, or None for a missing or damaged file."""
    try:
        record = json.loads(trust.read_cached(path))
    except (OSError, ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and set(record) == _KEYS else None
