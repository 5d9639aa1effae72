"""Explain unexpected errors of the operating system: limits, full disks, long paths."""

from __future__ import annotations

import errno
import os
import re
import resource  # imported here: without a free file descriptor it could not be imported later
import sys
import tempfile
from pathlib import Path

from ..errors import BuildError, GpuenvError, LockError, MachineError, UsageError
from ..system import process
from ..system.redaction import clean_line

_NO_MEMORY = (
    r"(?i)cannot allocate memory|can't start new thread|failed to map segment|memory allocation of \d+ bytes failed"
    r"|failed to spawn thread|\(os error 12\)"
)
_NO_DESCRIPTOR = r"(?i)too many open files|\(os error 2[34]\)"
_OF_A_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO}
_OF_A_PATH = {
    errno.EACCES: "check the owner and mode of this path and of the folders above it",
    errno.EPERM: "check the owner and mode of this path and of the folders above it",
    errno.ENOTDIR: "check the path: one of its folders is a file",
    errno.EISDIR: "give the path of a file",
    errno.ELOOP: "remove the link that leads to itself",
    errno.ESTALE: "mount the file system of this path again",
}
"""Errors of a path, and what to do. They are the user's folders, permissions and mounts, not a bug."""
_SHOWN = 60
_DESCRIPTORS_HINT = "raise the limit on open files: ulimit -n 1024"


def explain(error: BaseException) -> GpuenvError | None:
    """Return the error to show if the machine caused it, or None for a bug of gpuenv."""
    cause = error.__cause__
    if isinstance(
        error, RuntimeError
    ):  # until Python 3.13, pathlib raises one for a link that leads to itself
        cause = cause or error.__context__
    return _explain_one(error) or (_explain_one(cause) if cause else None)


def _explain_one(error: BaseException) -> GpuenvError | None:
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return _make_memory_error(str(error))
    if isinstance(error, (ImportError, RuntimeError, OSError)) and re.search(_NO_MEMORY, str(error)):
        return _make_memory_error(str(error))
    if isinstance(error, OSError):
        return _explain_os_error(error)
    if isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("provision"):
        return BuildError(
            f"gpuenv requires the module {error.name}, which is missing in {sys.prefix}",
            hint="unset PYTHONHOME" if process.environ().get("PYTHONHOME") else "reinstall gpuenv",
        )
    return None


def _explain_os_error(error: OSError) -> GpuenvError | None:
    name = "" if error.filename is None else str(error.filename)
    reason = error.strerror or str(error)
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return MachineError(f"{reason}{_describe_limit('RLIMIT_NOFILE')}", hint=_DESCRIPTORS_HINT)
    if error.errno == errno.ENAMETOOLONG:
        shown = clean_line(name, _SHOWN)
        return UsageError(
            f"{shown}: {reason} ({len(name)} characters)",
            hint="use shorter names: file systems allow 255 bytes for a name and 4096 for a path",
        )
    if name.startswith(tempfile.gettempdir() + "/") and (
        Path(name).name.startswith(("tmp", "gpuenv-scratch-", ".gpuenv-scratch-"))
        or not os.access(tempfile.gettempdir(), os.W_OK)
    ):
        return BuildError(
            f"{name}: {reason}",
            hint=f"temporary files are written to {tempfile.gettempdir()}: check its free space and permissions, or set TMPDIR",
        )
    if error.errno in _OF_A_DISK:
        return BuildError(
            f"{name}: {reason}" if name else reason, hint="check the disk, its quota and its mount options"
        )
    if error.errno == errno.EAGAIN and not name:
        return MachineError(
            f"no process could be started: {reason}{_describe_limit('RLIMIT_NPROC')}",
            hint="raise the limit on processes (ulimit -u), or stop other processes",
        )
    if error.errno == errno.ENOENT and not name and not _current_folder_exists():
        return UsageError(
            "the current folder does not exist any more",
            hint="if another folder is at its path now, enter that: cd .",
        )
    if name and error.errno in _OF_A_PATH:
        return UsageError(f"{name}: {reason}", hint=_OF_A_PATH[error.errno])
    return None


def _current_folder_exists() -> bool:
    try:
        os.getcwd()  # noqa: PTH109  # one call of the system
    except OSError:
        return False
    return True


def add_limits(error: GpuenvError) -> None:
    """Name the limit in the error if the log of a program shows that it was reached."""
    text = f"{error.message}\n{error.log or ''}"
    if match := re.search(_NO_DESCRIPTOR, text):
        limit, hint = _describe_limit("RLIMIT_NOFILE"), _DESCRIPTORS_HINT
    elif match := re.search(_NO_MEMORY, text):
        limit, hint = _describe_limit("RLIMIT_AS"), _choose_memory_hint()
    if match and limit:
        error.message = f"{error.message.rstrip(': ')}: {match[0]}{limit}"
        error.hint = hint
        if isinstance(error, LockError):
            error.unreachable = None  # the limit closed the connection, not the index


def _make_memory_error(reason: str) -> MachineError:
    cause = f": {reason}" if reason else ""
    return MachineError(
        f"memory is exhausted{cause}{_describe_limit('RLIMIT_AS')}", hint=_choose_memory_hint()
    )


def _choose_memory_hint() -> str:
    if _describe_limit("RLIMIT_AS"):
        return "raise the limit on address space: ulimit -v unlimited"
    return "end other programs, or raise the memory limit of this job or container"


def _describe_limit(name: str) -> str:
    """Return the soft limit as text, or "" if there is none."""
    soft = resource.getrlimit(getattr(resource, name))[0]
    if soft == resource.RLIM_INFINITY:
        return ""
    return f"; the limit is {f'{soft >> 20} MiB' if name == 'RLIMIT_AS' else soft}"
