"""The addresses of the indexes that the builds of a plan come from, without credentials."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ..errors import LockError
from ..model import LockedPackage, PackageSources, Plan, PlannedBuild, RequirementLine, normalize_name
from ..system import process
from ..system.redaction import redact
from . import pytorch_index
from .pip_config import default_index


def name_locked(plan: Plan, packages: Sequence[LockedPackage]) -> Plan:
    """Return the plan with the index of each build of a solve, or the folder of its file."""
    places = {normalize_name(p.name): p.index or _parent(p.url) for p in packages}
    return _named(plan, lambda b: [places.get(normalize_name(b.package_name), "")])


def _parent(url: str) -> str:
    folder = url.rpartition("/")[0]
    return unquote(urlsplit(folder).path) if folder.startswith("file:") else folder


def name_configured(
    plan: Plan, sources: PackageSources, needs: Sequence[RequirementLine], cache_dir: Path
) -> Plan:
    """Return the plan with the indexes that are asked for each build: before a solve, or to install a lock by hash.

    `needs` are the project's requirements, which can name the only index of a package.
    """
    bound = {normalize_name(n.name): n.index for n in needs if n.name and n.index}
    try:
        default = sources.default or default_index(process.environ(), cache_dir=cache_dir)
    except LockError:
        default = ""  # uv does not say which one it would ask

    def places(build: PlannedBuild) -> Sequence[str]:
        if build.index not in ("pypi", "pytorch", "find-links"):
            return ()  # a channel
        if build.index == "find-links" or sources.no_index or sources.offline:
            return sources.find_links
        if build.index == "pytorch":
            return [pytorch_index.address(sources.pytorch, plan)]
        name = normalize_name(build.package_name)
        return [bound[name]] if name in bound else [*sources.extra, default]

    return _named(plan, places)


def _named(plan: Plan, places: Callable[[PlannedBuild], Sequence[str]]) -> Plan:
    def urls(build: PlannedBuild) -> tuple[str, ...]:
        return tuple(dict.fromkeys(redact(url).rstrip("/") for url in places(build) if url))

    return dataclasses.replace(
        plan, builds=tuple(dataclasses.replace(b, index_urls=urls(b)) for b in plan.builds)
    )
