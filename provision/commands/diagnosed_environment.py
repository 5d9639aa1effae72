"""Find the environment whose files give `diagnose` facts. None of its code runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..config import options
from ..config.project import find_active_env, find_project_env, is_present
from ..errors import BuildError, DataError
from ..model import Device

if TYPE_CHECKING:
    from ..diagnose import Installed


def find_default_env() -> tuple[str, Path] | None:
    """Return the path of the project's or the active environment, and why it was chosen.

    Return None if there is none. The environment that gpuenv runs in does not count.
    """
    try:
        project_env = find_project_env()
    except DataError:  # several files describe the project; `diagnose` needs none
        return None
    if is_present(project_env):
        return "the project's environment", project_env
    active = find_active_env()
    if active is None or active[1].resolve() == Path(sys.prefix).resolve():
        return None
    return f"from {active[0]}", active[1]


def read_installed() -> Installed | None:
    """Return what the files of the default environment say about its packages."""
    from ..diagnose import Installed
    from ..environment import distributions

    reason_and_path = find_default_env()
    if reason_and_path is None:
        return None
    why, env = reason_and_path[0], options.make_absolute(reason_and_path[1])
    return Installed(
        path=str(env),
        why=why,
        versions=distributions.read_versions(env),
        python=distributions.read_python(env),
        device=read_device(env),
    )


def read_device(env: Path) -> Device | None:
    """Return the device of an environment that gpuenv made; None for any other or a damaged one."""
    from ..environment import state

    try:
        plan = state.read_plan(env)
    except BuildError:
        return None
    return plan.device if plan else None
