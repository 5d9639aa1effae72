"""Checks for rights from a setuid program."""

from __future__ import annotations

import os


def has_borrowed_rights() -> bool:
    """Return whether this process has other rights than the user who started it, because of a setuid program.

    PATH, PYTHONPATH and files then come from one user, and the rights from another.
    """
    return hasattr(os, "getresuid") and len({*os.getresuid()[:2]}) > 1
