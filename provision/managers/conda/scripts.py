"""What makes a prefix usable without conda, and known to conda: activate scripts and the history."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...environment.place import not_writable
from ...errors import BuildError
from ...model import Package
from ...system import foreign, process, safe_write
from .shells import SCRIPTS

# Sources what packages bring, and hands the variables on; what the scripts print is none of them.
_ACTIVATED = 'for file in "$1"/etc/conda/activate.d/*.sh; do . "$file"; done >&2; exec env -0'


def write(prefix: Path, packages: Sequence[Package], specs: Sequence[str]) -> None:
    """Activate scripts, and conda-meta/history with what was asked for. Raises BuildError."""
    try:
        (prefix / "bin").mkdir(exist_ok=True)
        for name, text in SCRIPTS.items():
            path = prefix / "bin" / name
            if not path.exists():  # a package may bring its own
                plain = re.sub(r"[^\w.+-]", "_", prefix.name)  # a prompt is taken apart by the shell
                script = text.format(prefix=shlex.quote(str(prefix)), plain=plain)
                safe_write.write_file(path, script, root=prefix)
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
        history = prefix / "conda-meta" / "history"
        with safe_write.open_part(history, root=prefix, append=True) as file:
            file.write(("\n".join(rows) + "\n").encode())
    except OSError as error:
        raise not_writable(prefix, error) from error


def _dist(package: Package) -> str:
    """A package as conda's history names it: "conda-forge/linux-64::numpy-2.0.1-py311h1_0"."""
    channel, subdir, file = package.url.rsplit("/", 2)
    stem = file.removesuffix(".conda").removesuffix(".tar.bz2")
    return f"{channel.rsplit('/', 1)[-1]}/{subdir}::{stem}"


def activated(prefix: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables after the scripts that packages bring in activate.d, as `conda run` has them. Raises
    BuildError where a script fails."""
    if not any((prefix / "etc" / "conda" / "activate.d").glob("*.sh")):
        return dict(environ)
    shell = next((s for s in ("/bin/bash", "/usr/bin/bash") if Path(s).exists()), "/bin/sh")  # not PATH's
    done = process.run([shell, "-c", _ACTIVATED, shell, str(prefix)], env=environ, timeout=60)
    if not done.ok:
        raise BuildError(f"a script in {prefix}/etc/conda/activate.d fails", log=done.stderr)
    found = dict(row.partition("=")[::2] for row in done.stdout.split("\0") if "=" in row)
    for name in ("_", "SHLVL", "PWD", "OLDPWD"):  # the shell's own
        found.pop(name, None)
        found |= {name: environ[name]} if name in environ else {}
    return found


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
        return (foreign.read_strictly(path).splitlines() if path.exists() else []), path
    except (OSError, UnicodeDecodeError) as error:
        raise BuildError(f"{path} cannot be read: {error}") from error


def _list(path: Path, prefixes: Sequence[str]) -> None:
    if process.is_anothers(path):
        raise BuildError(f"{path} belongs to another user: root leaves nothing in that home")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        home = path.parent.parent  # people keep .conda as a link to another folder of theirs
        safe_write.write_file(path, "".join(f"{p}\n" for p in prefixes), root=home)
    except OSError as error:
        raise not_writable(path.parent, error) from error
