"""An environment's folder: whether gpuenv made it, its draft and its old folder beside it, and its Python.

A venv is built in a hidden folder beside its path, the draft, and renamed to its path. conda builds at the path, with
the old environment renamed aside. A crash at any moment leaves the old environment or none. `.gpuenv/` inside marks
environments of gpuenv. A folder without it is never changed. No Python is started here: `interpreter.py` does that."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shlex
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import BuildError, UsageError, VerifyError
from ..model import Emit, Event, drop_event
from ..system import untrusted
from ..system.files import FULL, explain_write, writing
from . import place_lock

if TYPE_CHECKING:
    from ..model import Environment

MARK = ".gpuenv"
# Also the characters that change the direction of text: the shown path would look like another one.
_CONTROL = r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
UNFINISHED = "building"
"""The file in MARK of an environment that is being built at its final path (conda)."""


def made_by_gpuenv(path: Path) -> bool:
    """Return whether an environment has gpuenv's folder. A link in its place does not count."""
    return (path / MARK).is_dir() and not (path / MARK).is_symlink()


_WRITTEN = ("plan.json", "request.json", "lock.json", UNFINISHED)
"""Files of MARK. Every environment has one of them from the moment that it is at its path."""


def is_filled(env: Path) -> bool:
    """Return whether gpuenv filled the mark, or an interrupted removal left only the mark."""
    written = any((env / MARK / name).exists() for name in _WRITTEN)
    return written or {x.name for x in env.iterdir()} == {MARK}


_PAUSE = 0.2
"""Seconds between two attempts to lock the path."""


def is_undisturbed(path: Path) -> bool:
    """Return whether no run was interrupted here: no unfinished environment at the path or beside it."""
    return not any(p.exists() for p in (get_draft_path(path), get_old_path(path), path / MARK / UNFINISHED))


def check_place(path: Path) -> None:
    """Refuse a path that is a file, a link to another folder, or a folder of other programs. Raises UsageError (exit
    2)."""
    home, other = find_home_folder(), "choose another path for ENV"
    if not path.name.isprintable() and not path.exists() and re.search(_CONTROL, path.name):
        problem = f"the name of {str(path)!r} contains control characters, which activate scripts and pyvenv.cfg do not support"
    elif not path.exists() and re.search(r"[\ud800-\udfff]", str(path)):  # what Python makes of such bytes
        problem = f"{str(path)!r} contains bytes that are not valid UTF-8, which pyvenv.cfg does not support"
    elif path.is_symlink() and not (path.is_dir() and any(path.iterdir())):
        problem = f"{path} is a symbolic link to {path.readlink()}, where no environment is"
        other = f"remove the link, or {other}"
    elif path.exists() and not path.is_dir():
        problem = f"{path} is a file, not an environment"
    elif path.is_dir() and not made_by_gpuenv(path) and any(path.iterdir()):
        problem = f"{path} is a folder that gpuenv did not make; it is left alone"
        other += "" if holds_more_than_an_environment(path) else ", or remove the folder yourself"
        other += (
            f"; to keep its packages: gpuenv create {shlex.quote(str(path))} --adopt"
            if (path / "pyvenv.cfg").is_file()
            else ""
        )
    elif made_by_gpuenv(path) and not is_filled(path):
        problem = f"{path} contains a folder {MARK}, but is not an environment. It was not changed"
        other += ", or remove the folder yourself"
    elif home and path.is_dir() and home.is_relative_to(path.resolve()):
        problem = f"your home folder is inside {path}; it is left alone"
    else:
        return
    raise UsageError(problem, hint=other)


@contextmanager
def lock_place(path: Path, emit: Emit = drop_event, *, wait: bool = False) -> Iterator[None]:
    """Lock the environment's path against other gpuenv processes within the block. Raises BuildError.

    With `wait`, wait for another process that has the lock, and say so.
    """
    with ExitStack() as lock:
        real, announced = path.resolve(), False
        while True:
            try:
                lock.enter_context(place_lock.locked(real, emit))
                break
            except OSError as error:
                raise explain_write(real.parent, error) from error
            except place_lock.InUseError as error:
                if not wait:
                    raise
                if not announced:
                    emit(Event("note", "build", f"waiting: {error.message}"))
                announced = True
                time.sleep(_PAUSE)
        yield


