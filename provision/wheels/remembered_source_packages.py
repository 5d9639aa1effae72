"""Remembers which packages had no wheel in the answer to a question, and which of them state no requirements.

Each refusal of uv names one package without a wheel, and takes a complete solve. So does a solution with a release
whose source archive states no requirements. A question is everything that decides an answer: requirements, Python,
platform and sources. The memory is valid while the indexes have the same wheels of a package, and the same source
archives if it states no requirements. An answer does not depend on earlier questions.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..environment.gpuenv_cache import cache_folder
from ..index.http import AT_ONCE
from ..model import PackageSources, Plan, RequirementLine, as_plain
from ..system import trust
from .cache_and_disk import own_cache
from .read_source_archives import SourceArchives


def digest_question(
    plan: Plan, pins: Sequence[str], needs: Sequence[RequirementLine], sources: PackageSources
) -> str:
    """Return the digest of a question."""
    places = [sources.default, sources.extra, sources.find_links, sources.exclude_newer, sources.no_index]
    target = [plan.python, plan.platform, plan.target.glibc, [b.index for b in plan.builds]]
    return _digest(
        [sorted(pins), sorted(json.dumps(as_plain(n), sort_keys=True) for n in needs), places, target]
    )


def recall(question: str, archives: SourceArchives) -> dict[str, str | None]:
    """Return the packages that came from source in the last answer, if the indexes have the same files of them.

    Each has its locked version if the archive of that version states no requirements, otherwise None.
    """
    try:
        kept = json.loads(trust.read_cached(_get_path(question, archives.sources)))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(kept, Mapping) or archives.sources.offline:
        return {}
    before = {str(name): one for name, one in kept.items() if isinstance(one, Mapping)}
    versions = {name: _get_version(one) for name, one in before.items()}
    now = _describe(versions, archives)
    return {name: versions[name] for name, one in before.items() if now[name] == one}


def remember(question: str, packages: Mapping[str, str | None], archives: SourceArchives) -> None:
    """Store the packages of an answer that came from source, as `recall` returns them. The cache is optional."""
    kept = _describe(packages, archives)
    path = _get_path(question, archives.sources)
    if archives.sources.offline:
        return
    if kept:
        trust.write_cached(path, json.dumps(kept))
        return
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def _get_version(kept: Mapping[str, object]) -> str | None:
    version = kept.get("unstated")
    return version if isinstance(version, str) else None


def _describe(
    packages: Mapping[str, str | None], archives: SourceArchives
) -> dict[str, dict[str, str | None]]:
    """Return digests of the files of each package on the indexes."""

    def describe(name: str, unstated: str | None) -> dict[str, str | None]:
        wheels = {"wheels": _digest(archives.wheels(name))}
        if unstated is None:
            return {**wheels}
        versions = [(p.version, p.sha256) for p in archives.listed(name)]
        return {**wheels, "unstated": unstated, "archives": _digest(versions)}

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(packages, pool.map(describe, packages, packages.values()), strict=True))


def _get_path(question: str, sources: PackageSources) -> Path:
    return cache_folder(own_cache(sources), "without-wheels") / f"{question}.json"


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
