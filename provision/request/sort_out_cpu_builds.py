"""Sort out the frameworks of which a project requires only the CPU build.

They become packages beside the planned frameworks, or make the environment one for the CPU.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ..model import CPU_PACKAGES, CpuOnlyFramework, ProjectRequirements, RequirementLine, is_cpu_build

# Packages for the CPU whose GPU build has another name, and is no framework of a plan
_OTHER_GPU_NAME = {"onnxruntime": "onnxruntime-gpu"}


@dataclass(frozen=True, kw_only=True, slots=True)
class SortedBuilds:
    """The requirements of a project with its CPU builds sorted.

    `only_cpu` states why nothing is for a GPU, or is None.
    """

    demands: ProjectRequirements
    frameworks: tuple[str, ...]
    only_cpu: str | None = None


def sort_cpu_builds(
    demands: ProjectRequirements,
    named: Collection[str],
    bring: Callable[[tuple[RequirementLine, ...]], Sequence[str]],
) -> SortedBuilds:
    """Treat CPU builds as ordinary packages if a framework is planned for a GPU.

    Such a framework is `named` by an option, named by the files, or required by other packages, which `bring`
    lists.
    """
    builds = [build for build in demands.cpu if build.framework not in named]
    if not builds:
        return SortedBuilds(demands=demands, frameworks=demands.frameworks)
    beside = _as_packages(demands, builds)
    frameworks = beside.frameworks
    cpu_needs = {need for build in builds for need in build.needs}
    if not (named or frameworks) and any(not n.constraint and n not in cpu_needs for n in beside.needs):
        cpu = {build.framework for build in builds}
        frameworks = tuple(f for f in bring(beside.needs) if f not in cpu)
    if named or frameworks:
        notes = tuple(map(_describe_packages, builds))
        beside = dataclasses.replace(beside, left_out=(*beside.left_out, *notes))
        return SortedBuilds(demands=beside, frameworks=frameworks)
    names = ", ".join(name for build in builds for name in build.names)
    gpu = " ".join(f"--framework {build.framework}" for build in builds)
    one = sum(len(build.names) for build in builds) == 1
    why = f"{names} {'is a CPU package' if one else 'are CPU packages'}. To use the GPU: {gpu}"
    return SortedBuilds(demands=demands, frameworks=demands.frameworks, only_cpu=why)


def _as_packages(demands: ProjectRequirements, builds: Sequence[CpuOnlyFramework]) -> ProjectRequirements:
    """Return the requirements with the CPU builds as packages instead of frameworks."""
    names = {build.framework for build in builds}
    said = {sentence for build in builds for sentence in build.as_framework}
    cpu_needs = [need for build in builds for need in build.needs]
    kept = [need for need in demands.needs if need not in cpu_needs]
    return dataclasses.replace(
        demands,
        frameworks=tuple(f for f in demands.frameworks if f not in names),
        bounds=tuple(b for b in demands.bounds if b.name not in names),
        needs=(*kept, *cpu_needs),
        left_out=tuple(s for s in demands.left_out if s not in said),
        cpu=(),
    )


def _describe_packages(build: CpuOnlyFramework) -> str:
    one = len(build.names) == 1
    return (
        f"{', '.join(build.names)} {'remains an ordinary CPU package' if one else 'remain ordinary CPU packages'}. "
        f"To use the GPU: --framework {build.framework}"
    )


def list_notes(packages: Sequence[str], planned: Collection[str]) -> tuple[str, ...]:
    """Return notes on packages of `--with` and `packages:` that are CPU builds of frameworks that are not
    planned."""
    needs = [Requirement(text) for text in packages]
    return tuple(
        f"{need.name} is installed as an ordinary CPU package. To use the GPU: --framework {framework}"
        for need in needs
        if is_cpu_build(canonicalize_name(need.name), sorted(need.extras), str(need.specifier))
        and (framework := CPU_PACKAGES[canonicalize_name(need.name)]) not in planned
    )


def make_cpu_hint(texts: Sequence[str]) -> str | None:
    """Return a hint on a CPU package if no framework is named, or None."""
    for need in map(Requirement, texts):
        name = canonicalize_name(need.name)
        if name in CPU_PACKAGES:
            framework = CPU_PACKAGES[name]
            return f"{need.name} in the requirements installs the ordinary CPU package. To let gpuenv select the build of {framework}: --framework {framework}"
        if other := _OTHER_GPU_NAME.get(name):
            return (
                f"{need.name} is a CPU package. The GPU package is {other}. Neither is a framework of gpuenv"
            )
    return None
