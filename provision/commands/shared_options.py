"""Single options that several commands have; the groups of options are in `request.options`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..model.option import BUILD, argument, option


def environment() -> Any:
    """Declare the argument ENV."""
    return argument(Path(".venv"), help="Path of the environment.", complete="environments")


def force() -> Any:
    """Declare --force."""
    return option(False, help="Replace files that gpuenv did not write, or that were edited since.")


def allow_md5() -> Any:
    """Declare --allow-md5."""
    return option(False, help="conda: take locks that carry md5 alone.", panel=BUILD)
