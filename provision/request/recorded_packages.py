"""Read the packages that were named when an environment was made."""

from __future__ import annotations

from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from ..environment import state
from ..errors import GpuenvError
from ..model import Lock
from . import load_profiles, project_options as inproject
from .shared_options import Choices


def list_named_packages(env: Path, lock: Lock, c: Choices) -> frozenset[str] | None:
    """Return the normalized names, or None if they are not recorded, for example after installing a lock."""
    try:
        data = state.read_vouched(env, "request.json").get("choices") or {}
        recorded = inproject.parse_options(data)
        if not (recorded.framework or recorded.with_ or recorded.requirement or recorded.project):
            return None
        demands = inproject.read_requirements(recorded, load_profiles.load_all(c), lock.target)
        names = [Requirement(text).name for text in (*recorded.framework, *recorded.with_)]
    except (GpuenvError, InvalidRequirement, ValueError, TypeError, OSError):
        return None  # written by another version of gpuenv, or the project's files are missing
    names += [*demands.frameworks, *(n.name for n in demands.needs if n.name and not n.constraint)]
    names += [b.framework for b in lock.plan.builds]
    return frozenset(canonicalize_name(n) for n in names)
