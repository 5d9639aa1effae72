"""A hook of gpuenv's build: the profiles are parsed once here, so that no machine's first run has to.

What it writes lies beside the package, in a checkout too, under the sha256 of the files that were parsed and of
the code that did it. gpuenv reads it where that is the sha256 of what it has, and else the profiles themselves.
"""

from __future__ import annotations

import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ParsedProfiles(BuildHookInterface[Any]):
    """Before a wheel is made, be it one that leads to a checkout."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002  # hatchling's
        sys.path.insert(0, self.root)
        from provision import profiles

        profiles.prepare()
