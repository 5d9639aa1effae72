"""Changes an environment completely or not at all.

A new environment replaces the old one when the block ends. If the block raises or the run is killed, the old
environment remains, or none if there was none. `place.recover` removes what an interrupted run left.

`build_in_draft` builds in a hidden folder beside the environment and renames it, which works for a venv. `build_in_place` builds
at the final path, because conda writes its prefix into files. The old environment is renamed, and a marker file
inside the new one says that it is unfinished. One rename moves the new environment with this marker to the path.

A copy of an environment uses hard links if possible, so that gigabytes take a second and no space. Installers replace
files and do not write into them. Files that gpuenv and conda write themselves are copied.

Links inside an environment may lead out of it. A write to `lib/.../site-packages/x` would follow such a link, and an
uninstaller would remove files of a RECORD there. Environments come from archives, shared disks and other people's
projects. So links are checked before a change. Reading an environment follows links.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import BuildError, UsageError
from ..system.files import TooDeepError, explain_write, find_links_out, writing
from . import place, record
from .place import MARK, refuse_mounts


@contextmanager
def build_in_draft(env: Path, *, copied: bool) -> Iterator[Path]:
    """Yield a draft beside the environment: empty, or a copy of it. Raises BuildError."""
    if copied:
        _check_copyable(env)
    with place.draft(env) as draft:
        if copied:
            copy_environment(env, draft)
        yield draft
        place.replace(draft, env)


@contextmanager
def build_in_place(env: Path, *, copied: bool) -> Iterator[Path]:
    """Yield the final path: empty, or a copy of the environment, which is renamed meanwhile. Raises BuildError."""
    if copied:
        _check_copyable(env)
    begun = _set_aside(env)
    try:
        if copied:
            copy_environment(place.get_old_path(env), env)
        yield env
        (env / place.MARK / place.UNFINISHED).unlink()
    except BaseException as error:
        vanished = not (env / place.MARK / place.UNFINISHED).exists()
        if vanished:
            _claim(env, begun)
        place.recover(env)
        if vanished and isinstance(error, (OSError, BuildError)):
            raise _explain_removed(env) from error
        if isinstance(error, OSError) and (failure := place.explain_failure(env, error)):
            raise failure from error
        raise
    place.clear(place.get_old_path(env))


@contextmanager
def keep_current_folder(env: Path) -> Iterator[None]:
    """Enter the path of the current folder again if the block replaced the environment that it is in."""
    here, real = Path.cwd(), env.resolve()
    try:
        yield
    finally:
        if here.is_relative_to(real) and real.is_dir():
            os.chdir(here if here.is_dir() else real)


def _check_copyable(env: Path) -> None:
    """Raise BuildError for an environment that cannot be copied and removed afterwards."""
    check_writable(env)
    check_links(env)


def _set_aside(env: Path) -> int:
    """Rename the environment, and put an empty, marked one at its path. Return the time of its creation in ns."""
    with place.draft(env) as draft:
        marker = draft / place.MARK / place.UNFINISHED
        marker.touch()
        begun = marker.stat().st_ctime_ns
        aside = place.get_old_path(env)
        place.discard(aside)
        try:
            if place.made_by_gpuenv(env):
                refuse_mounts(env)
                env.rename(aside)
            draft.rename(env)  # over an empty folder too
        except OSError as error:
            place.recover(env)
            raise explain_write(env.parent, error) from error
    return begun


def _claim(env: Path, begun: int) -> None:
    """Mark a folder that the solver and uv created again after another program removed the build folder.

    They create it for every remaining file. A folder with anything older than this build is not gpuenv's.
    """
    if not env.is_dir() or env.is_symlink() or _find_oldest_change(env) < begun:
        return
    try:
        (env / place.MARK).mkdir(exist_ok=True)
        (env / place.MARK / place.UNFINISHED).touch()
    except FileNotFoundError:
        return  # it is being removed meanwhile


def _find_oldest_change(env: Path) -> float:
    """Return the earliest change time in a folder, in ns. Linking a file of the cache changes its time."""
    oldest = float("inf")
    for folder, folders, files in os.walk(env):
        for name in (*folders, *files):
            try:
                oldest = min(oldest, (Path(folder) / name).lstat().st_ctime_ns)
            except FileNotFoundError:
                continue
    return oldest


def _explain_removed(env: Path) -> BuildError:
    if place.made_by_gpuenv(place.get_old_path(env)):
        hint = f"another folder now exists at this path. The previous environment was moved to {place.get_old_path(env)}"
    else:
        hint = "run the command again"
    return BuildError(f"{env} was removed by another process while gpuenv used it", hint=hint)


_WRITTEN = (place.MARK, "conda-meta", "pyvenv.cfg")


def check_writable(env: Path) -> None:
    """Raise BuildError for a folder inside that could not be removed afterwards."""
    for folder, _, _ in os.walk(env):
        if not os.access(folder, os.W_OK | os.X_OK):
            raise place.explain_protected(Path(folder))


def copy_environment(source: Path, target: Path) -> None:
    """Copy an environment into a folder. Raises BuildError."""
    with writing(target):
        _copy_folder(source, target, written=False)


def _copy_folder(source: Path, target: Path, *, written: bool) -> None:
    target.mkdir(exist_ok=True)
    with os.scandir(source) as entries:
        for entry in entries:
            old, new = Path(entry.path), target / entry.name
            if written and entry.name == record.VERDICTS:
                continue  # verdicts on the environment before the change
            ours = written or entry.name in _WRITTEN
            if entry.is_symlink():
                new.symlink_to(old.readlink())
            elif entry.is_dir():
                _copy_folder(old, new, written=ours)
            elif ours:
                shutil.copy2(old, new)
            else:
                _link_file(old, new)
    shutil.copystat(source, target)


def _link_file(source: Path, target: Path) -> None:
    """Link a file, or copy it if the file system or the file's owner forbids links."""
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copy2(source, target)


