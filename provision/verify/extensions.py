"""Compiled extensions beside a framework: torchvision, flash-attn and the like hold code that was compiled
against one build of it, and beside another they do not load, however right the framework itself is."""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Iterator, Sequence

from ..environment.distributions import Distribution, list_distributions
from ..model import TORCH_COMPANIONS, Evidence
from ..profiles.findings import make_finding
from . import run_probe
from .verification import Judgement

# The framework's own library that its extensions are linked with
_LINKED = {"torch": b"libc10.so", "tensorflow": b"libtensorflow_framework.so"}
_MOST = 60  # files looked at; no environment seen has as many


def find_extensions(name: str, sites: Sequence[str]) -> list[tuple[str, str]]:
    """(package and version, file) of each extension in an environment that is linked with a framework."""
    if name not in _LINKED:
        return []
    found = [
        (str(one), path)
        for site in sites
        for one in list_distributions(site)
        if _requires_framework(one, name)
        for path in _list_modules(one)
        if _is_linked(path, _LINKED[name])
    ]
    return found[:_MOST]


def _requires_framework(one: Distribution, name: str) -> bool:
    return re.search(rf"^Requires-Dist:\s*{name}(?![\w.-])", one.metadata, re.MULTILINE) is not None


def _list_modules(one: Distribution) -> Iterator[str]:
    """Yield the compiled files of a distribution that lie in its site-packages folder."""
    site = f"{one.folder.parent}{os.sep}"
    for row in one.select_rows(".so"):
        if row.path.endswith(".so") and ".libs" not in row.name and row.path.startswith(site):
            yield row.path


def _is_linked(path: str, library: bytes) -> bool:
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as held:
            return held.find(library) >= 0
    except (OSError, ValueError):  # gone since, or empty
        return False


def judge_extensions(name: str, told: run_probe.ProbeReport) -> Judgement | None:
    """What became of the extensions; None where there are none, or all load."""
    refused = [(r["package"], r["path"], r["error"]) for r in told.all("extension") if r["error"]]
    last = told.last("begin")
    if told.death and last and last["stage"] == "extensions":
        refused.append((last["package"], last["doing"].removeprefix("loading "), told.death))
    if not refused:
        return None
    build = str((told.last("framework") or {}).get("version", name))
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
