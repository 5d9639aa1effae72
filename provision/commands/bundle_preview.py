"""What `gpuenv bundle --dry-run` tells: the files that would be fetched, and their sizes."""

from __future__ import annotations

from pathlib import Path

from .. import bundle as stage
from ..bundle.collect_files import needed
from ..model import Emit, Plan, Preview
from ..request.options import Choices
from . import bundle_lock
from .bundle_files import BundledPackages, solve_own_packages


def preview(
    folder: Path, choices: Choices, lock: Path | None, emit: Emit, *, allow_md5: bool
) -> Plan | Preview:
    """Return the files that would be fetched. A Python archive and what builds sources are not counted: their sizes are
    known when they are fetched."""
    before = stage.claim(folder)
    got = bundle_lock.of(emit, folder, before, choices, lock, allow_md5=allow_md5)
    if isinstance(got, Plan):
        return got
    files = BundledPackages(folder, got)
    mine, _ = solve_own_packages(got, emit)
    made_here = [p.name for p in got.lock.packages if p.unhashed]
    packages = [p for p in got.lock.packages if not p.unhashed]
    need = needed(folder, [*files.items(packages), *files.items(mine, "gpuenv")])
    notes = ["a Python for the target is downloaded too: about 45 MB"]
    notes += [f"wheels are built from {', '.join(made_here)}"] if made_here else []
    return Preview(
        command="bundle", path=str(folder), writes=tuple(str(item.wanted.path) for item in need.items),
        download_bytes=need.bytes, free_bytes=need.free, notes=tuple(notes),
    )  # fmt: skip
