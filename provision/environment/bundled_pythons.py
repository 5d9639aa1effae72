"""The Pythons that came with bundles.

Each is in gpuenv's own data folder, under the sha256 of its archive, and not among the Pythons of uv. So nothing
finds it but the environments that were made from such a bundle. Their entries in the registry name it, and it goes
with the last of them.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from pathlib import Path

from ..errors import BuildError
from ..system import untrusted
from . import registry
from .draft_and_replace_folder import made_by_gpuenv, not_writable

_KEY = "pythons"


def _folder(sha256: str) -> Path:
    if not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise BuildError(f"{sha256!r} is not a SHA-256 of a Python archive", hint="copy the bundle again")
    return registry.folder().with_name("pythons") / sha256


def claim(env: Path, sha256: str) -> Path:
    """Return the folder to unpack the Python of an environment into. Raises BuildError.

    It is entered in the registry first: a run that is killed leaves what the next one at this path removes.
    """
    folder = _folder(sha256)
    registry.add(env, pythons=registry.read(env, _KEY) | {sha256})
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_writable(folder, error) from error
    return folder


def list_own(env: Path) -> list[Path]:
    """Return the folders that go with an environment: those that no other one uses."""
    return [_folder(p) for p in sorted(registry.read(env, _KEY)) if not registry.is_used(_KEY, p, env)]


def settle(env: Path) -> None:
    """Remove the Pythons that the environment at a path does not use any more, unless another one does.

    Raises BuildError.
    """
    claimed = registry.read(env, _KEY)
    used = frozenset(p for p in claimed if p in _read_home(env))
    if used == claimed:
        return
    for folder in list_own(env):
        if folder.name not in used:
            shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(OSError):  # others are there
                folder.parent.rmdir()
    if made_by_gpuenv(env):
        registry.add(env, pythons=used)
    else:
        registry.forget(env)


def _read_home(env: Path) -> str:
    """Return the settings of a venv, which name the folder of its Python."""
    try:
        return untrusted.read_text(env / "pyvenv.cfg")
    except OSError:
        return ""
