"""Evaluates the requirements of a wheel on one platform: Requires-Dist lines and their markers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from provision.index.markers_and_tags_of_platform import CPYTHON, markers_of

from .cached_wheel_facts import Reader, number

GPU_NAMES = re.compile(r"(nvidia|cuda|tensorrt)-.*|tensorrt|triton|pytorch-triton|jax-cuda\d+-(plugin|pjrt)")
"""The requirements that a build's row keeps: what is, or brings, code for GPUs."""


def environment(platform: str, python: str) -> dict[str, str]:
    """Return the marker environment (PEP 508) of a platform and a Python minor version."""
    return {
        **markers_of(platform),
        **CPYTHON,
        "python_version": python,
        "python_full_version": f"{python}.0",
        "implementation_version": f"{python}.0",
        "platform_release": "",
        "platform_version": "",
    }


def parse(line: str) -> Requirement | None:
    """Return a Requires-Dist line as a requirement, or None for the few invalid lines of old wheels."""
    try:
        return Requirement(
            re.sub(r"\(([^()]*)\)", r"\1", line, count=1) if "(" in line.split(";", maxsplit=1)[0] else line
        )
    except InvalidRequirement:
        return None


def required(
    lines: Iterable[str], platform: str, pythons: Sequence[str], extras: Sequence[str] = ()
) -> list[tuple[Requirement, tuple[str, ...]]]:
    """Return the requirements that apply on a platform with these extras, and for which of the Pythons."""
    result = []
    for line in lines:
        requirement = parse(line)
        if requirement is None:
            continue
        marker = requirement.marker
        where = tuple(
            p
            for p in pythons
            if marker is None
            or any(marker.evaluate({**environment(platform, p), "extra": extra}) for extra in extras or ("",))
        )
        if where:
            requirement.marker = None
            result.append((requirement, where))
    return result


def written(requirement: Requirement, where: Sequence[str], pythons: Sequence[str]) -> str:
    """Return a requirement as text for a profile row. It has a marker only if it does not apply to every
    Python."""
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    text = f"{canonicalize_name(requirement.name)}{extras}{requirement.specifier}"
    if len(where) == len(pythons):
        return text
    ordered = sorted(where, key=number)
    if ordered == sorted(pythons, key=number)[: len(ordered)]:
        first_out = sorted(pythons, key=number)[len(ordered)]
        return f'{text}; python_version < "{first_out}"'
    if ordered == sorted(pythons, key=number)[-len(ordered) :]:
        return f'{text}; python_version >= "{ordered[0]}"'
    alone = " or ".join(f'python_version == "{p}"' for p in ordered)
    return f"{text}; {alone}"


def cudnn_specifier(requires: Iterable[str]) -> str | None:
    """Return the specifier of the cuDNN package among a row's requirements."""
    for text in requires:
        requirement = Requirement(text)
        if re.fullmatch(r"nvidia-cudnn-cu\d+", requirement.name):
            return str(requirement.specifier)
    return None


def unresolvable(
    reader: Reader, lines: Iterable[str], platform: str, pythons: Sequence[str], extras: Sequence[str] = ()
) -> list[str]:
    """Return the Pythons for which a GPU requirement has no wheel on the index, with that requirement."""
    needed = [
        (r, where) for r, where in required(lines, platform, pythons, extras) if GPU_NAMES.fullmatch(r.name)
    ]
    out = []
    for python in pythons:
        for requirement, where in needed:
            if python in where and not _has_wheel(reader, requirement, platform, python):
                out.append(f"{python}: {requirement.name}{requirement.specifier} has no wheel for it")
                break
    return out


def _has_wheel(reader: Reader, requirement: Requirement, platform: str, python: str) -> bool:
    return any(
        w.platform in (platform, "any")
        and w.python in (None, python)
        and w.file.yanked is None
        and allows(requirement.specifier, str(w.version))
        for w in reader.wheels(requirement.name)
    )


def documented(
    rows: Iterable[dict[str, Any]], version: Version, cuda: str, cudnn_major: str | None = None
) -> str | None:
    """Return the documented cuDNN of a release, if the document's CUDA (and cuDNN major version) match the
    wheel's."""
    for row in rows:
        same = f"{version}.".startswith(f"{row['version']}.") and row["cuda"] == cuda
        if same and (cudnn_major is None or allows(SpecifierSet(row["cudnn"]), f"{cudnn_major}.99")):
            return str(row["cudnn"])
    return None


def allows(specifier: SpecifierSet | None, version: str) -> bool:
    """Return whether a specifier allows a version, pre-releases included."""
    return specifier is None or specifier.contains(version, prereleases=True)
