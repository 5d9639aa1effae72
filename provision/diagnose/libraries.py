"""Compare required libraries with installed ones: missing, older or duplicate."""

from __future__ import annotations

import re

from packaging.version import InvalidVersion, Version

from ..model import Confidence
from .candidates import Case, CauseCandidate
from .facts import meets
from .version_texts import spelled

# Sonames whose number is the CUDA major (cudart's up to CUDA 10 is the release): NVIDIA's CUDA
# compatibility documents; libcufft, libcurand, libcusolver number on their own.
_BY_CUDA = re.compile(
    r"(?:lib)?(cudart|cublaslt|cublas|nvrtc|nvjitlink|cupti|cusparse)(?:64_|\.so\.)(\d+(?:\.\d+)?)",
    re.IGNORECASE,
)
CUDA = re.compile(
    r"(?:lib)?(?:cudart|cublas|cufft|curand|cusolver|cusparse|nvrtc|nccl|cupti|nvtoolsext|nvjitlink|cufile|npp)",
    re.IGNORECASE,
)
CUDNN = re.compile(r"(?:lib)?cudnn", re.IGNORECASE)
_OTHER = re.compile(
    r"(?:lib)?(?:nvinfer|nvonnxparser|nvparsers|nvjpeg|cutensor|cudss|nvshmem|nvcomp|nvimgcodec|nvvm)",
    re.IGNORECASE,
)
DRIVER = re.compile(r"libcuda\.so|nvcuda\.dll|libnvidia-ml", re.IGNORECASE)


def cudnn_pair(case: Case) -> list[CauseCandidate]:
    """Compare the loaded cuDNN with the one that the build was compiled with."""
    facts, shows = case.facts, case.said.group("loaded_older") or case.said.group("cudnn_older_jax")
    loaded, built = _judge_loaded(case)
    stated = ("cudnn_required", "cudnn_older") if facts.all("cudnn_listed") else ("cudnn_required",)
    shows = shows or facts.where(*stated)
    if not shows:
        return []
    evidence = (*shows[:2], *facts.where("cudnn_loaded", "cudnn", "library_path"))
    if not loaded or not built:
        return [
            CauseCandidate(cause="cudnn_older_than_compiled", weight=66, confidence="likely", evidence=shows),
            CauseCandidate(cause="cudnn_major_mismatch", weight=60, confidence="possible", evidence=shows),
        ]
    if loaded.split(".")[0] != built.split(".")[0]:
        title = f"cuDNN {loaded} is loaded; the build requires major {built.split('.')[0]} (compiled with {built})"
        return [
            CauseCandidate(
                cause="cudnn_major_mismatch", weight=92, confidence="certain", evidence=evidence, title=title
            )
        ]
    adequate = _has_adequate_cudnn(case, built)
    older = CauseCandidate(
        cause="cudnn_older_than_compiled", weight=60 if adequate else 76, confidence="likely", evidence=evidence,
        title=f"cuDNN {loaded} is loaded; the build requires {built} or newer of the same major",
    )  # fmt: skip
    shadowed = CauseCandidate(
        cause="cudnn_shadowed_by_other_copy", weight=75 if adequate else 55, confidence="likely", evidence=evidence,
        title=f"cuDNN {loaded} is loaded instead of a newer copy on this machine" if adequate else None,
    )  # fmt: skip
    return [older, shadowed]


def _has_adequate_cudnn(case: Case, built: str) -> bool:
    """Return whether a copy that suits the build is installed. Without a list of copies, words decide."""
    facts = case.facts
    wheels = (f"nvidia-cudnn-cu{major}" for major in range(11, 20))
    required = facts.where("cudnn_built", "cudnn_required")  # a version in these lines is not installed
    versions = [f.value for f in facts.seen.get("cudnn", ()) if f.evidence not in required]
    versions += [v for name in ("cudnn_listed", *wheels) for v in facts.all(name)]
    if any(_is_at_least(v, built) and v.split(".")[0] == built.split(".", maxsplit=1)[0] for v in versions):
        return True
    return not facts.all("cudnn_listed") and bool(case.said.group("conda_or_path"))


def _judge_loaded(case: Case) -> tuple[str | None, str | None]:
    """Return the loaded and the required cuDNN.

    JAX names the oldest cuDNN that it supports. Its major can differ from that of the compiled one.
    """
    facts = case.facts
    minimum, installed = facts.first("minimum"), facts.first("installed")
    if minimum and installed and case.said.group("cudnn_older_jax"):
        return spelled(installed), spelled(minimum)
    required = facts.first("cudnn_required")
    loaded = facts.first("cudnn_loaded")
    if required and not loaded:
        loaded = next(
            (v for v in facts.all("cudnn") if v != required and not _is_at_least(v, required)), None
        )
    return loaded, facts.first("cudnn_built") or required


