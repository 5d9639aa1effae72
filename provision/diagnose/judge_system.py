"""Libraries of the system that are missing, with the packages that bring them."""

from __future__ import annotations

import re

from ..model import SystemLibrary
from .candidates import Candidate, Case
from .judge_libraries import CUDA, CUDNN, DRIVER
from .log_lines import Line
from .message_patterns import evidence
from .tracebacks import Raised, raised

_CAUSE = "system_library_missing"
# Libraries that packages bring themselves: where one is missing, the package or its place is the cause.
_OF_PACKAGES = re.compile(
    r"lib(torch|c10|tensorflow|jax|tpu|python|mkl|iomp|nv|cu|onnxruntime|arrow|openblas|protobuf|triton|_)",
    re.IGNORECASE,
)
_OPENED = re.compile(r"(?<![\w.+-])(lib[\w.+-]{1,60}?\.so(?:\.\d{1,5}){0,4}): cannot open shared object file")


def missing(case: Case) -> list[Candidate]:
    """A library that the loader did not find and that systems bring: a row of system_libraries.yaml, or one that an
    import ended with."""
    errors = raised(case.said.lines)
    last = errors[-1] if errors else None
    ends = _OPENED.search(last.message) if last else None
    opened = {m.group(1): line for line in reversed(case.said.lines) for m in _OPENED.finditer(line.text)}
    for name, line in reversed(opened.items()):
        if any(p.match(name) for p in (CUDA, CUDNN, DRIVER)):
            continue
        row = _row(case, name)
        ended = bool(ends and ends.group(1) == name)
        if row and (ended or not _goes_on(last, name, line)):
            return [_known(case, name, row, last if ended else None, line)]
        if ended and not row and not _OF_PACKAGES.match(name):
            return [_unknown(name, line)]
    return []


def _goes_on(last: Raised | None, name: str, line: Line) -> bool:
    """Whether the text ends with an exception that is about something else. What follows an exception's first line
    belongs to its message."""
    if last is None or name in last.message or last.kind in ("ImportError", "OSError"):
        return False
    return line.source != last.line.source or line.number < last.line.number


def _row(case: Case, name: str) -> SystemLibrary | None:
    """The row of a soname; a name without a number is that of a development link (libsndfile.so)."""
    rows = case.profiles.system_libraries
    exact = next((r for r in rows if r.soname == name), None)
    return exact or next((r for r in rows if name.endswith(".so") and r.soname.startswith(name + ".")), None)


def _known(case: Case, name: str, row: SystemLibrary, error: Raised | None, line: Line) -> Candidate:
    package = error.package if error else None
    needs = f", which {package} needs," if package else ""
    return Candidate(
        cause=_CAUSE, weight=92, confidence="certain" if error else "likely", evidence=(evidence(line),),
        title=f"The system library {name}{needs} is missing",
        fix=f"{_install(row)}{_instead(case, name, package)}",
    )  # fmt: skip


def _install(row: SystemLibrary) -> str:
    """The commands of both families of distributions."""
    newer = f" ({row.deb_t64} from Ubuntu 24.04 and Debian 13 on)" if row.deb_t64 else ""
    rpm = row.rpm or f"'{row.soname}()(64bit)'"
    return f"Debian and Ubuntu: `sudo apt-get install {row.deb}`{newer}. Fedora and RHEL: `sudo dnf install {rpm}`."


def _instead(case: Case, name: str, module: str | None) -> str:
    """A package that brings the same module without the need."""
    package = next((r.package for r in case.profiles.imports if r.module == module), module)
    rows = case.profiles.replacements
    row = next((r for r in rows if name in r.without and r.package == package), None)
    return f" Without a display, require {row.instead} in place of {row.package}." if row else ""


def _unknown(name: str, line: Line) -> Candidate:
    return Candidate(
        cause=_CAUSE, weight=52, confidence="possible",
        evidence=(evidence(line),),
        title=f"The library {name} is missing",
        fix=f"Install what brings it: `apt-file search {name}` or `dnf provides '*/{name}'` names the system's package.",
    )  # fmt: skip