def explain_protected(folder: Path) -> BuildError:
    """Return the error for a folder that this user may not write to, or has protected."""
    found = folder.stat()
    if found.st_uid == os.geteuid() and not found.st_mode & 0o200:
        return BuildError(f"{folder} is write-protected", hint=f"chmod -R u+w {shlex.quote(str(folder))}")
    return BuildError(
        f"{folder} is write-protected: it belongs to user {found.st_uid}",
        hint="choose another path for ENV, or run the command as a user with write permission",
    )


@contextmanager
def draft(place: Path) -> Iterator[Path]:
    """Create an empty, marked folder beside a path, and remove it afterwards unless `replace` moved it.

    Raises BuildError if it cannot be created.
    """
    path = get_draft_path(place)
    if made_by_gpuenv(place) and not os.access(place, os.W_OK | os.X_OK):
        raise explain_protected(place)
    with writing(place.parent):
        place.parent.mkdir(parents=True, exist_ok=True)
        discard(path)
        path.mkdir()
        (path / MARK).mkdir()
    try:
        yield path
    except OSError as error:
        if failure := explain_failure(path, error):
            raise failure from error
        raise
    finally:
        if path.is_dir() and not path.is_symlink():
            # Another program may have removed the folder while an installer wrote in it. A new folder is then ours.
            (path / MARK).mkdir(exist_ok=True)
        clear(path)


def discard(path: Path) -> None:
    """Remove a folder that gpuenv made, or an empty one. Refuse any other. Links are removed, never followed."""
    if path.is_symlink():
        path.unlink()
    elif path.is_dir():
        if not made_by_gpuenv(path) and any(path.iterdir()):
            raise BuildError(
                f"{path} already exists and was not created by gpuenv", hint="move it away, then try again"
            )
        refuse_mounts(path)
        # The mark is removed last, so that the rest of an interrupted removal is still known as gpuenv's.
        for child in path.iterdir():
            if child.name != MARK:
                _remove(child) if child.is_dir() and not child.is_symlink() else child.unlink()
        _remove(path)


