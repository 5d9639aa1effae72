"""`gpuenv sync`: run `create` for the project of this folder, by uv's name."""

from __future__ import annotations

from ..config.env import locate_project_file
from ..errors import UsageError
from ..model import CreateResult, Emit, Plan, drop_event
from .create import CreateOptions, create

SyncOptions = CreateOptions


def sync(options: CreateOptions, emit: Emit = drop_event) -> CreateResult | Plan:
    """Make or change the project's environment as `create` does. Raises UsageError if there is no project."""
    if locate_project_file() is None:
        raise UsageError(
            "no project here: neither gpuenv.yaml nor [tool.gpuenv] in pyproject.toml",
            hint="write gpuenv.yaml: gpuenv init; or build without a project: gpuenv create --framework torch",
        )
    return create(options, emit)
