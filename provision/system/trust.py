"""Decides whose files and programs count: those of this user and of root, which no other user can write to.

Everything that decides what gpuenv installs or runs is read or started through this module. A file is checked after
it was opened, so that nobody can replace it between check and reading. A group with other members is other users. A
user's own private group is not: the umask 002 of many systems lets it write to every file.

For root only root's files count. Files of a project and records of an environment may also belong to the owner of
their folder, so that a container works on a mounted checkout.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import stat
import sys
from collections.abc import Callable, Container, Iterable, Iterator
from pathlib import Path
from typing import ClassVar

from ..errors import UsageError
from . import untrusted
from .files import find_existing, write_file

_ROOT = 0
_MOST_LINKS = 40
"""The most links that the kernel follows in one path (path_resolution(7))."""
_LAST_FIXED_GROUP = 99
"""Groups up to this one are the same on every Debian system (policy 9.2.2), such as `staff` of /usr/local."""
_PRIVATE = 0o700
_SHARED = 0o022
_BEING_CLEARED = 0o1700
"""The mode of a cache that is closed to others, but may still have entries that they wrote."""
_CACHE_ENTRY = (
    r"conda|measured|pages|requirements|satellites|source-archives|uv|(profiles|project|default-index)-.*|pythons\.json"
    r"|[a-z]+(-[a-z]+)*-v\d+|CACHEDIR\.TAG|\.(git|gitignore|lock|tmp\w*|.*\.gpuenv-new)"  # uv, and drafts
    r"|pkgs|repodata|run-exports|http-cache|uv-cache"  # rattler
)
"""The names in a cache of gpuenv, uv or rattler. A folder with other names is used for something else too."""

_INSTALLERS = ("uv", "conda")
"""The caches of installers in a folder of --cache-dir."""
_ACCEPT_PROJECT = "read it first. --trust-project accepts what other users own or can write"
_MAKE_OWN = "give it to your user and take the others' right to write (chown, chmod go-w), or name another"

_OTHER_CACHE = "name another folder: --cache-dir DIR, or UV_CACHE_DIR and RATTLER_CACHE_DIR"


class UntrustedError(UsageError):
    """A file or program that another user can change. `reason` names the place, its owner and who can write to it."""

    def __init__(self, path: str | os.PathLike[str], reason: str, hint: str) -> None:
        what = "it" if reason.startswith(f"{path} ") else str(path)
        by = "as root gpuenv does not use" if os.geteuid() == _ROOT else "gpuenv does not use"
        super().__init__(f"{reason}: {by} {what}, because another user can change it", hint=hint)
        self.reason = reason


# --- what the user accepts and reads ---------------------------------------------------------------


class _Session:
    """What this run accepts, and where its notes go."""

    accepts_project = False
    report: Callable[[str], None] | None = None
    noted: ClassVar[dict[str, None]] = {}


def accept_project(accepted: bool) -> None:
    """Accept files of projects and environments of other users from now on (`--trust-project`), or no longer."""
    _Session.accepts_project = accepted


def listen(report: Callable[[str], None]) -> None:
    """Send notes on what is not used to `report`, each once, also those that nobody heard."""
    unheard = [] if _Session.report else [*_Session.noted]
    _Session.noted.clear()
    _Session.report = staticmethod(report)
    for text in unheard:
        note(text)


def note(text: str) -> None:
    """Say once what is not used."""
    if _Session.report and text not in _Session.noted:
        _Session.report(text)
    _Session.noted[text] = None


# --- files -----------------------------------------------------------------------------------------


def read_project(path: Path, most: int = untrusted.MOST, *, env: Path | None = None) -> bytes:
    """Return the bytes of a file of a project, a lock or a target, or of a record that the owner of `env` may have written.

    Raises UntrustedError, OSError.
    """
    beside = env or (path.parent if _is_root() else None)
    return _read(path, _ACCEPT_PROJECT, most, beside, accepted=_Session.accepts_project)


def read_configuration(path: Path, *, named: bool = False) -> bytes | None:
    """Return the bytes of a configuration of the user, or None if it is missing, unreadable or another user's.

    The latter is noted. A `named` one must be readable and trusted. Raises UntrustedError, OSError.
    """
    try:
        return _read(path, _MAKE_OWN)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError:
        if named:
            raise
        return None
    except UntrustedError as error:
        if named:
            raise
        note(error.message)
        return None


def read_cached(path: Path) -> bytes:
    """Return the bytes of a cache entry. Raises OSError, also for an entry that another user can change."""
    try:
        return _read(path, hint="")
    except UntrustedError as error:
        raise PermissionError(errno.EPERM, error.reason, str(path)) from error


def write_cached(path: Path, text: str) -> None:
    """Write a cache entry that only this user can write to. The cache is optional, so a failure is ignored."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # a replaced file would keep its mode
        write_file(path, text, mode=0o600)


