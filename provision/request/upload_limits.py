"""Read the limit on upload dates: that of `--exclude-newer`, otherwise that of the existing lock.

`--exclude-newer` is a date or a duration. Uploads after that time are ignored.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

from ..errors import UsageError
from ..model import ExcludeNewer, Lock, PackageSources
from ..system.redaction import clean_line, redact
from .shared_options import Choices

NONE = "false"
_UNITS = {"w": "weeks", "d": "days", "h": "hours", "m": "minutes", "s": "seconds"}
# Not compiled here: every command imports this module, but few have a limit.
_ISO = r"P(?:(?P<w>\d{1,6})W)?(?:(?P<d>\d{1,6})D)?(?:T(?:(?P<h>\d{1,6})H)?(?:(?P<m>\d{1,6})M)?(?:(?P<s>\d{1,6})S)?)?"
_WORDS = (
    r"(?:(?P<w>\d{1,6})\s*w(?:eeks?)?[\s,]*)?(?:(?P<d>\d{1,6})\s*d(?:ays?)?[\s,]*)?"
    r"(?:(?P<h>\d{1,6})\s*h(?:ours?|rs?)?[\s,]*)?(?:(?P<m>\d{1,6})\s*m(?:in(?:ute)?s?)?[\s,]*)?"
    r"(?:(?P<s>\d{1,6})\s*s(?:ec(?:ond)?s?)?)?(?:\s*ago)?"
)
_FORMS = "a date (2026-01-31), a time (2026-01-31T12:00:00Z) or a duration (7 days, P7D)"
_LONGEST = 60


def check_limits(c: Choices, *, kept: bool) -> None:
    """Raise UsageError for an invalid limit, or one that the manager does not support."""
    if not kept and (c.exclude_newer or c.exclude_newer_except):
        raise UsageError(
            f"--exclude-newer works for wheels only, not with --manager {c.manager}",
            hint="leave it out, or use --manager venv",
        )
    read_limit(c)


def read_limit(c: Choices) -> ExcludeNewer | None:
    """Return the limit of the options, or None. Raises UsageError."""
    if c.exclude_newer is None or c.exclude_newer == NONE:
        return None
    return exclude_newer(c.exclude_newer, c.exclude_newer_except)


def apply_limit(c: Choices, lock: Lock | None, *, renewed: bool = False) -> ExcludeNewer | None:
    """Return the limit of the options, otherwise that of the existing lock.

    With `renewed` the lock's duration counts back from now. Raises UsageError.
    """
    if c.exclude_newer is not None:
        return read_limit(c)
    kept = lock.exclude_newer if lock else None
    if kept is None:
        if c.exclude_newer_except:
            raise UsageError("--exclude-newer-except needs --exclude-newer", hint="add --exclude-newer DATE")
        return None
    places = (*kept.excepted, *c.exclude_newer_except)
    if renewed and kept.span:
        return exclude_newer(kept.span, places)
    return dataclasses.replace(kept, excepted=exclude_newer(kept.cutoff, places).excepted)


def limit_sources(sources: PackageSources, limit: ExcludeNewer | None) -> PackageSources:
    """Return the sources with a limit. Without one, the limit of the project's files stays."""
    if limit is None:
        return sources
    return dataclasses.replace(sources, exclude_newer=limit.cutoff, exclude_newer_except=limit.excepted)


def is_current(c: Choices, lock: Lock) -> bool:
    """Return whether a lock has the limit of the options, or they have none."""
    if c.exclude_newer is None:
        return True
    wanted, kept = read_limit(c), lock.exclude_newer
    if wanted is None or kept is None:
        return wanted is kept
    return wanted.span == kept.span if wanted.span or kept.span else wanted.cutoff == kept.cutoff


# --- a date or a duration ------------------------------------------------------------------------


def exclude_newer(text: str, excepted: Sequence[str] = (), *, now: datetime | None = None) -> ExcludeNewer:
    """Return the value of `--exclude-newer`.

    As with uv, a date means the end of that day in local time, and a duration counts back from now. Raises
    UsageError.
    """
    now = now or datetime.now(timezone.utc)
    places = tuple(dict.fromkeys(redact(place).rstrip("/") for place in excepted))
    if span := _span(text):
        return ExcludeNewer(cutoff=_stamp(text, now - span), span=text.strip(), excepted=places)
    return ExcludeNewer(cutoff=_stamp(text, _moment(text)), excepted=places)


def _span(text: str) -> timedelta | None:
    plain = text.strip()
    if len(plain) > _LONGEST:
        return None
    match = re.fullmatch(_ISO, plain.upper()) or re.fullmatch(_WORDS, plain.lower())
    parts = {_UNITS[k]: int(v) for k, v in match.groupdict().items() if v} if match else {}
    return timedelta(**parts) if parts else None


def _moment(text: str) -> datetime:
    plain = text.strip()
    try:
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}", plain):
            return (datetime.strptime(plain, "%Y-%m-%d") + timedelta(days=1)).astimezone()  # noqa: DTZ007  # local
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}[Tt ].{5,30}", plain):
            at = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", plain))
            if at.tzinfo is not None:
                return at
    except (ValueError, OverflowError):
        pass  # the error below names the text and the valid forms
    calendar = re.search(r"month|year|^P\d+[MY]", plain, re.IGNORECASE)
    hint = "write days instead of months and years, such as 30 days" if calendar else f"write {_FORMS}"
    raise UsageError(
        f"--exclude-newer {clean_line(plain, _LONGEST)!r} is neither a date nor a duration", hint=hint
    )


def _stamp(text: str, at: datetime) -> str:
    try:
        return at.astimezone(timezone.utc).replace(microsecond=0).strftime("%Y-%m-%dT%H:%M:%SZ")
    except OverflowError as error:
        raise UsageError(f"--exclude-newer {text!r} is out of range", hint=f"write {_FORMS}") from error
