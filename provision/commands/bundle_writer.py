"""Write a bundle: lock files, downloads, README and manifest."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from .. import __version__, bundle as stage, profiles
from ..bundle import wheels
from ..bundle.files import Item, bytes_there, collect, needed
from ..environment import interrupted
from ..errors import BuildError
from ..lock.formats import locking
from ..model import (
    Bundle,
    BundleFile,
    BundlePlan,
    BundlePython,
    Emit,
    Event,
    PlannedBuild,
    UnservedHosts,
    format_bytes,
)
from ..system.files import write_file
from .bundle_contents import BundleContents, BundlePythons, merge_items
from .bundle_lock import LockForBundle, one_of_each_platform
from .package_paths_and_download_addresses import BundledPackages, solve_own_packages

# The archive of a Python and what it unpacks to while uv checks it: 45 and 190 MB (CPython 3.13 on Linux).
_PYTHON_ROOM = 250_000_000
_EMIT_SECONDS = 0.2


@dataclass
class BundleWriter:
    """An unfinished bundle. Its manifest lists the files from the start."""

    folder: Path
    before: Bundle | None
    locks: Sequence[LockForBundle]
    emit: Emit
    unserved: tuple[UnservedHosts, ...] = ()
    notes: list[str] = dataclasses.field(default_factory=list)
    planned: list[Item] = dataclasses.field(default_factory=list)

    def write(self) -> Bundle:
        """Write everything, and return the manifest."""
        own_items, minors = self._own_packages()
        contents = [BundleContents(self.folder, one, self.emit, self.notes) for one in self.locks]
        if self.before is None:
            stage.write_manifest(self.folder, self._manifest(()))  # the manifest marks the folder as a bundle
        items = merge_items([*chain.from_iterable(one.items() for one in contents), *own_items])
        begun = self._begin(contents, items)
        self._fetch(items)
        for one in contents:
            one.warn_of_missing_libraries()
        tools = merge_items(chain.from_iterable(one.build_tools() for one in contents))
        self._fetch(tools)
        paths = [i.path for i in [*items, *tools]]
        paths += [f"gpuenv/{wheels.own_wheel(self.folder / 'gpuenv', profiles.directory())}"]
        paths += chain.from_iterable(one.channel_files() for one in contents)
        return self._finish(begun, paths, self._archives(minors))

    def remains(self) -> interrupted.RunRemains:
        """Return what an interrupted run left in the folder."""
        name = f"{self.folder.name}/"
        if not self.planned:
            return interrupted.RunRemains(text=f"no file was fetched into {name} by this run")
        if all(item.wanted.size for item in self.planned):
            there = format_part(bytes_there(self.planned), sum(i.wanted.size or 0 for i in self.planned))
        else:  # an index without sizes
            there = f"{sum(i.wanted.path.is_file() for i in self.planned)} of {len(self.planned)} files"
        return interrupted.RunRemains(
            text=f"{there} in {name}", hint="run the same command again to continue"
        )

    def _own_packages(self) -> tuple[list[Item], tuple[str, ...]]:
        """Return gpuenv's own packages for each platform, and the Pythons of the first one that have them."""
        items: list[Item] = []
        pythons: list[tuple[str, ...]] = []
        for locked in one_of_each_platform(self.locks):
            packages, minors = solve_own_packages(locked, self.emit)
            items += BundledPackages(self.folder, locked).items(packages, "gpuenv")
            pythons.append(minors)
        return items, pythons[0]

    def _archives(self, minors: Sequence[str]) -> list[BundlePython | None]:
        """Return the Python of each lock. A conda lock has one, so its Python is for gpuenv."""
        pythons = BundlePythons(self.folder, self.before, self.emit, self.locks[0].sources.offline)
        plans = [locked.lock.plan for locked in self.locks]
        return [
            pythons.archive(
                minors[0] if locking(p.manager).BRINGS_PYTHON else p.python or "", p.platform
            )
            for p in plans
        ]  # fmt: skip

    # --- the manifest --------------------------------------------------------------------------------

    def _begin(self, contents: Sequence[BundleContents], items: Sequence[Item]) -> Bundle:
        """Write the locks and a manifest of all planned files, in place of the earlier one."""
        names = [locked.file_name for locked in self.locks]
        planned = [
            BundleFile(path=i.path, size=i.wanted.size, sha256=i.wanted.hashes.get("sha256")) for i in items
        ]
        new = {f.path for f in planned}
        if self.before:
            stage.write_manifest(self.folder, dataclasses.replace(self.before, complete=False))
            planned += [f for f in self.before.files if f.path not in (*new, *names)]  # removed at the end
        for one in contents:
            path, way = self.folder / one.locked.file_name, locking(one.lock.manager)
            way.write_lock(path, one.lock, one.locked.virtual, alone=True)
        begun = self._manifest((*stage.list_files(self.folder, names), *planned))
        stage.write_manifest(self.folder, begun)
        return begun

    def _manifest(self, files: Sequence[BundleFile]) -> Bundle:
        archives = stage.archives_of(self.before) if self.before else ()
        plans = [_describe_plan(locked, archives) for locked in self.locks]
        first = plans[0]
        return Bundle(
            gpuenv=__version__, manager=self.locks[0].lock.manager, lock=first.lock, target=first.target,
            device=first.device, frameworks=first.frameworks, python=first.python, asked=self.locks[0].options_digest,
            archive=first.archive, files=tuple(files), plans=tuple(p for p in plans if p.classes),
            unserved=self.unserved,
        )  # fmt: skip

    def _finish(
        self, bundle: Bundle, paths: Sequence[str], archives: Sequence[BundlePython | None]
    ) -> Bundle:
        plans = zip(bundle.plans, archives, strict=True) if bundle.plans else ()
        bundle = dataclasses.replace(
            bundle, archive=archives[0], notes=tuple(self.notes),
            plans=tuple(dataclasses.replace(plan, archive=archive) for plan, archive in plans),
        )  # fmt: skip
        try:
            write_file(self.folder / stage.README, stage.readme(bundle))
        except OSError as error:
            raise stage.not_writable(self.folder, error) from error
        names = [locked.file_name for locked in self.locks]
        pythons = [archive.path for archive in archives if archive]
        listed = dict.fromkeys([*names, *paths, *pythons, stage.README])
        finished = dataclasses.replace(
            bundle, files=stage.list_files(self.folder, list(listed)), complete=True
        )
        stage.remove_old(self.folder, bundle, finished.files)
        stage.write_manifest(self.folder, finished)
        return finished

    # --- downloads -----------------------------------------------------------------------------------

    def _fetch(self, items: Sequence[Item]) -> None:
        """Download what is missing, after an event with its size and the free disk space."""
        if not items:
            return
        self.planned += items
        self.emit(Event(kind="start", stage="bundle", text=f"checking {len(items)} files for completeness"))
        need = needed(self.folder, items)
        total = sum(i.wanted.size or 0 for i in items)
        words = f"{format_bytes(need.bytes)} to download ({len(need.items)} of {len(items)} files, {format_bytes(total)} in all)"
        self.emit(Event(kind="start", stage="bundle", text=f"{words}; {format_bytes(need.free)} free",
                        total=need.bytes, unit="bytes", files=len(need.items)))  # fmt: skip
        if need.free < need.bytes + _PYTHON_ROOM:
            raise BuildError(
                f"{self.folder} has {format_bytes(need.free)} free; the bundle needs {format_bytes(need.bytes + _PYTHON_ROOM)} more",
                hint="free space, or choose a DIR on another disk; finished files are kept",
            )
        files = BundledPackages(self.folder, self.locks[0])
        collect(files.http, need.items, self._make_progress(need.bytes))

    def _make_progress(self, total: int) -> Callable[[int, str], None]:
        last = 0.0

        def emit_progress(done: int, name: str) -> None:
            nonlocal last
            if time.monotonic() - last > _EMIT_SECONDS:
                last = time.monotonic()
                self.emit(Event(kind="progress", stage="bundle", text=f"downloading {name}",
                                done=done, total=total, unit="bytes"))  # fmt: skip

        return emit_progress


def format_part(part: int, total: int) -> str:
    """Return a part of a size: "3.1 of 4.2 GB"."""
    less, whole = format_bytes(part), format_bytes(total)
    number, unit = less.split(" ", 1)
    return f"{number if whole.endswith(f' {unit}') else less} of {whole}"


def _describe_plan(locked: LockForBundle, archives: Sequence[BundlePython]) -> BundlePlan:
    """Return the plan of a lock. Its Python is one that the folder already has."""
    lock, plan = locked.lock, locked.lock.plan
    way = locking(lock.manager)
    fitting = (
        a for a in archives
        if way.BRINGS_PYTHON or stage.is_archive_for(a, plan.python or "", plan.platform)
    )  # fmt: skip
    return BundlePlan(
        lock=locked.file_name, classes=lock.classes if locked.of_fleet else (), target=lock.target, device=plan.device,
        frameworks=tuple(_describe_build(b) for b in plan.builds), python=plan.python,
        archive=next(fitting, None),
    )  # fmt: skip


def _describe_build(build: PlannedBuild) -> str:
    return f"{build.framework} {build.version}" + (f" (CUDA {build.cuda})" if build.cuda else "")
