"""Formats numbers of bytes as text."""

from __future__ import annotations


def format_bytes(count: float) -> str:
    """Return bytes in powers of ten, as `df -H` and disk vendors count: "2.4 GB"."""
    for unit in ("B", "kB", "MB"):
        if count < 999.5:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
