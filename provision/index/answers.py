"""What a server answers: bodies of bounded size and time, refusals in words, how long to wait."""

from __future__ import annotations

import datetime as dt
import email.utils
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import http.client
    from email.message import Message

MOST = 256 << 20
"""Bytes of one body. The largest page of a package index has some 50 MB; wheels are read in parts."""
LONGEST = 600.0
"""Seconds for one body, however steadily it drips."""
PATIENCE = 60.0
"""Seconds that a server may ask us to wait before it is asked again; a longer wait is the user's choice."""
_PIECE = 1 << 20
_DIGITS = 15
"""Digits of a sane number of bytes or seconds."""

_HINTS = {
    401: "Put user and password into the index's address in pip.conf, or into ~/.netrc.",
    403: "Put user and password into the index's address in pip.conf, or into ~/.netrc.",
    407: "Put user and password into the proxy's address: HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT.",
    429: "Wait some minutes, then run the command again: what was read is kept.",
}


class AnswerError(OSError):
    """An answer that breaks the rules of HTTP or a bound of ours. Another try would get the same."""


def number(headers: Mapping[str, Any] | Message, name: str) -> int | None:
    """Return a header's count of bytes, None where it is missing. Raises AnswerError for nonsense."""
    text = headers.get(name)
    if text is None:
        return None
    digits = str(text).strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS):
        raise AnswerError(f"its {name} is no size: {digits[:40]!r}")
    return int(digits)


def body(answer: http.client.HTTPResponse, most: int = MOST) -> bytes:
    """Read a whole body of at most `most` bytes. Raises OSError where it ends too early, AnswerError where it
    is larger or takes longer than LONGEST."""
    expected = number(answer.headers, "Content-Length")
    if expected is not None and expected > most:
        raise AnswerError(f"{expected} bytes came back, expected at most {most}")
    pieces, size, until = [], 0, time.monotonic() + LONGEST
    # `read1` returns what has come, so that the deadline is checked also where bytes come one by one.
    while size != expected and (piece := answer.read1(_PIECE)):
        pieces.append(piece)
        size += len(piece)
        if size > most:
            raise AnswerError(f"more than {most} bytes came back")
        if time.monotonic() > until:
            raise AnswerError(f"after {LONGEST:.0f} s the answer had no end")
    if expected is not None and size < expected:
        raise OSError(f"the answer ended half-way, after {size} of {expected} bytes")
    return b"".join(pieces)


def delay(tried: int) -> float:
    """Seconds before the next try: 0.5, 1, 2, ..."""
    return float(0.5 * 2**tried)


def pause(headers: Message, tried: int) -> float | None:
    """Return the seconds before the next try: those of `Retry-After`, else `delay`; None where the server asks
    for more than PATIENCE. Nonsense counts as no header."""
    wanted = _retry_after(headers)
    if wanted is None:
        return delay(tried)
    return wanted if wanted <= PATIENCE else None


def _retry_after(headers: Message) -> float | None:
    """Return the seconds of `Retry-After` (RFC 9110, 10.2.3), None where there is none or it is nonsense."""
    said = str(headers.get("Retry-After", "")).strip()
    if said.isascii() and said.isdigit():
        return float(said[:_DIGITS])
    try:
        when = email.utils.parsedate_to_datetime(said)
        return max(0.0, (when - dt.datetime.now(tz=dt.timezone.utc)).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return None


def refusal(code: int, reason: str, headers: Message) -> tuple[str, str | None]:
    """Return an error status in words, and what to do where that is known."""
    if 300 <= code < 400:
        return "redirects without an end", None
    said = f"answered {code} {reason}".rstrip()
    if code == 407:
        said = f"its proxy wants a user and a password ({said})"
    if wait := str(headers.get("Retry-After", "")).strip():
        if _retry_after(headers) is None:
            said += f"; its Retry-After is neither seconds nor a date: {wait[:40]!r}"
        else:
            said += f", and asks us to come back {'in ' + wait + ' s' if wait.isdigit() else 'after ' + wait[:40]}"
    return said, _HINTS.get(code)
