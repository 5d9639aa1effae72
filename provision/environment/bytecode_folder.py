"""The folder of gpuenv's cache for the bytecode of packages, where they have none beside them."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from .cache_files import cache_folder


def choose_bytecode_folder(python_packages: Sequence[str], cache: Path | None) -> dict[str, str]:
    """How the child keeps its bytecode out of the target.

    Where the packages are compiled already, reading what is there is fastest; where they are not, the
    bytecode goes to gpuenv's cache, so that only the first verify pays for compiling.
    """
    compiled = any(Path(p, "__pycache__").is_dir() for p in python_packages)
    if compiled or cache is None:
        return {"PYTHONDONTWRITEBYTECODE": "1"}
    return {"PYTHONPYCACHEPREFIX": str(cache_folder(cache, "bytecode"))}


@contextlib.contextmanager
def move_bytecode(cache: Path | None, old: Path, new: Path) -> Iterator[None]:
    """Use the bytecode of an environment for its copy in another place, and in the end that of the copy for the
    environment: Python keeps it by path."""
    if cache is None or old == new:
        yield
        return
    mine, other = (cache_folder(cache, "bytecode") / str(p.absolute()).lstrip("/") for p in (old, new))
    _move(mine, other)
    try:
        yield
    finally:
        _move(other, mine)


def _move(source: Path, target: Path) -> None:
    with contextlib.suppress(OSError):  # Python compiles again what is not there
        if source.is_dir():
            shutil.rmtree(target, ignore_errors=True)
            source.rename(target)
