"""`gpuenv bundle --dry-run`: the files that would be fetched, and their sizes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from ..bundle.collect_files import Item, needed
from ..model import Emit, Preview
from .bundle_contents import merge_items
from .bundle_files import BundledPackages, solve_own_packages
from .bundle_lock import LockForBundle, one_of_each_platform


def preview(folder: Path, locks: Sequence[LockForBundle], emit: Emit) -> Preview:
    """Return the files that would be fetched. Python archives and what builds sources are not counted: their sizes are
    known when they are fetched."""
    own = [_own_items(folder, got, emit) for got in one_of_each_platform(locks)]
    need = needed(folder, merge_items(chain(*(_items(folder, got) for got in locks), *own)))
    made_here = dict.fromkeys(p.name for got in locks for p in got.lock.packages if p.unhashed)
    notes = ["a Python for the target is downloaded too: about 45 MB"]
    notes += [f"wheels are built from {', '.join(made_here)}"] if made_here else []
    return Preview(
        command="bundle", path=str(folder), writes=tuple(str(item.wanted.path) for item in need.items),
        download_bytes=need.bytes, free_bytes=need.free, notes=tuple(notes),
    )  # fmt: skip


def _items(folder: Path, got: LockForBundle) -> list[Item]:
    return BundledPackages(folder, got).items([p for p in got.lock.packages if not p.unhashed])


def _own_items(folder: Path, got: LockForBundle, emit: Emit) -> list[Item]:
    packages, _ = solve_own_packages(got, emit)
    return BundledPackages(folder, got).items(packages, "gpuenv")
