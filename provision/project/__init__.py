"""What a project asks for: gpuenv.yaml, requirements files, pyproject.toml. Nothing of it is run.

Names are looked up when they are used: a `create` that finds nothing to do wants `digest` and a cached
gpuenv.yaml, and neither YAML nor a reader of requirements.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cache import cached_config, digest
    from .config import read_config
    from .demanded import demands
    from .edit import add_packages
    from .kinds import CONFIG_NAME
    from .signs import Known
    from .starting import initialise

_HOME = {
    "CONFIG_NAME": "kinds",
    "Known": "signs",
    "add_packages": "edit",
    "cached_config": "cache",
    "demands": "demanded",
    "digest": "cache",
    "initialise": "starting",
    "read_config": "config",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)


__all__ = [
    "CONFIG_NAME",
    "Known",
    "add_packages",
    "cached_config",
    "demands",
    "digest",
    "initialise",
    "read_config",
]
