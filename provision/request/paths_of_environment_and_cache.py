"""Return the absolute path of an environment, and the path of gpuenv's cache."""

from __future__ import annotations

from pathlib import Path

from ..system import trust
from .shared_options import Choices


def make_absolute(env: Path) -> Path:
    """Return the absolute path. Links of the parent are followed; the last part is unchanged."""
    env = Path.cwd() / env.expanduser()
    return env.parent.resolve() / env.name


def get_cache_dir(c: Choices) -> Path:
    """Return the folder of gpuenv's cache: parsed profiles, compiled modules and bytecode of probes."""
    import platformdirs

    return trust.settle_cache((c.cache_dir or Path(platformdirs.user_cache_dir("gpuenv"))).absolute())
