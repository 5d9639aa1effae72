"""Collect facts on a program that gpuenv ran, for its diagnosis."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ..diagnose import Ran
from ..environment import distributions
from ..environment.place import MARK
from ..system import process
from ..system.process import foreground
from ..system.process.children import signal_name

_SKIPPED = frozenset(("node_modules", "__pycache__", "site-packages", "venv", "env"))
_LEVELS = 3
_FOLDERS = 400
_SHELL_SIGNAL = 128  # a shell exits with 128 plus the number of the signal that ended its command


def describe_exit(
    root: Path, command: Sequence[str], ended: process.ForegroundResult, before: foreground.OomKills,
    folder: Path | None = None,
) -> Ran:  # fmt: skip
    """Return how a program ended, its limits, and where its modules can come from.

    `before` are the counts of out-of-memory kills at its start. `folder` is where it ran, by default the
    current folder.
    """
    counted = foreground.oom_kills().since(before)
    name = ended.signal or signal_name(_SHELL_SIGNAL - ended.returncode)
    here = folder or Path.cwd()
    folders = [here, *(Path(here, w).resolve().parent for w in command[:8] if w.endswith(".py"))]
    return Ran(
        signal=name,
        oom_kills=counted[0] if counted else None,
        oom_source=counted[1] if counted else None,
        address_space=foreground.limit("RLIMIT_AS"),
        open_files=foreground.limit("RLIMIT_NOFILE"),
        memory=foreground.memory(),
        made_by_gpuenv=(root / MARK).is_dir(),
        files_of=lambda module: distributions.find_owner_of_missing(root, module),
        has_module=lambda module: distributions.has_module(root, module),
        own_module=lambda module: find_own_module(folders, module),
    )


def find_own_module(folders: Sequence[Path], module: str) -> str | None:
    """Return the path of a module in the program's own folders, at most a few levels down, or None.

    A folder counts only if it contains Python files. One of that name can contain data.
    """
    top = module.partition(".")[0]
    for start in dict.fromkeys(folders):
        for number, (folder, names, files) in enumerate(os.walk(start)):
            if number > _FOLDERS:
                break
            if f"{top}.py" in files:
                return str(Path(folder, f"{top}.py"))
            if top in names and any(Path(folder, top).glob("*.py")):
                return str(Path(folder, top))
            deep = len(Path(folder).relative_to(start).parts) >= _LEVELS
            names[:] = [] if deep else sorted(n for n in names if not _is_skipped(Path(folder, n)))
    return None


def _is_skipped(path: Path) -> bool:
    """Return whether a folder is hidden or an environment."""
    return path.name.startswith(".") or path.name in _SKIPPED or (path / "pyvenv.cfg").exists()
