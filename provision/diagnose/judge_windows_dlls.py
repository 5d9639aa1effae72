"""Judge DLLs that Windows finds, but does not load."""

from __future__ import annotations

import re

from .candidates import Case, CauseCandidate
from .libraries import CUDA, CUDNN

_DLL = re.compile(r"([\w-]{2,60}\.(?:dll|pyd))\b", re.IGNORECASE)
_IMPORTING = re.compile(r"DLL load failed while importing (\w{1,60})", re.IGNORECASE)


def procedure(case: Case) -> list[CauseCandidate]:
    """Judge error 127: the DLL exists, but a DLL that it uses is loaded in another version."""
    shows = case.said.group("procedure_missing")
    if not shows or case.said.group("paging_file"):
        return []
    names = [n for e in shows for n in _DLL.findall(e.text)]
    frameworks = [
        n for n in ("torch", "tensorflow", "paddlepaddle", "onnxruntime", "mxnet") if case.facts.first(n)
    ]
    case.ruled_out.add("cudnn_not_found")
    weights = {
        "cudnn_shadowed_by_other_copy": 40,
        "nvidia_lib_symbol_mismatch": 44,
        "package_files_damaged": 36,
    }
    if any(CUDNN.match(n) for n in names):
        weights["cudnn_shadowed_by_other_copy"] = 66
    elif any(CUDA.match(n) for n in names):
        weights["nvidia_lib_symbol_mismatch"] = 66
    elif any(_IMPORTING.search(e.text) for e in shows):
        weights["extension_built_for_other_torch_or_cuda"] = 66
    if len(frameworks) > 1 or case.said.group("order_stated"):
        weights["conflicting_frameworks_in_one_env"] = 64
    title = "Windows found the DLL, but it needs a function that another loaded DLL does not have"
    return [
        CauseCandidate(cause=cause, weight=weight, evidence=shows, title=title,
                       confidence="likely" if weight >= 66 else "possible")
        for cause, weight in weights.items()
    ]  # fmt: skip


def zlib(case: Case) -> list[CauseCandidate]:
    """Use a search for cuDNN or for zlibwapi.dll to judge error 126 of cuDNN 8."""
    shows = case.said.group("cudnn_error_126")
    searched, present = case.facts.all("searched"), case.facts.all("present")
    if not shows:
        return []
    if any("zlibwapi" in p.lower() for p in present) or ("cudnn" in searched and "zlib" not in searched):
        case.ruled_out.add("windows_zlib_missing")
    elif "zlib" in searched and not case.said.group("cudnn_9_dll"):
        where = (*shows[:1], *case.facts.where("searched"))
        return [CauseCandidate(cause="windows_zlib_missing", weight=90, confidence="likely", evidence=where)]
    return []
