"""`gpuenv verify --quick --node`: tell whether this machine has a fault. Schedulers run it as root."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..config import options as where, rows
from ..config.env import choose_env_to_read
from ..environment import place
from ..environment.place import locate_environment
from ..errors import UsageError
from ..model import Emit, NodeVerdict
from ..system import trust
from ..verify import begin, judge_node, shorten_line
from ..wheels.pylock import read_in
from .run_verification import make_lock_reader, make_options, run_verification
from .verdict_inputs import explain_no_gpu

if TYPE_CHECKING:
    from ..config.options import Choices

_ABSENT = ("container_without_gpu", "driver_missing", "driver_module_not_loaded", "wsl_driver_missing")
"""What a machine without a GPU shows too."""
_UV_LOCK = ".lock"
"""The lock file that uv leaves in an environment for all users. Nothing reads its contents."""
_SECONDS = 2.0
"""For a second look at the driver. What starts gpuenv gives it few seconds in all."""


def verify_node(named: Path | None, choices: Choices, timeout: float, emit: Emit) -> NodeVerdict:
    """Return whether this machine has a fault, tested with an environment.

    Nothing of the environment runs if another user can change it. Raises UsageError.
    """
    env_path = where.make_absolute(choose_env_to_read(emit, named))
    _assert_own(env_path)
    env = locate_environment(env_path)
    lock = read_in(Path(env.path) / place.MARK) if env.made_by_gpuenv else None
    if lock and lock.plan.device == "cpu":
        return NodeVerdict(fault=False, text=shorten_line(f"{env.path} is for the CPU: no GPU was examined"))
    settings: dict[str, Any] = {"quick": True, "timeout": timeout, "device": "all"}
    wanted = make_options(choices, settings)
    with begin(env, wanted, driver=True, machine=make_lock_reader(wanted)) as begun:
        verdict = run_verification(emit, env, lock, choices, begun, **settings)
    judged = judge_node(verdict, rows.causes_of_jobs(choices))
    if judged.fault and judged.cause in _ABSENT and explain_no_gpu(seconds=_SECONDS):
        return replace(judged, fault=False, text="no NVIDIA GPU found on this machine")
    return judged


def _assert_own(env: Path) -> None:
    """Raise UsageError if another user can change the environment or its base Python."""
    try:
        settings = _read_settings(env)
        # Base Pythons with thousands of packages are common, and most environments import none of them.
        unused = () if _uses_base_packages(settings) else ("site-packages",)
        trust.assert_unchangeable([env], without=(_UV_LOCK,))
        trust.assert_unchangeable(_standard_libraries(settings), without=unused)
    except trust.UntrustedError as error:
        raise UsageError(
            f"{env} is not examined: {error.reason}",
            hint="name an environment that only root can change (chown -R root, chmod -R go-w)",
        ) from error
    except OSError as error:
        raise UsageError(f"{env} cannot be examined: {error.filename}: {error.strerror}") from error


def _read_settings(env: Path) -> dict[str, str]:
    """Return pyvenv.cfg, empty for a conda environment, which contains its own Python."""
    try:
        text = (env / "pyvenv.cfg").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip().lower(): value.strip() for key, _, value in pairs}


def _uses_base_packages(settings: Mapping[str, str]) -> bool:
    """Return whether Python adds the packages of the base Python: site.py does so unless the setting forbids it."""
    return settings.get("include-system-site-packages", "true").lower() == "true"


def _standard_libraries(settings: Mapping[str, str]) -> list[Path]:
    """Return the folders of the standard library that the environment's Python imports."""
    home = settings.get("home")
    return sorted(Path(home).parent.glob("lib/python3.*")) if home else []
