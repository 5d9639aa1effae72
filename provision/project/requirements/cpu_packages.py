"""The frameworks of which a project's lines name the CPU build alone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from packaging.utils import canonicalize_name

from provision.model import CPU_PACKAGES, CpuOnlyFramework, is_cpu_build

from .planned_packages import may_hold, sort
from .requirement import Parsed

_GPU_PLUGIN = re.compile(r"jax-(cuda|rocm)\d+-(plugin|pjrt)")


@dataclass(frozen=True, slots=True)
class _Known:
    """What decides whether a line counts, and how it is sorted as a framework's."""

    stack: frozenset[str]
    markers: Mapping[str, str]


def cpu_packages(
    found: Sequence[Parsed], stack: frozenset[str], markers: Mapping[str, str]
) -> tuple[CpuOnlyFramework, ...]:
    """List the frameworks of which the lines name the CPU build alone."""
    holding = [one for one in found if one.name and may_hold(one.marker, markers)]
    known = _Known(stack, markers)
    made = (_of_framework(f, holding, known) for f in dict.fromkeys(CPU_PACKAGES.values()))
    return tuple(one for one in made if one)


def _of_framework(framework: str, found: Sequence[Parsed], known: _Known) -> CpuOnlyFramework | None:
    """What the lines say of one framework's CPU build; None where one asks for its GPU build, or none for either."""
    names = {name for name, of in CPU_PACKAGES.items() if of == framework} | {framework}
    own = [one for one in found if canonicalize_name(one.name or "") in names]
    asked = [one for one in own if not one.line.constraint]
    if not asked or any(one.url or not _is_cpu(one) for one in asked):
        return None
    if framework == "jax" and any(_GPU_PLUGIN.fullmatch(canonicalize_name(one.name or "")) for one in found):
        return None  # as `pip freeze` lists an environment for a GPU
    as_framework = sort(own, known.stack, known.markers)
    return CpuOnlyFramework(
        framework=framework,
        names=tuple(dict.fromkeys(f"{one.name} ({one.line.origin})" for one in asked)),
        needs=tuple(one.need() for one in own),
        as_framework=tuple(as_framework.left_out),
    )


def _is_cpu(one: Parsed) -> bool:
    return is_cpu_build(canonicalize_name(one.name or ""), one.extras, one.specifier)
