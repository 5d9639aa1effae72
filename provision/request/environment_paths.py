"""Where things lie: an environment's path, and gpuenv's cache."""

from __future__ import annotations

from pathlib import Path

from .options import Choices


def make_absolute(env: Path) -> Path:
    """Absolute, with the parent's links followed and the last part as it was named."""
    env = Path.cwd() / env.expanduser()
    return env.parent.resolve() / env.name


def get_cache_dir(c: Choices) -> Path:
    """Where gpuenv keeps parsed profiles, compiled modules and probes' bytecode."""
    if c.cache_dir:
        return c.cache_dir.absolute()
    import platformdirs

    return Path(platformdirs.user_cache_dir("gpuenv"))
