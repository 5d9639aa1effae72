"""The environment that a command runs in, and the diagnosis of its failure."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from .. import detect
from ..errors import BuildError, UsageError
from ..model import Emit, Event, Finding
from ..request import facts
from ..request import paths as where
from ..request.options import Choices
from ..system import process
from . import unsearched

if TYPE_CHECKING:
    from ..verify.culprit import Suspect

GROWTH = {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
NOT_FAILURES = ("SIGINT", "SIGPIPE", "SIGTERM", "SIGHUP", "SIGQUIT")
"""A program that was told to stop, or whose reader went away, has nothing to be diagnosed."""
_LIBRARY_FOLDERS = (
    "lib/python3*/site-packages/nvidia/*/lib",
    "lib/python3*/site-packages/torch/lib",
    "lib",
)
_FAMILIES = ("libcudnn", "libcublas", "libcudart", "libnvrtc", "libnvJitLink", "libcusparse", "libcusolver",
             "libcufft", "libcurand", "libnccl", "libcupti")  # fmt: skip


def found_in(env: Path) -> tuple[Path, Path]:
    """The environment's root and its folder of programs. Raises UsageError where it is none."""
    path = where.absolute(env)
    if path.is_file():
        return path.parent.parent, path.parent
    for folder in ("bin", "Scripts"):
        if (path / folder / "python").exists() or (path / folder / "python.exe").exists():
            return path, path / folder
    raise UsageError(f"{path} holds no Python", hint=f"make it: gpuenv create {env} --framework torch")


def inside(
    root: Path, bin_folder: Path, environ: Mapping[str, str], *, keep: bool
) -> tuple[dict[str, str], list[Suspect]]:
    """The variables as after activation, without the loader's entries that would bring in another copy of
    a library that the environment has; and those entries."""
    from ..verify import culprit  # the cli starts fast: verify is not needed before this

    removed = [] if keep else _shadowing(root, environ)
    inner = culprit.without(environ, removed)
    inner["PATH"] = os.pathsep.join(p for p in (str(bin_folder), environ.get("PATH", "")) if p)
    inner.pop("PYTHONHOME", None)
    if (root / "conda-meta").is_dir():
        inner["CONDA_PREFIX"] = inner["CONDA_DEFAULT_ENV"] = str(root)
    else:
        inner["VIRTUAL_ENV"] = str(root)
    return inner, removed


def activated(emit: Emit, root: Path, environ: dict[str, str]) -> dict[str, str]:
    """The variables as conda packages want them; those that the environment has where a script fails."""
    from ..managers.conda import scripts as conda_scripts

    try:
        return conda_scripts.activated(root, environ)
    except BuildError as error:
        emit(Event(kind="log", stage="run", text=f"note: {error.message}; its variables are missing"))
        return environ


def add_unsearched(emit: Emit, root: Path, environ: dict[str, str], choices: Choices) -> None:
    """Put what TensorFlow needs and does not search on LD_LIBRARY_PATH, and say so."""
    if not sys.platform.startswith("linux"):
        return
    version, missing = unsearched.folders(root, environ, lambda: facts.known(choices))
    if missing:
        entries = [*map(str, missing), environ.get("LD_LIBRARY_PATH", "")]
        environ["LD_LIBRARY_PATH"] = ":".join(e for e in entries if e)
        names = ", ".join(f.parent.name for f in missing)
        text = (
            f"LD_LIBRARY_PATH gets nvidia/*/lib of {names}: TensorFlow {version} does not look there "
            "by itself (--keep-env leaves it)"
        )
        emit(Event(kind="note", stage="run", text=text))


def _shadowing(root: Path, environ: Mapping[str, str]) -> list[Suspect]:
    from ..verify import culprit

    brought = [
        str(file)
        for pattern in _LIBRARY_FOLDERS
        for folder in root.glob(pattern)
        for file in folder.iterdir()
        if file.name.startswith(_FAMILIES) and ".so" in file.name
    ]
    families = {Path(p).name.split(".so")[0] for p in brought}
    found = culprit.suspects(environ, brought, None, None)
    return [
        s for s in found
        if (s.variable == "LD_LIBRARY_PATH" and not Path(s.part or ".").resolve().is_relative_to(root.resolve()))
        or (s.variable == "LD_PRELOAD" and Path(s.part).name.split(".so")[0] in families)
    ]  # fmt: skip


def explained(name: str, ended: process.Attended, choices: Choices, root: Path) -> tuple[Finding, ...]:
    """Diagnose the last output of a program, with this machine's facts."""
    from .diagnosing import judged, made_for

    known = facts.known(choices)
    text = [(name, [ended.stderr])]
    device = made_for(root)
    found = judged(text, known, None, device=device)
    if found:
        found = judged(text, known, detect.detect(), here=True, device=device, holders=device != "cpu")
    return found