def narrow_umask() -> None:
    """Let no other user write to the files of this run, whatever the umask: gpuenv would refuse its own files."""
    os.umask(os.umask(_SHARED) | _SHARED)


def _read(
    path: Path, hint: str, most: int = untrusted.MOST, beside: Path | None = None, *, accepted: bool = False
) -> bytes:
    """Return the bytes of a regular file that only trusted users can change, or of a descriptor of the user (`-r <(command)`).

    The owner of the folder `beside` is trusted as well, unless everybody can write to it, and an `accepted` file is not judged.
    Raises UntrustedError with `hint`, and OSError.
    """
    with untrusted.open_regular(path) as file:
        if not accepted and not untrusted.is_descriptor(path):
            status = os.fstat(file.fileno())
            if reason := _find_fault(str(path), _list_trusted(beside), status):
                raise UntrustedError(path, reason, hint)
        return untrusted.read_open(file, path, most)


def refuse_foreign_folder(env: Path) -> None:
    """Raise UntrustedError for an existing environment that nobody named, if another user can change it."""
    env = env.absolute()
    if _Session.accepts_project or not env.exists():
        return
    if reason := _find_fault(str(env), _list_trusted(env.parent if _is_root() else None), env.stat()):
        name = "" if _is_root() else ", or name the environment"
        raise UntrustedError(env, reason, f"{_ACCEPT_PROJECT}{name}")


# --- programs --------------------------------------------------------------------------------------


def may_start(program: Path, *, named: bool = False) -> None:
    """Raise UntrustedError for a program that another user can change, itself or a folder or link on its way.

    The Python that runs gpuenv may start. So may a program that was `named`, except for root, who has to accept it.
    Raises OSError.
    """
    if named and (_Session.accepts_project or not _is_root()):
        return
    reason = _find_fault(str(program), _list_trusted())
    # Only by this path: an environment's link to it is a Python that runs the environment's code.
    if reason and str(program) not in (sys.executable, os.path.realpath(sys.executable)):
        how = "--trust-project starts it" if named else "install a program of root"
        raise UntrustedError(
            program, reason, f"run gpuenv as its owner (sudo -u), or {how}" if _is_root() else _MAKE_OWN
        )


def find_program(name: str, path: str | None) -> Path | None:
    """Return the first program of that name in the absolute folders of a PATH that may start, or None."""
    for folder in list_absolute_entries(path):
        program = folder / name
        try:
            if os.access(program, os.X_OK) and not program.is_dir():
                may_start(program)
                return program
        except UntrustedError as error:
            note(error.message)
    return None


def list_absolute_entries(path: str | None) -> Iterator[Path]:
    """Yield the absolute folders of a PATH. Relative and empty entries change with the working directory."""
    return (Path(entry) for entry in (path or "").split(os.pathsep) if Path(entry).is_absolute())


def filter_path(path: str) -> str:
    """Return a PATH for programs that look for others (uv starts git) without folders that everybody can write to.

    Root's has only folders that other users cannot change.
    """
    return os.pathsep.join(map(str, filter(_may_hold_programs, list_absolute_entries(path))))


def _may_hold_programs(folder: Path) -> bool:
    try:
        if _is_root():
            return _find_fault(str(folder), _list_trusted()) is None
        return not folder.stat().st_mode & stat.S_IWOTH
    except OSError:
        return False


