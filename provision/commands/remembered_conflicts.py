"""Remember locks with an indirect package that conflicts with the builds, for the next run with the same question.

Such a lock takes a whole solve, and shows only that its set is not the answer. It counts while the indexes list the
same files of the conflicting packages and of all packages that require them, directly or not. Whether they conflict is
decided again in each run, because it depends on the profiles.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..environment.gpuenv_cache import cache_folder
from ..errors import LockError
from ..index import uv
from ..model import Lock, LockedPackage, PlannedBuild, RequestContext, as_plain, from_plain
from ..resolve.locked_cuda_conflicts import OtherCuda
from ..system import trust
from ..system.redaction import redact_value
from ..wheels.cache_and_disk import own_cache
from ..wheels.page_digests import PageDigests
from ..wheels.uv_question import UvQuestion
from .conflicting_indirect_packages import find_transitive_packages


@dataclass
class ConflictMemory:
    """The locks with conflicts of earlier runs, and those of this run, which are stored if another set is found."""

    used: bool = False
    off: bool = False
    _found: dict[Path, dict[str, Any]] = field(default_factory=dict)

    def recall(self, context: RequestContext) -> tuple[OtherCuda, ...]:
        """Return the conflicts in the lock of a question, or () if it is not remembered or no longer counts."""
        if self.off or not _is_stable(context):
            return ()
        try:
            kept = json.loads(trust.read_cached(_get_path(context)))
            builds = [from_plain(PlannedBuild, build) for build in kept["builds"]]
            packages = [from_plain(LockedPackage, package) for package in kept["packages"]]
            required_by = {str(name): tuple(map(str, by)) for name, by in kept["required_by"].items()}
            if _digest_pages(context, kept["pages"]) != kept["pages"]:
                return ()
        except (LockError, OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return ()
        conflicts = find_transitive_packages(context, builds, packages, required_by)
        self.used = self.used or bool(conflicts)
        return conflicts

    def note(self, context: RequestContext, lock: Lock, conflicts: Sequence[OtherCuda]) -> None:
        """Note a lock with conflicts, which answers this question."""
        if self.off or not _is_stable(context):
            return
        names = _find_requirers((c.package.partition(" ")[0] for c in conflicts), lock.required_by)
        try:
            pages = _digest_pages(context, names)
        except LockError:
            return
        kept = {
            "builds": as_plain(lock.plan.builds), "packages": as_plain(lock.packages),
            "required_by": {name: list(by) for name, by in lock.required_by.items()}, "pages": pages,
        }  # fmt: skip
        if redact_value(kept) == kept:  # no credentials
            self._found[_get_path(context)] = kept

    def keep(self) -> None:
        """Store the noted locks. The cache is optional."""
        for path, kept in self._found.items():
            trust.write_cached(path, json.dumps(kept))


def _question(context: RequestContext) -> UvQuestion:
    """Return what decides a solve beside the request: settings of uv, folders of wheels and the sources."""
    return UvQuestion(words=(), folder=Path(), sources=context.sources, settings=uv.PLAIN, bound={})


def _is_stable(context: RequestContext) -> bool:
    """Return whether only lists of files can change the lock of a question."""
    local = any(n.local or n.vcs or n.name is None for n in context.demands.needs)
    return not context.reading and not local and _question(context).is_stable


def _get_path(context: RequestContext) -> Path:
    """Return the path of the lock of a question: a request with its newest set."""
    parts = (
        context.request, context.target, list(context.targets), list(context.demands.needs), context.sources,
        context.joint, list(context.supply.unreachable), _question(context).digest(),
    )  # fmt: skip
    digest = hashlib.sha256(json.dumps([as_plain(v) for v in parts], sort_keys=True).encode()).hexdigest()
    return cache_folder(own_cache(context.sources), "conflicts") / f"{digest}.json"


def _digest_pages(context: RequestContext, names: Iterable[str]) -> dict[str, str]:
    bound = {n.name: n.index for n in context.demands.needs if n.name and n.index}
    return PageDigests(context.sources).of(names, bound)


def _find_requirers(names: Iterable[str], required_by: Mapping[str, Sequence[str]]) -> list[str]:
    """Return packages and all that require them, directly or not, in order of their names."""
    seen: set[str] = set()
    todo = list(names)
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += required_by.get(name, ())
    return sorted(seen)
