"""Declare and read the option `--target` of commands that accept several machines."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path

from ..config.options import STDIN, Choices
from ..model.declare import TARGET, option

NOT_SHARED = ("target",)
"""The options that commands for several targets declare themselves."""


def declare_targets() -> list[Path]:
    """Declare --target of a command that accepts several."""
    declared: list[Path] = option(
        list, "--target", panel=TARGET, complete="targets",
        help="Plan for other machines: a file of `gpuenv detect --json`, a folder of them, - for JSON lines, or a "
        "target of gpuenv.yaml. Repeatable.",
    )  # fmt: skip
    return declared


def apply_single_target(choices: Choices, targets: Sequence[Path]) -> Choices | None:
    """Return the options with at most one target, or None if several machines are named."""
    if is_several(targets):
        return None
    if not targets:
        return choices
    return dataclasses.replace(choices, target=targets[0], named=choices.named | {"target"})


def is_several(targets: Sequence[Path]) -> bool:
    """Return whether --target names several machines."""
    return len(targets) > 1 or any(str(t) == STDIN or t.is_dir() for t in targets)


def list_words(targets: Sequence[Path]) -> str:
    """Return the targets as options of a command line."""
    return " ".join(f"--target {shlex.quote(str(t))}" for t in targets)
