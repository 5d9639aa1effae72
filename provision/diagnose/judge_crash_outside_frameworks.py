"""Judge a crash by SIGSEGV or SIGBUS outside of every framework.

Most crashes have nothing to do with a GPU. So only a Python package, a CUDA library or a framework's library on
top of the stack gives a cause, which is at most possible. For any other crash, a note names the command that
finds more.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .candidates import Case, CauseCandidate
from .crashes import Crash, read
from .lines import Line
from .pattern_search import evidence

_CRASHED = re.compile(
    r"^(?:.{0,120}[\s:])?Segmentation fault(?: {1,12}\(core dumped\)(?: .{0,200})?|[.!]{0,3})$|^zsh: segmentation fault|"
    r"Fatal Python error: (?:Segmentation fault|Bus error)|\bsegfault at [0-9a-f]|(?:received|signal:?|by) .{0,12}SIGSEGV|"
    r"\bSIGSEGV.{0,12}(?:received|caught)|\bexit(?:ed)?(?: with)?(?: code| status)?[ :=]{1,3}(?:139|-11)\b|"
    r"\bexitcode {0,4}: {0,2}-11\b",
    re.IGNORECASE,
)
_BY_SIGNAL = ("Segmentation fault", "Bus error")  # an abort says its reason in its own words
_OF_TORCH = re.compile(r"lib(?:torch|c10)(?:_\w{1,30})?\.so")
_OF_TENSORFLOW = re.compile(r"(?:libtensorflow\w{0,30}|_pywrap_tensorflow\w{0,30})\.so")
_OF_CUDNN = re.compile(r"libcudnn\w{0,40}\.so")
_OF_CUDA = re.compile(r"lib(?:cublas|cudart|nccl|nvrtc|cusparse|cusolver|cufft|curand|nvJitLink|cupti)\w{0,20}\.so")  # fmt: skip
_RUNNER = "`gpuenv run -- CMD`, or `python -X faulthandler PROGRAM`,"
_STACK = "`gpuenv run -- gdb -batch -ex run -ex bt --args python PROGRAM` names the libraries on the stack"


def unexplained(case: Case) -> list[CauseCandidate]:
    """Return possible causes of a crash outside of every framework, by the top of its stack."""
    crash = read(case.said.lines)
    if crash is None or crash.how not in _BY_SIGNAL or not _is_crash(case.said.lines):
        return []
    return _by_library(crash) if crash.libraries else _by_package(crash)


def _by_library(crash: Crash) -> list[CauseCandidate]:
    """Return the causes of a crash in a library of a framework or of CUDA."""
    name = crash.libraries[0].rpartition("/")[2]
    title, fix = f"The program crashed in {name}", None
    if framework := _find_framework(name):
        cause, title = "framework_bug_upgrade", f"{title}, a library of {framework}"
        fix = f"Check the files of {framework}: `gpuenv verify`. If they are intact, install another release."
    elif _OF_CUDNN.match(name):
        cause, title = "cudnn_shadowed_by_other_copy", f"{title}; two cuDNN builds may be mixed"
    elif _OF_CUDA.match(name):
        cause, title = "nvidia_lib_symbol_mismatch", f"{title}; two CUDA releases may be mixed"
    else:
        return []
    shown = tuple(evidence(x) for x in dict.fromkeys((crash.line, crash.library_lines[0])))
    return [
        CauseCandidate(cause=cause, weight=30, confidence="possible", evidence=shown, title=title, fix=fix)
    ]


def _find_framework(library: str) -> str | None:
    if _OF_TORCH.match(library):
        return "torch"
    return "tensorflow" if _OF_TENSORFLOW.match(library) else None


def _by_package(crash: Crash) -> list[CauseCandidate]:
    """Return the causes of a crash in a package: damaged files while loading it, otherwise a bug."""
    package = crash.package
    if package is None or crash.place is None:
        return []
    file, line, _ = crash.frames[crash.place]
    where = f"{package} (line {line} of {file.rpartition('-packages/')[2]})"
    shown = tuple(evidence(x) for x in (crash.line, crash.frame_lines[crash.place]))
    if crash.loading:
        cause, title = "package_files_damaged", f"The program crashed while it loaded a library of {where}"
        fix = f"Reinstall {package}: `gpuenv repair`, or `python -m pip install --force-reinstall --no-deps NAME`. "
        fix += f"If that does not help, import {package} first: another package can contain the same library."
    else:
        cause, title = "framework_bug_upgrade", f"The program crashed in {where}"
        fix = f"Install another release of {package}. If it still crashes: {_STACK}."
    return [
        CauseCandidate(cause=cause, weight=30, confidence="possible", evidence=shown, title=title, fix=fix)
    ]


def describe(lines: Sequence[Line]) -> str | None:
    """Return a note on a crash in a text, with the command that finds more, or None."""
    said = next((x for x in lines if _CRASHED.search(x.text.strip())), None)
    if said is None:
        return None
    crash = read(lines)
    if crash is None:
        return f"line {said.number} shows a crash without a stack: {_RUNNER} shows where it happened"
    if crash.libraries:
        place = crash.libraries[0].rpartition("/")[2]
    else:
        file, line, function = crash.frames[0]
        place = f"{function} ({'/'.join(file.split('/')[-2:])}, line {line})"
    return f"the program crashed in {place}, outside of known packages: {_STACK}"


def _is_crash(lines: Sequence[Line]) -> bool:
    return any(_CRASHED.search(x.text.strip()) for x in lines)
