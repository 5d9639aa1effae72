"""Reads the JSON files of an environment's state folder `.gpuenv/`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..errors import BuildError
from ..system import trust
from .draft_and_replace_folder import MARK


def read(env: Path, name: str) -> dict[str, Any] | None:
    """Return a file of `.gpuenv/`, or None if it is missing. Raises BuildError if it is damaged."""
    path = env / MARK / name
    try:
        data = json.loads(trust.read_project(path, env=env))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise BuildError(
            f"{path} cannot be read: {error}", hint="build it again: gpuenv create --recreate"
        ) from error
    if not isinstance(data, dict):
        raise BuildError(f"{path} is not a table", hint="build it again: gpuenv create --recreate")
    return data
