"""Judges stage 7: the NVIDIA libraries that a framework loaded, and the calls of cuDNN."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..environment.distributions import list_distributions
from ..model import (
    NVIDIA_LIBRARY_FAMILIES,
    ConvolutionResult,
    DeviceVerdict,
    Evidence,
    FrameworkVerdict,
    LibraryFile,
    Lock,
)
from ..profiles.findings import make_finding
from . import run_probe
from .read_libraries import CUDNN_PACKAGE, LibraryPackage, format_cudnn_version, is_inside, shorten_version
from .verification_state import FrameworkContext, Judgement, fail_with

# Functions of cuDNN that compute, as its API log names them: the graph API of 8 and 9, the older one.
_CALLED = re.compile(r"function (cudnnBackendExecute|cudnnConvolution\w+)\(\) called")
_ANSWERED = re.compile(r"^I! CuDNN \(v(\d+)(?: (\d+))?\)", re.MULTILINE)


def _find_family(soname: str) -> str | None:
    """Return the family of a library. libcublasLt belongs to the family libcublas."""
    return next((f for f in NVIDIA_LIBRARY_FAMILIES if soname.startswith(f)), None)


def list_families(files: Sequence[str]) -> tuple[str, ...]:
    """Return the library families that the environment contains."""
    return tuple(dict.fromkeys(f for p in files if (f := _find_family(os.path.basename(p)))))


def list_mapped(
    report: run_probe.ProbeReport,
    roots: Sequence[str],
    owners: Mapping[str, LibraryPackage],
    device: str = "cuda",
) -> tuple[LibraryFile, ...]:
    """Return the mapped NVIDIA libraries, with their versions, and whether they ran."""
    last = report.last("mapped")
    libraries = []
    for path, version in last["files"] if last else ():
        owner = owners.get(os.path.realpath(path))
        libraries.append(
            LibraryFile(
                soname=os.path.basename(path),
                path=path,
                version=_choose_version(path, version, owner),
                owner=f"{owner.name} {owner.version}" if owner else None,
                inside=is_inside(path, roots) or owner is not None,
                ran=_has_run(path, report, device),
            )
        )
    return tuple(libraries)


def _has_run(path: str, report: run_probe.ProbeReport, device: str) -> bool | None:
    """Return whether a mapped library was used, or None if that is unknown.

    The convolutions open the libraries that they need, and cuDNN logs its calls. A library that only gpuenv's
    version query opened did not run.
    """
    if device == "cpu":
        return False
    computed = report.last("computed")
    if computed is None:
        return None
    if path not in computed["files"]:
        return False
    if os.path.basename(path).startswith("libcudnn.so"):
        return bool(_CALLED.search(report.log))
    imported = [p for p, _ in report.all("mapped")[0]["files"]]
    return None if path in imported else True


def _choose_version(path: str, reported: str | None, owner: LibraryPackage | None) -> str | None:
    """Return the package's version if it extends the reported one, else that one, else the file name's."""
    cudnn = os.path.basename(path).startswith("libcudnn.so")
    packaged = owner.version if owner and owner.name != "torch" else None  # old torch bundles libraries
    if packaged and (reported is None or (not cudnn and packaged.startswith(reported + "."))):
        return packaged
    named = re.search(r"\.so\.(\d+\.\d+\.\d+)$", os.path.realpath(path))
    return reported or (named.group(1) if named else _find_cudnn_wheel_version(path))


def _find_cudnn_wheel_version(path: str) -> str | None:
    """Return the version of the cuDNN wheel in the site-packages folder that contains the file."""
    site = Path(path).parents[2] if len(Path(path).parents) > 2 else Path("/")
    if "libcudnn" not in os.path.basename(path):
        return None
    versions = [d.version for d in list_distributions(site) if d.name.startswith("nvidia-cudnn")]
    return versions[0] if len(versions) == 1 else None


def judge_loaded(
    name: str,
    report: run_probe.ProbeReport,
    libraries: Sequence[LibraryFile],
    context: FrameworkContext,
) -> Judgement:
    """Judge stage 7. `libraries` are the mapped NVIDIA libraries."""
    evidence = _list_evidence(libraries)
    if not libraries:
        if context.device == "cpu":
            return Judgement(status="skip", detail="on the CPU no NVIDIA library is loaded")
        return Judgement(
            status="warn", detail=f"{name} did not load an NVIDIA library, so cuDNN was not used"
        )
    foreign = [
        lib for lib in libraries if not lib.inside and _find_family(lib.soname) in context.own_families
    ]
    problem = (
        _judge_shadowed(foreign, evidence)
        or _judge_mixed(libraries, evidence)
        or _judge_not_locked(libraries, context.lock, evidence)
    )
    if problem:
        return problem
    if context.device == "cpu":
        return Judgement(
            status="pass",
            detail=f"{len(libraries)} NVIDIA libraries are loaded. On the CPU, none of them is used",
            evidence=evidence,
        )
    calls = _CALLED.findall(report.log)
    if not calls:
        return _judge_not_called(name, report, libraries, evidence)
    return _judge_calls(calls, report.log, libraries, evidence)


def _list_evidence(libraries: Sequence[LibraryFile]) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(
            text=f"{_describe_library(lib)}{f' of {lib.owner}' if lib.owner else ', not part of a package'}",
            source=lib.path,
        )
        for lib in libraries
    )


def _judge_calls(
    calls: Sequence[str], log: str, libraries: Sequence[LibraryFile], evidence: tuple[Evidence, ...]
) -> Judgement:
    outside = [lib for lib in libraries if not lib.inside]
    versions = sorted({_format_full_version(*v) for v in _ANSWERED.findall(log)})
    counted = Evidence(
        text=f"{len(calls)} calls of {', '.join(sorted(set(calls)))}, executed by cuDNN {' and '.join(versions)}",
        source="cuDNN's API log",
    )
    return Judgement(
        status="warn" if outside else "pass",
        detail=f"cuDNN was called {len(calls)} times; {len(libraries)} libraries, "
        + (f"{len(outside)} of them from the system" if outside else "all from the environment"),
        evidence=(counted, *evidence),
    )


def _describe_library(library: LibraryFile) -> str:
    return f"{library.soname} {library.version}" if library.version else library.soname


def _format_full_version(number: str, last: str) -> str:
    """Return a version as cuDNN's log writes it ("91900 56"): four parts since cuDNN 9, three before."""
    return f"{format_cudnn_version(int(number))}{'.' + last if last else ''}"


