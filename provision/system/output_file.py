"""Writes the output file of a command: a file, a pipe or a device.

A file contains a digest of its text. Without `--force` gpuenv does not replace a file that has no digest, because
another program wrote it. The same applies to a file with a different digest, because it was edited.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from pathlib import Path

from ..errors import UsageError
from . import untrusted
from .write_inside_folder import write_file

_DESCRIPTORS = re.compile(r"/(?:dev|proc/self)/fd/(\d+)")
_DIGEST = re.compile(r"^(?:#|//|<!--) gpuenv-digest: ([0-9a-f]{64})(?: -->)?\n?", re.MULTILINE)
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
    text = os.path.abspath(path)  # noqa: PTH100  # links must not be followed
    if text in _NAMED or _DESCRIPTORS.fullmatch(text):
        return True
    try:
        status = path.stat() if text.startswith("/dev/") else path.lstat()
    except OSError:
        return False
    return stat.S_ISFIFO(status.st_mode) or stat.S_ISCHR(status.st_mode)


def is_stdout(path: Path) -> bool:
    """Return whether a path is standard output."""
    try:
        return is_stream(path) and os.path.samestat(path.stat(), os.fstat(1))
    except OSError:
        return False


def _stream(path: Path) -> int | None:
    """Open a pipe or a device for writing, or return None for a file.

    A descriptor of this process is duplicated. Opening it again would write at the start of a redirected file.
    """
    if not is_stream(path):
        return None
    text = os.path.abspath(path)  # noqa: PTH100  # links must not be followed
    descriptor = _DESCRIPTORS.fullmatch(text)
    if text in _NAMED or descriptor:
        return os.dup(int(descriptor[1]) if descriptor else _NAMED[text])
    # Opening a pipe in the file's place could block until another program reads it.
    number = os.open(path, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
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
    return _DIGEST.sub("", text)


def _digest(text: str) -> str:
    plain = text.replace("\r\n", "\n").rstrip("\n")
    return hashlib.sha256(plain.encode("utf-8", "surrogatepass")).hexdigest()


def write_with_digest_beside(path: Path, text: str) -> None:
    """Write a text in a format without comments, and its digest into a hidden file beside it. Raises OSError."""
    write_output(path, text)
    if not is_stream(path):
        write_file(path.with_name(_HELD_BESIDE.format(path.name)), _digest(text) + "\n")


def _is_link_out(path: Path) -> bool:
    """Return whether a path is a link out of its folder. The writer rejects it with a message."""
    folder = path.absolute().parent.resolve()
    return path.is_symlink() and not path.resolve().is_relative_to(folder)


def refuse_to_replace(path: Path, *, force: bool) -> None:
    """Raise UsageError for a file that another program wrote or the user edited, unless `force`.

    An empty file may be replaced, and a file of gpuenv with merge conflict markers.
    """
    if force or is_stream(path) or _is_link_out(path):
        return
    try:
        text = untrusted.read_text(path)
        beside = path.with_name(_HELD_BESIDE.format(path.name))
        kept = untrusted.read_text(beside).strip() if beside.is_file() else None
    except OSError:
        return  # the file is missing, or the write reports its type
    digests = _DIGEST.findall(text.replace("\r\n", "\n"))
    if digests and untrusted.find_conflict(text.encode()):
        return  # a merge of two files of gpuenv, which a new one ends
    digest = digests[0] if digests else kept
    if not text.strip() or digest == _digest(unsigned(text.replace("\r\n", "\n"))):
        return
    why = "was edited after gpuenv wrote it" if digest else "was not written by gpuenv"
    raise UsageError(f"{path} {why}; it is kept", hint="name another file, or replace this one with --force")
