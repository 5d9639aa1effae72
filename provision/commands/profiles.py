"""`gpuenv profiles list|show|check|update`: what is known of drivers, GPUs, cuDNN and framework builds."""

from __future__ import annotations

from ..model import Emit, ProfileTables, drop_event
from .profile_options import (
    ProfilesCheckOptions,
    ProfilesListOptions,
    ProfilesShowOptions,
    ProfilesUpdateOptions,
)


def show(options: ProfilesShowOptions, emit: Emit = drop_event) -> ProfileTables:
    """Return the rows of profile files."""
    from . import knowing

    return knowing.shown(options.names, options.choices.profiles)


def check(options: ProfilesCheckOptions, emit: Emit = drop_event) -> ProfileTables:
    """Return the tables of valid profiles. Raises DataError with file, row and key of every mistake."""
    from . import knowing

    return knowing.checked(options.folders, options.choices.profiles)


def update(options: ProfilesUpdateOptions, emit: Emit = drop_event) -> ProfileTables:
    """Read the index for releases that are not known yet, into the user's own overlay."""
    from ..request.paths import cache_dir
    from . import knowing

    cache = cache_dir(options.choices)
    return knowing.updated(emit, options.names, options.index, options.profiles, cache)


def list(options: ProfilesListOptions, emit: Emit = drop_event) -> ProfileTables:  # noqa: A001  # the verb's name
    """Return the tables without their rows: how many, from where, read when."""
    from . import knowing

    return knowing.listed(options.choices.profiles)
