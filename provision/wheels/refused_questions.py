"""Remembers questions that uv refused, for the next run with the same question.

A refusal is a proof. Its reasons name each package whose releases make the question impossible. So it is valid while
the indexes list the same files of these packages. Metadata of a file never changes. `uv_question` has the other parts of
a question.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from packaging.utils import canonicalize_name

from ..environment.gpuenv_cache import cache_folder
from ..errors import LockError
from ..index import uv
from ..model import PackageSources
from ..system import trust
from .cache_and_disk import own_cache
from .page_digests import PageDigests
from .uv_question import UvQuestion

_MOST_NAMES = 200
"""The most packages in a remembered refusal. Reading more lists of files takes longer than the solve."""
_RELEASE = re.compile(
    r"([A-Za-z0-9](?:[A-Za-z0-9._-]{0,198}[A-Za-z0-9])?)(?:\[[^\]\s]{0,200}\])?([<>=!~]\S*)?"
)
_ENGLISH = frozenset(
    [
        "all", "also", "an", "and", "any", "are", "available", "be", "because", "but", "can", "cannot", "cause", "conclude",
        "depend", "dependencies", "depends", "following", "found", "has", "have", "in", "incompatible", "is", "know",
        "no", "not", "of", "on", "only", "or", "requirements", "resolving", "solution", "that", "the", "there", "to",
        "unsatisfiable", "usable", "used", "version", "versions", "was", "we", "wheels", "when", "with", "your",
    ]
)  # fmt: skip


@dataclass
class RefusalMemory:
    """Refusals of earlier runs. Without `runs_uv` unknown questions are not solved."""

    sources: PackageSources
    runs_uv: bool = True

    def _path(self, question: UvQuestion) -> Path:
        return cache_folder(own_cache(self.sources), "refused-questions") / f"{question.digest()}.json"

    @cached_property
    def _pages(self) -> PageDigests:
        return PageDigests(self.sources)

    def recall(self, question: UvQuestion) -> str | None:
        """Return the log of the refusal of a question, or None if it was not refused or if releases changed."""
        if not question.is_stable:
            return None
        try:
            kept = json.loads(trust.read_cached(self._path(question)))
            log, before = str(kept["log"]), dict(kept["pages"])
            return log if self._pages.of(before, question.bound) == before else None
        except (LockError, OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def remember(self, question: UvQuestion, log: str) -> None:
        """Store the log of a refusal. The cache is optional."""
        names = find_names(log)
        if not question.is_stable or not 0 < len(names) <= _MOST_NAMES:
            return
        try:
            kept = {"log": uv.redacted(log), "pages": self._pages.of(names, question.bound)}
        except LockError:
            return
        trust.write_cached(self._path(question), json.dumps(kept))


def find_names(log: str) -> list[str]:
    """Return the possible package names in the reasons of a refusal. English words count only with a version."""
    reasons = log.partition("hint:")[0]
    files: dict[str, None] = {}
    for word in reasons.split():
        named = _RELEASE.fullmatch(word.strip("(),:;.`'\""))
        if named and (named[2] or named[1].lower() not in _ENGLISH) and not named[1].isdigit():
            files[str(canonicalize_name(named[1]))] = None
    return [name for name in files if name not in ("python", "gpuenv-plan")]
