"""Solves the last question of a request in the background, before the search needs it.

The solution is used only if the search ends with exactly this question. It is then the solution that uv would give. A
run with the same question as the last run waits only for the slower of search and solve. Nothing is built. Questions
with credentials in addresses are not stored.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..environment.gpuenv_cache import cache_folder
from ..errors import LockError
from ..index import uv
from ..model import PackageSources, Plan, RequestContext, RequirementLine, as_plain, drop_event, from_plain
from ..system import scratch_folders, untrusted_files
from ..system.redaction import redact_value
from ..system.write_inside_folder import write_file
from .allowed_source_builds import source_builds
from .ask_uv import Ask
from .cache_and_disk import own_cache


@dataclass
class EarlySolve:
    """The question that is solved early, and the one of the search. `path` is the file of the latter for the next
    run."""

    path: Path
    _early: dict[str, Any] | None = None
    _last: dict[str, Any] | None = None
    _ask: Ask | None = None
    _text: str | None = None
    _thread: threading.Thread | None = field(default=None, repr=False)

    def begin(self, sources: PackageSources) -> None:
        """Solve the last question in a thread, if these sources can answer it."""
        self._early = _read(self.path)
        if self._early is None or self._early["sources"] != as_plain(sources):
            return
        uv.program()  # in this thread: it reads `sysconfig`, whose first use is not thread-safe
        self._thread = threading.Thread(target=self._solve, args=(self._early, sources), daemon=True)
        self._thread.start()

    def _solve(self, question: Mapping[str, Any], sources: PackageSources) -> None:
        builds = dataclasses.replace(
            source_builds(sources, drop_event), forbidden_by="the first run of the solver"
        )
        try:
            builds.allowed += map(str, question["allowed"])
            if builds.stated:
                builds.stated.runs_no_code = True
            plan = from_plain(Plan, question["plan"])
            needs = tuple(from_plain(RequirementLine, need) for need in question["needs"])
            with scratch_folders.scratch("early") as scratch:
                ask = Ask(scratch, plan, sources, None, needs, builds)
                text = ask.solved([*question["pins"]], question["prefer"])
            self._ask, self._text = ask, text
        except (LockError, OSError, ValueError, KeyError, TypeError):
            return  # the search asks on its own, and says what is wrong

    def answer(self, ask: Ask, pins: Sequence[str], prefer: Mapping[str, str]) -> str | None:
        """Return the early solution of a question, or None for another or a refused question."""
        self._last = _make_question(ask, pins, prefer)
        if self._thread is None or self._last != self._early:
            return None
        self._thread.join()
        if self._ask is None:
            return None
        if ask.builds.stated and self._ask.builds.stated:
            ask.builds.stated.add(self._ask.builds.stated)
        ask.seconds += self._ask.seconds
        ask.source(self._ask.pins)
        return self._text

    def keep(self) -> None:
        """Store the question that was answered. The cache is optional."""
        if self._last is None or self._last == self._early:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_file(self.path, json.dumps(self._last))
        except OSError:
            return


def begin_early(context: RequestContext) -> EarlySolve | None:
    """Solve the last question of a request again.

    Returns None if a solve depends on more than its question: on build code, or on the time.
    """
    sources = context.sources
    if sources.offline or sources.no_index or sources.exclude_newer or context.reading:
        return None
    if any(n.local or n.vcs or n.name is None for n in context.demands.needs):
        return None
    request = [context.request, context.target, list(context.demands.needs), sources]
    digest = hashlib.sha256(json.dumps([as_plain(v) for v in request], sort_keys=True).encode()).hexdigest()
    early = EarlySolve(cache_folder(own_cache(sources), "last-questions") / f"{digest}.json")
    early.begin(sources)
    return early


def _make_question(ask: Ask, pins: Sequence[str], prefer: Mapping[str, str]) -> dict[str, Any] | None:
    """Return everything that decides an answer, as JSON, or None for a question that is not stored."""
    if ask.builds.unread or (ask.builds.allowed and (not ask.builds.stated or ask.builds.stated.unstated)):
        return None
    plan = dataclasses.replace(ask.plan, notes=(), hint=None, rejected=(), held_back=(), sets=())
    question = {
        "plan": as_plain(plan), "needs": as_plain(ask.needs), "sources": as_plain(ask.sources),
        "pins": list(pins), "prefer": dict(prefer), "allowed": sorted(ask.builds.allowed),
    }  # fmt: skip
    return question if redact_value(question) == question else None


def _read(path: Path) -> dict[str, Any] | None:
    """Return the question of the last run, or None for a missing or damaged file."""
    try:
        question = json.loads(untrusted_files.read_text(path))
    except (OSError, ValueError, RecursionError):
        return None
    keys = {"plan", "needs", "sources", "pins", "prefer", "allowed"}
    return question if isinstance(question, dict) and set(question) == keys else None
