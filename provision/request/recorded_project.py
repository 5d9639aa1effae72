"""Find the project that an environment was made for, if its file can be trusted."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from ..environment import place, registry, state
from ..errors import DataError
from ..model import Check, as_plain
from ..project.config.digests_and_cached_config import read_cached_config
from ..project.config.key_forms import PYPROJECT, YAML_NAMES
from ..project.config.project_file import find_in_folder
from ..project.config.yaml_tree import MAX_BYTES
from ..system import trust


@dataclass(frozen=True, kw_only=True)
class OwnProject:
    """A project's file and its checks.

    `problem` states why the file was not read; there are no checks then. `missing` is true if the file does
    not exist.
    """

    file: Path
    checks: tuple[Check, ...] = ()
    problem: str | None = None
    missing: bool = False

    @property
    def digest(self) -> str | None:
        """The digest of the checks, or None without checks."""
        text = json.dumps(as_plain(self.checks), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest() if self.checks else None


def read_own_project(env: Path, cache_dir: Path | None) -> OwnProject | None:
    """Return the project that an environment was made with, or None.

    Its checks are commands, so this user's gpuenv must have written the record that names the file, here or where the
    environment was moved or copied from. Then the file beside the environment counts. It must
    belong to this user, to the environment's owner or to root, and nobody else may write to it. Raises DataError
    for an invalid file, BuildError for an unreadable record.
    """
    recorded = (state.read(env, "request.json") or {}).get("choices") if place.made_by_gpuenv(env) else None
    named = recorded.get("config") if isinstance(recorded, dict) else None
    if (
        not isinstance(named, str)
        or not Path(named).is_absolute()
        or Path(named).name not in (*YAML_NAMES, PYPROJECT)
    ):
        return None
    file = Path(named)
    vouched = state.is_vouched(env)
    if not vouched and not registry.knows(state.digest_record(env.resolve())):
        return OwnProject(file=file, problem=state.explain_unvouched(env))
    if not vouched or not file.exists():
        file = find_in_folder(env.parent) or file
    try:
        data = trust.read_project(file, env=env, most=MAX_BYTES + 1)
    except FileNotFoundError:
        return OwnProject(file=file, problem=f"{file} is missing", missing=True)
    except trust.UntrustedError as error:
        return OwnProject(file=file, problem=error.reason)
    except OSError as error:
        return OwnProject(file=file, problem=f"{file} {_describe_os_error(error)}")
    try:
        checks = read_cached_config(file, cache_dir, data).checks
    except DataError as error:
        error.message = f"{file.parent}: {error.message}"
        raise
    return OwnProject(file=file, checks=checks)


def _describe_os_error(error: OSError) -> str:
    reason = error.strerror or type(error).__name__
    return reason if reason[:1].islower() else f"cannot be read: {reason}"
