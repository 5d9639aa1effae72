"""Finds the Pythons of a platform for which packages have wheels.

One solution serves several Pythons. An old pin often has no wheel for the newest Python. Another Python is then
better than a compiler.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from packaging.pylock import Pylock

from ..errors import LockError
from ..index import uv
from ..index.wheel_names import cpython_markers
from ..model import UV_LOCK_FORMAT, LockedPackage, PackageSources, Plan
from ..system.redaction import redact
from ..system.scratch import make_scratch
from ..wheels.releases import SourceArchives
from .compile import choose_best_wheel, list_target_tags, only_files, read_pylock
from .uv_errors import explain

_TIMEOUT = 900.0


def wheels_for(
    requirements: Sequence[str], minors: Sequence[str], plan: Plan, sources: PackageSources
) -> dict[str, tuple[LockedPackage, ...]]:
    """Return the wheels that meet requirements, for each of `minors` (newest first) with wheels of all packages.

    `plan` has the platform. One solution serves all Pythons. A separate solution could serve more of them, because uv
    takes the files of a version from one index. Raises LockError without a solution.
    """
    with make_scratch("lock") as scratch:
        wanted = scratch / "wanted.in"
        wanted.write_text("\n".join(requirements) + "\n", encoding="utf-8")
        words = [
            "pip", "compile", str(wanted), "--universal", "--python-version", minors[-1],
            "--format", UV_LOCK_FORMAT, "--only-binary", ":all:", "--no-header", "--quiet",
        ]  # fmt: skip
        settings = uv.Settings(only_wheels=only_files(sources), timeout=_TIMEOUT)
        done = uv.run_uv(words, sources, python=sys.executable, settings=settings)
    if not done.ok:
        raise explain(done, sources, requirements, (), SourceArchives(sources))
    locked = read_pylock(done.stdout)
    by_python = {minor: _select_wheels(locked, replace(plan, python=minor)) for minor in minors}
    return {minor: packages for minor, packages in by_python.items() if packages}


def _select_wheels(locked: Pylock, plan: Plan) -> tuple[LockedPackage, ...]:
    """Return the best wheels for a plan's Python and platform, or none if a package has none."""
    markers = cpython_markers(plan.platform, plan.python)
    ranks = {str(tag): i for i, tag in enumerate(list_target_tags(plan))}
    applying = [p for p in locked.packages if p.marker is None or p.marker.evaluate(markers)]
    try:
        wheels = [choose_best_wheel(package, ranks) for package in applying]
    except LockError:
        return ()
    return tuple(replace(p, url=redact(p.url)) for p in wheels)
