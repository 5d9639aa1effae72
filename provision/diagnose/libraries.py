"""Compare the libraries that a text needs with those that exist: missing, older, or two of one name."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..model import Confidence
from ..system.versions import major, meets
from .case import Candidate, Case, candidate, rule_out
from .facts import spell_cudnn
from .lines import Line, Raised

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
_DRIVER = re.compile(r"libcuda\.so|nvcuda\.dll|libnvidia-ml", re.IGNORECASE)
_WHEELS = tuple(f"nvidia-cudnn-cu{cuda}" for cuda in range(11, 20))

# --- cuDNN -------------------------------------------------------------------------------------


def judge_cudnn_versions(case: Case) -> Iterator[Candidate]:
    """Compare the loaded cuDNN with the one that the build was compiled with."""
    facts = case.facts
    loaded, built = _read_loaded_cudnn(case)
    stated = ("cudnn_required", "cudnn_older") if facts.all("cudnn_listed") else ("cudnn_required",)
    shows = case.find_message("loaded_older", "cudnn_older_jax") or facts.find_lines(*stated)
    if not shows:
        return
    where = (*shows[:2], *facts.find_lines("cudnn_loaded", "cudnn", "library_path"))
    if not loaded or not built:
        yield candidate("cudnn_older_than_compiled", 66, shows)
        yield candidate("cudnn_major_mismatch", 60, shows)
        return
    if major(loaded) != major(built):
        title = f"cuDNN {loaded} is loaded; the build requires major {major(built)} (compiled with {built})"
        yield candidate("cudnn_major_mismatch", 92, where, title, confidence="certain")
        return
    adequate = _has_adequate_cudnn(case, built)
    title = f"cuDNN {loaded} is loaded; the build requires {built} or newer of the same major"
    instead = f"cuDNN {loaded} is loaded instead of a newer copy on this machine" if adequate else None
    yield candidate("cudnn_older_than_compiled", 60 if adequate else 76, where, title, confidence="likely")
    yield candidate(
        "cudnn_shadowed_by_other_copy", 75 if adequate else 55, where, instead, confidence="likely"
    )


def _has_adequate_cudnn(case: Case, built: str) -> bool:
    """Return whether a copy that suits the build is installed. Without a list of copies, words decide."""
    facts = case.facts
    required = facts.find_lines("cudnn_built", "cudnn_required")  # a version in these lines is not installed
    versions = [f.value for f in facts.seen.get("cudnn", ()) if f.evidence not in required]
    versions += [v for name in ("cudnn_listed", *_WHEELS) for v in facts.all(name)]
    if any(meets(v, f">={built}") and major(v) == major(built) for v in versions):
        return True
    return not facts.all("cudnn_listed") and bool(case.find_message("conda_or_path"))


def _read_loaded_cudnn(case: Case) -> tuple[str | None, str | None]:
    """Return the loaded and the required cuDNN.

    JAX names the oldest cuDNN that it supports. Its major can differ from that of the compiled one.
    """
    facts = case.facts
    minimum, installed = facts.first("cudnn_minimum"), facts.first("cudnn_installed")
    if minimum and installed and case.find_message("cudnn_older_jax"):
        return spell_cudnn(installed), spell_cudnn(minimum)
    required, loaded = facts.first("cudnn_required"), facts.first("cudnn_loaded")
    if required and not loaded:
        older = (v for v in facts.all("cudnn") if v != required and not meets(v, f">={required}"))
        loaded = next(older, None)
    return loaded, facts.first("cudnn_built") or required


def judge_missing_cudnn(case: Case) -> Iterator[Candidate]:
    """Judge a missing cuDNN file: not installed, or another major is installed."""
    facts = case.facts
    shows = case.find_message("cudnn_missing") or facts.find_matching("missing", CUDNN)
    # these say why it did not load
    if not shows or case.find_message("cudnn_symbol", "nvidia_symbol", "paging_file"):
        return
    names = [n for n in facts.all("missing") if "cudnn" in n.lower()]
    wanted = next((m for n in names if (m := find_cudnn_major(n))), None)
    installed = _list_cudnn_majors(case)
    where = (*shows, *facts.find_lines("cudnn", "ctranslate2", "torch", "present"))
    other = sorted(installed - {wanted}) if wanted and wanted not in installed else []
    # Where libraries of CUDA are missing too, and none was opened, cuDNN alone is not the cause.
    alone = not _list_missing_cuda(case) or any(CUDA.match(n) for n in facts.all("loaded"))
    there = wanted in installed
    title = f"cuDNN {wanted} is required; cuDNN {other[0]} is installed" if other else None
    sure: Confidence = "likely" if alone else "possible"
    yield candidate("cudnn_not_found", 72 if there else 62 if alone else 50, where, confidence=sure)
    yield candidate("nvidia_libs_not_on_loader_path", 50 if there else 40, where)
    yield candidate("cudnn_major_mismatch", 84 if other else 52, where, title)
    if not alone and not installed:
        yield candidate("nvidia_libs_not_installed", 58, where)
    if case.find_message("wsl") and wanted == "8" and not other:
        yield candidate("wsl_libcuda_wrong_or_unlinked", 64, where)


def _list_missing_cuda(case: Case) -> list[str]:
    return [n for n in case.facts.all("missing") if CUDA.match(n) and not _DRIVER.match(n)]


def find_cudnn_major(name: str) -> str | None:
    match = re.search(r"\.so\.(\d+)|64_(\d+)\.dll", name, re.IGNORECASE)
    return (match[1] or match[2]) if match else None


def _list_cudnn_majors(case: Case) -> set[str]:
    """Return the cuDNN majors that are installed, or that the text's frameworks contain."""
    facts = case.facts
    majors = {major(v) for name in ("cudnn", *_WHEELS) for v in facts.all(name)}
    majors |= {m for p in facts.all("present") if "cudnn" in p and (m := find_cudnn_major(p))}
    torch = facts.first("torch")
    if torch and not majors:
        builds = (b for b in case.profiles.builds if b.framework == "torch" and b.cudnn)
        required = {b.cudnn or "" for b in builds if meets(torch, f"=={b.version}")}
        majors = {found[1] for text in required if (found := re.match(r"[=>~]{2}(\d+)", text))}
    return majors


