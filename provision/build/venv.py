"""A venv from a lock: virtualenv makes it, uv puts the lock's wheels in, hashes required.

uv is asked first without the network: what the cache holds is linked at once. Only when something
is missing are the indexes asked, after the download's size and the free disk were looked at.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from .. import process
from ..errors import BuildError
from ..index import uv
from ..model import Event, Lock, Sources
from . import tensorflow
from .place import not_writable

_TIMEOUT = 4 * 3600.0
# Unpacked over packed bytes of a whole environment: 1.6 to 2.3 for CUDA wheels (measured on torch,
# TensorFlow and JAX locks of 2026-11). The upper end is asked for, as a disk that is full half-way
# costs more than a warning.
_UNPACKED = 2.3


def build(
    lock: Lock, path: Path, python: str, sources: Sources, emit: Callable[[Event], None], *, final: Path
) -> None:
    """Make an environment at `path` that will live at `final`. Raises BuildError."""
    create(path, python, prompt=final.name)
    install(lock, path, sources, emit)
    _make_relocatable(path)


def create(path: Path, python: str, *, prompt: str) -> None:
    """An empty environment without pip. Raises BuildError."""
    from virtualenv import cli_run

    name = prompt if not prompt.startswith(".") else Path.cwd().name
    argv = [str(path), "--no-seed", "--python", python, "--prompt", name, "--no-periodic-update"]
    # Beside a pyproject.toml virtualenv would write a .venv file that points to the draft (PEP 832). The
    # virtualenv that conda-lock allows (below 21) writes none and does not know the option.
    older = _virtualenv_is_older()
    argv += [] if older else ["--no-venv-redirect"]
    try:
        cli_run(argv, setup_logging=False)
    except (OSError, RuntimeError) as error:
        if isinstance(error, OSError) and error.errno:
            raise not_writable(path, error) from error
        raise BuildError(
            f"virtualenv could not make an environment with {python}: {error}",
            hint="another interpreter: --python VERSION",
        ) from error
    except SystemExit as error:
        raise BuildError(
            f"virtualenv refused {python} (exit {error.code})", hint="another interpreter: --python VERSION"
        ) from error
    if older:
        _mend_activate(path)


def _virtualenv_is_older() -> bool:
    from virtualenv import __version__

    return int(__version__.partition(".")[0]) < 21


def _mend_activate(path: Path) -> None:
    """Before 21, virtualenv wrote the path into a message in double quotes, which an apostrophe in the
    path ends too early."""
    script = path / "bin" / "activate"
    if script.exists():
        said = r'echo "Virtual environment directory .* does not exist!" >&2'
        text = re.sub(
            said, 'echo "The folder of this environment is gone." >&2', script.read_text(encoding="utf-8")
        )
        script.write_text(text, encoding="utf-8")


def settle_scripts(path: Path, python: str) -> None:
    """Write the activate scripts again for the place the environment now has."""
    create(path, python, prompt=path.name)
    _make_relocatable(path)


def scripts_settled(path: Path) -> bool:
    """Whether the activate script knows the place the environment has (not the draft's)."""
    script = path / "bin" / "activate"
    return not script.exists() or f".{path.name}.gpuenv-new" not in script.read_text(encoding="utf-8")


def _make_relocatable(path: Path) -> None:
    """uv then starts scripts through the folder they lie in, so that a rename keeps them alive."""
    config = path / "pyvenv.cfg"
    text = config.read_text(encoding="utf-8")
    if "relocatable" not in text:
        config.write_text(text.rstrip("\n") + "\nrelocatable = true\n", encoding="utf-8")


# --- wheels ------------------------------------------------------------------------------------


def install(lock: Lock, path: Path, sources: Sources, emit: Callable[[Event], None]) -> None:
    """Install a lock's wheels into a venv. Raises BuildError."""
    _make_relocatable(path)
    install_wheels(lock, path, sources, emit)


def install_wheels(lock: Lock, path: Path, sources: Sources, emit: Callable[[Event], None]) -> None:
    """Install a lock's wheels, and nothing else, into an environment of any kind. Raises BuildError."""
    requirements = path / ".gpuenv" / "requirements.txt"
    requirements.write_text(requirements_text(lock), encoding="utf-8")
    total = sum(p.size or 0 for p in lock.packages)
    emit(Event(kind="start", stage="build", text="installing from the cache", total=len(lock.packages)))
    _check_disk(path, total)
    done = _uv_install(lock, path, requirements, sources, offline=True)
    if not done.ok and not sources.offline and _only_missing(done.stderr):
        emit(
            Event(
                kind="start", stage="build", total=total or None, unit="bytes",
                text=f"downloading up to {size(total)} for {len(lock.packages)} packages, "
                f"{size(total * (1 + _UNPACKED))} of disk at most",
            )
        )  # fmt: skip
        _check_disk(_cache(sources), total, cached=True)
        done = _uv_install(lock, path, requirements, sources, offline=False, emit=emit)
    if not done.ok:
        raise _refusal(done, path)
    requirements.unlink()
    for site_packages in path.glob("lib/python3*/site-packages"):
        if linked := tensorflow.link_unfound(site_packages):
            told = f"linked for TensorFlow, whose loader would not find them: {', '.join(linked)}"
            emit(Event(kind="note", stage="build", text=told))
    emit(Event(kind="done", stage="build", text=f"{len(lock.packages)} packages installed"))


def requirements_text(lock: Lock) -> str:
    """The lock as pinned requirements with hashes: they fit any index, mirror or folder."""
    lines = []
    for package in lock.packages:
        if package.sha256 is None:
            raise BuildError(f"the lock has no hash for {package.name} {package.version}")
        lines.append(f"{package.name}==={package.version} --hash=sha256:{package.sha256}")
    return "\n".join(lines) + "\n"


def _uv_install(
    lock: Lock,
    path: Path,
    requirements: Path,
    sources: Sources,
    *,
    offline: bool,
    emit: Callable[[Event], None] | None = None,
) -> process.Finished:
    env = uv.environment(_for_lock(lock, sources, offline=offline), process.environ())
    python = path / ("Scripts" if os.name == "nt" else "bin") / "python"
    argv = [
        uv.program(), "pip", "install", "--python", str(python), "--no-deps", "--require-hashes",
        "--only-binary", ":all:", "--requirements", str(requirements),
    ]  # fmt: skip

    def told(line: str) -> None:
        if emit and (bar := progress(line)):
            emit(Event(kind="progress", stage="build", text=bar))

    watched = emit is not None and os.name == "posix"  # uv tells its progress to a terminal only
    return process.run(argv, env=env, timeout=_TIMEOUT, on_line=told, terminal=watched)


_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_BAR = re.compile(r"([A-Za-z0-9._-]+)\s+-+\s+([\d.]+ ?[KMGTi]*B)/([\d.]+ ?[KMGTi]*B)")


def progress(line: str) -> str | None:
    """What a line of uv's progress says ("torch 120 MiB of 514 MiB"), None for any other line."""
    bar = _BAR.search(_ESCAPE.sub("", line))
    return f"{bar[1]} {bar[2]} of {bar[3]}" if bar else None


def without_progress(log: str) -> str:
    """uv's output on a terminal as plain lines, progress left out."""
    rows = _ESCAPE.sub("", log.replace("\r", "\n")).splitlines()
    return "\n".join(r for r in rows if r.strip() and not _BAR.search(r))


def _for_lock(lock: Lock, sources: Sources, *, offline: bool) -> Sources:
    """The sources, with the indexes and folders that the lock names put to them."""
    import dataclasses

    folders = [str(Path(unquote(urlsplit(p.url).path)).parent) for p in lock.packages
               if p.url.startswith("file:") and p.index is None]  # fmt: skip
    links = dict.fromkeys([*sources.find_links, *(f for f in folders if Path(f).is_dir())])
    pytorch = [p.index for p in lock.packages if p.index and "/whl" in p.index]
    extra = dict.fromkeys([*sources.extra, *pytorch])
    return dataclasses.replace(
        sources, find_links=tuple(links), extra=tuple(extra), offline=offline or sources.offline
    )


_MISSING = re.compile(
    r"network was disabled|Network connectivity is disabled|not found in the cache|offline|"
    r"no version of|not found in the package registry|unsatisfiable",
    re.IGNORECASE,
)


def _only_missing(log: str) -> bool:
    """Whether an offline run failed because something was not in the cache, nothing worse."""
    return bool(_MISSING.search(log)) and "os error 28" not in log and "Hash mismatch" not in log


def _refusal(done: process.Finished, path: Path) -> BuildError:
    log = uv.redacted(without_progress(done.stderr))
    if "os error 28" in log or "No space left" in log:
        return BuildError(
            f"the disk filled up while installing into {path.parent}",
            hint="free space, or put ENV on another disk", log=log,
        )  # fmt: skip
    mismatch = re.search(r"Hash mismatch for `?([^`\s]+)", log)
    if mismatch or "hash" in log.lower():
        name = mismatch.group(1) if mismatch else "a package"
        return BuildError(
            f"{name} is not the file that was locked: its hash differs",
            hint="if the index really changed the file, lock again: gpuenv lock --upgrade", log=log,
        )  # fmt: skip
    if done.timed_out:
        return BuildError(f"installing took longer than {_TIMEOUT / 3600:.0f} hours", log=log)
    return BuildError(
        "the packages could not be installed", log=log, hint="the lines above are the installer's own"
    )


# --- disk --------------------------------------------------------------------------------------


def size(count: float) -> str:
    """Bytes for people: "2.4 GB" (powers of ten, as registries count)."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def _cache(sources: Sources) -> Path:
    if sources.cache_dir:
        return Path(sources.cache_dir)
    asked = process.run([uv.program(), "cache", "dir"], timeout=30)
    return Path(asked.stdout.strip() or "/")


def _check_disk(path: Path, packed: int, *, cached: bool = False) -> None:
    """Raise BuildError when a disk lacks the room. Wheels are unpacked in the cache and linked
    into an environment on the same disk; another disk needs the room again."""
    while not path.exists():
        path = path.parent
    need = packed * ((1 + _UNPACKED) if cached else 0)
    free = shutil.disk_usage(path).free
    if free < need:
        raise BuildError(
            f"{path} has {size(free)} free; downloading and unpacking needs about {size(need)}",
            hint="free space, or choose another disk: --cache-dir DIR and another ENV",
        )


# --- Pythons -----------------------------------------------------------------------------------


def fetch_python(version: str) -> str:
    """The path of a Python that uv manages, fetched if it is not there. Raises BuildError."""
    env = {**process.environ(), "NO_COLOR": "1"}
    done = process.run([uv.program(), "python", "install", version], env=env, timeout=1800)
    found = process.run(
        [uv.program(), "python", "find", "--managed-python", "--no-python-downloads", version],
        env=env, timeout=60,
    )  # fmt: skip
    if not found.ok:
        raise BuildError(
            f"Python {version} is not on this machine and could not be fetched",
            log=uv.redacted(done.stderr), hint="install it, or choose another with --python",
        )  # fmt: skip
    return found.stdout.strip()
