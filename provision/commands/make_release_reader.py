"""Make the reader of available releases for the named packages and the candidate builds."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set as AbstractSet

from ..model import FRAMEWORKS, Build, RequestContext
from ..resolve.companion_objections import companion_names, known_companion
from ..wheels.available_releases import ReleaseReader, RequestedPackage
from ..wheels.prebuilt_wheels import PrebuiltWheels


def make_release_reader(
    context: RequestContext,
    named: Sequence[RequestedPackage],
    pythons: AbstractSet[str],
    builds: Sequence[Build],
    warn: Callable[[str], None],
) -> ReleaseReader:
    """Return a reader that knows the releases of companions, and has read no index yet."""
    about = frozenset(n.name for n in named) | frozenset(FRAMEWORKS)
    newest_first = sorted(pythons, key=lambda p: -int(p.split(".")[1]))
    companions = companion_names(context.profiles.builds)
    known = [
        known_companion(n.name, n.specifier, context.profiles, context.target.platform, newest_first)
        for n in named if n.name in companions and not n.index
    ]  # fmt: skip
    return ReleaseReader(
        context.sources, context.supply, context.target, newest_first, about, pre=context.request.pre,
        known=tuple(p for p in known if p.releases),
        prebuilt=PrebuiltWheels(
            context.profiles.pages, builds, context.sources, context.target, newest_first, warn,
            context.profiles.wheel_glibc,
        ),
    )  # fmt: skip
