"""The manager `conda`: packages of channels, then wheels."""

from __future__ import annotations

from .build import begin, change, fetch, install, put_back, record, settle, transaction

__all__ = [
    "begin", "change", "fetch", "install", "put_back", "record", "settle", "transaction",
]  # fmt: skip
