"""Changes an environment completely or not at all.

A new environment replaces the old one when the block ends. If the block raises or the run is killed, the old
environment remains, or none if there was none. `draft_and_replace_folder.recover` removes what an interrupted run left.

`beside` builds in a hidden folder beside the environment and renames it, which works for a venv. `at_its_path` builds
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
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import BuildError
from ..system.write_inside_folder import TooDeepError, find_links_out, write_file
from . import draft_and_replace_folder, host_verdicts
from .draft_and_replace_folder import MARK, not_writable, refuse_mounts


@contextmanager
def beside(env: Path, *, copied: bool) -> Iterator[Path]:
    """Yield a draft beside the environment: empty, or a copy of it. Raises BuildError."""
    if copied:
        _check(env)
    with draft_and_replace_folder.draft(env) as draft:
        if copied:
            copy(env, draft)
        yield draft
        draft_and_replace_folder.settle(draft, env)


@contextmanager
def at_its_path(env: Path, *, copied: bool) -> Iterator[Path]:
    """Yield the final path: empty, or a copy of the environment, which is renamed meanwhile. Raises BuildError."""
    if copied:
        _check(env)
    begun = _set_aside(env)
    try:
        if copied:
            copy(draft_and_replace_folder.aside(env), env)
        yield env
        (env / draft_and_replace_folder.MARK / draft_and_replace_folder.UNFINISHED).unlink()
    except BaseException as error:
        vanished = not (env / draft_and_replace_folder.MARK / draft_and_replace_folder.UNFINISHED).exists()
        if vanished:
            _claim(env, begun)
        draft_and_replace_folder.recover(env)
        if vanished and isinstance(error, (OSError, BuildError)):
            raise _explain_removed(env) from error
        if isinstance(error, OSError) and (failure := draft_and_replace_folder.disturbed(env, error)):
            raise failure from error
        raise
    draft_and_replace_folder.cleared(draft_and_replace_folder.aside(env))


def _check(env: Path) -> None:
    """Raise BuildError for an environment that cannot be copied and removed afterwards."""
    check_writable(env)
    check(env)


def _set_aside(env: Path) -> int:
    """Rename the environment, and put an empty, marked one at its path. Return the time of its creation in ns."""
    with draft_and_replace_folder.draft(env) as draft:
        marker = draft / draft_and_replace_folder.MARK / draft_and_replace_folder.UNFINISHED
        marker.touch()
        begun = marker.stat().st_ctime_ns
        aside = draft_and_replace_folder.aside(env)
        draft_and_replace_folder.discard(aside)
        try:
            if draft_and_replace_folder.made_by_gpuenv(env):
                refuse_mounts(env)
                env.rename(aside)
            elif env.is_dir():
                env.rmdir()
            draft.rename(env)
        except OSError as error:
            draft_and_replace_folder.recover(env)
            raise draft_and_replace_folder.not_writable(env.parent, error) from error
    return begun


def _claim(env: Path, begun: int) -> None:
    """Mark a folder that the solver and uv created again after another program removed the build folder.

    They create it for every remaining file. A folder with anything older than this build is not gpuenv's.
    """
    if not env.is_dir() or env.is_symlink() or _find_oldest_change(env) < begun:
        return
    try:
        (env / draft_and_replace_folder.MARK).mkdir(exist_ok=True)
        (env / draft_and_replace_folder.MARK / draft_and_replace_folder.UNFINISHED).touch()
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
    if draft_and_replace_folder.made_by_gpuenv(draft_and_replace_folder.aside(env)):
        hint = f"another folder now exists at this path. The previous environment was moved to {draft_and_replace_folder.aside(env)}"
    else:
        hint = "run the command again"
    return BuildError(f"{env} was removed by another process while gpuenv used it", hint=hint)


_WRITTEN = (draft_and_replace_folder.MARK, "conda-meta", "pyvenv.cfg")


def check_writable(env: Path) -> None:
    """Raise BuildError for a folder inside that could not be removed afterwards."""
    for folder, _, _ in os.walk(env):
        if not os.access(folder, os.W_OK | os.X_OK):
            raise BuildError(
                f"{folder} is not writable: it belongs to user {Path(folder).stat().st_uid}",
                hint="change the owner back to the environment's user, or run this command as that user",
            )


def copy(source: Path, target: Path) -> None:
    """Copy an environment into a folder. Raises BuildError."""
    try:
        _copy_folder(source, target, written=False)
    except OSError as error:
        raise draft_and_replace_folder.not_writable(target, error) from error


def _copy_folder(source: Path, target: Path, *, written: bool) -> None:
    target.mkdir(exist_ok=True)
    with os.scandir(source) as entries:
        for entry in entries:
            old, new = Path(entry.path), target / entry.name
            if written and entry.name == host_verdicts.FOLDER:
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


def check(env: Path) -> None:
    """Raise BuildError for a link that leads out of an environment and would be written through.

    These are links of folders, and links of files that gpuenv or an installer writes. A link of `bin/python` leads
    out, and is never written through.
    """
    try:
        link = next((e for f, e in find_links_out(env) if _is_written_through(env, f, e)), None)
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


def _is_written_through(env: Path, folder: str, entry: os.DirEntry[str]) -> bool:
    return entry.is_dir() or _is_written(os.path.relpath(folder, env), entry.name)


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


def break_hard_links(path: Path) -> None:
    """Make a separate copy of a file that has other hard links. Raises BuildError."""
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise BuildError(
                f"{path} is not a regular file", hint="rebuild the environment: gpuenv create --recreate"
            )
        if status.st_nlink > 1:
            write_file(path, path.read_bytes())
    except OSError as error:
        raise not_writable(path, error) from error
