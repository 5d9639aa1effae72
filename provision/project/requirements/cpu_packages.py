"""Find the frameworks of which a project names only the CPU build."""

from __future__ import annotations

import re
from collections.abc import Sequence

from provision.model import CPU_PACKAGES, CpuOnlyFramework, is_cpu_build, normalize_name

from .markers import may_apply
from .requirement import ParsedRequirement
from .sorted_requirements import SortingRules, sort_requirements

_GPU_PLUGIN = re.compile(r"jax-(cuda|rocm)\d+-(plugin|pjrt)")


def find_cpu_frameworks(
    parsed: Sequence[ParsedRequirement], rules: SortingRules
) -> tuple[CpuOnlyFramework, ...]:
    """Return the frameworks of which the requirements name only the CPU build."""
    applicable = [one for one in parsed if one.name and may_apply(one.marker, rules.markers)]
    candidates = (_find(framework, applicable, rules) for framework in dict.fromkeys(CPU_PACKAGES.values()))
    return tuple(cpu_only for cpu_only in candidates if cpu_only)


def _find(
    framework: str, parsed: Sequence[ParsedRequirement], rules: SortingRules
) -> CpuOnlyFramework | None:
    """Return a framework with its CPU requirements, or None if one asks for a GPU build or none for the framework."""
    names = {name for name, of in CPU_PACKAGES.items() if of == framework} | {framework}
    matching = [one for one in parsed if normalize_name(one.name or "") in names]
    required = [one for one in matching if not one.line.constraint]
    if not required or any(one.url or not _is_cpu(one) for one in required):
        return None
    if framework == "jax" and any(_GPU_PLUGIN.fullmatch(normalize_name(one.name or "")) for one in parsed):
        return None  # `pip freeze` lists jax and its plugin separately for a GPU environment
    as_framework = sort_requirements(matching, rules)
    return CpuOnlyFramework(
        framework=framework,
        names=tuple(dict.fromkeys(f"{one.name} ({one.line.origin})" for one in required)),
        needs=tuple(one.as_line() for one in matching),
        as_framework=tuple(as_framework.left_out),
    )


def _is_cpu(one: ParsedRequirement) -> bool:
    return is_cpu_build(normalize_name(one.name or ""), one.extras, one.specifier)
