"""Wheels of some requirements for several Pythons of one platform, from one solution for all of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

import tomli
from packaging.pylock import Pylock, PylockValidationError

from ..errors import LockError
from ..index import uv
from ..model import Package, Plan, Sources
from ..system import writing
from ..system.redaction import redact
from .asking import failure, only_files
from .solved import best_wheel, target_tags

_TIMEOUT = 900.0
_MARKERS = {
    "linux": {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"},
    "windows": {"sys_platform": "win32", "platform_system": "Windows", "os_name": "nt"},
}


def wheels_for(
    requirements: Sequence[str], minors: Sequence[str], plan: Plan, sources: Sources
) -> dict[str, tuple[Package, ...]]:
    """The wheels that meet requirements, for each of `minors` (newest first) for which the solution has them
    all; `plan` tells the platform. A Python may be left out that a solution of its own would serve: of a
    version uv takes the files of one index, whichever Pythons they are for. Raises LockError where there is
    no solution."""
    with writing.scratch("lock") as scratch:
        wanted = scratch / "wanted.in"
        wanted.write_text("\n".join(requirements) + "\n", encoding="utf-8")
        words = [
            "pip", "compile", str(wanted), "--universal", "--python-version", minors[-1],
            "--format", "pylock.toml", "--only-binary", ":all:", "--no-header", "--quiet",
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
            hint="another uv than gpuenv's own answers: install gpuenv again",
        ) from error
    found = {minor: _of(locked, replace(plan, python=minor)) for minor in minors}
    return {minor: packages for minor, packages in found.items() if packages}


def _of(locked: Pylock, plan: Plan) -> tuple[Package, ...]:
    """The best wheels for a plan's Python and platform, none at all where a package has none."""
    system, _, machine = plan.platform.partition("-")
    markers = _MARKERS[system] | {
        "platform_machine": "AMD64" if system == "windows" else machine,
        "python_version": plan.python or "", "python_full_version": f"{plan.python}.0", "implementation_name": "cpython",
        "platform_python_implementation": "CPython", "extra": "",
    }  # fmt: skip
    ranks = {str(tag): i for i, tag in enumerate(target_tags(plan))}
    mine = [p for p in locked.packages if p.marker is None or p.marker.evaluate(markers)]
    try:
        found = [best_wheel(package, ranks) for package in mine]
    except LockError:
        return ()
    return tuple(replace(p, url=redact(p.url)) for p in found)
