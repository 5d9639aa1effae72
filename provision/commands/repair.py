"""`gpuenv repair`: an environment put back to its lock."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..model import Emit, Repaired, drop_event
from ..model.option import argument, group, option
from ..request.options import Choices


@dataclass(frozen=True, kw_only=True)
class RepairOptions:
    """The options of `repair`."""

    env: Path = argument(Path(".venv"), help="Path of the environment.", complete="environments")
    verify: bool = option(True, "--verify/--no-verify", help="Verify afterwards / not at all.")
    deep: bool = option(False, help="Hash every file, not only those written since.")
    choices: Choices = group(Choices, "find_links", "channel", "offline", "profiles", "cache_dir")


def repair(options: RepairOptions, emit: Emit = drop_event) -> Repaired:
    """Put back what was replaced, removed or changed in an environment, from its lock."""
    from . import restoring

    return restoring.restore(emit, options.env, options.choices, proving=options.verify, deep=options.deep)
