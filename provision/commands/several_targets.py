"""--target of the commands that take several machines."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path

from ..model.command_options import TARGET, option
from ..request.options import STDIN, Choices

NOT_SHARED = ("target",)
"""The options that commands for several targets declare themselves."""


def declare_targets() -> list[Path]:
    """Declare --target of a command that takes several."""
    found: list[Path] = option(
        list, "--target", panel=TARGET, complete="targets",
        help="Plan for other machines: a file of `gpuenv detect --json`, a folder of them, - for JSON lines, or a "
        "target of gpuenv.yaml. Repeatable.",
    )  # fmt: skip
    return found


def apply_single_target(choices: Choices, targets: Sequence[Path]) -> Choices | None:
    """The options with the one target that was given or none; None where several machines are meant."""
    if is_several(targets):
        return None
    if not targets:
        return choices
    return dataclasses.replace(choices, target=targets[0], named=choices.named | {"target"})


def is_several(targets: Sequence[Path]) -> bool:
    """Whether --target was given for several machines."""
    return len(targets) > 1 or any(str(t) == STDIN or t.is_dir() for t in targets)


def list_words(targets: Sequence[Path]) -> str:
    """The targets as options of a command line."""
    return " ".join(f"--target {shlex.quote(str(t))}" for t in targets)