def assert_unchangeable(paths: Iterable[Path], *, without: Container[str] = ()) -> None:
    """Check paths with every folder above them, the contents of folders, and the targets of links.

    `without` are names of folders directly in these paths that are not examined. Raises UntrustedError for the first
    file that another user can change, and OSError.
    """
    trusted, walked = _list_trusted(), set[str]()
    for path in map(str, paths):
        waiting = [path]  # and the links in it
        while waiting:
            place = waiting.pop()
            reason, folder = _find_fault(place, trusted), os.path.realpath(place)
            if not reason and folder not in walked and os.path.isdir(folder):  # noqa: PTH112  # a text here
                walked.add(folder)
                for inside, status in _list_tree(folder, without if place == path else ()):
                    reason = reason or _describe_fault(inside, status, trusted)
                    if stat.S_ISDIR(status.st_mode):
                        walked.add(inside)
                    elif stat.S_ISLNK(status.st_mode) and os.path.exists(inside):  # noqa: PTH110  # a text here
                        waiting.append(inside)
            if reason:
                raise UntrustedError(path, reason, _MAKE_OWN)


# --- owners and modes ------------------------------------------------------------------------------


def _is_root() -> bool:
    return os.geteuid() == _ROOT


def _list_trusted(beside: Path | None = None) -> frozenset[int]:
    """Return the users whose files count: this one, root, and the owner of a folder that not everybody can write to."""
    status = beside.stat() if beside else None
    owner = {status.st_uid} if status and not status.st_mode & stat.S_IWOTH else set[int]()
    return frozenset({_ROOT, os.geteuid()} | owner)


def _find_fault(path: str, trusted: frozenset[int], opened: os.stat_result | None = None) -> str | None:
    """Return who else can change what is at a path, or None. Raises OSError.

    Each folder on the way to a program counts, because it looks for files beside it. For a file that was `opened`,
    links count, and folders in which everybody can replace files that this user does not own.
    """
    is_open = False  # everybody can write to a folder on the way
    for place, status in _walk(path):
        is_folder = stat.S_ISDIR(status.st_mode)
        reason = _describe_fault(place, status, trusted, in_open_folder=is_open)
        writable = bool(is_folder and status.st_mode & stat.S_IWOTH)
        counts = opened is None or not is_folder or (writable and opened.st_uid != os.geteuid())
        if reason and counts and not (opened and stat.S_ISREG(status.st_mode)):
            return reason
        is_open |= writable
    return _describe_fault(path, opened, trusted, in_open_folder=is_open) if opened else None


def _describe_fault(
    place: str, status: os.stat_result, trusted: frozenset[int], *, in_open_folder: bool = False
) -> str | None:
    """Return the owner of a file, folder or link and who else can write to it, or None for nobody else."""
    mode, owner = status.st_mode, status.st_uid
    is_known = owner in trusted or (owner == _find_unmapped_root() and not in_open_folder)
    is_sticky = stat.S_ISDIR(mode) and mode & stat.S_ISVTX  # only owners rename and remove files in it
    if is_known and (not mode & _SHARED or stat.S_ISLNK(mode) or is_sticky):
        return None
    belongs = f"{place} belongs to {_name_user(owner)}"
    if not is_known:
        return belongs
    if mode & stat.S_IWOTH:
        return f"{belongs} and can be written by every user"
    return (
        f"{belongs} and can be written by {_name_group(status.st_gid)}"
        if _is_shared(status.st_gid, owner)
        else None
    )


