"""Writes files inside a folder without following links out of it, and the output file of a command.

Projects, bundles and environments are untrusted, and their links may lead anywhere. Links at or above the
folder that the user names are followed. A link inside it is followed if it stays inside, and rejected
otherwise. Folders are opened one by one without following links. So a folder replaced by a link during the
write is rejected as well.

An output file contains a digest of its text. Without `--force` gpuenv does not replace a file that has no digest,
because another program wrote it. The same applies to a file with a different digest, because it was edited.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import shlex
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, final

from ..errors import BuildError, UsageError
from . import untrusted
from .redaction import clean_line

_AS_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC  # macOS has no O_PATH
_NO_LINK = os.O_NOFOLLOW | os.O_CLOEXEC
FULL = (errno.ENOSPC, errno.EDQUOT)
"""The errors of a disk without space, or of a user without more of it."""
_DRAFT = ".{}.gpuenv-new"
_DEEPEST = 60
"""The most nested folders: more than any package has, and fewer than a path can name."""


class LinkError(OSError):
    """A link that leads out of the target folder of a write."""

    hint = "remove the link, or name the folder that it leads to"

    def __init__(self, path: Path, root: Path) -> None:
        with contextlib.suppress(ValueError):
            path = path.relative_to(root)
        folder = "the current folder" if root == Path() else root
        super().__init__(
            errno.ELOOP, f"{path} is a link to a path outside {folder}. gpuenv does not write through it"
        )


def suggest_fix(error: OSError, otherwise: str) -> str:
    """Return the hint for a failed write. A link out of the folder and a full disk have their own hints."""
    if error.errno in FULL:
        return f"free space on the disk of {error.filename}" if error.filename else "free space on the disk"
    return error.hint if isinstance(error, LinkError) else otherwise


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise a BuildError for an error of the file system in the block."""
    try:
        yield
    except OSError as error:
        raise explain_write(path, error) from error


def explain_write(path: Path, error: OSError) -> BuildError:
    """Return a BuildError for a file system error: full, read-only, no permission, or removed."""
    if error.errno == errno.ENOENT:
        return BuildError(
            f"{error.filename or path} was removed by another process while gpuenv used it",
            hint="run the command again",
        )
    if error.errno in FULL:
        return BuildError(f"the disk of {path} is full: {error.strerror}", hint="free space, then try again")
    refused = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
    hint = suggest_fix(error, "choose another path" + " in a folder with write permission" * refused)
    return BuildError(f"cannot write in {path}: {error.strerror or error}", hint=hint)


class TooDeepError(OSError):
    """Too many nested folders."""

    def __init__(self, folder: str) -> None:
        super().__init__(
            errno.ENAMETOOLONG,
            f"{clean_line(folder, 200)} has more than {_DEEPEST} nested folders. No valid package has so many",
        )


def find_existing(path: Path) -> Path:
    """Return the path, or its nearest parent that exists."""
    while not path.exists():
        path = path.parent
    return path


def measure_free_space(path: Path) -> int:
    """Return the free bytes of the disk of a path. The path need not exist."""
    return shutil.disk_usage(find_existing(path)).free


def write_file(
    path: Path, content: str | bytes, *, root: Path | None = None, mode: int = 0o666, durable: bool = False
) -> None:
    """Write a file atomically: a reader sees the old or the new content. Raises OSError.

    With `durable` this holds after a power failure too. `root` is the folder that the user named, by default the file's
    folder. An existing file keeps its permissions, and a new one gets `mode` less the umask.
    """
    with Draft(path, root=root, mode=mode) as draft:
        draft.write(content, durable=durable)
        draft.commit()


def resolve(path: Path, root: Path) -> Path:
    """Return the path of a file after following links inside `root`. Raises LinkError."""
    real_root = os.path.realpath(root)
    real = os.path.realpath(os.path.join(real_root, os.path.relpath(path, root)))  # noqa: PTH118  # ".." stays
    if real != real_root and not real.startswith(real_root.rstrip(os.sep) + os.sep):
        raise LinkError(path, root)
    return Path(real)


