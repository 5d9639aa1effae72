"""The options of `create` beside target and choice."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from ..request.options import Choices


@dataclasses.dataclass(frozen=True, kw_only=True)
class How:
    """The options of `create` beside target and choice."""

    locked: bool = False
    frozen: bool = False
    lock_file: Path | None = None
    allow_md5: bool = False
    recreate: bool = False
    verify: bool | None = None
    dry_run: bool = False

    def compared(self, choices: Choices) -> Choices:
        """The options that a given lock has to fit: with --frozen those for the machine alone."""
        return dataclasses.replace(choices, framework=[]) if self.frozen else choices
