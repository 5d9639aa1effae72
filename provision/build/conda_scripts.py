"""What makes a prefix usable without conda, and known to conda: activate scripts and the history."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from pathlib import Path

from .. import process
from ..errors import BuildError
from ..model import Package
from .place import not_writable

# Conda activates through its own shell function; these do the same for a shell that knows no conda:
# PATH, CONDA_PREFIX, and the scripts that packages bring (etc/conda/activate.d).
_SH = """\
# Enters the conda environment {plain}; `deactivate` leaves it.
deactivate () {{
    if [ -d {prefix}/etc/conda/deactivate.d ]; then
        for _gpuenv_file in {prefix}/etc/conda/deactivate.d/*.sh; do
            if [ -r "$_gpuenv_file" ]; then . "$_gpuenv_file"; fi
        done
    fi
    PATH="$_GPUENV_OLD_PATH"; export PATH
    unset _GPUENV_OLD_PATH _gpuenv_file CONDA_PREFIX CONDA_DEFAULT_ENV
    unset -f deactivate
    hash -r 2>/dev/null
}}
_GPUENV_OLD_PATH="$PATH"
PATH={prefix}/bin:"$PATH"; export PATH
CONDA_PREFIX={prefix}; export CONDA_PREFIX
CONDA_DEFAULT_ENV={prefix}; export CONDA_DEFAULT_ENV
unset PYTHONHOME
hash -r 2>/dev/null
if [ -d {prefix}/etc/conda/activate.d ]; then
    for _gpuenv_file in {prefix}/etc/conda/activate.d/*.sh; do
        if [ -r "$_gpuenv_file" ]; then . "$_gpuenv_file"; fi
    done
fi
"""
_FISH = """\
# Enters the conda environment {plain}; `deactivate` leaves it.
set -gx _GPUENV_OLD_PATH $PATH
set -gx PATH {prefix}/bin $PATH
set -gx CONDA_PREFIX {prefix}
set -gx CONDA_DEFAULT_ENV {prefix}
set -e PYTHONHOME
for _gpuenv_file in {prefix}/etc/conda/activate.d/*.fish
    source $_gpuenv_file
end
function deactivate
    for _gpuenv_file in {prefix}/etc/conda/deactivate.d/*.fish
        source $_gpuenv_file
    end
    set -gx PATH $_GPUENV_OLD_PATH
    set -e _GPUENV_OLD_PATH CONDA_PREFIX CONDA_DEFAULT_ENV
    functions -e deactivate
end
"""
_CSH = """\
# Enters the conda environment {plain}; `deactivate` leaves it.
setenv _GPUENV_OLD_PATH "$PATH"
setenv PATH {prefix}/bin:"$PATH"
setenv CONDA_PREFIX {prefix}
setenv CONDA_DEFAULT_ENV {prefix}
unsetenv PYTHONHOME
alias deactivate 'setenv PATH "$_GPUENV_OLD_PATH"; unsetenv _GPUENV_OLD_PATH CONDA_PREFIX CONDA_DEFAULT_ENV; unalias deactivate'
"""
_SCRIPTS = {"activate": _SH, "activate.fish": _FISH, "activate.csh": _CSH}


def write(prefix: Path, packages: Sequence[Package], specs: Sequence[str]) -> None:
    """Activate scripts, and conda-meta/history with what was asked for. Raises BuildError."""
    try:
        (prefix / "bin").mkdir(exist_ok=True)
        for name, text in _SCRIPTS.items():
            path = prefix / "bin" / name
            if not path.exists():  # a package may bring its own
                path.write_text(
                    text.format(prefix=shlex.quote(str(prefix)), plain=prefix.name), encoding="utf-8"
                )
    except OSError as error:
        raise not_writable(prefix, error) from error
    record(prefix, (), packages, specs)


def record(prefix: Path, out: Sequence[Package], into: Sequence[Package], specs: Sequence[str]) -> None:
    """What went out of a prefix and came in, in conda's own form, so that `conda install` goes on from what
    was asked for here, and `conda list --revisions` tells it. Raises BuildError."""
    rows = [f"==> {time.strftime('%Y-%m-%d %H:%M:%S')} <==", "# cmd: gpuenv create"]
    rows += sorted([*(f"-{_dist(p)}" for p in out), *(f"+{_dist(p)}" for p in into)])
    rows.append(f"# update specs: {list(specs)!r}")
    try:
        with (prefix / "conda-meta" / "history").open("a", encoding="utf-8") as file:
            file.write("\n".join(rows) + "\n")
    except OSError as error:
        raise not_writable(prefix, error) from error


def _dist(package: Package) -> str:
    """A package as conda's history names it: "conda-forge/linux-64::numpy-2.0.1-py311h1_0"."""
    channel, subdir, file = package.url.rsplit("/", 2)
    stem = file.removesuffix(".conda").removesuffix(".tar.bz2")
    return f"{channel.rsplit('/', 1)[-1]}/{subdir}::{stem}"


# --- where conda's own tools look ----------------------------------------------------------------


def register(prefix: Path) -> None:
    """Add the environment to ~/.conda/environments.txt, where conda, VS Code and Jupyter look. Raises
    BuildError where the file cannot be read or written."""
    held, path = _listed()
    if str(prefix) not in held:
        _list(path, [*held, str(prefix)])


def unregister(prefix: Path) -> None:
    """Take the environment out of ~/.conda/environments.txt again. Raises BuildError."""
    held, path = _listed()
    if str(prefix) in held:
        _list(path, [x for x in held if x != str(prefix)])


def _listed() -> tuple[list[str], Path]:
    path = Path(process.environ().get("HOME") or Path.home()) / ".conda" / "environments.txt"
    try:
        return (path.read_text(encoding="utf-8").splitlines() if path.exists() else []), path
    except OSError as error:
        raise BuildError(f"{path} cannot be read: {error.strerror}") from error


def _list(path: Path, prefixes: Sequence[str]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{p}\n" for p in prefixes), encoding="utf-8")
    except OSError as error:
        raise not_writable(path.parent, error) from error
