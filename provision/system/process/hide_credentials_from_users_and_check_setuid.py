"""Hide this process's credentials from other users, and check for rights from a setuid program."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def hide_credentials() -> None:
    """Overwrite the credentials of addresses on this process's command line, which every user can read.

    sys.argv does not change.
    """
    if sys.platform != "linux" or not any("://" in word for word in sys.orig_argv):
        return
    import ctypes

    from ..redaction import find_secrets

    fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    start, end = (
        int(fields[45]),
        int(fields[46]),
    )  # arg_start and arg_end (proc(5)), or 0 if hidden
    if 0 < start < end:
        # Latin-1 has one character for each byte.
        for secret in find_secrets(ctypes.string_at(start, end - start).decode("latin-1")):
            ctypes.memset(start + secret.start, ord("*"), secret.end - secret.start)


def has_borrowed_rights() -> bool:
    """Return whether this process has other rights than the user who started it, because of a setuid program.

    PATH, PYTHONPATH and files then come from one user, and the rights from another.
    """
    return hasattr(os, "getresuid") and len({*os.getresuid()[:2]}) > 1
