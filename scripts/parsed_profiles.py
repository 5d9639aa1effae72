"""Parse the profiles during gpuenv's build, so that no first run has to.

The result is written beside the package, also in a checkout. Its name is the sha256 of the parsed files and
of the parser. gpuenv reads it if the sha256 matches, otherwise it parses the profiles.
"""

from __future__ import annotations

import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ParsedProfiles(BuildHookInterface[Any]):
    """A build hook that runs before a wheel is made, including an editable one."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002  # hatchling's
        sys.path.insert(0, self.root)
        from provision import profiles

        profiles.prepare()
