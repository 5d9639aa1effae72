"""Registers and removes Jupyter kernels of environments.

A kernel is a folder `kernels/NAME/` with a `kernel.json` in the user's data folder of Jupyter
(https://docs.jupyter.org/en/latest/use/jupyter-directories.html,
https://jupyter-client.readthedocs.io/en/stable/kernels.html#kernel-specs). The metadata of gpuenv's kernels names
their environment. Other kernels are never overwritten or removed.

Jupyter starts the kernel through `gpuenv run --exec`, not through the environment's Python. Only in Jupyter's
own environment is it known which entries of LD_LIBRARY_PATH override the environment's libraries. With
`--exec` gpuenv becomes the kernel, so Jupyter's interrupt and termination signals reach it directly. If the
server is killed, ipykernel sees through JPY_PARENT_PID that its parent is gone, and frees the GPU.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..errors import BuildError, UsageError
from ..system import process, untrusted
from ..system.files import suggest_fix, write_file

PACKAGE = "ipykernel"
_OURS = "gpuenv"
_TAKEN = re.compile(r"python\d*")  # names that Jupyter uses for its own Python
_PLAIN_NAMES = (".venv", "venv", ".env", "env")
# `python -m provision` without the current folder on the module path: gpuenv must not import a file named
# json.py beside a notebook.
_BARE = "import sys; del sys.path[0]; from provision.__main__ import main; main()"


def folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of the user's kernels, by the rules of jupyter_core's `jupyter_data_dir`. Raises BuildError."""
    home = Path(environ.get("HOME") or "~").expanduser()
    if environ.get("JUPYTER_DATA_DIR"):
        data = Path(environ["JUPYTER_DATA_DIR"])
    else:
        data = Path(environ.get("XDG_DATA_HOME") or home / ".local" / "share") / "jupyter"
    if not data.is_absolute() and not environ.get("JUPYTER_DATA_DIR"):
        raise BuildError("there is no home folder for Jupyter's kernels", hint="set JUPYTER_DATA_DIR")
    return data.absolute() / "kernels"


def is_named(packages: Iterable[str]) -> bool:
    """Return whether requirements name the package that a kernel needs."""
    return any(re.match(rf"{PACKAGE}\b(?!-)", text.strip(), re.IGNORECASE) for text in packages)


def register(env: Path, python: str, made_of: str) -> str:
    """Register a kernel that runs the environment's Python, and return its name.

    `made_of` follows the name in the display name ("torch 2.14.1"). Raises BuildError, and UsageError for an
    environment without ipykernel.
    """
    if not any(env.glob(f"lib*/python3*/site-packages/{PACKAGE}/__init__.py")):
        raise UsageError(
            f"{env} has no {PACKAGE}",
            hint=f"--kernel installs it when it creates an environment. For an environment from a lock, run: gpuenv lock --with {PACKAGE}",
        )
    script = Path(sys.executable).parent / "gpuenv"  # starts this gpuenv from any folder
    ourselves = [str(script)] if script.is_file() else [sys.executable, "-c", _BARE]
    kernels = folder(process.environ())
    spec = _read_ipykernel_spec(env)
    name = next(iter(_iterate_registered(kernels, env)), None) or _find_free_name(kernels, env)
    words = f"{_make_title(env)} ({made_of})" if made_of else _make_title(env)
    spec |= {
        "argv": [
            *ourselves,
            "run",
            "--exec",
            str(env),
            "--",
            python,
            "-m",
            "ipykernel_launcher",
            "-f",
            "{connection_file}",
        ],
        "display_name": words,
        "language": "python",
        "metadata": {**spec.get("metadata", {}), _OURS: {"environment": str(env)}},
    }
    _write(kernels / name, spec, env)
    return name


def _read_ipykernel_spec(env: Path) -> dict[str, Any]:
    """Return the kernel specification of the environment's ipykernel: protocol, debugger, encryption."""
    try:
        spec = json.loads(untrusted.read_bytes(env / "share/jupyter/kernels/python3/kernel.json"))
    except (OSError, ValueError, RecursionError):
        return {"metadata": {"debugger": True}}
    return spec if isinstance(spec, dict) else {}


def _write(place: Path, spec: dict[str, Any], env: Path) -> None:
    kernels = place.parent
    try:
        kernels.mkdir(parents=True, exist_ok=True)
        for logo in sorted(env.glob("share/jupyter/kernels/python3/logo-*")):
            write_file(place / logo.name, untrusted.read_bytes(logo), root=kernels)
        write_file(place / "kernel.json", json.dumps(spec, indent=1) + "\n", root=kernels)
    except OSError as error:
        raise _explain_error(place, error) from error


def _explain_error(place: Path, error: OSError) -> BuildError:
    return BuildError(
        f"a Jupyter kernel cannot be written in {place}: {error.strerror or error}",
        hint=suggest_fix(
            error,
            "set JUPYTER_DATA_DIR to a writable folder, in this shell and in the shell that starts Jupyter",
        ),
    )


def _make_title(env: Path) -> str:
    """Return the title of an environment: its name, or its project's if the name is a common one such as .venv."""
    return env.parent.name if env.name in _PLAIN_NAMES and env.parent.name else env.name


def _find_free_name(kernels: Path, env: Path) -> str:
    """Return a valid name for Jupyter (letters, digits, - _ .) that no other kernel has."""
    plain = unicodedata.normalize("NFKD", _make_title(env)).encode("ascii", "ignore").decode().lower()
    name = re.sub(r"[^a-z0-9_.-]+", "-", plain).strip("-._") or _OURS
    if _TAKEN.fullmatch(name) or os.path.lexists(kernels / name):
        name += "-" + hashlib.sha256(os.fsencode(env)).hexdigest()[:6]
    return name


def _iterate_registered(kernels: Path, env: Path) -> Iterator[str]:
    for path in sorted(kernels.glob("*/kernel.json")):
        try:
            metadata = json.loads(untrusted.read_bytes(path))["metadata"]
            owner = metadata[_OURS]["environment"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            continue  # not a kernel of gpuenv
        if owner == str(env):
            yield path.parent.name


def list_registered(env: Path) -> list[str]:
    """Return the names of an environment's kernels."""
    try:
        return list(_iterate_registered(folder(process.environ()), env))
    except BuildError:
        return []


def forget(env: Path) -> list[str]:
    """Remove an environment's kernels and return their names. Raises BuildError."""
    names = list_registered(env)
    for name in names:
        place = folder(process.environ()) / name
        try:
            shutil.rmtree(place)
        except OSError as error:
            raise _explain_error(place, error) from error
    return names
