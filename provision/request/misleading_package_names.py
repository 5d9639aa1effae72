"""Detect packages that are not what their names suggest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from ..errors import UsageError
from ..model import FRAMEWORKS, AvailableWheels, PackageSources, PackageTrap, Profiles, ProjectRequirements


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedRequirement:
    """A package that is required by name, and its origin. The origin is None for an option."""

    need: Requirement
    origin: str | None = None


def check_traps(
    requirements: Iterable[NamedRequirement],
    known: Profiles,
    supply: AvailableWheels,
    sources: PackageSources,
    *,
    replaced: bool = True,
) -> tuple[str, ...]:
    """Return warnings about packages that are not what their names suggest.

    A package with a URL, or in a folder of wheels, is accepted. `replaced` is true if the plan has a CUDA,
    which selects the replacements. Raises UsageError for a package that is never meant.
    """
    by_name: dict[str, list[PackageTrap]] = {}
    for row in known.traps:
        by_name.setdefault(canonicalize_name(row.package), []).append(row)
    local_wheels = {wheel.name for wheel in supply.wheels}
    pages = any("://" in place for place in sources.find_links)
    warnings = []
    for one in requirements:
        name = canonicalize_name(one.need.name)
        for row in () if name in local_wheels else by_name.get(name, ()):
            if (replaced and row.action == "replace") or not _may_be(one.need, row):
                continue
            if row.action != "warn" and not pages:
                raise UsageError(_sentence(one, row), hint=_hint(one, row))
            warnings.append(f"{_sentence(one, row)}; {_hint(one, row)}")
    return tuple(dict.fromkeys(warnings))


def named_packages(
    packages: tuple[str, ...], demands: ProjectRequirements, markers: Mapping[str, str]
) -> Iterator[NamedRequirement]:
    """Yield the packages that options and files require by name alone, if their marker may apply."""
    from ..project.requirements.markers import may_apply

    texts: list[tuple[str, str | None]] = [(text, None) for text in packages]
    texts += [
        (need.text, need.origin)
        for need in demands.needs
        if need.name and not (need.constraint or need.override or need.local or need.vcs or need.index)
    ]
    for text, origin in texts:
        try:
            need = Requirement(text)
        except InvalidRequirement:
            continue  # a line that only uv can read
        if not need.url and may_apply(need.marker, markers):
            yield NamedRequirement(need=need, origin=origin)


def _may_be(need: Requirement, row: PackageTrap) -> bool:
    """Return whether the requirement may mean a release of the row. Only an exact version excludes it."""
    exact = [s.version for s in need.specifier if s.operator == "==" and not s.version.endswith(".*")]
    return not (row.versions and exact) or SpecifierSet(row.versions or "").contains(
        exact[0], prereleases=True
    )


def _sentence(one: NamedRequirement, row: PackageTrap) -> str:
    where = f" ({one.origin})" if one.origin else ""
    why = row.why[0].lower() + row.why[1:].rstrip(".")
    return f"{one.need}{where} is not the package that its name suggests: {why} ({row.source.rstrip('.')})"


def _hint(one: NamedRequirement, row: PackageTrap) -> str:
    if row.instead is None:
        return f"remove {one.need.name}, or give its wheel with --find-links"
    framework = row.instead.partition("[")[0]
    if framework in FRAMEWORKS:
        return f"--framework {framework}, or {row.instead} in a requirements file"
    return f"write {row.instead}"
