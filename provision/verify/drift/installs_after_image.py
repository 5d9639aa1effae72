"""Finds packages that were installed after the image of a system-wide Python, as Colab's.

Only file times show it. An image installs its packages within a day, and later installs have a later time. If
the packages of a folder share no such day, only the user's own site-packages are reported.
"""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...environment.distributions import list_distributions
from ...model import Evidence, is_stack_package

# Packages with code that is compiled against the stack
_COMPILED = re.compile(r"numpy|cupy[\w-]*|onnxruntime-gpu|xformers|flash-attn|bitsandbytes|ctranslate2")
_DAY = 86400.0
_MANY = 20  # fewer packages show no day
_SHARE = 0.6  # of them, installed within one day


@dataclass(frozen=True, kw_only=True, slots=True)
class LaterInstall:
    """A package of the stack that was installed later. `by` is the name of the installer."""

    name: str
    version: str
    by: str
    when: float
    in_user_site: bool = False

    def __str__(self) -> str:
        when = dt.datetime.fromtimestamp(self.when, tz=dt.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
        where = ", in the user's site-packages" if self.in_user_site else ""
        return f"{self.name} {self.version} ({self.by}, {when}{where})"


def find_later_installs(sites: Sequence[str], user_site: str | None) -> tuple[LaterInstall, ...]:
    """Return the packages of the stack that were installed later, the latest first."""
    installs = []
    for site in dict.fromkeys(s for s in sites if s != user_site):
        packages = _list_installs(site)
        image_end = _find_image_end([c.when for c in packages])
        installs += [c for c in packages if image_end and c.when > image_end and _is_relevant(c.name)]
    user_packages = _list_installs(user_site, in_user_site=True) if user_site else []
    installs += [c for c in user_packages if _is_relevant(c.name)]
    return tuple(sorted(installs, key=lambda c: -c.when))


def _is_relevant(name: str) -> bool:
    return is_stack_package(name) or _COMPILED.fullmatch(name) is not None


def _list_installs(site: str, *, in_user_site: bool = False) -> list[LaterInstall]:
    installs = []
    for one in list_distributions(site):
        times = [t for p in (one.folder, one.folder / "RECORD") if (t := _read_time(p))]
        if times:
            installs.append(
                LaterInstall(
                    name=one.name,
                    version=one.version,
                    by=one.installer or "unknown",
                    when=max(times),
                    in_user_site=in_user_site,
                )
            )
    return installs


def _read_time(path: Path) -> float | None:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return None


def _find_image_end(times: Sequence[float]) -> float | None:
    """Return the end of the day in which most packages were installed, or None if there is no such day."""
    ordered = sorted(times)
    if len(ordered) < _MANY:
        return None
    best, last, start = 0, 0.0, 0
    for end, time in enumerate(ordered):
        while time - ordered[start] > _DAY:
            start += 1
        if end - start + 1 > best:
            best, last = end - start + 1, time
    return last if best >= _SHARE * len(ordered) else None


def list_evidence(installs: Sequence[LaterInstall]) -> tuple[Evidence, ...]:
    """Return each later install as evidence."""
    return tuple(Evidence(text=str(c), source="installed since the runtime was made") for c in installs[:8])
