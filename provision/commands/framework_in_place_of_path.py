"""Detect frameworks on a command line where a path is expected: `gpuenv create torch`."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from ..errors import UsageError
from ..model import FRAMEWORK_ALIASES, FRAMEWORKS

_WORD = re.compile(r"([A-Za-z][A-Za-z0-9_-]*)((?:\[[^\]]*\])?\s*(?:[=<>!~@].*)?)")


def find_framework(word: str) -> str | None:
    """Return the value of --framework that a word means, such as "torch>=2.6", or None."""
    match = _WORD.fullmatch(word)
    if not match:
        return None
    name = FRAMEWORK_ALIASES.get(match[1].lower(), match[1].lower())
    return f"{name}{match[2]}" if name in FRAMEWORKS else None


def suggest_options(words: Sequence[str]) -> str | None:
    """Return --framework options for the frameworks in some words, or None."""
    meant_frameworks = [meant for word in words if (meant := find_framework(word))]
    return " ".join(f"--framework {shlex.quote(meant)}" for meant in meant_frameworks) or None


def refuse_framework_as_path(env: Path | None) -> None:
    """Raise UsageError if the path of a new environment is the name of a framework."""
    word = "" if env is None else str(env)
    if (meant := find_framework(word)) and not os.path.lexists(word):
        raise UsageError(
            f"{word} is a framework; ENV is the path of an environment",
            hint=f"gpuenv create --framework {shlex.quote(meant)}; for a folder of that name: gpuenv create ./{word}",
        )
