"""The folder of gpuenv's cache for bytecode of packages that are installed without it."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..system import trust
from .gpuenv_cache import cache_folder


def choose_bytecode_folder(python_packages: Sequence[str], cache: Path | None) -> dict[str, str]:
    """Return the environment variables that keep a child's bytecode out of the target.

    Compiled packages are read without writing. Others get their bytecode in gpuenv's cache, so that only the first
    verify compiles them.
    """
    compiled = any(Path(p, "__pycache__").is_dir() for p in python_packages)
    if compiled or cache is None:
        return {"PYTHONDONTWRITEBYTECODE": "1"}
    return {"PYTHONPYCACHEPREFIX": str(trust.settle_cache(cache_folder(cache, "bytecode"), whole=True))}


@contextlib.contextmanager
def move_bytecode(cache: Path | None, old: Path, new: Path) -> Iterator[None]:
    """Move the bytecode of an environment to its copy in the block, and back afterwards.

    Python finds cached bytecode by the path of its source.
    """
    if cache is None or old == new:
        yield
        return
    old_folder, new_folder = (
        cache_folder(cache, "bytecode") / str(p.absolute()).lstrip("/") for p in (old, new)
    )
    _move(old_folder, new_folder)
    try:
        yield
    finally:
        _move(new_folder, old_folder)


def _move(source: Path, target: Path) -> None:
    with contextlib.suppress(OSError):  # Python compiles missing bytecode again
        if source.is_dir():
            shutil.rmtree(target, ignore_errors=True)
            source.rename(target)
