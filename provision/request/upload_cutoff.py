"""`--exclude-newer`: a date or a duration as the moment after which no upload is taken."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

from ..errors import UsageError
from ..model import ExcludeNewer
from ..system.redaction import redact

_UNITS = {"w": "weeks", "d": "days", "h": "hours", "m": "minutes", "s": "seconds"}
_ISO = re.compile(r"P(?:(?P<w>\d{1,6})W)?(?:(?P<d>\d{1,6})D)?(?:T(?:(?P<h>\d{1,6})H)?(?:(?P<m>\d{1,6})M)?(?:(?P<s>\d{1,6})S)?)?")  # fmt: skip
_WORDS = re.compile(
    r"(?:(?P<w>\d{1,6})\s*w(?:eeks?)?[\s,]*)?(?:(?P<d>\d{1,6})\s*d(?:ays?)?[\s,]*)?"
    r"(?:(?P<h>\d{1,6})\s*h(?:ours?|rs?)?[\s,]*)?(?:(?P<m>\d{1,6})\s*m(?:in(?:ute)?s?)?[\s,]*)?"
    r"(?:(?P<s>\d{1,6})\s*s(?:ec(?:ond)?s?)?)?(?:\s*ago)?"
)
_FORMS = "a date (2026-01-31), a time (2026-01-31T12:00:00Z) or a duration (7 days, P7D)"
_LONGEST = 60


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
    found = _ISO.fullmatch(plain.upper()) or _WORDS.fullmatch(plain.lower())
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
        pass  # the refusal below has the text and the forms
    calendar = re.search(r"month|year|^P\d+[MY]", plain, re.IGNORECASE)
    hint = "months and years differ in length: write days, as 30 days" if calendar else f"write {_FORMS}"
    raise UsageError(f"--exclude-newer {plain[:_LONGEST]!r} is no date and no duration", hint=hint)


def _stamp(text: str, at: datetime) -> str:
    try:
        return at.astimezone(timezone.utc).replace(microsecond=0).strftime("%Y-%m-%dT%H:%M:%SZ")
    except OverflowError as error:
        raise UsageError(f"--exclude-newer {text!r} is out of range", hint=f"write {_FORMS}") from error