def _judge_shadowed(foreign: Sequence[LibraryFile], evidence: tuple[Evidence, ...]) -> Judgement | None:
    """Judge libraries from elsewhere that were loaded in place of the environment's."""
    if not foreign:
        return None
    cudnn = [lib for lib in foreign if lib.soname.startswith("libcudnn")]
    first = (cudnn or list(foreign))[0]
    finding = make_finding(
        "cudnn_shadowed" if cudnn else "library_shadowed",
        tuple(e for e in evidence if any(e.source == lib.path for lib in foreign)),
        library=_describe_library(first),
        folder=os.path.dirname(first.path),
    )
    return Judgement(
        status="fail" if cudnn else "warn",
        detail=finding.title,
        evidence=evidence,
        findings=(finding,),
        foreign=tuple(lib.path for lib in foreign),
    )


def _judge_mixed(libraries: Sequence[LibraryFile], evidence: tuple[Evidence, ...]) -> Judgement | None:
    """Judge a process with more than one copy of cuDNN, by folder."""
    folders = {
        os.path.dirname(os.path.realpath(x.path)) for x in libraries if x.soname.startswith("libcudnn")
    }
    if len(folders) < 2:
        return None
    finding = make_finding(
        "two_cudnn_loaded",
        tuple(e for e in evidence if "libcudnn" in (e.source or "")),
        confidence="certain",
        folders=", ".join(sorted(folders)),
    )
    return fail_with(finding)


def _judge_not_locked(
    libraries: Sequence[LibraryFile], lock: Lock | None, evidence: tuple[Evidence, ...]
) -> Judgement | None:
    packages = lock.packages if lock else ()
    locked = next((p for p in packages if CUDNN_PACKAGE.match(p.name)), None)
    main = next((x for x in libraries if x.soname.startswith("libcudnn.so")), None)
    if locked is None or main is None or shorten_version(main.version) == shorten_version(locked.version):
        return None
    finding = make_finding(
        "loaded_cudnn_not_as_locked",
        evidence[:4],
        confidence="certain",
        loaded=main.version,
        locked=f"{locked.name} {locked.version}",
    )
    return fail_with(finding, foreign=(main.path,))


def _judge_not_called(
    name: str, report: run_probe.ProbeReport, libraries: Sequence[LibraryFile], evidence: tuple[Evidence, ...]
) -> Judgement:
    saw = report.last("framework") or {}
    if saw.get("cudnn_enabled") is False:
        why = (
            "torch.backends.cudnn.enabled is False, so torch used its own kernels. Remove the line that sets it "
            "from your program, or from the sitecustomize or usercustomize module that Python runs at startup"
        )
    elif not any(x.soname.startswith("libcudnn") for x in libraries):
        why = "no libcudnn was loaded"
    elif not report.log:
        why = "cuDNN wrote no API log"
    else:
        why = "its API log contains no compute calls"
    return Judgement(
        status="warn",
        detail=f"{name} did not call cuDNN for its convolutions: {why}",
        evidence=(Evidence(text=why, source="cuDNN's API log"), *evidence),
    )


# --- the verdict on one framework ---


def make_framework_verdict(
    name: str,
    report: run_probe.ProbeReport,
    device: str,
    libraries: tuple[LibraryFile, ...],
    devices: Sequence[Mapping[str, Any]],
) -> FrameworkVerdict:
    saw = report.last("framework") or {}
    known = {d["index"]: d for d in devices}
    rows = report.all("convolution")
    verdicts = []
    for index in [-1] if device == "cpu" else [d["index"] for d in saw.get("devices", ())]:
        seen: Mapping[str, Any] = next((d for d in saw.get("devices", ()) if d["index"] == index), {})
        low = known.get(index, {})
        verdicts.append(
            DeviceVerdict(
                index=index,
                uuid=seen.get("uuid") or low.get("uuid"),
                name=seen.get("name") or low.get("name"),
                capability=seen.get("capability") or low.get("capability"),
                convolutions=tuple(_make_convolution(r) for r in rows if r["device"] == index),
            )
        )
    main = next((x for x in libraries if x.soname.startswith("libcudnn.so")), None)
    return FrameworkVerdict(
        name=name,
        version=saw.get("version"),
        cuda=saw.get("cuda"),
        cudnn_built=format_cudnn_version(saw.get("cudnn_built")),
        cudnn_loaded=(shorten_version(main.version) if main else None)
        or format_cudnn_version(saw.get("cudnn")),
        devices=tuple(verdicts),
        libraries=libraries,
    )


def _make_convolution(r: Mapping[str, Any]) -> ConvolutionResult:
    return ConvolutionResult(
        case=r["case"],
        dtype=r["dtype"],
        pass_=r["which"],
        max_error=r["error"],
        tolerance=r["tolerance"],
        ok=r["ok"],
    )
