"""Compare the machine's gcc with the versions that nvcc of an environment supports."""

from __future__ import annotations

import os
import re
import shutil

from packaging.requirements import Requirement

from ..config import rows
from ..config.options import Choices
from ..lock.context import LOOKING
from ..model import CudaCompiler, Emit, Event, Plan
from ..system import process, trust

_NVCC = re.compile(r"nvidia-cuda-nvcc(-cu\d+)?")
_INSTALL = "`sudo apt install g++` (Debian, Ubuntu) or `sudo dnf install gcc-c++` (Fedora, RHEL)"
_TIMEOUT = 10.0


def find_compiler_problem(plan: Plan, choices: Choices) -> str | None:
    """Return why nvcc of the plan cannot compile on this machine, with the fix, or None if it can.

    Return None for a plan without nvcc and for the file of another machine. `--driver` and `--gpu` may
    describe a node that this machine builds for.
    """
    cuda = _nvcc_of(plan)
    if cuda is None or choices.target or not plan.platform.startswith("linux"):
        return None
    if plan.platform != LOOKING.platform:
        return None
    row = next((row for row in rows.load_all(choices).compilers if row.cuda == cuda), None)
    return _problem(row) if row and row.extras else None


def warn_of_host_compiler(emit: Emit, plan: Plan, choices: Choices) -> None:
    """Warn if nvcc of the plan cannot compile on this machine."""
    if problem := find_compiler_problem(plan, choices):
        emit(Event(kind="warning", stage="lock", text=problem))


def _nvcc_of(plan: Plan) -> str | None:
    """Return the CUDA version ("13.2") of the requested nvcc, or None."""
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
    version = _version(compiler)
    if version is None or int(version.split(".")[0]) <= int(row.gcc):
        return None  # clang and others have no gcc version; nvcc checks them
    return f"{compiler} {version} on this machine is newer than nvcc of CUDA {row.cuda} supports (gcc {row.gcc}): {_fix(int(row.gcc))}"


def _version(compiler: str) -> str | None:
    """Return the version that gcc prints, or None for another compiler."""
    if "clang" in compiler:
        return None
    program = compiler if os.sep in compiler else trust.find_program(compiler, process.environ().get("PATH"))
    if program is None:
        return None
    done = process.run([str(program), "-dumpfullversion"], timeout=_TIMEOUT)
    said = done.stdout.strip()
    return said if done.ok and re.fullmatch(r"\d+(\.\d+)*", said) else None


def _fix(newest: int) -> str:
    """Return how to use the newest installed g++ that nvcc supports, or which one to install."""
    here = next(
        (n for n in range(newest, 6, -1) if shutil.which(f"g++-{n}") and shutil.which(f"gcc-{n}")), None
    )
    number = here or newest
    first = "" if here else f"install g++-{number}, then "
    return f"{first}NVCC_CCBIN=g++-{number} CC=gcc-{number} CXX=g++-{number} for builds of extensions"
