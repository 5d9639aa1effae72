"""Finds an environment and its Python from files. Nothing is started here: `interpreter.py` does that."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ..errors import UsageError
from ..model import Environment
from ..system import untrusted

_NAMES = ("bin/python", "bin/python3", "Scripts/python.exe", "python.exe")


def locate_environment(env: Path) -> Environment:
    """Return the environment at a path: a venv, a conda prefix, or a Python executable.

    Only files are read, and nothing has to be installed in it. The executable is not resolved: a venv's python is a
    link, and the target of the link does not know the venv. The version is the one that pyvenv.cfg states, or None.

    Raise UsageError if there is no Python at the path, or a pipe in the place of its settings. Its hint names the most similar environment.
    """
    path = Path(os.path.abspath(env.expanduser()))  # noqa: PTH100  # removes "..", and keeps links
    if path.is_dir():
        python = next((path / n for n in _NAMES if os.access(path / n, os.X_OK)), None)
        if python is None:
            raise UsageError(describe_missing_python(path), hint=suggest_environment(path))
        root = path
    elif path.exists():
        if not os.access(path, os.X_OK):
            raise UsageError(f"{path} is a file that cannot be run", hint=suggest_environment(path))
        python = path
        root = path.parent.parent if path.parent.name in ("bin", "Scripts") else path.parent
    elif path.is_symlink():
        raise UsageError(
            f"{path} is a link to {path.readlink()}, which does not exist",
            hint="The Python of this environment was removed. Create the environment again.",
        )
    else:
        raise UsageError(describe_missing_python(path), hint=suggest_environment(path))
    settings = root / "pyvenv.cfg"
    if settings.exists() and not settings.is_file():  # its Python would wait for a pipe
        raise UsageError(f"{settings} is not a regular file", hint="build the environment again")
    return Environment(
        path=str(root),
        manager=_find_manager(root),
        python=str(python),
        python_version=_read_stated_version(root),
        made_by_gpuenv=(root / ".gpuenv" / "plan.json").is_file(),
    )


def describe_missing_python(path: Path) -> str:
    """Say why a path is no environment: it is missing, or its Python is."""
    if not path.exists():
        return f"{path} does not exist"
    return f"{path} has no Python: {'python.exe' if os.name == 'nt' else 'bin/python'} is missing"


def _find_manager(root: Path) -> str | None:
    if (root / "conda-meta").is_dir():
        return "conda"
    return "venv" if (root / "pyvenv.cfg").is_file() else None


def _read_stated_version(root: Path) -> str | None:
    """Return the version of Python in pyvenv.cfg, or None."""
    try:
        text = untrusted.read_bytes(root / "pyvenv.cfg").decode("utf-8", "replace")
    except OSError:
        return None
    match = re.search(r"^version(?:_info)?\s*=\s*(\d+\.\d+\.\d+)", text, re.MULTILINE)
    return match and match.group(1)


def suggest_environment(path: Path) -> str:
    """Return a hint with the environment that the user may have meant."""
    import difflib

    inside = [p for p in (path / ".venv", path / "venv", path / "env") if _is_environment(p)]
    if inside:
        return f"Did you mean {inside[0]}?"
    parent = path.parent
    beside = sorted(p for p in _list_folders(parent) if p != path and _is_environment(p))
    close = difflib.get_close_matches(path.name, [p.name for p in beside], n=1, cutoff=0.5)
    if close:
        return f"Did you mean {parent / close[0]}?"
    if beside:
        return "Environments there: " + ", ".join(str(p) for p in beside[:5]) + "."
    return "Give a venv, a conda prefix or a python executable; `gpuenv create` makes an environment."


def _list_folders(folder: Path) -> list[Path]:
    try:
        return [p for p in folder.iterdir() if p.is_dir()]
    except OSError:
        return []


def _is_environment(path: Path) -> bool:
    return (path / "pyvenv.cfg").is_file() or (path / "conda-meta").is_dir()
