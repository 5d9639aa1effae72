"""The manager `conda`: packages of channels, then wheels."""

from __future__ import annotations

from .lock_file import NAME as LOCK_NAME

__all__ = ["LOCK_NAME"]
