"""Write a bundle: lock files, downloads, README and manifest; or list what would be downloaded."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path

from .. import __version__
from ..errors import BuildError, LockError
from ..index.config import pip_settings
from ..index.downloads import Download
from ..index.http import Http
from ..lock.formats import get_format
from ..model import (
    Bundle,
    BundleFile,
    BundlePlan,
    BundlePython,
    Emit,
    Event,
    PlannedBuild,
    Preview,
    UnservedHosts,
    format_bytes,
)
from ..system import process
from ..system.files import measure_free_space, write_file, writing
from . import (
    README,
    files,
    is_archive_for,
    is_whole,
    list_archives,
    list_files,
    readme,
    remove_old,
    wheels,
    write_manifest,
)
from .files import collect, find_missing
from .packages import BundledLock, choose_per_platform

# The archive of a Python and what it unpacks to while uv checks it: 45 and 190 MB (CPython 3.13 on Linux).
_PYTHON_ROOM = 250_000_000
# An event takes 5 microseconds, and a download of 1 GB has 60,000 pieces.
_EMIT_SECONDS = 0.2


@dataclasses.dataclass
class BundleWriter:
    """An unfinished bundle. Its manifest lists the files from the start."""

    folder: Path
    before: Bundle | None
    locks: Sequence[BundledLock]
    emit: Emit
    unserved: tuple[UnservedHosts, ...] = ()

    def write(self) -> Bundle:
        """Write everything, and return the manifest."""
        own_items, minors = list_own_packages(self.locks)
        # The Python of each lock. A conda lock has one, so its Python is for gpuenv.
        pythons = [
            (minors[0] if get_format(plan.manager).BRINGS_PYTHON else plan.python or "", plan.platform)
            for plan in (one.plan for one in self.locks)
        ]
        found = {python: self._find_archive(*python) for python in pythons}
        archives = [found[python] for python in pythons]
        if self.before is None:
            write_manifest(self.folder, self._manifest((), archives))  # it marks the folder as a bundle
        items = merge_items(
            [*chain.from_iterable(one.items(one.lock.packages) for one in self.locks), *own_items]
        )
        begun = self._begin(items, archives)
        self._fetch(items)
        tools = merge_items(chain.from_iterable(one.build_tools() for one in self.locks))
        self._fetch(tools)
        paths = [i.inside for i in [*items, *tools]]
        paths += [f"gpuenv/{wheels.own_wheel(self.folder / 'gpuenv')}"]
        paths += chain.from_iterable(one.channel_files() for one in self.locks)
        found = {python: archive or self._fetch_archive(*python) for python, archive in found.items()}
        return self._finish(begun, paths, [found[python] for python in pythons])

    def _find_archive(self, minor: str, platform: str) -> BundlePython | None:
        """Return the archive of a Python that the folder has already."""
        if self.before is None:
            return None
        for archive in list_archives(self.before):
            file = next((f for f in self.before.files if f.path == archive.path), None)
            if is_archive_for(archive, minor, platform) and file and is_whole(self.folder, file):
                return archive
        return None

    def _fetch_archive(self, minor: str, platform: str) -> BundlePython | None:
        """Download the archive of a Python. Without one emit a warning."""
        archive, why = None, "--offline forbids downloading it"
        if not self.locks[0].sources.offline:
            self.emit(Event("start", "bundle", f"downloading Python {minor} for {platform}"))
            archive, why = files.fetch_archive(self.folder, minor, platform)
        if archive is None:
            text = f"the bundle has no Python: {why}. The target needs Python {minor}"
            self.emit(Event("warning", "bundle", text))
        return archive

    # --- the manifest --------------------------------------------------------------------------------

    def _begin(self, items: Sequence[Download], archives: Sequence[BundlePython | None]) -> Bundle:
        """Write the locks and a manifest of all planned files, in place of the earlier one."""
        names = [locked.file_name for locked in self.locks]
        planned = [BundleFile(path=i.inside, size=i.size, sha256=i.hashes.get("sha256")) for i in items]
        new = {f.path for f in planned}
        if self.before:
            write_manifest(self.folder, dataclasses.replace(self.before, complete=False))
            planned += [f for f in self.before.files if f.path not in (*new, *names)]  # removed at the end
        for one in self.locks:
            get_format(one.lock.manager).write_lock(self.folder / one.file_name, one.lock, alone=True)
        begun = self._manifest((*list_files(self.folder, names), *planned), archives)
        write_manifest(self.folder, begun)
        return begun

    def _manifest(self, files: Sequence[BundleFile], archives: Sequence[BundlePython | None]) -> Bundle:
        plans = [_describe_plan(*one) for one in zip(self.locks, archives, strict=True)]
        first = plans[0]
        return Bundle(
            gpuenv=__version__, manager=self.locks[0].solved.manager, lock=first.lock, target=first.target,
            device=first.device, frameworks=first.frameworks, python=first.python, asked=self.locks[0].options_digest,
            archive=first.archive, files=tuple(files), plans=tuple(p for p in plans if p.classes),
            unserved=self.unserved,
        )  # fmt: skip

    def _finish(self, begun: Bundle, paths: Sequence[str], archives: Sequence[BundlePython | None]) -> Bundle:
        notes = chain.from_iterable(one.notes for one in self.locks)
        bundle = dataclasses.replace(self._manifest((), archives), notes=tuple(dict.fromkeys(notes)))
        with writing(self.folder):
            write_file(self.folder / README, readme(bundle))
        names = [locked.file_name for locked in self.locks]
        pythons = [archive.path for archive in archives if archive]
        listed = dict.fromkeys([*names, *paths, *pythons, README])
        finished = dataclasses.replace(bundle, files=list_files(self.folder, list(listed)), complete=True)
        remove_old(self.folder, begun, finished.files)
        write_manifest(self.folder, finished)
        return finished

    # --- downloads -----------------------------------------------------------------------------------

    def _fetch(self, items: Sequence[Download]) -> None:
        """Download what is missing, after an event with its size and the free disk space."""
        if not items:
            return
        self.emit(Event("start", "bundle", f"checking {len(items)} files for completeness"))
        missing, total = find_missing(items)
        free = measure_free_space(self.folder)
        whole = format_bytes(sum(i.size or 0 for i in items))
        words = f"{format_bytes(total)} to download ({len(missing)} of {len(items)} files, {whole} in all)"
        self.emit(Event("start", "bundle", f"{words}; {format_bytes(free)} free",
                        total=total, unit="bytes", files=len(missing)))  # fmt: skip
        if free < total + _PYTHON_ROOM:
            raise BuildError(
                f"{self.folder} has {format_bytes(free)} free; the bundle needs {format_bytes(total + _PYTHON_ROOM)} more",
                hint="free space, or choose a DIR on another disk; finished files are kept",
            )
        collect(Http(pip_settings(process.environ())), missing, self._make_progress(total))

    def _make_progress(self, total: int) -> Callable[[int, str], None]:
        last = 0.0

        def emit_progress(received: int, name: str) -> None:
            nonlocal last
            if time.monotonic() - last > _EMIT_SECONDS:
                last, text = time.monotonic(), f"downloading {name}"
                self.emit(Event("progress", "bundle", text, done=received, total=total, unit="bytes"))

        return emit_progress


def _describe_plan(locked: BundledLock, archive: BundlePython | None) -> BundlePlan:
    lock, plan = locked.solved, locked.plan
    return BundlePlan(
        lock=locked.file_name, classes=lock.classes if locked.file else (), target=lock.target, device=plan.device,
        frameworks=tuple(_describe_build(b) for b in plan.builds), python=plan.python,
        archive=archive,
    )  # fmt: skip


def _describe_build(build: PlannedBuild) -> str:
    return f"{build.framework} {build.version}" + (f" (CUDA {build.cuda})" if build.cuda else "")


def merge_items(items: Iterable[Download]) -> list[Download]:
    """Return each file once. Raises LockError if two locks have different files with one name."""
    merged: dict[str, Download] = {}
    for item in items:
        first = merged.setdefault(item.inside, item)
        if first.hashes != item.hashes:
            raise LockError(
                f"{item.inside} is a different file in two locks: {first.shown} and {item.shown}",
                hint="make one bundle for each of these plans",
            )
    return list(merged.values())


def list_own_packages(locks: Sequence[BundledLock]) -> tuple[list[Download], tuple[str, ...]]:
    """Return gpuenv's own packages for each platform, and the Pythons of the first one that have them."""
    found = [one.own_packages() for one in choose_per_platform(locks)]
    return [item for items, _ in found for item in items], found[0][1]


def preview(folder: Path, locks: Sequence[BundledLock]) -> Preview:
    """Return the files to download. Python archives and build tools are not counted, because their sizes are
    not known."""
    own_items, _ = list_own_packages(locks)
    hashed = (one.items([p for p in one.solved.packages if not p.unhashed]) for one in locks)
    missing, total = find_missing(merge_items([*chain.from_iterable(hashed), *own_items]))
    made_here = dict.fromkeys(p.name for one in locks for p in one.solved.packages if p.unhashed)
    notes = ["a Python for the target is downloaded too: about 45 MB"]
    notes += [f"wheels are built from {', '.join(made_here)}"] if made_here else []
    return Preview(
        command="bundle", path=str(folder), writes=tuple(str(item.path) for item in missing),
        download_bytes=total, free_bytes=measure_free_space(folder), notes=tuple(notes),
    )  # fmt: skip
