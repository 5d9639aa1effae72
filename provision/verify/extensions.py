"""Compiled extensions beside a framework: torchvision, flash-attn and the like hold code that was compiled
against one build of it, and beside another they do not load, however right the framework itself is."""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..model import TORCH_COMPANIONS, Evidence, Finding, normalize_name
from ..system import untrusted_files
from . import run_probe
from .records import cells
from .verification import Judgement

# The framework's own library that its extensions are linked with
_LINKED = {"torch": b"libc10.so", "tensorflow": b"libtensorflow_framework.so"}
_MOST = 60  # files looked at; no environment seen has as many


def find_extensions(name: str, sites: Sequence[str]) -> list[tuple[str, str]]:
    """(package and version, file) of each extension in an environment that is linked with a framework."""
    if name not in _LINKED:
        return []
    found = [
        (f"{dist} {version}", path)
        for site in sites
        for dist, version, folder in _asking_for(name, Path(site))
        for path in _libraries(Path(site), folder)
        if _is_linked(path, _LINKED[name])
    ]
    return found[:_MOST]


def _asking_for(name: str, site: Path) -> Iterator[tuple[str, str, Path]]:
    """The installed packages that require a framework."""
    row = re.compile(rf"^Requires-Dist:\s*{name}(?![\w.-])", re.MULTILINE)
    for folder in sorted(site.glob("*.dist-info")):
        dist, _, version = folder.name[: -len(".dist-info")].partition("-")
        try:
            text = untrusted_files.read_text(folder / "METADATA")
        except OSError:
            continue  # an installation without metadata asks for nothing
        if row.search(text.split("\n\n", 1)[0]):
            yield normalize_name(dist), version, folder


def _libraries(site: Path, folder: Path) -> Iterator[str]:
    try:
        text = untrusted_files.read_text(folder / "RECORD")
    except OSError:
        return
    for row in cells(r for r in text.splitlines() if ".so" in r):
        path = os.path.normpath(os.path.join(site, row[0]))
        if path.endswith(".so") and ".libs" not in row[0] and path.startswith(f"{site}{os.sep}"):
            yield path


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
    finding = Finding(
        cause="extension_built_for_other_torch_or_cuda",
        title=f"{packages} does not load beside {name} {build}: its compiled part was built for another one",
        evidence=tuple(Evidence(text=error, source=path) for _, path, error in refused),
        fix=f"Install the release of it that goes with {name} {build}: for environments of gpuenv "
        f"`gpuenv create --recreate --framework {name} --with {refused[0][0].split()[0]}`.",
        confidence="certain",
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