def _is_at_least(version: str, bound: str) -> bool:
    try:
        return Version(version) >= Version(bound)
    except InvalidVersion:
        return False


# Longer than most functions: all candidates share the facts of the missing file.
def cudnn_missing(case: Case) -> list[CauseCandidate]:
    """Judge a missing cuDNN file: not installed, or another major is installed."""
    facts = case.facts
    shows = case.said.group("cudnn_missing") or facts.said("missing", CUDNN)
    others = ("cudnn_symbol", "nvidia_symbol", "paging_file")  # these say why it did not load
    if not shows or any(case.said.group(name) for name in others):
        return []
    names = [n for n in facts.all("missing") if "cudnn" in n.lower()]
    wanted = next((m for n in names if (m := _find_cudnn_major(n))), None)
    installed = _list_cudnn_majors(case)
    evidence = (*shows, *facts.where("cudnn", "ctranslate2", "torch", "present"))
    other = sorted(installed - {wanted}) if wanted and wanted not in installed else []
    linux_wsl = bool(case.said.group("wsl")) and wanted == "8"
    alone = not _misses_cuda(case)
    found = [
        CauseCandidate(
            cause="cudnn_not_found", weight=72 if wanted in installed else 62 if alone else 50, evidence=evidence,
            confidence="likely" if alone else "possible",
        ),
        CauseCandidate(cause="nvidia_libs_not_on_loader_path", weight=50 if wanted in installed else 40, confidence="possible", evidence=evidence),
        CauseCandidate(
            cause="cudnn_major_mismatch", weight=84 if other else 52, evidence=evidence,
            confidence="likely" if other else "possible",
            title=f"cuDNN {wanted} is required; cuDNN {other[0]} is installed" if other else None,
        ),
    ]  # fmt: skip
    if not alone and not installed:
        found.append(
            CauseCandidate(
                cause="nvidia_libs_not_installed", weight=58, confidence="possible", evidence=evidence
            )
        )
    if linux_wsl and not other:
        found.append(
            CauseCandidate(
                cause="wsl_libcuda_wrong_or_unlinked", weight=64, confidence="possible", evidence=evidence
            )
        )
    return found


def _misses_cuda(case: Case) -> bool:
    """Return whether libraries of CUDA are missing too, and none was opened: then cuDNN alone is not the cause."""
    missing = [n for n in case.facts.all("missing") if CUDA.match(n) and not DRIVER.match(n)]
    opened = any(CUDA.match(n) for n in case.facts.all("loaded"))
    return bool(missing) and not opened


def _find_cudnn_major(name: str) -> str | None:
    match = re.search(r"\.so\.(\d+)|64_(\d+)\.dll", name, re.IGNORECASE)
    return (match.group(1) or match.group(2)) if match else None


def _list_cudnn_majors(case: Case) -> set[str]:
    """Return the cuDNN majors that are installed, or that the text's frameworks contain."""
    facts = case.facts
    wheels = (f"nvidia-cudnn-cu{major}" for major in range(11, 20))
    majors = {v.split(".")[0] for name in ("cudnn", *wheels) for v in facts.all(name)}
    majors |= {m for p in facts.all("present") if "cudnn" in p and (m := _find_cudnn_major(p))}
    torch = facts.first("torch")
    if torch and not majors:
        builds = [
            b
            for b in case.profiles.builds
            if b.framework == "torch" and b.cudnn and meets(torch, f"=={b.version}")
        ]
        majors |= {found.group(1) for b in builds if (found := re.match(r"[=>~]{2}(\d+)", b.cudnn or ""))}
    return majors


def cuda_missing(case: Case) -> list[CauseCandidate]:
    """Judge a missing CUDA library: not installed, not on the path, or another version."""
    facts = case.facts
    shows = case.said.group("lib_missing") or facts.said("missing", CUDA)
    names = [n for n in facts.all("missing") if CUDA.match(n) and not DRIVER.match(n)]
    if not shows or not names or case.said.group("paging_file"):
        return []
    no_driver = any(DRIVER.match(n) for n in facts.all("missing")) or case.said.group("proc_missing")
    evidence = (*shows, *facts.where("cuda", "cuda_path", "present"))
    limit = 50 if no_driver else 100
    weights = dict.fromkeys(
        ("cuda_major_mismatch", "nvidia_libs_not_installed", "nvidia_libs_not_on_loader_path"), 44
    )
    numbered = any(re.search(r"\d", n) for n in names)
    weights["cuda_major_mismatch" if numbered else "nvidia_libs_not_on_loader_path"] = 52
    title = None
    wanted = next((w for n in names if (w := _find_wanted(n))), None)
    there = _list_installed(case)
    if any(_is_installed(case, n) for n in names) or case.said.group("found_elsewhere"):
        weights["nvidia_libs_not_on_loader_path"] = 86
    elif "cuda" in facts.all("absent") and not there:
        weights["nvidia_libs_not_installed"] = 84
    elif wanted and there:
        if any(_is_match(wanted, have) for have in there):
            weights["nvidia_libs_not_on_loader_path"], weights["nvidia_libs_not_installed"] = 70, 48
        else:
            weights["cuda_major_mismatch"] = 88
            title = f"{names[0]} belongs to CUDA {wanted}, but CUDA {', '.join(there)} is installed"
    if case.said.group("extension_names"):
        weights["extension_built_for_other_torch_or_cuda"] = _weigh_extension(case, wanted)
    return [
        CauseCandidate(
            cause=cause, weight=min(weight, limit), evidence=evidence,
            confidence="likely" if min(weight, limit) >= 66 else "possible",
            title=title if cause == "cuda_major_mismatch" else None,
        )
        for cause, weight in weights.items()
    ]  # fmt: skip


