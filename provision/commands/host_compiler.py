"""The machine's gcc, compared with what nvcc of an environment takes."""

from __future__ import annotations

import re
import shutil

from packaging.requirements import Requirement

from ..model import CudaCompiler, Emit, Event, Plan
from ..request import load_profiles
from ..request.options import Choices
from ..system import process
from .read_request import LOOKING

_NVCC = re.compile(r"nvidia-cuda-nvcc(-cu\d+)?")
_INSTALL = "`apt install g++` (Debian, Ubuntu) or `dnf install gcc-c++` (Fedora, RHEL)"
_TIMEOUT = 10.0


def find_compiler_problem(plan: Plan, choices: Choices) -> str | None:
    """Return why nvcc of the plan cannot compile on this machine, and the fix; None where it can, where the plan has
    no nvcc, and for the file of another machine. A driver and a GPU in words may be of a node that this one builds for."""
    cuda = _nvcc_of(plan)
    if cuda is None or choices.target or not plan.platform.startswith("linux"):
        return None
    if plan.platform != LOOKING.platform:
        return None
    row = next((row for row in load_profiles.load_all(choices).compilers if row.cuda == cuda), None)
    return _problem(row) if row and row.extras else None


def warn_of_host_compiler(emit: Emit, plan: Plan, choices: Choices) -> None:
    """Warn where nvcc of the plan cannot compile on this machine."""
    if problem := find_compiler_problem(plan, choices):
        emit(Event(kind="warning", stage="lock", text=problem))


def _nvcc_of(plan: Plan) -> str | None:
    """The CUDA minor ("13.2") of the nvcc that is asked for, None without one."""
    for text in plan.packages:
        need = Requirement(text)
        version = next((s.version for s in need.specifier if s.operator == "=="), None)
        if _NVCC.fullmatch(need.name) and version:
            return ".".join(version.split(".")[:2])
    return None


def _problem(row: CudaCompiler) -> str | None:
    named = process.environ().get("NVCC_CCBIN")
    compiler = named or "gcc"
    if missing := next(
        (name for name in ([named] if named else ["gcc", "g++"]) if not shutil.which(name)), None
    ):
        return f"{missing} is missing on this machine, and nvcc of CUDA {row.cuda} compiles host code with it: {_INSTALL}"
    found = _version(compiler)
    if found is None or int(found.split(".")[0]) <= int(row.gcc):
        return None  # clang and others name no version of gcc; nvcc judges them itself
    return f"{compiler} {found} on this machine is newer than nvcc of CUDA {row.cuda} supports (gcc {row.gcc}): {_fix(int(row.gcc))}"


def _version(compiler: str) -> str | None:
    """The version that a gcc prints, None for another compiler."""
    if "clang" in compiler:
        return None
    done = process.run([compiler, "-dumpfullversion"], timeout=_TIMEOUT)
    said = done.stdout.strip()
    return said if done.ok and re.fullmatch(r"\d+(\.\d+)*", said) else None


def _fix(newest: int) -> str:
    """The newest g++ of this machine that nvcc takes, or which one to install."""
    here = next(
        (n for n in range(newest, 6, -1) if shutil.which(f"g++-{n}") and shutil.which(f"gcc-{n}")), None
    )
    number = here or newest
    first = "" if here else f"install g++-{number}, then "
    return f"{first}NVCC_CCBIN=g++-{number} CC=gcc-{number} CXX=g++-{number} for builds of extensions"
