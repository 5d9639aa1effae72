"""Compares a solution with its plan: builds, indexes, companions and hashes."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from ..errors import LockError
from ..index import pytorch_index
from ..model import (
    PROJECT_FRAMEWORKS,
    TORCH_COMPANIONS,
    LockedPackage,
    PackageSources,
    Plan,
    RequirementLine,
    is_cpu_build,
)
from ..system.redaction import redact
from .pylock import file_name


def assert_hashes(needs: Sequence[RequirementLine], packages: tuple[LockedPackage, ...]) -> None:
    """Raise LockError unless the project's own hashes allow each file."""
    locked = {p.name: p for p in packages}
    for need in needs:
        package = locked.get(canonicalize_name(need.name or ""))
        hashes = {h.partition(":")[2] for h in need.hashes if h.startswith("sha256:")}
        if package and hashes and package.sha256 not in hashes:
            raise LockError(
                f"{need.origin} has hashes for {package.name}, but none for {file_name(package)}",
                hint=f"add its sha256 {package.sha256}, or remove the hashes",
            )


def named_for_cpu(plan: Plan, needs: Sequence[RequirementLine]) -> set[str]:
    """Return the frameworks that the user requests as CPU packages, beside those of the plan.

    In all other cases a need has another name than a framework.
    """
    named = {str(canonicalize_name(n.name)) for n in needs if n.name and not (n.constraint or n.override)}
    packages = map(Requirement, plan.packages)
    named |= {
        canonicalize_name(n.name) for n in packages if is_cpu_build(canonicalize_name(n.name), n.extras)
    }
    return named & set(PROJECT_FRAMEWORKS)


def assert_no_other_framework(
    plan: Plan, packages: tuple[LockedPackage, ...], elsewhere: Collection[str]
) -> None:
    planned = {*elsewhere, *(b.framework for b in plan.builds)}
    brought = [p for p in packages if p.name in PROJECT_FRAMEWORKS and p.name not in planned]
    if brought:
        words = " and ".join(f"{p.name} {p.version}" for p in brought)
        raise LockError(
            f"the requested packages require {words}, which is not part of the plan",
            hint=f"request it too: --framework {brought[0].name}",
            brought=tuple(p.name for p in brought),
        )


def assert_is_plan(plan: Plan, packages: tuple[LockedPackage, ...], sources: PackageSources) -> None:
    """Raise LockError unless the lock has every pin of the plan, from its index."""
    locked = {p.name: p for p in packages}
    for build in plan.builds:
        for text in build.requirements:
            _assert_pin(locked, text)
        framework = locked[build.package_name]
        if plan.device == "cuda" and framework.version.endswith("+cpu"):
            raise LockError(
                f"the plan needs CUDA {build.cuda}; the solver chose {file_name(framework)}",
                hint=_OTHER_PLACE,
            )
    theirs, _ = pytorch_index.split(packages, plan)
    for package in theirs:
        if not pytorch_index.is_one(package.index or "", redact(sources.pytorch)):
            raise LockError(
                f"{package.name} came from {package.index}, not from the PyTorch index", hint=_OTHER_PLACE
            )
    if "torch" in locked:
        _assert_companions(locked["torch"].version, packages)
    if {"tensorflow", "tensorflow-cpu"} <= locked.keys():
        both = (f"{name} {locked[name].version}" for name in ("tensorflow", "tensorflow-cpu"))
        raise LockError(
            f"{' and '.join(both)} install the same files",
            hint="remove tensorflow-cpu: tensorflow runs on the CPU as well",
        )
    cudnn = [p for p in packages if re.fullmatch(r"nvidia-cudnn(-cu\d+)?", p.name)]
    if len(cudnn) > 1:
        names = " and ".join(f"{p.name} {p.version}" for p in cudnn)
        raise LockError(
            f"two cuDNN packages install into one folder: {names}",
            hint="put the frameworks into two environments",
        )


_OTHER_PLACE = "remove the --find-links folder or the index that has another build of it"
_BUILD_LABEL = re.compile(r"cpu|cu\d+")


def _assert_companions(torch: str, packages: tuple[LockedPackage, ...]) -> None:
    """Raise LockError if torch and a companion have builds with different labels, because its operators would not
    load."""
    label = torch.partition("+")[2]
    for package in packages:
        other = package.version.partition("+")[2]
        if package.name in TORCH_COMPANIONS and _BUILD_LABEL.fullmatch(label) and other != label:
            raise LockError(
                f"{package.name} {package.version} is not built for torch +{label}: its operators cannot load",
                hint=f"provide a +{label} wheel of {package.name} with --find-links, or request another build of torch",
                companion=package.name,
            )


def _assert_pin(locked: dict[str, LockedPackage], text: str) -> None:
    try:
        need = Requirement(text)
    except InvalidRequirement as error:
        raise LockError(
            f"the plan's requirement {text!r} cannot be read: {error}",
            hint="check the profiles: gpuenv profiles check",
        ) from error
    package = locked.get(canonicalize_name(need.name))
    exact = next((s.version for s in need.specifier if s.operator == "==="), None)
    if package is None:
        raise LockError(f"the plan needs {text}, which the solved packages do not include", hint=_OTHER_PLACE)
    fits = package.version == exact if exact else need.specifier.contains(package.version, prereleases=True)
    if not fits:
        raise LockError(f"the plan needs {text}; the solver chose {package.version}", hint=_OTHER_PLACE)
