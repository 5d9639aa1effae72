"""`gpuenv report`: one text to paste into an issue."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..model import Emit, Report, drop_event
from ..model.option import argument


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """The options of `report`. Without `env` it is about .venv, if there is one."""

    env: Path | None = argument(
        None, metavar="[ENV]", help="Path of the environment. [default: .venv]", complete="environments"
    )


def report(options: ReportOptions, emit: Emit = drop_event) -> Report:
    """Return the report on this machine and an environment, without names, addresses and credentials."""
    from .reported import reported

    return reported(options.env)