def _walk(path: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield every folder and link on the way to a path, and its target. Raises OSError."""
    at, left, links = os.sep, [*reversed(Path(path).absolute().parts)], 0
    while left:
        part = left.pop()
        if part == os.sep:
            continue
        if part == os.pardir:
            at = os.path.dirname(at)  # noqa: PTH120  # a text here
            continue
        place = at.rstrip(os.sep) + os.sep + part
        status = os.lstat(place)
        yield place, status
        if not stat.S_ISLNK(status.st_mode):
            at = place
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        target = os.readlink(place)  # noqa: PTH115  # a text here
        at = os.sep if target.startswith(os.sep) else at
        left += reversed(Path(target).parts)


def _list_tree(folder: str, without: Container[str]) -> Iterator[tuple[str, os.stat_result]]:
    """Yield what is in a folder and its folders, not through links and not in those directly in it that are `without`."""
    waiting = [folder]
    while waiting:
        with os.scandir(here := waiting.pop()) as entries:
            for entry in entries:
                if here == folder and entry.name in without:
                    continue
                with contextlib.suppress(FileNotFoundError):  # another run removed it
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(status.st_mode):
                        waiting.append(entry.path)
                    yield entry.path, status


@functools.cache
def _is_shared(group: int, owner: int) -> bool:
    """Return whether other users than root, this one and the owner of a file are in its group.

    A private group is its user's primary group, has the user's name, and no other members. A directory service does
    not tell everybody's primary group, so that a group of another name counts as shared.
    """
    if group == _ROOT:
        return False
    import grp
    import pwd

    try:
        known = grp.getgrgid(group)
    except KeyError:
        return group not in (
            owner,
            os.geteuid(),
        )  # in a container without names, user and group share a number
    users = {one.pw_name: one for one in pwd.getpwall()}
    for uid in {owner, os.geteuid()}:
        with contextlib.suppress(KeyError):
            mine = pwd.getpwuid(uid)
            others = {name for name, one in users.items() if one.pw_gid == group} | set(known.gr_mem)
            if mine.pw_gid == group and known.gr_name == mine.pw_name and others <= {mine.pw_name, "root"}:
                return False
    in_use = set(known.gr_mem) | {name for name, one in users.items() if one.pw_gid == group}
    return group > _LAST_FIXED_GROUP or not in_use <= {"root"}


@functools.cache
def _find_unmapped_root() -> int | None:
    """Return the user id that stands for root where the user namespace has no root, as in Apptainer, else None."""
    try:
        rows = [row.split() for row in Path("/proc/self/uid_map").read_text(encoding="ascii").splitlines()]
        number = int(Path("/proc/sys/kernel/overflowuid").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return None if any(row[1] == "0" for row in rows) else number


def _name_user(uid: int) -> str:
    import pwd

    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


def _name_group(gid: int) -> str:
    import grp

    try:
        return f"group {grp.getgrgid(gid).gr_name} (gid {gid})"
    except KeyError:
        return f"gid {gid}"


# --- folders of the user ---------------------------------------------------------------------------


def list_homes() -> set[Path]:
    """Return the home folders of this user: that of HOME, and that of the user database."""
    import pwd

    homes = {os.environ.get("HOME", "")}
    with contextlib.suppress(KeyError):
        homes.add(pwd.getpwuid(os.geteuid()).pw_dir)
    return {Path(home) for home in homes if home.startswith("/")}


def find_foreign_owner(path: Path) -> str | None:
    """Return the other user in whose folder a new file would be, for root only: that user could not change it."""
    if not _is_root():
        return None
    owner = find_existing(path).stat().st_uid
    return _name_user(owner) if owner != _ROOT else None


@functools.cache
def secure_cache(folder: Path) -> Path:
    """Make a cache private (0700) and return it. A missing one is created.

    One that was open to others is emptied, if they own or can write an entry. A folder with other names than those of
    caches keeps its mode. Raises UntrustedError for a folder of another
    user, and for a folder that is not only a cache and that others can write to.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=_PRIVATE)
        status, names = folder.stat(), os.listdir(folder)  # noqa: PTH208  # names alone are wanted
    except OSError:
        return folder  # whoever writes to it reports the error
    refuse_foreign_cache(folder)
    if status.st_mode & 0o1777 == _PRIVATE:
        return folder
    trusted = _list_trusted()
    if not all(re.fullmatch(_CACHE_ENTRY, name) for name in names):
        if reason := _describe_fault(str(folder), status, trusted):
            raise UntrustedError(folder, f"{reason}, and has more than a cache", _OTHER_CACHE)
        return folder
    try:
        folder.chmod(_BEING_CLEARED)
        # Caches of installers settle themselves.
        entries = (e for e in _list_tree(str(folder), _INSTALLERS) if not _is_lock(*e, trusted))
        if reason := next(filter(None, (_describe_fault(*entry, trusted) for entry in entries)), None):
            note(f"{reason}: the cache {folder} is emptied")
            _empty(folder)
        folder.chmod(_PRIVATE)
    except OSError as error:
        reason = f"{folder} was open to other users, and {error.filename} cannot be removed: {error.strerror}"
        raise UntrustedError(folder, reason, _OTHER_CACHE) from error
    return folder