# --- CUDA --------------------------------------------------------------------------------------


def judge_missing_cuda(case: Case) -> Iterator[Candidate]:
    """Judge a missing CUDA library: not installed, not on the path, or another version."""
    facts, names = case.facts, _list_missing_cuda(case)
    shows = case.find_message("lib_missing") or facts.find_matching("missing", CUDA)
    if not shows or not names or case.find_message("paging_file"):
        return
    mismatch, absent, unseen = (
        "cuda_major_mismatch",
        "nvidia_libs_not_installed",
        "nvidia_libs_not_on_loader_path",
    )
    weights = {mismatch: 44, absent: 44, unseen: 44}
    numbered = any(re.search(r"\d", n) for n in names)
    weights[mismatch if numbered else unseen] = 52
    title = None
    wanted = next((w for n in names if (w := find_cuda_of(n))), None)
    present = (c for p in facts.all("present") if (c := find_cuda_of(p.rsplit("/", 1)[-1])))
    there = list(dict.fromkeys([*facts.all("cuda"), *facts.all("cuda_path"), *present]))
    if any(_is_installed(case, n) for n in names) or case.find_message("found_elsewhere"):
        weights[unseen] = 86
    elif "cuda" in facts.all("absent") and not there:
        weights[absent] = 84
    elif wanted and there:
        if any(_is_match(wanted, have) for have in there):
            weights[unseen], weights[absent] = 70, 48
        else:
            weights[mismatch] = 88
            title = f"{names[0]} belongs to CUDA {wanted}, but CUDA {', '.join(there)} is installed"
    if case.find_message("extension_names"):
        built = facts.first("cuda_build")
        weight = 62 if not wanted or not built else 60 if _is_match(wanted, built) else 90
        weights["extension_built_for_other_torch_or_cuda"] = weight
    no_driver = any(_DRIVER.match(n) for n in facts.all("missing")) or case.find_message("proc_missing")
    limit = 50 if no_driver else 100
    where = (*shows, *facts.find_lines("cuda", "cuda_path", "present"))
    for cause, weight in weights.items():
        yield candidate(cause, min(weight, limit), where, title if cause == mismatch else None)


