"""Which Pythons the wheels of a package are for: an old pin often has none for the newest Python, and
another Python is a better answer than a compiler."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from ..index.http import Http
from ..index.pipconf import default_index
from ..index.simple import project_files
from ..model import Plan, Sources
from ..system import process
from .solved import platforms_of


def pythons_with_wheel(
    name: str, specifier: str, plan: Plan, sources: Sources, minors: Iterable[str]
) -> tuple[str, ...]:
    """Those of `minors` ("3.11") for which some release within the bounds has a wheel on the plan's
    platform, in their order. Raises LockError when the index does not answer."""
    cache = Path(sources.cache_dir) if sources.cache_dir else None
    where = sources.default or default_index(process.environ(), cache_dir=cache)
    bounds = SpecifierSet(specifier)
    tags: set[Tag] = set()
    for file in project_files(Http(), where, name):
        try:
            _, version, _, fitting = parse_wheel_filename(file.name)
        except InvalidWheelFilename:
            continue  # a source archive, or a name that no installer would take
        if file.yanked is None and bounds.contains(version, prereleases=True):
            tags |= fitting
    return tuple(m for m in minors if not tags.isdisjoint(_tags(m, plan)))


def _tags(minor: str, plan: Plan) -> set[Tag]:
    parts = tuple(int(p) for p in minor.split("."))
    platforms = platforms_of(plan)
    interpreter = "cp" + "".join(map(str, parts))
    return {*cpython_tags(parts, platforms=platforms), *compatible_tags(parts, interpreter, platforms)}
