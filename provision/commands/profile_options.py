"""The options of `gpuenv profiles list|show|check|update`: apart from a function named `list`, which hides the type."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..model.option import argument, group, option
from ..request.options import Choices


@dataclass(frozen=True, kw_only=True)
class ProfilesListOptions:
    """The options of `profiles list`."""

    choices: Choices = group(Choices, "profiles")


@dataclass(frozen=True, kw_only=True)
class ProfilesShowOptions:
    """The options of `profiles show`."""

    names: list[str] = argument(list, help="Profile files, as torch; all if none is named.")
    choices: Choices = group(Choices, "profiles")


@dataclass(frozen=True, kw_only=True)
class ProfilesCheckOptions:
    """The options of `profiles check`."""

    folders: list[Path] = argument(list, help="Folders; the shipped one and yours if none.")
    choices: Choices = group(Choices, "profiles")


@dataclass(frozen=True, kw_only=True)
class ProfilesUpdateOptions:
    """The options of `profiles update`."""

    names: list[str] = argument(list, help="torch, tensorflow, jax, cudnn; all if none.")
    index: str | None = option(None, help="A simple index, if not pip's own.")
    profiles: Path | None = option(None, help="The overlay to write, if not yours.")
    choices: Choices = group(Choices, "cache_dir")