def _is_lock(place: str, status: os.stat_result, trusted: frozenset[int]) -> bool:
    """Return whether an entry is a lock file: uv lets every user open its own (0666), and reads nothing in them."""
    return place.endswith(".lock") and stat.S_ISREG(status.st_mode) and status.st_uid in trusted


def refuse_foreign_cache(folder: Path) -> None:
    """Raise UntrustedError for an existing cache of another user."""
    with contextlib.suppress(OSError):
        if (owner := folder.stat().st_uid) != os.geteuid():
            raise UntrustedError(folder, f"{folder} belongs to {_name_user(owner)}", _OTHER_CACHE)


def _empty(cache: Path) -> None:
    """Remove everything in a cache, because its entries refer to each other. Raises OSError."""
    import shutil

    for entry in cache.iterdir():
        if entry.name in _INSTALLERS:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink(missing_ok=True)


_OF_THE_USER = ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")


def choose_home(*, cache: bool = True) -> str | None:
    """Give this process a usable home and cache, and return a note about a replacement.

    Root does not use the folders of another user, as with a `sudo` that keeps HOME: they configure what root installs,
    and that user could not change root's files there. The user of a container often has no HOME, that of root
    (`docker run --user`), or one that is not writable. A private temporary folder replaces it. It becomes HOME if the
    home does not exist or may not be entered. With `cache` it becomes XDG_CACHE_HOME, which gpuenv, uv and rattler
    share. Folders of configuration and data that may not be entered are left out.
    """
    left = {name: owner for name in _OF_THE_USER
            if (value := os.environ.get(name)) and (owner := find_foreign_owner(Path(value)))}  # fmt: skip
    for name in left:
        del os.environ[name]
    home = Path(os.path.expanduser("~"))  # noqa: PTH111  # Path.expanduser raises where this returns "~"
    if problem := _describe_home(home):
        temporary = os.environ["HOME"] = _make_own_temporary()
        return f"{problem}. Using {temporary}, which the system may delete"
    for name, place in (("XDG_CONFIG_HOME", ".config"), ("XDG_DATA_HOME", ".local/share")):
        folder = Path(os.environ.get(name) or home / place)
        if _is_closed(folder) or _is_closed(folder / "gpuenv"):
            temporary = os.environ[name] = str(Path(_make_own_temporary(), place))
            return f"{folder} cannot be read. Using {temporary}, which the system may delete. To choose a folder, set {name}"
    notes = []
    if left:
        os.environ["HOME"] = str(home)
        notes.append(
            f"root does not use the folders of {' and '.join({*left.values()})} in {', '.join(left)}. Using {home}"
        )
    kept = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    if cache and (fault := _find_cache_fault(kept)):
        temporary = os.environ["XDG_CACHE_HOME"] = str(Path(_make_own_temporary(), ".cache"))
        notes.append(
            f"{fault}. Using {temporary}, which the system may delete. To choose a folder, use --cache-dir"
        )
    return ". ".join(notes) or None


def _describe_home(home: Path) -> str | None:
    """Return why a home folder cannot be used, or None."""
    if not home.is_absolute():
        return "this user has no home folder"
    if _is_closed(home):
        return f"the home folder {home} cannot be read by this user"
    # A home that does not exist (/nonexistent, of users such as `nobody`) is not created.
    return None if home.is_dir() else f"the home folder {home} does not exist"


def _is_closed(folder: Path) -> bool:
    """Return whether a folder exists, or may exist, where this user may not enter it."""
    try:
        folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return folder.is_dir() and not os.access(folder, os.R_OK | os.X_OK)


def _find_cache_fault(kept: Path) -> str | None:
    """Return why the caches of gpuenv, uv and rattler in a folder cannot be used, or None."""
    own = kept / "gpuenv"
    try:
        secure_cache(own)
        for other in (kept / "uv", kept / "rattler" / "cache"):
            refuse_foreign_cache(other)
        return None if os.access(own, os.W_OK) else f"{kept} cannot be written"
    except UntrustedError as error:
        return error.reason


def _make_own_temporary() -> str:
    """Return a folder that only this user can have written to."""
    import tempfile

    path = Path(tempfile.gettempdir(), f"gpuenv-{os.getuid()}")
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    status = path.lstat()
    is_private = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022
    return str(path) if is_private else tempfile.mkdtemp(prefix="gpuenv-")
