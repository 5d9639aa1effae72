"""Packages that were compiled against another framework or cuDNN than the installed one.

The extensions of torchvision, flash-attn and others load beside one build of a framework only. A framework takes the
cuDNN that it was compiled with, or a newer minor version.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Iterator, Sequence

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from ..environment.distributions import Distribution, list_distributions
from ..model import TORCH_COMPANIONS, Environment, Evidence, Finding
from ..profiles.findings import make_finding
from . import run_probe
from .drift.install_commands import make_pip_command
from .read_libraries import CUDNN_PACKAGE, LibraryPackage, read_requirements
from .verification_state import Judgement

# The framework's own library that its extensions are linked with
_LINKED = {"torch": b"libc10.so", "tensorflow": b"libtensorflow_framework.so"}
_MOST = 60  # more files than any known environment has


def find_extensions(name: str, sites: Sequence[str]) -> list[tuple[str, str]]:
    """Return (package and version, file) for each extension in an environment that is linked with a framework."""
    if name not in _LINKED:
        return []
    extensions = [
        (str(one), path)
        for site in sites
        for one in list_distributions(site)
        if _is_for_framework(one, name)
        for path in _list_modules(one)
        if _is_linked(path, _LINKED[name])
    ]
    return extensions[:_MOST]


def _is_for_framework(one: Distribution, name: str) -> bool:
    return re.search(rf"^Requires-Dist:\s*{name}(?![\w.-])", one.metadata, re.MULTILINE) is not None


def _list_modules(one: Distribution) -> Iterator[str]:
    """Yield the compiled files of a distribution that lie in its site-packages folder."""
    site = f"{one.folder.parent}{os.sep}"
    for row in one.select_rows(".so"):
        if row.path.endswith(".so") and ".libs" not in row.name and row.path.startswith(site):
            yield row.path


def _is_linked(path: str, library: bytes) -> bool:
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return data.find(library) >= 0
    except (OSError, ValueError):  # removed meanwhile, or empty
        return False


def judge_extensions(name: str, report: run_probe.ProbeReport) -> Judgement | None:
    """Judge the extensions that the probe loaded. Return None if there are none, or all load."""
    refused = [(r["package"], r["path"], r["error"]) for r in report.all("extension") if r["error"]]
    last = report.last("begin")
    if report.death and last and last["stage"] == "extensions":
        refused.append((last["package"], last["doing"].removeprefix("loading "), report.death))
    if not refused:
        return None
    build = str((report.last("framework") or {}).get("version", name))
    packages = ", ".join(dict.fromkeys(package for package, _, _ in refused))
    finding = make_finding(
        "extension_does_not_load",
        tuple(Evidence(text=error, source=path) for _, path, error in refused),
        confidence="certain",
        packages=packages,
        framework=f"{name} {build}",
        name=name,
        package=refused[0][0].split()[0],
    )
    # Most users of torch import its companions, whose `_C` file holds their operators. A refused file of another
    # package gives a warning, because the program may never import it.
    needed = any(
        package.split()[0] in TORCH_COMPANIONS and os.path.basename(path).startswith("_C")
        for package, path, _ in refused
    )
    return Judgement(
        status="fail" if needed else "warn", detail=finding.title, evidence=finding.evidence,
        findings=(finding,),
    )  # fmt: skip


# --- the cuDNN of a framework ---

_FRAMEWORKS = ("torch", "tensorflow", "jax-cuda12-plugin", "jax-cuda13-plugin", "jax-cuda12-pjrt")


def judge_cudnn_version(
    env: Environment, sites: Sequence[str], owners: Sequence[LibraryPackage]
) -> Finding | None:
    """Return the finding for a framework that no installed cuDNN serves.

    A framework loads only its own cuDNN major version. It refuses an older minor version than the one it was
    compiled with.
    """
    installed = [(p, v) for p in owners if p.is_cudnn and (v := _parse_version(p.version))]
    if not installed:
        return None
    for framework in _FRAMEWORKS:
        needed = next(
            (
                r
                for text in read_requirements(sites, framework.replace("-", "_"))
                if (r := _parse_cudnn(text))
            ),
            None,
        )
        least = _find_oldest(needed) if needed else None
        if needed is None or least is None or any(_is_served(v, least) for _, v in installed):
            continue
        package, version = max(installed, key=lambda row: row[1])
        finding = "cudnn_other_major" if version.major != least.major else "cudnn_older"
        command = make_pip_command(env, sites, [f"{needed.name}{needed.specifier}"])
        return _make_cudnn_finding(finding, framework, needed, package, command)
    return None


def _parse_cudnn(text: str) -> Requirement | None:
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return None
    return requirement if CUDNN_PACKAGE.match(requirement.name.lower()) else None


def _parse_version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None


def _find_oldest(requirement: Requirement) -> Version | None:
    """Return the oldest cuDNN that a requirement allows: its pin, or its lower bound."""
    bounds = [s.version.removesuffix(".*") for s in requirement.specifier if s.operator in ("==", ">=", "~=")]
    return max((v for bound in bounds if (v := _parse_version(bound))), default=None)


def _is_served(version: Version, least: Version) -> bool:
    """Return whether a framework compiled with `least` accepts a cuDNN: same major version, at least its minor
    version."""
    return version.major == least.major and version.minor >= least.minor


def _make_cudnn_finding(
    finding: str, framework: str, needed: Requirement, package: LibraryPackage, command: str
) -> Finding:
    return make_finding(
        finding,
        (
            Evidence(text=f"{framework} requires {needed.name}{needed.specifier}", source="METADATA"),
            Evidence(text=f"{package.name} {package.version} is installed", source=package.files[0].path),
        ),
        confidence="certain",
        package=f"{package.name} {package.version}",
        framework=framework,
        required=needed.specifier,
        command=command,
    )
