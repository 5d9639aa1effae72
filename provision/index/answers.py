"""What a server answers: bodies of bounded size and time, refusals in words, how long to wait."""

from __future__ import annotations

import datetime as dt
import email.utils
import time
from email.message import Message
from typing import IO

MOST = 256 << 20
"""Bytes of one body. The largest page of a package index has some 50 MB; wheels are read in parts."""
LONGEST = 600.0
"""Seconds for one body, however steadily it drips."""
PATIENCE = 60.0
"""Seconds that a server may ask us to wait before it is asked again; a longer wait is the user's choice."""
_PIECE = 1 << 20

_HINTS = {
    401: "Put user and password into the index's address in pip.conf, or into ~/.netrc.",
    403: "Put user and password into the index's address in pip.conf, or into ~/.netrc.",
    407: "Put user and password into the proxy's address: HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT.",
    429: "Wait some minutes, then run the command again: what was read is kept.",
}


def body(answer: IO[bytes]) -> bytes:
    """The whole body. Raises OSError where it ends too early, is larger, or takes longer, than any that we
    ask for."""
    pieces, size, until = [], 0, time.monotonic() + LONGEST
    while piece := answer.read(_PIECE):
        pieces.append(piece)
        size += len(piece)
        if size > MOST:
            raise OSError(f"more than {MOST >> 20} MiB came back")
        if time.monotonic() > until:
            raise OSError(f"after {LONGEST:.0f} s the answer had no end")
    left = getattr(answer, "length", None)
    if left:
        raise OSError(f"the answer ended half-way, after {size} of {size + left} bytes")
    return b"".join(pieces)


def delay(tried: int) -> float:
    """Seconds before the next try: 0.5, 1, 2, ..."""
    return float(0.5 * 2**tried)


def pause(headers: Message, tried: int) -> float | None:
    """Seconds before the next try: what `Retry-After` says (RFC 9110, 10.2.3), else `delay`; None where the
    server wants more than our patience."""
    said = headers.get("Retry-After")
    if not said:
        return delay(tried)
    if said.strip().isdigit():
        wanted = float(said)
    else:
        try:
            wanted = (
                email.utils.parsedate_to_datetime(said) - dt.datetime.now(tz=dt.timezone.utc)
            ).total_seconds()
        except (ValueError, TypeError):
            return delay(tried)
    return max(0.0, wanted) if wanted <= PATIENCE else None


def refusal(code: int, reason: str, headers: Message) -> tuple[str, str | None]:
    """An error status in words, and what to do where that is known."""
    if 300 <= code < 400:
        return "redirects without an end", None
    said = f"answered {code} {reason}".rstrip()
    if code == 407:
        said = f"its proxy wants a user and a password ({said})"
    if wait := headers.get("Retry-After"):
        said += (
            f", and asks us to come back {'in ' + wait + ' s' if wait.strip().isdigit() else 'after ' + wait}"
        )
    return said, _HINTS.get(code)