def judge_listed_libraries(case: Case) -> Iterator[Candidate]:
    """Find missing libraries of NVIDIA beside CUDA, such as TensorRT, of which the text lists the file."""
    facts = case.facts
    files = {re.split(r"[/\\]", p)[-1].lower(): p for p in facts.all("present")}
    name = next((n for n in facts.all("missing") if _OTHER.match(n) and n.lower() in files), None)
    if name is None:
        return
    missing = facts.find_matching("missing", re.compile(re.escape(name)))
    present = facts.find_matching("present", re.compile(re.escape(files[name.lower()])))
    yield candidate("nvidia_libs_not_on_loader_path", 88, (*missing, *present))


def judge_unopened_libraries(case: Case) -> Iterator[Candidate]:
    """Judge libraries that a framework does not open and does not name, by what the text lists as installed."""
    facts, shows = case.facts, case.find_message("dlopen")[:2]
    if not shows or facts.all("missing") or case.find_message("libcuda_missing"):
        return
    listed = any(CUDA.match(p.replace("\\", "/").rsplit("/", 1)[-1]) for p in facts.all("present"))
    if listed or facts.all("wheel"):
        yield candidate("nvidia_libs_not_on_loader_path", 66, (*shows, *facts.find_lines("wheel", "present")))
        return
    searched = (*facts.all("absent"), *facts.all("searched"))
    if "cuda" in searched or facts.all("no_wheels"):
        where = (*shows, *facts.find_lines("absent", "searched", "no_wheels"))
        yield candidate("nvidia_libs_not_installed", 84 if searched else 64, where)


def _is_installed(case: Case, name: str) -> bool:
    """Return whether the text lists the file, or the package with it."""
    if any(name in path for path in case.facts.all("present")):
        return True
    match, wanted = _BY_CUDA.match(name), find_cuda_of(name)
    if not match or not wanted:
        return False
    family = match[1].lower().replace("cublaslt", "cublas").replace("cudart", "cuda-runtime")
    return f"{family}-cu{wanted}" in case.facts.all("wheel")


def find_cuda_of(name: str) -> str | None:
    """Return the CUDA of a soname: libcudart.so.11.0 and cudart64_110.dll belong to CUDA 11."""
    found = _BY_CUDA.match(name)
    if not found:
        return None
    number = found[2]
    if "64_" in name and len(number) > 2:
        number = f"{number[:2]}.{number[2]}"
    elif "64_" in name and number in ("75", "80", "90", "91", "92"):
        number = f"{number[0]}.{number[1]}"
    return number if "." in number and float(number) < 11 else major(number)


def _is_match(wanted: str, have: str) -> bool:
    return have == wanted or have.startswith(wanted + ".") or ("." in wanted and have == major(wanted))


def judge_cpu_environment(case: Case) -> Iterator[Candidate]:
    """Find a package or a program that requests a GPU in an environment for the CPU."""
    if case.circumstances.device != "cpu":
        return
    missing = next((name for name in case.facts.all("missing") if _is_of_nvidia(name)), None)
    if missing:
        shows = case.facts.find_matching("missing", re.compile(re.escape(missing)))[:1]
        title = f"This environment is for the CPU, but a package in it requires {missing}"
        yield candidate("nvidia_libs_not_installed", 85, shows, title, device="cpu")
    # groups of messages of a program that requires a GPU and ends without one
    shows = case.find_message("cpu_build_words", "no_driver", "no_cuda_gpus", "no_device", "insufficient", "bad_ordinal", "deserialize")  # fmt: skip
    if shows:
        title = "This environment is for the CPU, but the program requests a GPU"
        yield candidate("cpu_only_build", 80, shows[:1], title, device="cpu")


def _is_of_nvidia(name: str) -> bool:
    return any(family.match(name) for family in (CUDA, CUDNN, _OTHER, _DRIVER))


# --- DLLs that Windows finds, but does not load ------------------------------------------------

_DLL = re.compile(r"([\w-]{2,60}\.(?:dll|pyd))\b", re.IGNORECASE)
_IMPORTING = re.compile(r"DLL load failed while importing (\w{1,60})", re.IGNORECASE)


