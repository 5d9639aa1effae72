"""The sources of packages, and the limits of uploads."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

from ..errors import GrantError, MissingVariableError, UsageError
from ..index.config import is_on, is_pytorch, pip_settings, pytorch_base, uv_variables
from ..model import AvailableWheels, ExcludeNewer, Lock, PackageSources, Profiles
from ..system import grants, process
from ..system.redaction import clean_line, redact
from .grants import read_user_grants
from .options import NONE, Choices
from .project import merge_sources, read_requirements
from .rows import load

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


def apply_limit(c: Choices, lock: Lock | None, *, renewed: bool) -> ExcludeNewer | None:
    """Return the limit of the options, otherwise that of the existing lock.

    With `renewed` the lock's duration counts back from now. Raises UsageError.
    """
    if c.exclude_newer is not None:
        return read_limit(c)
    kept = lock.exclude_newer if lock else None
    if kept is None:
        return None
    places = (*kept.excepted, *c.exclude_newer_except)
    if renewed and kept.span:
        return exclude_newer(kept.span, places)
    return dataclasses.replace(kept, excepted=exclude_newer(kept.cutoff, places).excepted)


def limit_sources(
    sources: PackageSources, limit: ExcludeNewer | None, excepted: Sequence[str]
) -> PackageSources:
    """Return the sources with a limit. Without one, that of the project's files stays, for all but the `excepted` places."""
    if limit is None and excepted:
        if sources.exclude_newer is None:
            raise UsageError("--exclude-newer-except needs --exclude-newer", hint="add --exclude-newer DATE")
        limit = exclude_newer(sources.exclude_newer, excepted)
    if limit is None:
        return sources
    return dataclasses.replace(sources, exclude_newer=limit.cutoff, exclude_newer_except=limit.excepted)


def has_same_limit(c: Choices, lock: Lock) -> bool:
    """Return whether a lock has the limit of the options, or they have none."""
    if c.exclude_newer is None:
        return True
    wanted, kept = read_limit(c), lock.exclude_newer
    if wanted is None or kept is None:
        return wanted is kept
    return (wanted.span or wanted.cutoff) == (kept.span or kept.cutoff)


# --- a date or a duration ------------------------------------------------------------------------


def exclude_newer(text: str, excepted: Sequence[str] = ()) -> ExcludeNewer:
    """Return the value of `--exclude-newer`.

    As with uv, a date means the end of that day in local time, and a duration counts back from now. Raises
    UsageError.
    """
    places = tuple(dict.fromkeys(redact(place).rstrip("/") for place in excepted))
    span = _parse_span(text)
    try:
        at = datetime.now(timezone.utc) - span if span else _parse_time(text)
        cutoff = at.astimezone(timezone.utc).replace(microsecond=0, tzinfo=None).isoformat()
    except OverflowError as error:
        raise UsageError(f"--exclude-newer {text!r} is out of range", hint=f"write {_FORMS}") from error
    return ExcludeNewer(cutoff=f"{cutoff}Z", span=text.strip() if span else None, excepted=places)


def _parse_span(text: str) -> timedelta | None:
    plain = text.strip()
    if len(plain) > _LONGEST:
        return None
    match = re.fullmatch(_ISO, plain.upper()) or re.fullmatch(_WORDS, plain.lower())
    parts = {_UNITS[k]: int(v) for k, v in match.groupdict().items() if v} if match else {}
    return timedelta(**parts) if parts else None


def _parse_time(text: str) -> datetime:
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


def read_sources(c: Choices, data: Profiles | None = None) -> PackageSources:
    """Return the package sources of pip's and uv's configuration and of the options. Raises LockError,
    UsageError."""
    read_user_grants(c)
    of_uv = uv_variables(process.environ())
    sources = PackageSources(
        uv=of_uv,
        cache_dir=str(c.cache_dir.absolute()) if c.cache_dir else None,
        no_build=c.no_build or is_on(of_uv.get("UV_NO_BUILD")),
        only_binary=(*c.only_binary, *of_uv.get("UV_NO_BUILD_PACKAGE", "").split()),
    )
    if c.bundle:  # its wheels, and no index: the configuration of pip and uv does not apply
        wheels = c.bundle / "wheels"
        return dataclasses.replace(
            sources, find_links=(str(wheels),) if wheels.is_dir() else (), offline=True, no_index=True
        )
    config = pip_settings(process.environ())
    links = [place if "://" in place else str(Path(place).absolute()) for place in c.find_links]
    for place in links:
        if "://" not in place and not Path(place).exists():
            raise UsageError(f"--find-links {place}: no such folder", hint="check the path")
    configured = [p for p in config.find_links if "://" in p or Path(p).exists()]
    where = list_index_addresses(c, data or load(c))
    extra = [u for u in config.extra_index_urls if not is_pytorch(u, where["pytorch"])]
    sources = dataclasses.replace(
        sources,
        default=where.get("pypi") or config.index_url,
        extra=() if where.get("pypi") == c.index else tuple(extra),
        find_links=tuple(dict.fromkeys([*links, *configured])),
        pytorch=where["pytorch"],
        cert=config.cert,
        proxy=config.proxy,
        timeout=config.timeout,
        trusted=config.trusted_hosts,
        no_index=config.no_index,
        offline=c.offline,
    )
    return limit_sources(sources, read_limit(c), ())


def read_locked_sources(c: Choices, lock: Lock) -> PackageSources:
    """Return the sources of a lock's packages: the configuration, and indexes and folders of the project's
    files.

    Unreadable files name none; the lock decides what is installed. Raises LockError, UsageError.
    """
    sources = read_sources(c)
    if c.bundle or not (c.config or c.requirement or c.project):
        return sources
    try:
        requirements = read_requirements(c, load(c), lock.target)
    except UsageError as error:
        lacking = error.variable if isinstance(error, MissingVariableError) else None
        named = (grants.list_variables(f"{p.url} {p.index}") for p in lock.packages)
        if isinstance(error, GrantError) or any(lacking in names for names in named):
            raise
        return sources
    return merge_sources(sources, c, requirements)


def list_index_addresses(c: Choices, data: Profiles) -> dict[str, str]:
    """Return the URLs of indexes that differ from those of pip and uv.

    The order is --index, GPUENV_INDEX_PYPI and GPUENV_INDEX_PYTORCH, gpuenv.yaml, then the profiles. The PyTorch index
    always has a URL.
    """
    environ = process.environ()
    addresses = {row.index: row.url for row in data.indexes} | c.indexes
    named = {name: environ.get(f"GPUENV_INDEX_{name.upper()}") for name in ("pypi", "pytorch")}
    if "://" in c.index:
        named |= {"pytorch": pytorch_base(c.index)} if is_pytorch(c.index) else {"pypi": c.index}
    return addresses | {name: url for name, url in named.items() if url}


def list_available_wheels(s: PackageSources) -> AvailableWheels:
    """Return the local wheels, and whether no others can be used."""
    from ..index.wheel_names import find_links

    folders = [p for p in s.find_links if "://" not in p]
    return AvailableWheels(wheels=find_links(folders), only_wheels=s.offline or s.no_index)
