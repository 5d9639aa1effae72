"""Stage 7: which NVIDIA libraries a framework's process had mapped, whose they are, and whether cuDNN
was called at all."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..model import NVIDIA_LIBRARY_FAMILIES, Evidence, Finding, LibraryFile, Lock, LockedPackage
from . import layers, probe
from .copies import inside
from .judged import Judged, failing
from .libraries import CUDNN_PACKAGE, Distribution

# Functions of cuDNN that compute, as its API log names them: the graph API of 8 and 9, the older one.
_CALLED = re.compile(r"function (cudnnBackendExecute|cudnnConvolution\w+)\(\) called")

_ANSWERED = re.compile(r"^I! CuDNN \(v(\d+)(?: (\d+))?\)", re.MULTILINE)


def _family(soname: str) -> str | None:
    """The family of a library, libcublasLt being one with libcublas."""
    return next((f for f in NVIDIA_LIBRARY_FAMILIES if soname.startswith(f)), None)


def families(files: Sequence[str]) -> tuple[str, ...]:
    """The library families that the environment itself brings."""
    return tuple(dict.fromkeys(f for p in files if (f := _family(os.path.basename(p)))))


def libraries(
    told: probe.Told, roots: Sequence[str], owners: Mapping[str, Distribution], device: str = "cuda"
) -> tuple[LibraryFile, ...]:
    """The mapped NVIDIA libraries, with their versions, and whether they ran."""
    last = told.last("mapped")
    found = []
    for path, version in last["files"] if last else ():
        owner = owners.get(os.path.realpath(path))
        found.append(
            LibraryFile(
                soname=os.path.basename(path),
                path=path,
                version=_version(path, version, owner),
                owner=f"{owner.name} {owner.version}" if owner else None,
                inside=inside(path, roots) or owner is not None,
                ran=_ran(path, told, device),
            )
        )
    return tuple(found)


def _ran(path: str, told: probe.Told, device: str) -> bool | None:
    """Whether a mapped library was used. The convolutions open what they need, and cuDNN logs its calls. What was only
    opened by gpuenv's question for versions did not run; of the rest nothing is known."""
    if device == "cpu":
        return False
    computed = told.last("computed")
    if computed is None:
        return None
    if path not in computed["files"]:
        return False
    if os.path.basename(path).startswith("libcudnn.so"):
        return bool(_CALLED.search(told.log))
    imported = [p for p, _ in told.all("mapped")[0]["files"]]
    return None if path in imported else True


def _version(path: str, own: str | None, owner: Distribution | None) -> str | None:
    """The library's own word; the package's, which has more parts, where the two agree or the library
    says nothing; else the number in the file's name."""
    cudnn = os.path.basename(path).startswith("libcudnn.so")
    packaged = owner.version if owner and owner.name != "torch" else None  # old torch bundles libraries
    if packaged and (own is None or (not cudnn and packaged.startswith(own + "."))):
        return packaged
    named = re.search(r"\.so\.(\d+\.\d+\.\d+)$", os.path.realpath(path))
    return own or (named.group(1) if named else _neighbour(path))


def _neighbour(path: str) -> str | None:
    """The version of the cuDNN wheel that a file of another site-packages folder lies in."""
    site = Path(path).parents[2] if len(Path(path).parents) > 2 else Path("/")
    beside = sorted(site.glob("nvidia_cudnn*.dist-info")) if "libcudnn" in os.path.basename(path) else []
    return beside[0].name[: -len(".dist-info")].partition("-")[2] if len(beside) == 1 else None


def judge(
    name: str,
    told: probe.Told,
    found: Sequence[LibraryFile],
    device: str,
    own_families: Sequence[str],
    lock: Lock | None,
) -> Judged:
    """Stage 7. `found` are the mapped found, `own_families` those that the environment brings."""
    evidence = tuple(
        Evidence(text=f"{_named(lib)} of {lib.owner or 'no package here'}", source=lib.path) for lib in found
    )
    if not found:
        if device == "cpu":
            return Judged(status="skip", detail="on the CPU no NVIDIA library is loaded")
        return Judged(
            status="warn", detail=f"{name} loaded no NVIDIA library of its own accord: cuDNN did not run"
        )
    foreign = [lib for lib in found if not lib.inside and _family(lib.soname) in own_families]
    problem = _shadowed(foreign, evidence) or _mixed(found, evidence) or _not_locked(found, lock, evidence)
    if problem:
        return problem
    if device == "cpu":
        return Judged(
            status="pass",
            detail=f"{len(found)} NVIDIA libraries loaded; none is called on the CPU",
            evidence=evidence,
        )
    calls = _CALLED.findall(told.log)
    if not calls:
        return _not_called(name, told, found, evidence)
    outside = [lib for lib in found if not lib.inside]
    versions = sorted({_full(*v) for v in _ANSWERED.findall(told.log)})
    counted = Evidence(
        text=f"{len(calls)} calls of {', '.join(sorted(set(calls)))}, answered by cuDNN {' and '.join(versions)}",
        source="cuDNN's API log",
    )
    return Judged(
        status="warn" if outside else "pass",
        detail=f"cuDNN was called {len(calls)} times; {len(found)} libraries, "
        + (f"{len(outside)} of them the system's" if outside else "all of the environment"),
        evidence=(counted, *evidence),
    )


