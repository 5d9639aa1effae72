"""What conda, other tools and shells find of an environment: activate scripts, history, ~/.conda/environments.txt."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from .. import templates
from ..errors import BuildError
from ..model import LockedPackage
from ..system import process, untrusted
from ..system.files import open_part, write_file, writing

_SCRIPTS = {
    "activate": "conda-activate.sh", "activate.fish": "conda-activate.fish", "activate.csh": "conda-activate.csh",
    "deactivate.csh": "conda-deactivate.csh",
}  # fmt: skip
# Sources the scripts of packages and prints the variables. The output of the scripts goes to stderr.
_ACTIVATED = 'for file in "$1"/etc/conda/activate.d/*.sh; do . "$file"; done >&2; exec env -0'


def write_scripts(prefix: Path, packages: Sequence[LockedPackage], specs: Sequence[str]) -> None:
    """Write activate scripts, and conda-meta/history with the requested specs. Raises BuildError.

    conda activates with a shell function. The scripts do the same without conda: PATH, CONDA_PREFIX, and the scripts of
    packages in etc/conda/activate.d. They first deactivate an environment that a script of this kind activated, and
    restore the variables of an outer conda environment. csh has no functions, so its deactivation is a separate file.
    """
    plain = re.sub(r"[^\w.+-]", "_", prefix.name)  # the shell interprets a prompt
    with writing(prefix):
        (prefix / "bin").mkdir(exist_ok=True)
        for name, template in _SCRIPTS.items():
            path = prefix / "bin" / name
            if not path.exists():  # a package may provide the script
                text = templates.read(template).replace("@plain@", plain)
                write_file(path, text.replace("@prefix@", shlex.quote(str(prefix))), root=prefix)
    record_history(prefix, (), packages, specs)


def record_history(
    prefix: Path, out: Sequence[LockedPackage], into: Sequence[LockedPackage], specs: Sequence[str]
) -> None:
    """Write removed and added packages into conda's history. Raises BuildError.

    `conda install` then knows the requested specs, and `conda list --revisions` shows the change.
    """
    rows = [f"==> {time.strftime('%Y-%m-%d %H:%M:%S')} <==", "# cmd: gpuenv create"]
    rows += sorted([*(f"-{_name_in_history(p)}" for p in out), *(f"+{_name_in_history(p)}" for p in into)])
    rows.append(f"# update specs: {list(specs)!r}")
    with writing(prefix):
        history = prefix / "conda-meta" / "history"
        with open_part(history, root=prefix, append=True) as file:
            file.write(("\n".join(rows) + "\n").encode())


def _name_in_history(package: LockedPackage) -> str:
    """Return a package as in conda's history: "conda-forge/linux-64::numpy-2.0.1-py311h1_0"."""
    channel, subdir = package.url.split("/")[-3:-1]
    return f"{channel}/{subdir}::{package.stem}"


def activate(prefix: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables after the activate.d scripts of packages, as `conda run` does.

    Raises BuildError if a script fails.
    """
    if not any((prefix / "etc" / "conda" / "activate.d").glob("*.sh")):
        return dict(environ)
    shells = ("/bin/bash", "/usr/bin/bash", "/bin/sh")  # not the one on PATH
    shell = next(s for s in shells if Path(s).exists())
    finished = process.run([shell, "-c", _ACTIVATED, shell, str(prefix)], env=environ, timeout=60)
    if not finished.ok:
        raise BuildError(f"a script in {prefix}/etc/conda/activate.d fails", log=finished.stderr)
    variables = dict(row.partition("=")[::2] for row in finished.stdout.split("\0") if "=" in row)
    for name in ("_", "SHLVL", "PWD", "OLDPWD"):  # variables of the shell
        variables.pop(name, None)
        variables |= {name: environ[name]} if name in environ else {}
    return variables


# --- the list of environments --------------------------------------------------------------------


def register(prefix: Path) -> None:
    """Add the environment to ~/.conda/environments.txt, which conda, VS Code and Jupyter read. Raises BuildError."""
    prefixes, path = _read_list()
    if str(prefix) not in prefixes:
        _write_list(path, [*prefixes, str(prefix)])


def unregister(prefix: Path) -> None:
    """Remove the environment from ~/.conda/environments.txt. Raises BuildError."""
    prefixes, path = _read_list()
    if str(prefix) in prefixes:
        _write_list(path, [x for x in prefixes if x != str(prefix)])


def _read_list() -> tuple[list[str], Path]:
    path = Path(process.environ().get("HOME") or Path.home()) / ".conda" / "environments.txt"
    try:
        return (untrusted.read_bytes(path).decode().splitlines() if path.exists() else []), path
    except (OSError, UnicodeDecodeError) as error:
        raise BuildError(f"{path} cannot be read: {error}") from error


def _write_list(path: Path, prefixes: Sequence[str]) -> None:
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        home = path.parent.parent  # .conda may be a link to another folder of the user
        write_file(path, "".join(f"{p}\n" for p in prefixes), root=home)