@final
class OpenFolder:
    """A folder in `root`, opened without following a link out of it. Its methods take names of its files."""

    def __init__(self, path: Path, *, root: Path) -> None:
        """Open the folder, after creating missing folders below `root`. Raises OSError."""
        self.path = resolve(path, root)
        real_root = Path(os.path.realpath(root))
        self._fd = os.open(real_root, _AS_FOLDER)
        try:
            for folder in self.path.relative_to(real_root).parts:
                self._enter(folder, LinkError(path, root))
        except BaseException:
            self.close()
            raise

    def _enter(self, folder: str, refusal: LinkError) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, dir_fd=self._fd)
        try:
            inner = os.open(folder, _AS_FOLDER | _NO_LINK, dir_fd=self._fd)
        except OSError as error:
            is_link = stat.S_ISLNK(os.stat(folder, dir_fd=self._fd, follow_symlinks=False).st_mode)
            raise (refusal if is_link else error) from error
        self.close()
        self._fd = inner

    def open(self, name: str, flags: int, mode: int = 0o666) -> int:
        """Open a file of this folder that is not a link. Raises OSError."""
        return os.open(name, flags | _NO_LINK, mode, dir_fd=self._fd)

    def stat(self, name: str) -> os.stat_result | None:
        """Return the status of a name without following links, or None if it is missing."""
        try:
            return os.stat(name, dir_fd=self._fd, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def remove(self, name: str) -> None:
        """Remove a file that may be missing. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._fd)

    def replace(self, old: str, new: str) -> None:
        """Rename a file of this folder. Raises OSError."""
        os.replace(old, new, src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._fd)


@final
class Draft:
    """The new content of a file, beside it until `commit`. Without a commit the draft is removed.

    The draft has the same name in all runs, so that a run replaces the draft of a killed run. Its writer locks it
    against other runs.
    """

    def __init__(self, path: Path, *, root: Path | None = None, mode: int = 0o666) -> None:
        """Open the draft. Raises OSError, also for a folder, a pipe or a device."""
        root = path.parent if root is None else root
        place = resolve(path, root)
        self._folder = OpenFolder(place.parent, root=Path(os.path.realpath(root)))
        self._place, self._name = place.name, _DRAFT.format(place.name)
        try:
            old = self._old(path)
            self._number = self._open_locked(mode)
            if old is not None:
                os.fchmod(self._number, stat.S_IMODE(old.st_mode) & 0o777)
        except BaseException:
            self._folder.close()
            raise

    def _old(self, path: Path) -> os.stat_result | None:
        """Return the status of the existing file, or None. Raises OSError if it is not a regular file."""
        old = self._folder.stat(self._place)
        if old is not None and not stat.S_ISREG(old.st_mode):
            raise OSError(errno.EINVAL, f"{path} is not a regular file", str(path))
        return old

    def _open_locked(self, mode: int) -> int:
        """Open and lock the draft, also one of another run."""
        while True:
            try:
                number = self._folder.open(self._name, os.O_RDWR | os.O_CREAT, mode)
            except OSError:
                if self._folder.stat(self._name) is None:
                    raise
                self._folder.remove(self._name)  # a link, or an unreadable file of another user
                continue
            if self._is_new(number):
                return number
            os.close(number)

    def _is_new(self, number: int) -> bool:
        """Return whether an open draft is locked by this run. Clear the content of a killed run."""
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(number, fcntl.LOCK_EX)
        opened, there = os.fstat(number), self._folder.stat(self._name)
        if there is None or not os.path.samestat(opened, there):
            return False  # the other run has committed it
        if opened.st_nlink == 1 and opened.st_uid == os.geteuid() and opened.st_size == 0:
            return True
        self._folder.remove(self._name)
        return False

    def write(self, content: str | bytes, *, durable: bool = False) -> None:
        """Write the whole content. Raises OSError."""
        data = content.encode() if isinstance(content, str) else content
        with os.fdopen(os.dup(self._number), "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(self._number)

    def commit(self) -> None:
        """Replace the file with the draft. Raises OSError."""
        self._folder.replace(self._name, self._place)
        self._name = ""

    def __enter__(self) -> Draft:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._name:
                self._folder.remove(self._name)
        finally:
            os.close(self._number)
            self._folder.close()


def open_part(path: Path, *, root: Path, append: bool) -> IO[bytes]:
    """Open a file inside `root` for writing without a draft. Raises OSError."""
    place = resolve(path, root)
    flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if append else os.O_TRUNC)
    with contextlib.closing(OpenFolder(place.parent, root=Path(os.path.realpath(root)))) as folder:
        return os.fdopen(folder.open(place.name, flags), "ab" if append else "wb", buffering=0)


def rename(old: Path, new: Path, *, root: Path) -> None:
    """Rename a file inside `root` in its folder. Raises OSError."""
    with contextlib.closing(OpenFolder(old.parent, root=root)) as folder:
        folder.replace(old.name, new.name)


def make_folder(path: Path, *, root: Path) -> None:
    """Create a folder inside `root` with its parents. Raises OSError."""
    OpenFolder(path, root=root).close()


def remove_file(path: Path, *, root: Path) -> None:
    """Remove a file or link inside `root` if it exists. Raises OSError."""
    if os.path.lexists(path):
        with contextlib.closing(OpenFolder(path.parent, root=root)) as folder:
            folder.remove(path.name)


def find_links_out(root: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield each link that leads out of a folder, with the path of the link's folder. Raises OSError,
    TooDeepError."""
    real_root = os.path.realpath(root)
    for folder, entry in iterate_links(str(root)):
        real = os.path.realpath(entry.path)
        if real == real_root or not real.startswith(real_root + os.sep):
            yield folder, entry


def iterate_links(folder: str, depth: int = 0) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield each link below a folder, with the path of its folder. Raises OSError, TooDeepError."""
    if depth > _DEEPEST:
        raise TooDeepError(folder)
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                yield folder, entry
            elif entry.is_dir(follow_symlinks=False):
                yield from iterate_links(entry.path, depth + 1)


def refuse_links_out(root: Path) -> None:
    """Raise LinkError for a link that leads out of a folder, before other programs write in it by path."""
    for _, entry in find_links_out(root):
        raise LinkError(Path(entry.path), root)


_DESCRIPTORS = r"/(?:dev|proc/self)/fd/(\d+)"
_DIGEST = r"(?m)^(?:#|//|<!--) gpuenv-digest: ([0-9a-f]{64})(?: -->)?\n?"
_HEADER = "written by `gpuenv "
_HELD_BESIDE = ".{}.gpuenv-digest"
_NAMED = {"/dev/stdout": 1, "/dev/stderr": 2}


def write_output(path: Path, content: str | bytes, *, durable: bool = False) -> None:
    """Write an output file, which may be a pipe or a device. Raises OSError."""
    number = _stream(path)
    if number is None:
        write_file(path, content, durable=durable)
        return
    with os.fdopen(number, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)


def is_stream(path: Path) -> bool:
    """Return whether a path is a pipe, a terminal or another device, which cannot be replaced."""
    text = _name_output(path)
    if text in _NAMED or re.fullmatch(_DESCRIPTORS, text):
        return True
    try:
        status = path.stat() if text.startswith("/dev/") else path.lstat()
    except OSError:
        return False
    return stat.S_ISFIFO(status.st_mode) or stat.S_ISCHR(status.st_mode)


def _name_output(path: Path) -> str:
    """Return the absolute path of an output file, which follows no link: `-` is standard output."""
    return "/dev/stdout" if str(path) == "-" else os.path.abspath(path)  # noqa: PTH100


def is_stdout(path: Path) -> bool:
    """Return whether a path is standard output."""
    try:
        return is_stream(path) and os.path.samestat(Path(_name_output(path)).stat(), os.fstat(1))
    except OSError:
        return False


def _stream(path: Path) -> int | None:
    """Open a pipe or a device for writing, or return None for a file.

    A descriptor of this process is duplicated. Opening it again would write at the start of a redirected file.
    """
    if not is_stream(path):
        return None
    text = _name_output(path)
    descriptor = re.fullmatch(_DESCRIPTORS, text)
    if text in _NAMED or descriptor:
        return os.dup(int(descriptor[1]) if descriptor else _NAMED[text])
    # Opening a pipe in the file's place could block until another program reads it.
    number = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    os.set_blocking(number, True)
    return number


def signed(text: str, sign: str = "#") -> str:
    """Return a text with its digest on a comment line after the line of the writer, or at the start.

    An HTML comment ("<!--") goes to the end.
    """
    text = unsigned(text)
    line = f"{sign} gpuenv-digest: {_digest(text)}" + (" -->" if sign == "<!--" else "") + "\n"
    if sign == "<!--":
        return text.rstrip("\n") + "\n" + line
    position = text.find("\n", text.find(_HEADER)) + 1 if _HEADER in text else 0
    return text[:position] + line + text[position:]


def unsigned(text: str) -> str:
    """Return a text without its digest lines."""
    return re.sub(_DIGEST, "", text)


def _digest(text: str) -> str:
    plain = text.replace("\r\n", "\n").rstrip("\n")
    return hashlib.sha256(plain.encode("utf-8", "surrogatepass")).hexdigest()


def write_named(path: Path, option: str, text: str, *, beside: bool = False) -> None:
    """Write the file that an option names, for a format without comments with its digest in a hidden file `beside` it.

    Raises UsageError.
    """
    try:
        write_output(path, text)
        if beside and not is_stream(path):
            write_file(path.with_name(_HELD_BESIDE.format(path.name)), _digest(text) + "\n")
    except OSError as error:
        raise UsageError(
            f"{option} {path}: {error.strerror}", hint=suggest_fix(error, "name a file that can be written")
        ) from error


def _is_link_out(path: Path) -> bool:
    """Return whether a path is a link out of its folder. The writer rejects it with a message."""
    folder = path.absolute().parent.resolve()
    return path.is_symlink() and not path.resolve().is_relative_to(folder)


def require_folder(option: str, path: Path) -> Path:
    """Return the folder of a file that an option names. Raises UsageError if it is missing."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise UsageError(
            f"{option} {path}: there is no folder {folder}",
            hint=f"make it: mkdir -p {shlex.quote(str(folder))}",
        )
    return folder


