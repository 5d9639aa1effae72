"""Find missing system libraries and the packages that contain them."""

from __future__ import annotations

import re

from ..model import SystemLibrary
from .candidates import Case, CauseCandidate
from .libraries import CUDA, CUDNN, DRIVER
from .lines import Line
from .pattern_search import evidence
from .tracebacks import Raised, raised

_CAUSE = "system_library_missing"
# Libraries that packages bring themselves: where one is missing, the package or its place is the cause.
_OF_PACKAGES = re.compile(
    r"lib(torch|c10|tensorflow|jax|tpu|python|mkl|iomp|nv|cu|onnxruntime|arrow|openblas|protobuf|triton|_)",
    re.IGNORECASE,
)
_OPENED = re.compile(r"(?<![\w.+-])(lib[\w.+-]{1,60}?\.so(?:\.\d{1,5}){0,4}): cannot open shared object file")


def missing(case: Case) -> list[CauseCandidate]:
    """Find a missing system library: one in system_libraries.yaml, or one that ended an import."""
    errors = raised(case.said.lines)
    last = errors[-1] if errors else None
    ends = _OPENED.search(last.message) if last else None
    opened = {m.group(1): line for line in reversed(case.said.lines) for m in _OPENED.finditer(line.text)}
    for name, line in reversed(opened.items()):
        if any(p.match(name) for p in (CUDA, CUDNN, DRIVER)):
            continue
        row = _find_row(case, name)
        ended = bool(ends and ends.group(1) == name)
        if row and (ended or not _is_continued(last, name, line)):
            return [_judge_known(case, name, row, last if ended else None, line)]
        if ended and not row and not _OF_PACKAGES.match(name):
            return [_judge_unknown(name, line)]
    return []


def _is_continued(last: Raised | None, name: str, line: Line) -> bool:
    """Return whether the text ends with an unrelated exception.

    Lines after an exception's first line belong to its message.
    """
    if last is None or name in last.message or last.kind in ("ImportError", "OSError"):
        return False
    return line.source != last.line.source or line.number < last.line.number


def _find_row(case: Case, name: str) -> SystemLibrary | None:
    """Return the row of a soname. A name without a number is a development link (libsndfile.so)."""
    rows = case.profiles.system_libraries
    exact = next((r for r in rows if r.soname == name), None)
    return exact or next((r for r in rows if name.endswith(".so") and r.soname.startswith(name + ".")), None)


def _judge_known(
    case: Case, name: str, row: SystemLibrary, error: Raised | None, line: Line
) -> CauseCandidate:
    package = error.package if error else None
    needs = f", required by {package}," if package else ""
    return CauseCandidate(
        cause=_CAUSE, weight=92, confidence="certain" if error else "likely", evidence=(evidence(line),),
        title=f"The system library {name}{needs} is missing",
        fix=f"{_install(row)}{_suggest_replacement(case, name, package)}",
    )  # fmt: skip


def _install(row: SystemLibrary) -> str:
    """Return the install commands for both families of distributions."""
    newer = f" ({row.deb_t64} from Ubuntu 24.04 and Debian 13 on)" if row.deb_t64 else ""
    rpm = row.rpm or f"'{row.soname}()(64bit)'"
    return f"Debian and Ubuntu: `sudo apt-get install {row.deb}`{newer}. Fedora and RHEL: `sudo dnf install {rpm}`."


def _suggest_replacement(case: Case, name: str, module: str | None) -> str:
    """Return advice on a package with the same module that does not require the library."""
    package = next((r.package for r in case.profiles.imports if r.module == module), module)
    rows = case.profiles.replacements
    row = next((r for r in rows if name in r.without and r.package == package), None)
    return f" Without a display, require {row.instead} instead of {row.package}." if row else ""


def _judge_unknown(name: str, line: Line) -> CauseCandidate:
    return CauseCandidate(
        cause=_CAUSE, weight=52, confidence="possible",
        evidence=(evidence(line),),
        title=f"The library {name} is missing",
        fix=f"Install the system package that contains it: `apt-file search {name}` or `dnf provides '*/{name}'` prints its name.",
    )  # fmt: skip
