"""Errors of requests to indexes, and whether another try can succeed."""

from __future__ import annotations

import ssl
import urllib.error

from ..errors import LockError
from ..system.redaction import redact
from . import open_and_read_bounded
from .http_refusals import NETWORK_HINT, Refusal


def is_permanent(error: Exception) -> bool:
    """Return whether the same request would fail again."""
    final = (
        open_and_read_bounded.AnswerError,
        FileNotFoundError,
        PermissionError,
        IsADirectoryError,
        NotADirectoryError,
    )
    return isinstance(getattr(error, "reason", None), ssl.SSLCertVerificationError) or isinstance(
        error, final
    )


def read_error(url: str, error: Exception) -> LockError:
    """Return the error for a URL whose request failed with a status or an exception."""
    if isinstance(error, urllib.error.HTTPError):
        refusal: Refusal | None = open_and_read_bounded.explain_refusal(error)
    else:
        refusal = open_and_read_bounded.explain_error(error)
    if refusal:
        return unreadable(url, f"the server {refusal.words}", refusal.hint)
    return unreadable(url, str(getattr(error, "reason", None) or error or type(error).__name__))


def unreadable(url: str, reason: str, hint: str = NETWORK_HINT) -> LockError:
    """Return the error for a URL that cannot be read."""
    shown = redact(url)
    return LockError(f"cannot read {shown}: {reason}", hint=hint, unreachable=shown)
