"""Write the shell lines that examine a node, for Slurm and Kubernetes."""

from __future__ import annotations

from ..errors import UsageError
from . import export_subject_and_shared_texts as s
from .export_subject_and_shared_texts import Subject

SECONDS = 4
"""For all environments together. With what Slurm's own commands take it stays below 5."""

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Folders that only root can change. Slurm gives its programs no PATH."""

_EXAMINE = """\
said=$({chroot}env -i PATH="$PATH" HOME=/root LANG=C.UTF-8 timeout -s KILL "$left" \\
    "$gpuenv" verify --quick --node -q --timeout "$left" "{env}" 2>/dev/null </dev/null)
code=$?"""


def settings(subject: Subject, form: str) -> str:
    """Return the lines that the administrator edits. Raises UsageError for a lock without a GPU."""
    s.linux_only(subject, f"--format {form}")
    if subject.lock.plan.device != "cuda":
        raise UsageError(
            f"--format {form} checks GPUs, but the lock is for the CPU",
            hint="export an environment with CUDA: gpuenv create ENV --device cuda",
        )
    return "\n".join([
        "",
        "# Edit these: PATH, the path of gpuenv, the environments to check (owned by root), and the time limit in seconds for all checks.",
        f"PATH={PATH}",
        "gpuenv=gpuenv",
        f"set -- {s.shell(subject.env)}",
        f"seconds={SECONDS}",
    ]) + "\n"  # fmt: skip


def examine(indent: str, *, env: str = "$1", chroot: str = "") -> str:
    """Return the lines that examine one environment for at most $left seconds. They set $said and $code."""
    rows = _EXAMINE.format(env=env, chroot=chroot).splitlines()
    return "\n".join(indent + row for row in rows)
