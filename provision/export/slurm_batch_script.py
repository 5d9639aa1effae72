"""Write a Slurm batch script that verifies the environment before the work begins."""

from __future__ import annotations

from . import export_subject_and_shared_texts as s
from .export_subject_and_shared_texts import Subject

FORM = "sbatch"


def text(subject: Subject) -> str:
    """Return the script. Raises UsageError for a lock of another system than Linux."""
    s.linux_only(subject, "a Slurm job")
    lock = subject.lock
    cuda = lock.plan.device == "cuda"
    gpus = max(len(lock.target.gpus), 1)
    comments = [
        "sbatch train.sbatch                    (command-line options override the options below)",
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
        s.comment(subject, FORM, "", *comments).rstrip("\n"),
        "set -euo pipefail",
        "",
        f'env="${{GPUENV_ENV:-{_in_double_quotes(subject.env)}}}"',
        "# If the driver is broken, the GPU is full or the GPU model is different, the job ends here and prints the cause."
        if cuda
        else "# If the framework cannot be imported or returns wrong results on this node, the job ends here.",
        " ".join(s.quick_check(lock, '"$env"')),
        "# Runs one task. gpuenv run removes library paths of the node's modules that would override the environment's libraries.",
        'srun gpuenv run "$env" -- python train.py "$@"',
    ]
    return "\n".join(rows) + "\n"


def _in_double_quotes(text: str) -> str:
    """Return text for bash's "${GPUENV_ENV:-...}". A brace would end it."""
    for sign in '\\"$`}':
        text = text.replace(sign, "\\" + sign)
    return s.oneline(text)
