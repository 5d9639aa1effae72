"""Locks a plan whose builds are fixed, and compares a solution with its plan."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ..errors import LockError
from ..index.config import is_pytorch, split_pytorch
from ..index.wheel_names import find_links
from ..model import (
    TORCH_COMPANIONS,
    Emit,
    LockedPackage,
    PackageSources,
    Plan,
    RequirementLine,
)
from ..system.redaction import redact
from ..system.versions import meets
from ..wheels.pylock import file_name
from .builds import pins
from .compile import Answer, Query
from .source_builds import SourceRules


class CompanionError(LockError):
    """A companion of torch (`package`) that is not built for the label of its build."""

    def __init__(self, package: str, message: str, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.package = package


class TwoCudasError(LockError):
    """A solution with libraries of two CUDA majors, because a package requires another CUDA than the plan's."""


class TwoBuildsError(LockError):
    """A solution with tensorflow and tensorflow-cpu, because a package requires the CPU build."""


def lock_plan(
    plan: Plan,
    emit: Emit,
    rules: SourceRules,
    lines: Sequence[RequirementLine] = (),
    keep: Sequence[str] = (),
) -> Answer:
    """Return uv's answer to exactly a plan's pins and packages, and a project's lines. Raises LockError.

    The pins in `keep` hold if that is possible.
    """
    roots, sources = list(dict.fromkeys([*pins(plan), *plan.packages])), rules.archives.sources
    if not sources.offline or any(
        w.name == "pip"
        for w in find_links([p for p in sources.find_links if "://" not in p and Path(p).exists()])
    ):
        roots.append("pip")
    query = Query(
        plan=plan, rules=rules, emit=emit, roots=tuple(roots), lines=tuple(lines), limits=tuple(keep)
    )  # fmt: skip
    try:
        answer = query.answer()
    except LockError as error:
        if not keep or not (error.contradiction or error.absent):
            raise
        answer = dataclasses.replace(query, limits=()).answer()
    if why := find_difference(plan, answer, sources, lines):
        raise why
    return answer


def find_difference(
    plan: Plan, answer: Answer, sources: PackageSources, lines: Sequence[RequirementLine]
) -> LockError | None:
    """Return how a solution differs from its plan, or from the hashes of the project, or None."""
    try:
        _assert_is_plan(plan, answer, sources)
        _assert_hashes(lines, answer)
    except LockError as error:
        return error
    return None


def _assert_hashes(lines: Sequence[RequirementLine], answer: Answer) -> None:
    """Raise LockError unless the project's own hashes allow each file."""
    for need in lines:
        package = answer.by_name.get(need.package)
        hashes = {h.partition(":")[2] for h in need.hashes if h.startswith("sha256:")}
        if package and hashes and package.sha256 not in hashes:
            raise LockError(
                f"{need.origin} has hashes for {package.name}, but none for {file_name(package)}",
                hint=f"add its sha256 {package.sha256}, or remove the hashes",
            )


def _assert_is_plan(plan: Plan, answer: Answer, sources: PackageSources) -> None:
    """Raise LockError unless the lock has every pin of the plan, from its index."""
    locked, packages = answer.by_name, answer.packages
    for build in plan.builds:
        for text in build.requirements:
            _assert_pin(locked, text)
        framework = locked[build.package_name]
        if plan.device == "cuda" and framework.version.endswith("+cpu"):
            raise LockError(
                f"the plan needs CUDA {build.cuda}; the solver chose {file_name(framework)}",
                hint=_OTHER_PLACE,
            )
    theirs, _ = split_pytorch(packages, plan)
    for package in theirs:
        if not is_pytorch(package.index or "", redact(sources.pytorch)):
            raise LockError(
                f"{package.name} came from {package.index}, not from the PyTorch index", hint=_OTHER_PLACE
            )
    if "torch" in locked:
        _assert_companions(locked["torch"].version, packages)
    if {"tensorflow", "tensorflow-cpu"} <= locked.keys():
        both = (f"{name} {locked[name].version}" for name in ("tensorflow", "tensorflow-cpu"))
        raise TwoBuildsError(
            f"{' and '.join(both)} install the same files",
            hint="remove tensorflow-cpu: tensorflow runs on the CPU as well",
        )
    cudnn = [p for p in packages if re.fullmatch(r"nvidia-cudnn(-cu\d+)?", p.name)]
    if len(cudnn) > 1:
        names = " and ".join(f"{p.name} {p.version}" for p in cudnn)
        raise TwoCudasError(
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
            raise CompanionError(
                package.name,
                f"{package.name} {package.version} is not built for torch +{label}: its operators cannot load",
                hint=f"provide a +{label} wheel of {package.name} with --find-links, or request another build of torch",
            )


def _assert_pin(locked: Mapping[str, LockedPackage], text: str) -> None:
    need = Requirement(text)
    package = locked.get(canonicalize_name(need.name))
    if package is None:
        raise LockError(f"the plan needs {text}, which the solved packages do not include", hint=_OTHER_PLACE)
    if not meets(package.version, str(need.specifier)):
        raise LockError(f"the plan needs {text}; the solver chose {package.version}", hint=_OTHER_PLACE)
