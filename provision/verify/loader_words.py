"""The cause in the dynamic loader's words."""

from __future__ import annotations

import re

from ..model import Evidence, Finding


def of_loading(words: str, evidence: tuple[Evidence, ...]) -> Finding | None:
    """The cause in the dynamic loader's words."""
    if re.search(r"version `(GLIBC|GLIBCXX|CXXABI)_", words):
        return Finding(
            cause="system_libs_too_old",
            title="glibc or libstdc++ on this machine is older than this build needs",
            evidence=evidence,
            fix="Take an older build (gpuenv create reads this machine's glibc), or a newer system.",
        )
    missing = re.search(r"(?<![\w.+-])(lib[\w.+-]+): cannot open shared object file", words)
    if missing:
        cudnn = missing.group(1).startswith("libcudnn")
        return Finding(
            cause="cudnn_not_found" if cudnn else "nvidia_libs_not_installed",
            title=f"{missing.group(1)} is not found",
            evidence=evidence,
            fix="Install the missing library's package again; an environment of gpuenv's: gpuenv repair ENV.",
        )
    if re.search(r"(?<![\w.+-])lib[\w.+-]+: (file too short|invalid ELF header|ELF load command)", words):
        return Finding(
            cause="package_files_damaged",
            title="The loader refuses a library: its file is damaged",
            evidence=evidence,
            fix="Install the package of that library again; an environment of gpuenv's: gpuenv repair ENV.",
        )
    if re.search(r"undefined symbol: \w*(nvJitLink|cublas|nvrtc|nccl|cusparse)", words, re.IGNORECASE):
        return Finding(
            cause="nvidia_lib_symbol_mismatch",
            title="An NVIDIA library of another version is loaded beside its siblings",
            evidence=evidence,
            fix="Unset LD_LIBRARY_PATH, or remove the second copy.",
        )
    return None
