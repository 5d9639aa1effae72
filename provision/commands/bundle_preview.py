"""List the files that `gpuenv bundle` would download, with their sizes (--dry-run)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from ..bundle.files import Item, needed
from ..model import Emit, Preview
from .bundle_contents import merge_items
from .bundle_lock import LockForBundle, one_of_each_platform
from .package_paths_and_download_addresses import BundledPackages, solve_own_packages


def preview(folder: Path, locks: Sequence[LockForBundle], emit: Emit) -> Preview:
    """Return the files to download. Python archives and build tools are not counted, because their sizes are
    not known."""
    own_items = [_own_items(folder, locked, emit) for locked in one_of_each_platform(locks)]
    need = needed(folder, merge_items(chain(*(_items(folder, locked) for locked in locks), *own_items)))
    made_here = dict.fromkeys(p.name for locked in locks for p in locked.lock.packages if p.unhashed)
    notes = ["a Python for the target is downloaded too: about 45 MB"]
    notes += [f"wheels are built from {', '.join(made_here)}"] if made_here else []
    return Preview(
        command="bundle", path=str(folder), writes=tuple(str(item.wanted.path) for item in need.items),
        download_bytes=need.bytes, free_bytes=need.free, notes=tuple(notes),
    )  # fmt: skip


def _items(folder: Path, locked: LockForBundle) -> list[Item]:
    return BundledPackages(folder, locked).items([p for p in locked.lock.packages if not p.unhashed])


def _own_items(folder: Path, locked: LockForBundle, emit: Emit) -> list[Item]:
    packages, _ = solve_own_packages(locked, emit)
    return BundledPackages(folder, locked).items(packages, "gpuenv")