def listed(case: Case) -> list[CauseCandidate]:
    """Find missing libraries of NVIDIA beside CUDA, such as TensorRT, of which the text lists the file."""
    facts = case.facts
    files = {re.split(r"[/\\]", p)[-1].lower(): p for p in facts.all("present")}
    names = [n for n in facts.all("missing") if _OTHER.match(n) and n.lower() in files]
    if not names:
        return []
    where = (
        *facts.said("missing", re.compile(re.escape(names[0]))),
        *facts.said("present", re.compile(re.escape(files[names[0].lower()]))),
    )
    return [
        CauseCandidate(cause="nvidia_libs_not_on_loader_path", weight=88, confidence="likely", evidence=where)
    ]


def unopened(case: Case) -> list[CauseCandidate]:
    """Judge libraries that a framework does not open and does not name, by what the text lists as installed."""
    facts, shows = case.facts, case.said.group("dlopen")
    if not shows or facts.all("missing") or case.said.group("libcuda_missing"):
        return []
    has_libraries = [p for p in facts.all("present") if CUDA.match(p.replace("\\", "/").rsplit("/", 1)[-1])]
    if has_libraries or facts.all("wheel"):
        cause, weight = "nvidia_libs_not_on_loader_path", 66
        where = facts.where("wheel", "present")
    elif "cuda" in (*facts.all("absent"), *facts.all("searched")) or facts.all("no_wheels"):
        cause, weight = (
            "nvidia_libs_not_installed",
            84 if facts.all("absent") or facts.all("searched") else 64,
        )
        where = facts.where("absent", "searched", "no_wheels")
    else:
        return []
    confidence: Confidence = "likely" if weight >= 66 else "possible"
    return [CauseCandidate(cause=cause, weight=weight, confidence=confidence, evidence=(*shows[:2], *where))]


def _is_installed(case: Case, name: str) -> bool:
    """Return whether the text lists the file, or the package with it."""
    if any(name in path for path in case.facts.all("present")):
        return True
    match, wanted = _BY_CUDA.match(name), _find_wanted(name)
    if not match or not wanted:
        return False
    family = match.group(1).lower().replace("cublaslt", "cublas").replace("cudart", "cuda-runtime")
    return f"{family}-cu{wanted}" in case.facts.all("wheel")


def _find_wanted(name: str) -> str | None:
    """Return the CUDA of a soname: libcudart.so.11.0 and cudart64_110.dll belong to CUDA 11."""
    found = _BY_CUDA.match(name)
    if not found:
        return None
    number = found.group(2)
    if "64_" in name and len(number) > 2:
        number = f"{number[:2]}.{number[2]}"
    elif "64_" in name and number in ("75", "80", "90", "91", "92"):
        number = f"{number[0]}.{number[1]}"
    return number if "." in number and float(number) < 11 else number.split(".")[0]


def _list_installed(case: Case) -> list[str]:
    """Return the installed CUDA versions that the text shows. The driver's libraries do not count."""
    present = [w for p in case.facts.all("present") if (w := _find_wanted(p.rsplit("/", 1)[-1]))]
    return list(dict.fromkeys([*case.facts.all("cuda"), *case.facts.all("cuda_path"), *present]))


def _is_match(wanted: str, have: str) -> bool:
    return (
        have == wanted
        or have.startswith(wanted + ".")
        or ("." in wanted and have == wanted.split(".", maxsplit=1)[0])
    )


def _weigh_extension(case: Case, wanted: str | None) -> int:
    """Return the weight of an extension that requires another CUDA's library than torch."""
    built = case.facts.first("cuda_build")
    if wanted and built:
        return 60 if _is_match(wanted, built) else 90
    return 62
