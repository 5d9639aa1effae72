"""The limit on uploads that applies: that of `--exclude-newer`, else that of the lock that is there.

`--exclude-newer` is a date or a duration, read as the moment after which no upload is taken.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

from ..errors import UsageError
from ..model import ExcludeNewer, Lock, PackageSources
from ..system.redaction import redact
from .options import Choices

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
    """Raise UsageError for a limit that cannot be read, or that the manager cannot keep."""
    if not kept and (c.exclude_newer or c.exclude_newer_except):
        raise UsageError(
            f"--exclude-newer works for wheels only, not with --manager {c.manager}",
            hint="leave it out, or use --manager venv",
        )
    read_limit(c)


def read_limit(c: Choices) -> ExcludeNewer | None:
    """The limit that the options ask for, None without one. Raises UsageError."""
    if c.exclude_newer is None or c.exclude_newer == NONE:
        return None
    return exclude_newer(c.exclude_newer, c.exclude_newer_except)


def apply_limit(c: Choices, lock: Lock | None, *, renewed: bool = False) -> ExcludeNewer | None:
    """The limit that applies beside a lock that is there: the lock's own is kept. With `renewed` its duration
    counts back from now. Raises UsageError."""
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
    """The sources under a limit; without one, that of the project's own files stays."""
    if limit is None:
        return sources
    return dataclasses.replace(sources, exclude_newer=limit.cutoff, exclude_newer_except=limit.excepted)


def is_current(c: Choices, lock: Lock) -> bool:
    """Whether a lock was made with the limit that the options ask for, or they ask for none."""
    if c.exclude_newer is None:
        return True
    asked, kept = read_limit(c), lock.exclude_newer
    if asked is None or kept is None:
        return asked is kept
    return asked.span == kept.span if asked.span or kept.span else asked.cutoff == kept.cutoff


# --- a date or a duration ------------------------------------------------------------------------


def exclude_newer(text: str, excepted: Sequence[str] = (), *, now: datetime | None = None) -> ExcludeNewer:
    """The value of `--exclude-newer`. As with uv, a date means the end of that day here, and a duration counts
    back from now. Raises UsageError."""
    now = now or datetime.now(timezone.utc)
    places = tuple(dict.fromkeys(redact(place).rstrip("/") for place in excepted))
    if span := _span(text):
        return ExcludeNewer(cutoff=_stamp(text, now - span), span=text.strip(), excepted=places)
    return ExcludeNewer(cutoff=_stamp(text, _moment(text)), excepted=places)


def _span(text: str) -> timedelta | None:
    plain = text.strip()
    if len(plain) > _LONGEST:
        return None
    found = re.fullmatch(_ISO, plain.upper()) or re.fullmatch(_WORDS, plain.lower())
    parts = {_UNITS[k]: int(v) for k, v in found.groupdict().items() if v} if found else {}
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
    raise UsageError(f"--exclude-newer {plain[:_LONGEST]!r} is neither a date nor a duration", hint=hint)


def _stamp(text: str, at: datetime) -> str:
    try:
        return at.astimezone(timezone.utc).replace(microsecond=0).strftime("%Y-%m-%dT%H:%M:%SZ")
    except OverflowError as error:
        raise UsageError(f"--exclude-newer {text!r} is out of range", hint=f"write {_FORMS}") from error
