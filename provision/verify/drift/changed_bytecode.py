"""Finds bytecode that differs from what gpuenv compiled.

RECORD does not list them, and Python runs them without reading the source. Their digests were recorded when the
environment was built. Python writes another file if a source was touched, so another digest proves nothing.
Then the environment's Python compiles the source again and compares.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

from ...system import untrusted
from ...system.file_digest import hash_readable

_NOTED = Path(".gpuenv") / "bytecode.json"
_PROGRAM = Path(__file__).resolve().parents[2] / "probes" / "bytecode_matches_source.py"
_TIMEOUT = 600.0


def find_changed(env: Path, packages: Collection[str]) -> dict[str, dict[str, str]]:
    """Return package -> path -> "bytecode" for the changed modules of some packages.

    Missing modules, and modules that Python would not run, are not included.
    """
    noted = {
        path: (name, sha)
        for name, files in _read_modules(env).items()
        if name in packages
        for path, sha in files
    }
    with ThreadPoolExecutor(max_workers=4) as pool:  # hashing releases the interpreter's lock
        digests = pool.map(
            lambda path: hash_readable(f"{env}/{path}") if os.path.isfile(f"{env}/{path}") else None, noted
        )
        suspects = [p for p, sha in zip(noted, digests, strict=True) if sha not in (None, noted[p][1])]
    files: dict[str, dict[str, str]] = {}
    for path in _find_differing(env, suspects):
        files.setdefault(noted[path][0], {})[str(env / path)] = "bytecode"
    return files


def _read_modules(env: Path) -> Mapping[str, list[tuple[str, str]]]:
    """Return the recorded packages and their files inside the environment; empty if nothing was compiled."""
    try:
        modules = json.loads(untrusted.read_bytes(env / _NOTED))["modules"]
        return {
            str(n): [(str(p), str(s)) for p, s in files.items() if _is_inside(p)]
            for n, files in modules.items()
        }
    except (OSError, ValueError, RecursionError, AttributeError, KeyError, TypeError):
        return {}


def _is_inside(path: str) -> bool:
    parts = PurePosixPath(path)
    return not parts.is_absolute() and ".." not in parts.parts and path.endswith(".pyc") and "\0" not in path


def _find_differing(env: Path, suspects: list[str]) -> list[str]:
    """Return the suspects that Python would run and that differ from their compiled sources.

    Return all suspects if Python cannot be started.
    """
    from ...environment import interpreter

    pairs = [(str(env / _get_source(path)), str(env / path)) for path in suspects]
    if not pairs:
        return []
    try:
        done = interpreter.start(
            env / "bin" / "python", ("-I", "-S", str(_PROGRAM)), stdin=json.dumps(pairs), timeout=_TIMEOUT
        )
        return [suspects[number] for number in json.loads(done.stdout)] if done.ok else suspects
    except (OSError, ValueError, TypeError, IndexError):
        return suspects


def _get_source(path: str) -> str:
    """Return the source of `__pycache__/name.tag.pyc` (PEP 3147)."""
    compiled = PurePosixPath(path)
    return str(compiled.parent.parent / f"{compiled.name.rsplit('.', 2)[0]}.py")
