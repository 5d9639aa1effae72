"""Finds the Pythons of a platform for which packages have wheels.

One solution serves several Pythons. An old pin often has no wheel for the newest Python. Another Python is then
better than a compiler.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace

import tomli
from packaging.pylock import Pylock, PylockValidationError
from packaging.requirements import Requirement
from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from ..errors import LockError
from ..index import uv
from ..index.markers_and_tags_of_platform import CPYTHON, markers_of, wheel_tags
from ..model import UV_LOCK_FORMAT, LockedPackage, PackageSources, Plan
from ..system import scratch_folders
from ..system.redaction import redact
from .ask_uv import only_files
from .index_metadata_cache import IndexMetadata
from .solve_failure import failure
from .uv_solution import choose_best_wheel, list_target_tags

_TIMEOUT = 900.0


def wheels_for(
    requirements: Sequence[str], minors: Sequence[str], plan: Plan, sources: PackageSources
) -> dict[str, tuple[LockedPackage, ...]]:
    """Return the wheels that meet requirements, for each of `minors` (newest first) with wheels of all packages.

    `plan` has the platform. One solution serves all Pythons. A separate solution could serve more of them, because uv
    takes the files of a version from one index. Raises LockError without a solution.
    """
    with scratch_folders.scratch("lock") as scratch:
        wanted = scratch / "wanted.in"
        wanted.write_text("\n".join(requirements) + "\n", encoding="utf-8")
        words = [
            "pip", "compile", str(wanted), "--universal", "--python-version", minors[-1],
            "--format", UV_LOCK_FORMAT, "--only-binary", ":all:", "--no-header", "--quiet",
        ]  # fmt: skip
        settings = uv.Settings(only_wheels=only_files(sources), timeout=_TIMEOUT)
        done = uv.run_uv(words, sources, python=sys.executable, settings=settings)
    if not done.ok:
        raise failure(done, sources)
    try:
        locked = Pylock.from_dict(tomli.loads(done.stdout))
    except (ValueError, PylockValidationError) as error:
        raise LockError(
            f"the solver's answer cannot be read: {error}",
            hint="reinstall gpuenv: its uv was replaced by another version",
        ) from error
    by_python = {minor: _select_wheels(locked, replace(plan, python=minor)) for minor in minors}
    return {minor: packages for minor, packages in by_python.items() if packages}


def _select_wheels(locked: Pylock, plan: Plan) -> tuple[LockedPackage, ...]:
    """Return the best wheels for a plan's Python and platform, or none if a package has none."""
    versions = {"python_version": plan.python or "", "python_full_version": f"{plan.python}.0"}
    markers = markers_of(plan.platform) | CPYTHON | versions
    ranks = {str(tag): i for i, tag in enumerate(list_target_tags(plan))}
    applying = [p for p in locked.packages if p.marker is None or p.marker.evaluate(markers)]
    try:
        wheels = [choose_best_wheel(package, ranks) for package in applying]
    except LockError:
        return ()
    return tuple(replace(p, url=redact(p.url)) for p in wheels)


def find_pythons_with_wheel(
    need: Requirement, plan: Plan, sources: PackageSources, minors: Iterable[str], *, index: str | None = None
) -> tuple[str, ...]:
    """Return those of `minors` ("3.11") for which some release within the bounds has a wheel on the plan's platform.

    `index` is the only index of the package. Raises LockError if an index does not answer.
    """
    tags: set[Tag] = set()
    for file in IndexMetadata(sources).files(canonicalize_name(need.name), index):
        try:
            _, version, _, fitting = parse_wheel_filename(file.name)
        except InvalidWheelFilename:
            continue  # a source archive, or an invalid name
        if file.yanked is None and need.specifier.contains(version, prereleases=True):
            tags |= fitting
    return tuple(m for m in minors if not tags.isdisjoint(wheel_tags(m, plan.platform, plan.target.glibc)))