def _remove(folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except RecursionError as error:
        raise BuildError(
            f"{folder} contains folders that are nested too deeply to remove",
            hint=f"rm -rf {shlex.quote(str(folder))}",
        ) from error


def clear(path: Path) -> None:
    """Remove a folder with `discard` at the end of a run. Raises BuildError."""
    with writing(path):
        discard(path)


def replace(built: Path, place: Path) -> None:
    """Move a finished draft to its path. Raises BuildError.

    An existing environment is renamed first and removed last. Both exist between the two renames.
    """
    place_lock.assert_held(place.resolve())
    before = get_old_path(place)
    discard(before)
    old = made_by_gpuenv(place)
    if old:
        refuse_mounts(place)
    with writing(place.parent):
        if old:
            place.rename(before)
        try:
            built.rename(place)
        except OSError:
            if old:
                before.rename(place)
            raise
    clear(before)


def recover(place: Path) -> None:
    """Complete a replacement that a kill interrupted. Raises BuildError.

    An unfinished environment at the path is moved aside first. If the path is empty, the old environment is renamed
    back. If both exist, the old one is removed, unless the path has a folder of another program. What is to be removed
    is removed last: that takes long, and a process that outlived the interrupted run could make a folder at the path.
    """
    half, before = get_draft_path(place), get_old_path(place)
    with writing(place.parent):
        if (place / MARK / UNFINISHED).exists():
            discard(half)
            place.rename(half)
        if made_by_gpuenv(before):
            if made_by_gpuenv(place):
                discard(before)
            elif not os.path.lexists(place) or _is_empty(place):
                before.rename(place)
        if is_leftover(half):
            discard(half)
        if _is_empty(before):  # a removal was killed after it had removed the mark
            discard(before)


def is_leftover(path: Path) -> bool:
    """Return whether a folder beside an environment is what an interrupted run left: one of gpuenv, or an empty one."""
    return not path.is_symlink() and (made_by_gpuenv(path) or _is_empty(path))


def _is_empty(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink() and not any(path.iterdir())


def get_draft_path(place: Path) -> Path:
    """Return the path of the draft of an environment, and of an environment that is being removed."""
    return _get_sibling(place, "new")


def get_old_path(place: Path) -> Path:
    """Return the path of the old environment while a new one is built."""
    return _get_sibling(place, "old")


def _get_sibling(place: Path, end: str) -> Path:
    if not place.name:
        raise UsageError(f"{place} cannot be used for an environment", hint="choose another path for ENV")
    return place.with_name(f".{place.name}.gpuenv-{end}")


def explain_failure(path: Path, error: OSError) -> BuildError | None:
    """Return the error for a run whose build folder failed, or None for an error of another folder."""
    if error.errno in (*FULL, errno.EROFS) or str(error.filename).startswith(str(path)):
        return explain_write(path, error)
    return None


# --- folders that are never removed: the home folder, file system roots, mount points --------------


def find_home_folder() -> Path | None:
    try:
        return Path.home()
    except RuntimeError:
        return None  # neither HOME nor the user database names one


def holds_more_than_an_environment(path: Path) -> bool:
    """Return whether a folder contains the home folder, or is the root of the file system or directly below it.

    Messages never advise to remove such a folder.
    """
    real, home = path.resolve(), find_home_folder()
    return (
        real == real.parent
        or real.parent == Path(real.anchor)
        or bool(home and home.resolve().is_relative_to(real))
    )


def find_mount(env: Path) -> Path | None:
    """Return the mount point of another disk at or in a folder, or None. Files there would be removed from that disk."""
    real = env.resolve()
    inside = next((m for m in _read_mounts() if m.is_relative_to(real)), None)
    return inside or (env if os.path.ismount(env) else None)


def _read_mounts() -> list[Path]:
    """Return the mount points from Linux's table (proc(5): the fifth field, blanks as octal)."""
    try:
        rows = Path("/proc/self/mountinfo").read_bytes().splitlines()
    except OSError:
        return []  # on other systems ismount checks the environment itself
    points = [row.split(b" ")[4] for row in rows if row.count(b" ") > 4]
    return [Path(os.fsdecode(p.decode("unicode_escape").encode("latin-1"))) for p in points]


def refuse_mounts(path: Path) -> None:
    """Raise BuildError if another disk is mounted in a folder to remove."""
    if place := find_mount(path):
        raise BuildError(f"another disk is mounted at {place}; {path} is left alone", hint="unmount it first")


def find_python(env: Path) -> Path | None:
    """Return the Python of an environment, which may be a link, or None without one that can be run.

    In one of gpuenv that lost its pyvenv.cfg it would be that of the machine.
    """
    if made_by_gpuenv(env) and not _is_environment(env):
        return None
    return next((env / n for n in ("bin/python", "bin/python3") if os.access(env / n, os.X_OK)), None)


def locate_environment(env: Path) -> Environment:
    """Return the environment at a path: a venv, a conda prefix, or a Python executable.

    Only files are read, and nothing has to be installed in it. The executable is not resolved: a venv's python is a
    link, and the target of the link does not know the venv. The version is the one that pyvenv.cfg states, or None.

    Raise UsageError if there is no Python at the path, or a pipe in the place of its settings. Its hint names the most similar environment.
    """
    from ..model import Environment

    path = Path(os.path.abspath(env.expanduser()))  # noqa: PTH100  # removes "..", and keeps links
    if path.is_dir():
        root, python = path, find_python(path)
    elif path.exists():
        if not os.access(path, os.X_OK):
            raise UsageError(f"{path} is a file that cannot be run", hint=suggest_environment(path))
        root, python = path.parent.parent if path.parent.name == "bin" else path.parent, path
    elif path.is_symlink():
        raise UsageError(
            f"{path} is a link to {path.readlink()}, which does not exist",
            hint="The Python of this environment was removed. Create the environment again.",
        )
    else:
        python = None
    if python is None:
        raise UsageError(describe_missing_python(path), hint=suggest_environment(path))
    settings = root / "pyvenv.cfg"
    if settings.exists() and not settings.is_file():  # its Python would wait for a pipe
        raise UsageError(f"{settings} is not a regular file", hint="build the environment again")
    return Environment(
        path=str(root),
        manager=_find_manager(root),
        python=str(python),
        python_version=_read_stated_version(root),
        made_by_gpuenv=made_by_gpuenv(root),
    )


def describe_missing_python(path: Path) -> str:
    """Say why a path is no environment: it is missing, or its Python is."""
    if not path.exists():
        return f"{path} does not exist"
    python = path / "bin/python"
    state = "bin/python is missing" if not os.access(python, os.X_OK) else "pyvenv.cfg is missing"
    if python.is_symlink() and not python.exists():
        state = f"bin/python is a link to {python.readlink()}, which does not exist"
    return f"{path} has no Python: {state}"


def require_python(env: Path) -> None:
    """Raise VerifyError (exit code 8) for an environment of gpuenv without its Python."""
    if made_by_gpuenv(env) and not find_python(env):
        raise VerifyError(describe_missing_python(env), hint=suggest_environment(env))


def _find_manager(root: Path) -> str | None:
    if (root / "conda-meta").is_dir():
        return "conda"
    return "venv" if (root / "pyvenv.cfg").is_file() else None


def read_settings(env: Path) -> dict[str, str]:
    """Return pyvenv.cfg, empty for a conda environment, which contains its own Python. Raises OSError."""
    try:
        text = untrusted.read_bytes(env / "pyvenv.cfg").decode("utf-8", "replace")
    except FileNotFoundError:
        return {}
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip().lower(): value.strip() for key, _, value in pairs}


def _read_stated_version(root: Path) -> str | None:
    """Return the version of Python in pyvenv.cfg, or None."""
    with contextlib.suppress(OSError):
        settings = read_settings(root)
        stated = settings.get("version") or settings.get("version_info") or ""
        match = re.match(r"\d+\.\d+\.\d+", stated)
        return match and match.group()
    return None


def suggest_environment(path: Path) -> str:
    """Return a hint with the environment that the user may have meant."""
    import difflib

    inside = [p for p in (path / ".venv", path / "venv", path / "env") if _is_environment(p)]
    if inside:
        return f"Did you mean {inside[0]}?"
    if made_by_gpuenv(path):
        return f"rebuild it: gpuenv create {shlex.quote(str(path))} --recreate"
    parent = path.parent
    siblings = sorted(p for p in _list_folders(parent) if p != path and _is_environment(p))
    close = difflib.get_close_matches(path.name, [p.name for p in siblings], n=1, cutoff=0.5)
    if close:
        return f"Did you mean {parent / close[0]}?"
    if siblings:
        return "name an environment, such as " + ", ".join(str(p) for p in siblings[:5])
    return "name a venv, a conda environment or a Python; `gpuenv list` shows those of gpuenv"


def _list_folders(folder: Path) -> list[Path]:
    try:
        return [p for p in folder.iterdir() if p.is_dir()]
    except OSError:
        return []


def _is_environment(path: Path) -> bool:
    return (path / "pyvenv.cfg").is_file() or (path / "conda-meta").is_dir()


def roll_back_interrupted(emit: Emit, env: Path) -> None:
    """Restore the environment as it was before an interrupted run.

    If another run uses it, or nothing can be written, emit a note and change nothing.
    """
    if is_undisturbed(env):
        return
    try:
        with lock_place(env, emit):
            recover(env)
    except BuildError as error:
        emit(Event("note", "build", error.message))
        return
    if is_undisturbed(env):
        outcome = "the environment is restored" if made_by_gpuenv(env) else "its files are removed"
        emit(Event("note", "build", f"{env}: an earlier run was interrupted; {outcome}"))
