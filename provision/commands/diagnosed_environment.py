"""The environment whose files give `diagnose` facts: the project's, else the active one. None of its code runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import BuildError, DataError
from ..model import Device
from ..request import environment_paths
from ..request.project_folder import find_active_env, find_project_env, is_present

if TYPE_CHECKING:
    from ..diagnose import Installed


def find_default_env() -> tuple[str, Path] | None:
    """Return why an environment is the one here, and its path; None where none is. gpuenv's own one never is."""
    try:
        own = find_project_env()
    except DataError:  # several files describe the project: `diagnose` reads a log without it
        return None
    if is_present(own):
        return "the project's environment", own
    active = find_active_env()
    if active is None or active[1].resolve() == Path(sys.prefix).resolve():
        return None
    return f"from {active[0]}", active[1]


def read_installed() -> Installed | None:
    """Return what the files of the environment here say."""
    from ..diagnose import Installed
    from ..environment import distributions

    found = find_default_env()
    if found is None:
        return None
    why, env = found[0], environment_paths.make_absolute(found[1])
    return Installed(
        path=str(env),
        why=why,
        versions=distributions.read_versions(env),
        python=distributions.read_python(env),
        device=read_device(env),
    )


def read_device(env: Path) -> Device | None:
    """The device that an environment of gpuenv's was made for; None for any other, and where its state is damaged."""
    from ..environment import state

    try:
        plan = state.plan_of(env)
    except BuildError:
        return None
    return plan.device if plan else None