def judge_missing_procedure(case: Case) -> Iterator[Candidate]:
    """Judge error 127: the DLL exists, but a DLL that it uses is loaded in another version."""
    shows = case.find_message("procedure_missing")
    if not shows or case.find_message("paging_file"):
        return
    names = [n for e in shows for n in _DLL.findall(e.text)]
    frameworks = ("torch", "tensorflow", "paddlepaddle", "onnxruntime", "mxnet")
    shadowed, mixed = "cudnn_shadowed_by_other_copy", "nvidia_lib_symbol_mismatch"
    weights = {shadowed: 40, mixed: 44, "package_files_damaged": 36}
    if any(CUDNN.match(n) for n in names):
        weights[shadowed] = 66
    elif any(CUDA.match(n) for n in names):
        weights[mixed] = 66
    elif any(_IMPORTING.search(e.text) for e in shows):
        weights["extension_built_for_other_torch_or_cuda"] = 66
    if sum(bool(case.facts.first(n)) for n in frameworks) > 1 or case.find_message("order_stated"):
        weights["conflicting_frameworks_in_one_env"] = 64
    title = "Windows found the DLL, but it needs a function that another loaded DLL does not have"
    yield from rule_out("cudnn_not_found")
    for cause, weight in weights.items():
        yield candidate(cause, weight, shows, title)


def judge_zlib(case: Case) -> Iterator[Candidate]:
    """Use a search for cuDNN or for zlibwapi.dll to judge error 126 of cuDNN 8."""
    shows = case.find_message("cudnn_error_126")[:1]
    searched, present = case.facts.all("searched"), case.facts.all("present")
    if not shows:
        return
    if any("zlibwapi" in p.lower() for p in present) or ("cudnn" in searched and "zlib" not in searched):
        yield from rule_out("windows_zlib_missing")
        return
    if "zlib" in searched and not case.find_message("cudnn_9_dll"):
        yield candidate("windows_zlib_missing", 90, (*shows, *case.facts.find_lines("searched")))


# --- libraries of the system -------------------------------------------------------------------

# Libraries that packages bring themselves: where one is missing, the package or its place is the cause.
_OF_PACKAGES = re.compile(
    r"lib(torch|c10|tensorflow|jax|tpu|python|mkl|iomp|nv|cu|onnxruntime|arrow|openblas|protobuf|triton|_)",
    re.IGNORECASE,
)
_OPENED = re.compile(r"(?<![\w.+-])(lib[\w.+-]{1,60}?\.so(?:\.\d{1,5}){0,4}): cannot open shared object file")


def judge_system_library(case: Case) -> Iterator[Candidate]:
    """Find a missing system library: one in system_libraries.yaml, or one that ended an import."""
    last = case.exceptions[-1] if case.exceptions else None
    ends = _OPENED.search(last.message) if last else None
    opened = {m[1]: line for line in reversed(case.lines) for m in _OPENED.finditer(line.text)}
    for name, line in reversed(opened.items()):
        if _is_of_nvidia(name):
            continue
        rows = case.profiles.system_libraries
        # a name without a number is a development link (libsndfile.so)
        exact = next((r for r in rows if r.soname == name), None)
        row = exact or next(
            (r for r in rows if name.endswith(".so") and r.soname.startswith(name + ".")), None
        )
        ended = bool(ends and ends[1] == name)
        if row and (ended or not _is_continued(last, name, line)):
            package = last.package if last and ended else None
            needs = f", required by {package}," if package else ""
            title = f"The system library {name}{needs} is missing"
            yield candidate("system_library_missing", 92, [line.evidence], title,
                          confidence="certain" if ended else "likely", missing=name, deb=row.deb,
                          t64=f"{row.deb_t64} from Ubuntu 24.04 and Debian 13 on" if row.deb_t64 else None,
                          rpm=row.rpm or f"'{row.soname}()(64bit)'",
                          instead=_suggest_replacement(case, name, package))  # fmt: skip
            return
        if ended and not row and not _OF_PACKAGES.match(name):
            title = f"The library {name} is missing"
            yield candidate("system_library_missing", 52, [line.evidence], title, missing=name)
            return


def _is_continued(last: Raised | None, name: str, line: Line) -> bool:
    """Return whether the text ends with an unrelated exception.

    Lines after an exception's first line belong to its message.
    """
    if last is None or name in last.message or last.kind in ("ImportError", "OSError"):
        return False
    return line.source != last.line.source or line.number < last.line.number


def _suggest_replacement(case: Case, name: str, module: str | None) -> str | None:
    """Return advice on a package with the same module that does not require the library."""
    package = next((r.package for r in case.profiles.imports if r.module == module), module)
    row = next((r for r in case.profiles.replacements if name in r.without and r.package == package), None)
    return f"Without a display, require {row.instead} instead of {row.package}." if row else None
