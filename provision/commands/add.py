"""`gpuenv add`: a package more in the project's file, its lock and the environment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..model import Created, Emit, Lock, drop_event
from ..model.option import BUILD, argument, group, option
from ..request.options import Choices


@dataclass(frozen=True, kw_only=True)
class AddOptions:
    """The options of `add`."""

    packages: list[str] = argument(metavar="PKG...", help="Requirements, as 'einops>=0.8'.")
    env: Path = option(Path(".venv"), help="Path of the environment.", complete="environments")
    choices: Choices = group(
        Choices, "find_links", "offline", "no_build", "only_binary", "exclude_newer", "exclude_newer_except",
        "profiles", "cache_dir",
    )  # fmt: skip
    verify: bool | None = option(None, "--verify/--no-verify", help="Verify again / not at all.", panel=BUILD)


def add(options: AddOptions, emit: Emit = drop_event) -> Created | Lock:
    """Add packages to gpuenv.yaml, the lock and the environment. Return the lock where there is no environment."""
    from . import added

    return added.add(emit, options.packages, options.env, options.choices, verify=options.verify)