def check_links(env: Path) -> None:
    """Raise BuildError for a link that leads out of an environment and would be written through.

    These are links of folders, and links of files that gpuenv or an installer writes. A link of `bin/python` leads
    out, and is never written through.
    """
    try:
        links = find_links_out(env)
        link = next((e for f, e in links if e.is_dir() or _is_written(os.path.relpath(f, env), e.name)), None)
    except TooDeepError as error:
        raise BuildError(
            str(error.strerror), hint="rebuild the environment: gpuenv create --recreate"
        ) from error
    except OSError as error:
        raise BuildError(f"{error.filename} cannot be searched: {error.strerror or error}") from error
    if link is not None:
        relative = os.path.relpath(link.path, env)
        raise BuildError(
            f"{relative} in {env} is a link to {Path(link.path).readlink()}. gpuenv does not write through links",
            hint="remove the link, or rebuild the environment: gpuenv create --recreate",
        )


def _is_written(folder: str, name: str) -> bool:
    """Return whether a file of this name is written in place, and not replaced by a new file."""
    first, _, rest = folder.partition(os.sep)
    if folder == ".":
        return name in ("pyvenv.cfg", ".gitignore")
    if first == "bin" and not rest:
        return not name.startswith("python")
    return first in (MARK, "conda-meta") or (
        folder.endswith("site-packages") and name.startswith("_virtualenv")
    )


_LISTED = "`gpuenv list` shows the environments that gpuenv made"


def check_removal(env: Path) -> None:
    """Refuse a folder that must not be removed. Raises UsageError, and BuildError if it cannot be read."""
    with writing(env):
        _check_is_ours(env)
        if os.path.lexists(env):
            _check_nobody_needs(env)


def _check_is_ours(env: Path) -> None:
    hint = None
    foreign = env.is_dir() and not place.made_by_gpuenv(env)
    more = foreign and place.holds_more_than_an_environment(env)
    if more or (foreign and not env.is_symlink()):
        problem = f"{env} is a folder that gpuenv did not make; it is left alone"
        hint = _LISTED if more else "to delete it anyway, remove the folder yourself"
    elif env.is_symlink():
        problem = f"{env} is a symbolic link to {env.readlink()}; it is left alone"
        hint = "pass the path of the environment itself, or remove the link with rm"
    elif env.exists() and not env.is_dir():
        problem = f"{env} is a file, not an environment"
    elif not env.exists() and not list(list_leftovers(env)):
        problem, hint = f"{env} does not exist", _LISTED
    elif env.exists() and not place.is_filled(env):
        problem = f"{env} contains a folder {place.MARK}, but is not an environment. It was not removed"
    else:
        return
    raise UsageError(problem, hint=hint)


def _check_nobody_needs(env: Path) -> None:
    real = env.resolve()
    if any(Path(p).resolve().is_relative_to(real) for p in (sys.prefix, __file__)):
        raise UsageError(f"this gpuenv runs from {env}", hint="remove it with another gpuenv, or with rm")
    for folder, whose in (
        (Path.cwd(), "you are inside"),
        (place.find_home_folder(), "your home folder is inside"),
    ):
        if folder and folder.is_relative_to(real):
            raise UsageError(f"{whose} {env}; it is left alone", hint="cd out of it first")
    if mounted := place.find_mount(env):
        raise UsageError(
            f"another disk is mounted at {mounted}; {env} is left alone", hint="unmount it first"
        )
    for folder in (env, env.parent):
        if not os.access(folder, os.W_OK):
            raise place.explain_protected(folder)


def list_leftovers(env: Path) -> Iterator[Path]:
    """Return the folders that interrupted runs left beside the environment."""
    return filter(place.is_leftover, (place.get_draft_path(env), place.get_old_path(env)))


@contextmanager
def removal(env: Path) -> Iterator[None]:
    """Remove an environment that `check_removal` allowed, and the remains of interrupted runs beside it. Raises BuildError.

    It is renamed first, so that its path is free at once. The next removal or build there completes an interrupted
    removal. Within the block, lists of environments and kernels forget it, before its files are removed.
    """
    half = place.get_draft_path(env)
    try:
        place.discard(half)
        if env.is_dir():
            env.rename(half)
        yield
        for path in list_leftovers(env):
            place.discard(path)
    except OSError as error:
        failure = explain_write(env.parent, error)
        failure.hint = f"to remove the remaining files, run again: gpuenv remove {env}"
        raise failure from error
