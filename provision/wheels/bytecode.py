"""Notes the bytecode that uv compiled for an environment, which RECORD does not list, for `verify --locked`."""

from __future__ import annotations

import csv
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..environment import state
from ..environment.distributions import read_distributions
from ..environment.place import MARK
from ..index import uv_config
from ..model import LockedPackage, normalize_name
from ..system import process, untrusted

NOTED = "bytecode.json"
"""The file in an environment's `.gpuenv/` with the digests of its compiled modules."""


def is_compiling() -> bool:
    """Return whether the user wants environments with compiled bytecode (UV_COMPILE_BYTECODE)."""
    environ = process.environ()
    wish = {**environ, **uv_config.variables(environ)}.get("UV_COMPILE_BYTECODE", "")
    return wish.lower() in ("1", "true", "yes", "on", "t", "y")


def note_compiled(env: Path, packages: Sequence[LockedPackage]) -> None:
    """Write the digests of the compiled modules of some packages. Raises BuildError."""
    if not (env / MARK).is_dir():
        return  # a folder that gpuenv did not make
    wanted = {normalize_name(p.name) for p in packages}
    modules = {
        name: dict(file for one in several for file in _digest_compiled(env, one.folder / "RECORD"))
        for name, several in read_distributions(env).items()
        if name in wanted
    }
    before = (state.read(env, NOTED) or {}).get("modules", {})
    state.write(env, NOTED, {"schema": "gpuenv.bytecode/1", "modules": {**before, **modules}})


def _digest_compiled(env: Path, record: Path) -> Iterator[tuple[str, str]]:
    """Yield path and digest of the compiled modules of a wheel's sources inside site-packages (PEP 3147)."""
    if not record.is_file():
        return
    site = record.parent.parent
    with record.open(newline="", encoding="utf-8") as file:
        lines = [line for line in file if ".py" in line]  # torch also lists 10,000 headers
    names = [row[0] for row in csv.reader(lines) if row and row[0].endswith(".py")]
    sources = {name for name in names if not {"", ".."} & set(name.split("/"))}
    for folder in sorted({name.rpartition("/")[0] for name in sources}):
        compiled = site / folder / "__pycache__"
        for file_name in sorted(os.listdir(compiled)) if compiled.is_dir() else ():  # noqa: PTH208  # names alone
            if str(Path(folder, f"{file_name.split('.', 1)[0]}.py")) in sources:
                path = compiled / file_name
                digest = hashlib.sha256(untrusted.read_bytes(path)).hexdigest()
                yield path.relative_to(env).as_posix(), digest