def is_edited(path: Path) -> bool:
    """Return whether a file with a digest was changed after gpuenv wrote it. Raises OSError."""
    text = untrusted.read_text(path).replace("\r\n", "\n")
    digests = re.findall(_DIGEST, text)
    return bool(digests) and digests[0] != _digest(unsigned(text))


def refuse_to_replace(path: Path, *, force: bool) -> None:
    """Raise UsageError for a file that another program wrote or the user edited, unless `force`.

    An empty file may be replaced, and a file of gpuenv with merge conflict markers.
    """
    if force or is_stream(path) or _is_link_out(path):
        return
    try:
        text = untrusted.read_text(path)
        held = path.with_name(_HELD_BESIDE.format(path.name))
        kept = untrusted.read_text(held).strip() if held.is_file() else None
    except OSError:
        return  # the file is missing, or the write reports its type
    digests = re.findall(_DIGEST, text.replace("\r\n", "\n"))
    if digests and untrusted.find_conflict(text.encode()):
        return  # a merge of two files of gpuenv, which a new one ends
    digest = digests[0] if digests else kept
    if not text.strip() or digest == _digest(unsigned(text.replace("\r\n", "\n"))):
        return
    why = "was edited after gpuenv wrote it" if digest else "was not written by gpuenv"
    raise UsageError(f"{path} {why}; it is kept", hint="name another file, or replace this one with --force")


_PIECE = 1 << 22


def hash_file(path: str | Path, algorithm: str = "sha256") -> str:
    """Return the digest of a file in hexadecimal. Raises OSError."""
    state = hashlib.new(algorithm, usedforsecurity=False)
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123  # thousands of files
        while piece := file.read(_PIECE):
            state.update(piece)
    return state.hexdigest()


def hash_readable(path: str | Path) -> str | None:
    """Return the sha256 of a file in hexadecimal; None for a file that cannot be read."""
    try:
        return hash_file(path)
    except OSError:
        return None
