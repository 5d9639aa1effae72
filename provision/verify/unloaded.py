"""Why the loader did not load a library for a framework: the file is damaged, missing, or out of reach."""

from __future__ import annotations

from collections.abc import Sequence

from ..model import Environment, Finding
from . import damaged, unopened
from .libraries import Distribution
from .locate import Surroundings


def finding(
    framework: str, words: str, env: Environment, found: Surroundings, packages: Sequence[Distribution]
) -> Finding | None:
    """The cause in how a process ended and what the loader said; None where neither names a library."""
    return damaged.finding(framework, words, env, found) or unopened.finding(
        framework, words, env, found, packages
    )
