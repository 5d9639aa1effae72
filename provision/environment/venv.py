"""Builds venvs from locks with uv. The result can be moved."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path

from ..errors import BuildError
from ..index import uv
from ..index.config import plain_sources
from ..model import VENV_LOCK, Lock, LockedPackage, PackageSources
from ..system import untrusted
from ..system.files import write_file, writing
from ..system.redaction import clean
from ..wheels import pylock
from . import record
from .install import install_packages, reinstall_wheels, uninstall
from .managers import BuildSettings, RepairWork, compare_locks
from .place import MARK
from .transaction import build_in_draft
from .uv_install import UvInstall

transaction = build_in_draft


def fetch(lock: Lock, packages: Sequence[LockedPackage], settings: BuildSettings) -> None:
    """Do nothing: downloads go into the draft while the environment stays in place."""


def install(lock: Lock, prefix: Path, settings: BuildSettings) -> None:
    """Create an environment with the wheels of a lock in a draft. Raises BuildError."""
    make_venv(prefix, settings.python(), settings.sources, prompt=settings.env.name)
    _name_place(prefix, settings.env)
    make_relocatable(prefix)
    install_packages(UvInstall(lock, prefix, settings.sources, settings.emit))


def change(old: Lock, new: Lock, prefix: Path, settings: BuildSettings) -> None:
    """Change an environment with the lock `old` to the lock `new`. Raises BuildError."""
    out, into = compare_locks(old, new)
    uninstall(prefix, out)
    if into:
        some = dataclasses.replace(new, packages=into)
        install_packages(UvInstall(some, prefix, settings.sources, settings.emit))


def reinstall(lock: Lock, work: RepairWork, prefix: Path, settings: BuildSettings, *, fresh: bool) -> None:
    """Remove and reinstall the packages of the work. Raises BuildError."""
    uninstall(prefix, [r.name for r in work.removed])
    reinstall_wheels(lock, work.packages, prefix, settings, fresh=fresh)


def write_lock(lock: Lock, prefix: Path) -> None:
    """Write the lock into the environment. Raises BuildError."""
    record.write(prefix, "lock.json", {"digest": record.lock_digest(lock)})
    pylock.write(prefix / MARK / VENV_LOCK, lock, root=prefix)


def finish(env: Path) -> None:
    """Do nothing: after the rename of the draft a venv is complete."""


def make_venv(path: Path, python: str, sources: PackageSources, *, prompt: str) -> None:
    """Create an empty environment without pip. Raises BuildError."""
    name = prompt if not prompt.startswith(".") else Path.cwd().name
    name = re.sub(r"[^\w .+-]", "_", name)  # uv writes it into scripts without an escape
    with writing(path):
        path.mkdir(exist_ok=True)
        finished = uv.run_uv(
            ["venv", "--quiet", "--no-project", "--allow-existing", f"--prompt={name}", str(path.absolute())],
            sources, python=python,
        )  # fmt: skip
    if not finished.ok:
        raise BuildError(
            f"no environment can be created with {python}",
            log=clean(finished.stderr), hint="choose another interpreter with --python VERSION",
        )  # fmt: skip


_FIND_PLACE = """\
# The environment is where this script is, so that it works after it was moved or copied.
if [ -n "${BASH_SOURCE-}" ]; then
    _gpuenv_env=$(CDPATH='' cd -- "$(dirname -- "$BASH_SOURCE")/.." && pwd)
elif [ -n "${ZSH_VERSION-}" ]; then
    eval '_gpuenv_env=${(%):-%x}'
    _gpuenv_env=$(CDPATH='' cd -- "$(dirname -- "$_gpuenv_env")/.." && pwd)
else
    _gpuenv_env=@PLACE@
fi

"""
_GUARD = {
    "activate": (
        "    unset VIRTUAL_ENV\n",
        '    if [ -n "${_GPUENV_GUARD-}" ]; then unset UV_CONSTRAINT _GPUENV_GUARD; fi\n',
        """
# uv keeps the frameworks of this environment. `deactivate` undoes it.
if [ -z "${UV_CONSTRAINT-}" ] && [ -r "$VIRTUAL_ENV/.gpuenv/guard" ]; then
    UV_CONSTRAINT=$(cat "$VIRTUAL_ENV/.gpuenv/guard")
    export UV_CONSTRAINT
    _GPUENV_GUARD=1
fi
""",
    ),
    "activate.fish": (
        "    set -e VIRTUAL_ENV\n",
        '    if test -n "$_GPUENV_GUARD"; set -e UV_CONSTRAINT; set -e _GPUENV_GUARD; end\n',
        """
# uv keeps the frameworks of this environment. `deactivate` undoes it.
if test -z "$UV_CONSTRAINT"; and test -r "$VIRTUAL_ENV/.gpuenv/guard"
    set -gx UV_CONSTRAINT (cat "$VIRTUAL_ENV/.gpuenv/guard")
    set -g _GPUENV_GUARD 1
end
""",
    ),
}
"""Lines of activation scripts for the guard: a line of `deactivate`, what follows it, and the end of the script."""
_PLACE_IN_SHELL = '"$_gpuenv_env"'
_PLACE_IN_FISH = "(realpath -s (dirname (status filename))/..)"


def _name_place(path: Path, final: Path) -> None:
    """Write where the environment will be into its files, in which uv wrote the draft's path.

    Scripts for bash, zsh and fish look for themselves, and PowerShell's does so anyway. Shells that cannot (sh, csh,
    nu) get the final path.
    """
    quoted, final_quoted = (_quote(p) for p in (path, final))
    for script in (path / "pyvenv.cfg", *path.glob("bin/activate*")):
        text = script.read_bytes().decode("utf-8", "surrogateescape")
        if script.name == "activate":
            head = _FIND_PLACE.replace("@PLACE@", final_quoted)
            text = f"{head}{text.replace(quoted, _PLACE_IN_SHELL)}\nunset _gpuenv_env\n"
        elif script.name == "activate.fish":
            text = text.replace(quoted, _PLACE_IN_FISH)
        if script.name in _GUARD:
            line, undo, end = _GUARD[script.name]
            text = text.replace(line, line + undo, 1) + end
        text = re.sub(r"(?<=[/\\])\.([^/\\\r\n]*?)\.gpuenv-new", r"\1", text)
        write_file(script, text.encode("utf-8", "surrogateescape"), root=path)


def _quote(path: Path) -> str:
    """Return a path as uv writes it into scripts for shells."""
    return "'" + str(path.absolute()).replace("'", "'\"'\"'") + "'"


def make_relocatable(path: Path) -> None:
    """Make uv write scripts that find their interpreter beside them, so that they work after a rename."""
    config = path / "pyvenv.cfg"
    text = untrusted.read_text(config)
    if "relocatable" not in text:
        write_file(config, text.rstrip("\n") + "\nrelocatable = true\n", root=path)


# --- Pythons -----------------------------------------------------------------------------------


def fetch_python(version: str) -> str:
    """Return the path of a Python that uv manages, after downloading a missing one. Raises BuildError."""
    allowed = uv.Settings(variables={"UV_PYTHON_DOWNLOADS": "manual"}, timeout=1800)
    sources = plain_sources()
    finished = uv.run_uv(["python", "install", version], sources, python=None, settings=allowed)
    words = ["python", "find", "--managed-python", "--no-python-downloads", version]
    located = uv.run_uv(words, sources, python=None)
    if not located.ok:
        raise BuildError(
            f"Python {version} is not on this machine and cannot be downloaded",
            log=clean(finished.stderr), hint="install it, or choose another version with --python",
        )  # fmt: skip
    return located.stdout.strip()
