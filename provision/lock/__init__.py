"""lock: a Plan's pins solved to exact files with hashes, and locks read and written."""

from __future__ import annotations

from .pylock import read, write
from .pypi import lock as lock_venv

__all__ = ["lock_venv", "read", "write"]
