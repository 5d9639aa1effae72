"""Remembers questions that uv refused, for the next run with the same question.

A refusal is a proof. Its reasons name each package whose releases make the question impossible. So it is valid while
the indexes list the same files of these packages. Metadata of a file never changes. The other parts of a question are
uv's options, its input files, its settings, and the files in folders of wheels.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path

from packaging.utils import canonicalize_name

from ..environment.gpuenv_cache import cache_folder
from ..errors import LockError
from ..index import uv
from ..model import PackageSources
from ..system import process, untrusted_files
from ..system.write_inside_folder import write_file
from .cache_and_disk import own_cache
from .page_digests import PageDigests

_MOST_NAMES = 200
"""The most packages in a remembered refusal. Reading more lists of files takes longer than the solve."""
_FILES_OF_VERSIONS = ("UV_CONSTRAINT", "UV_OVERRIDE", "UV_EXCLUDE")
"""Settings that name files. Questions with them are not remembered."""
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


@dataclass(frozen=True, kw_only=True)
class UvQuestion:
    """A question to uv.

    It has the words of the command, the folder with its input files, its settings, and packages with their only
    index.
    """

    words: Sequence[str]
    folder: Path
    sources: PackageSources
    settings: uv.Settings
    bound: Mapping[str, str]

    @property
    def is_stable(self) -> bool:
        """Return whether only lists of files can change the answer."""
        sources = self.sources
        environment = self._environment
        changing = sources.offline or sources.no_index or sources.exclude_newer or self.settings.variables
        named = [*sources.find_links, *environment.get("UV_FIND_LINKS", "").split(",")]
        return not (
            changing
            or any("://" in place for place in named)
            or any(environment.get(n) for n in _FILES_OF_VERSIONS)
        )

    @property
    def _environment(self) -> dict[str, str]:
        return uv.environment(self.sources, process.environ(), self.settings)

    def path(self) -> Path:
        """Return the path of a refusal of this question."""
        said = [word.replace(str(self.folder), "") for word in self.words]
        files = [Path(word) for word in self.words if word.startswith(str(self.folder))]
        texts = [file.read_text(encoding="utf-8") for file in files if file.is_file()]
        environment = {k: v for k, v in self._environment.items() if k.startswith("UV_")}
        folders = [p for p in environment.get("UV_FIND_LINKS", "").split(",") if p]
        parts = [metadata.version("uv"), said, texts, environment, dict(self.bound), list_contents(folders)]
        digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
        return cache_folder(own_cache(self.sources), "refused-questions") / f"{digest}.json"


@dataclass
class RefusalMemory:
    """Refusals of earlier runs. Without `runs_uv` unknown questions are not solved."""

    sources: PackageSources
    runs_uv: bool = True

    @cached_property
    def _pages(self) -> PageDigests:
        return PageDigests(self.sources)

    def recall(self, question: UvQuestion) -> str | None:
        """Return the log of the refusal of a question, or None if it was not refused or if releases changed."""
        if not question.is_stable:
            return None
        try:
            kept = json.loads(untrusted_files.read_text(question.path()))
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
            path = question.path()
            kept = {"log": uv.redacted(log), "pages": self._pages.of(names, question.bound)}
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, json.dumps(kept))
        except (LockError, OSError):
            return


def find_names(log: str) -> list[str]:
    """Return the possible package names in the reasons of a refusal. English words count only with a version."""
    reasons = log.partition("hint:")[0]
    files: dict[str, None] = {}
    for word in reasons.split():
        named = _RELEASE.fullmatch(word.strip("(),:;.`'\""))
        if named and (named[2] or named[1].lower() not in _ENGLISH) and not named[1].isdigit():
            files[str(canonicalize_name(named[1]))] = None
    return [name for name in files if name not in ("python", "gpuenv-plan")]


def list_contents(folders: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return names, sizes and times of the files in folders of wheels."""
    files = []
    for folder in map(Path, folders):
        for path in folder.iterdir() if folder.is_dir() else ():
            about = path.stat()
            files.append((str(path), about.st_size, about.st_mtime_ns))
    return sorted(files)
