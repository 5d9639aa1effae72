"""A Slurm batch script that proves the environment on its node before the work begins."""

from __future__ import annotations

from . import export_source as s
from .export_source import Subject

FORM = "sbatch"


def text(subject: Subject) -> str:
    """The script. Raises UsageError for a lock of another system than Linux."""
    s.linux_only(subject, "a Slurm job")
    lock = subject.lock
    cuda = lock.plan.device == "cuda"
    gpus = max(len(lock.target.gpus), 1)
    told = [
        "sbatch train.sbatch                    (options given there stand above those below)",
        f"GPUENV_ENV=/path/of/the/environment sbatch {'--gres=gpu:1 ' if cuda else ''}train.sbatch --epochs 10",
    ]  # fmt: skip
    rows = [
        "#!/bin/bash",
        "#SBATCH --job-name=train",
        "#SBATCH --nodes=1",
        "#SBATCH --ntasks=1",
        "#SBATCH --cpus-per-task=8",
        *([f"#SBATCH --gres=gpu:{gpus}"] if cuda else []),
        "#SBATCH --time=01:00:00",
        "#SBATCH --output=%x-%j.log",
        s.comment(subject, FORM, "", *told).rstrip("\n"),
        "set -euo pipefail",
        "",
        f'env="${{GPUENV_ENV:-{_in_double_quotes(subject.env)}}}"',
        "# A node with a broken driver, a full GPU or another card ends the job here, with the cause."
        if cuda
        else "# A node on which it does not import or computes wrongly ends the job here.",
        " ".join(s.quick_check(lock, '"$env"')),
        "# One task; gpuenv run keeps out what the node's own modules put before the environment's libraries.",
        'srun gpuenv run "$env" -- python train.py "$@"',
    ]
    return "\n".join(rows) + "\n"


def _in_double_quotes(text: str) -> str:
    r"""Text that stands inside "${GPUENV_ENV:-...}" of bash; a brace would end it."""
    for sign in '\\"$`}':
        text = text.replace(sign, "\\" + sign)
    return s.oneline(text)
