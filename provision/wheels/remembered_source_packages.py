"""Remembers which packages had no wheel in the answer to a question.

Each refusal of uv names one package without a wheel, and takes a complete solve. A question is everything that
decides an answer: requirements, Python, platform and sources. The memory is valid while the indexes have the same
wheels of a package. An answer does not depend on earlier questions.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..environment.gpuenv_cache import cache_folder
from ..index.http import AT_ONCE
from ..model import PackageSources, Plan, RequirementLine, as_plain
from ..system import untrusted_files
from ..system.write_inside_folder import write_file
from .cache_and_disk import own_cache

Wheels = Callable[[str], tuple[str, ...]]
"""A function that returns the names of a package's wheels on the indexes."""


def digest_question(
    plan: Plan, pins: Sequence[str], needs: Sequence[RequirementLine], sources: PackageSources
) -> str:
    """Return the digest of a question."""
    places = [sources.default, sources.extra, sources.find_links, sources.exclude_newer, sources.no_index]
    target = [plan.python, plan.platform, plan.target.glibc, [b.index for b in plan.builds]]
    return _digest(
        [sorted(pins), sorted(json.dumps(as_plain(n), sort_keys=True) for n in needs), places, target]
    )


def recall(question: str, sources: PackageSources, wheels: Wheels) -> list[str]:
    """Return the packages that came from source in the last answer, if the indexes have the same wheels of them."""
    try:
        digests = json.loads(untrusted_files.read_text(_get_path(question, sources)))
    except (OSError, ValueError, RecursionError):
        return []
    if not isinstance(digests, Mapping) or sources.offline:
        return []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        now = dict(zip(digests, pool.map(lambda name: _digest(wheels(name)), digests), strict=True))
    return [name for name, before in digests.items() if now[name] == before]


def remember(question: str, names: Iterable[str], sources: PackageSources, wheels: Wheels) -> None:
    """Store the packages of an answer that came from source. The cache is optional."""
    digests = {name: _digest(wheels(name)) for name in names}
    path = _get_path(question, sources)
    if sources.offline:
        return
    try:
        if not digests:
            path.unlink(missing_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, json.dumps(digests))
    except OSError:
        return


def _get_path(question: str, sources: PackageSources) -> Path:
    return cache_folder(own_cache(sources), "without-wheels") / f"{question}.json"


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
