"""build: an Environment from a Lock, all or nothing."""

from __future__ import annotations

from . import place, state, venv

__all__ = ["place", "state", "venv"]