def _named(library: LibraryFile) -> str:
    return f"{library.soname} {library.version}" if library.version else library.soname


def _full(number: str, last: str) -> str:
    """A version as cuDNN's log writes it, "91900 56": four parts since 9, three before."""
    return f"{layers.number(int(number))}{'.' + last if last else ''}"


def _shadowed(foreign: Sequence[LibraryFile], evidence: tuple[Evidence, ...]) -> Judged | None:
    """A library from elsewhere stands where the environment has its own."""
    if not foreign:
        return None
    cudnn = [lib for lib in foreign if lib.soname.startswith("libcudnn")]
    first = (cudnn or list(foreign))[0]
    title = f"{_named(first)} was loaded from {os.path.dirname(first.path)}, outside the environment"
    finding = Finding(
        cause="cudnn_shadowed_by_other_copy" if cudnn else "nvidia_lib_symbol_mismatch",
        title=title,
        evidence=tuple(e for e in evidence if any(e.source == lib.path for lib in foreign)),
        fix="Take that folder off the loader's path.",
    )
    return Judged(
        status="fail" if cudnn else "warn",
        detail=title,
        evidence=evidence,
        findings=(finding,),
        foreign=tuple(lib.path for lib in foreign),
    )


def _mixed(found: Sequence[LibraryFile], evidence: tuple[Evidence, ...]) -> Judged | None:
    """More than one copy of cuDNN in one process, by folder."""
    folders = {os.path.dirname(os.path.realpath(x.path)) for x in found if x.soname.startswith("libcudnn")}
    if len(folders) < 2:
        return None
    title = f"two copies of cuDNN are loaded in one process: {', '.join(sorted(folders))}"
    finding = Finding(
        cause="cudnn_shadowed_by_other_copy",
        title=title,
        evidence=tuple(e for e in evidence if "libcudnn" in (e.source or "")),
        fix="Keep one of them: make the environment again with one cuDNN.",
        confidence="certain",
    )
    return failing(finding)


def three(version: str | None) -> str | None:
    """The three parts of a cuDNN version on which plan and loaded library must agree."""
    return None if version is None else ".".join(version.split(".")[:3])


def _not_locked(
    found: Sequence[LibraryFile], lock: Lock | None, evidence: tuple[Evidence, ...]
) -> Judged | None:
    locked: LockedPackage | None = (
        next((p for p in lock.packages if CUDNN_PACKAGE.match(p.name)), None) if lock else None
    )
    main = next((x for x in found if x.soname.startswith("libcudnn.so")), None)
    if locked is None or main is None or three(main.version) == three(locked.version):
        return None
    title = f"cuDNN {main.version} is loaded, the lock names {locked.name} {locked.version}"
    finding = Finding(
        cause="cudnn_shadowed_by_other_copy",
        title=title,
        evidence=evidence[:4],
        fix="gpuenv repair ENV puts back what the lock names",
        confidence="certain",
    )
    return failing(finding, foreign=(main.path,))


def _not_called(
    name: str, told: probe.Told, found: Sequence[LibraryFile], evidence: tuple[Evidence, ...]
) -> Judged:
    saw = told.last("framework") or {}
    if saw.get("cudnn_enabled") is False:
        why = (
            "torch.backends.cudnn.enabled is False, so torch's own kernels ran; take the line that sets it "
            "out of your program, or out of the sitecustomize or usercustomize that Python runs before it"
        )
    elif not any(x.soname.startswith("libcudnn") for x in found):
        why = "no libcudnn was loaded"
    elif not told.log:
        why = "cuDNN wrote no API log"
    else:
        why = "its API log holds no call that computes"
    return Judged(
        status="warn",
        detail=f"{name} did not call cuDNN for its convolutions: {why}",
        evidence=(Evidence(text=why, source="cuDNN's API log"), *evidence),
    )
