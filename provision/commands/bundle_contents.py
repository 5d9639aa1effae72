"""Collect the files that one lock adds to a bundle: packages, build tools, Python and channels."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .. import bundle as stage
from ..bundle import files
from ..bundle.files import Item
from ..bundle.wheels import build_requires, wheel_of_unhashed
from ..conda import engine as conda
from ..detect import find_python
from ..errors import BuildError, LockError
from ..index.downloads import digests
from ..lock import needs
from ..lock.archives import without_builds
from ..lock.pinned import lock_plan
from ..model import Bundle, BundlePython, Emit, Event, Lock, LockedPackage, drop_event
from ..wheels.install import refuse_builds
from ..wheels.uv_install import format_unhashed
from .bundle_lock import LockForBundle
from .package_paths_and_download_addresses import BundledPackages, get_bundle_path


@dataclass
class BundleContents:
    """The files of one lock. All locks of the bundle share `notes`."""

    folder: Path
    locked: LockForBundle
    emit: Emit
    notes: list[str]

    @functools.cached_property
    def files(self) -> BundledPackages:
        """The downloads of the lock's packages."""
        return BundledPackages(self.folder, self.locked)

    @functools.cached_property
    def lock(self) -> Lock:
        """The lock with a wheel for each folder and commit. The wheels are built on first use.

        Raises BuildError if an option forbids builds.
        """
        refuse_builds(self.locked.lock, self.locked.sources)
        packages = tuple(self._build_wheel(p) if p.unhashed else p for p in self.locked.lock.packages)
        return dataclasses.replace(self.locked.lock, packages=packages)

    def items(self) -> list[Item]:
        """Return the packages of the lock as downloads."""
        return self.files.items(self.lock.packages)

    def _build_wheel(self, package: LockedPackage) -> LockedPackage:
        """Build the wheel of a folder or commit, and return it as a package."""
        line = format_unhashed(package)
        self.emit(Event(kind="start", stage="bundle", text=f"building a wheel of {line}"))
        python = find_python(self.locked.lock.plan.python or "", None, None) or sys.executable
        wheels = self.folder / "wheels"
        name = wheel_of_unhashed(package, line, wheels, python, self.locked.sources)
        self._note(
            f"the bundle contains {package.name} as a wheel that was built earlier from {line.removeprefix('-e ')}"
        )
        sha256 = digests(wheels / name, ["sha256"])["sha256"]
        return LockedPackage(
            name=package.name, version=name.split("-")[1], url=(wheels / name).as_uri(), sha256=sha256,
            size=(wheels / name).stat().st_size,
        )  # fmt: skip

    def warn_of_missing_libraries(self) -> None:
        """Warn about system libraries that packages of the lock need."""
        needs.MissingLibraries(
            self.emit, self.lock, self.locked.choices, self.locked.sources, [self.folder / "wheels"]
        ).warn()

    def build_tools(self) -> list[Item]:
        """Return the packages that build the lock's source archives on the target."""
        sources = [
            p for p in self.lock.packages
            if get_bundle_path(p).startswith("wheels/") and not get_bundle_path(p).endswith(".whl")
        ]  # fmt: skip
        tools: list[LockedPackage] = []
        for package in sources:
            wanted = build_requires(self.folder / get_bundle_path(package))
            plan = dataclasses.replace(self.locked.lock.plan, builds=(), packages=wanted)
            self._note(
                f"{package.name} {package.version} has no wheel: it is built from source on the target"
            )
            try:
                index = self.locked.sources
                tools += lock_plan(
                    plan, index, drop_event, without_builds(index, self.emit, "a bundle")
                ).packages
            except LockError as error:
                text = f"the build requirements of {package.name} ({', '.join(wanted)}) are not in the bundle: {error.message}"
                self.emit(Event(kind="warning", stage="bundle", text=text))
                self._note(text)
        return self.files.items(tools)

    def channel_files(self) -> list[str]:
        """Index the folders of conda packages as channels, and return the files of the indexes."""
        packages = self.lock.packages
        folders = sorted({"/".join(get_bundle_path(p).split("/")[:2]) for p in packages
                          if get_bundle_path(p).startswith("channel/")})  # fmt: skip
        for name in folders:
            answer = conda.ask("index", {"folder": str(self.folder / name)}, lambda _event: None, BuildError)
            if "error" in answer:
                raise BuildError(
                    f"the packages in {self.folder / name} cannot be indexed: {answer['error']['text']}"
                )
        package_files = {get_bundle_path(p) for p in packages}
        files = [p.relative_to(self.folder).as_posix() for n in folders for p in (self.folder / n).rglob("*")
                 if p.is_file() and not p.name.startswith(".")]  # fmt: skip
        return [p for p in sorted(files) if p not in package_files]

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def merge_items(items: Iterable[Item]) -> list[Item]:
    """Return each file once. Raises LockError if two locks have different files with one name."""
    merged: dict[str, Item] = {}
    for item in items:
        first = merged.setdefault(item.path, item)
        if first.wanted.hashes != item.wanted.hashes:
            raise LockError(
                f"{item.path} is a different file in two locks: {first.wanted.shown} and {item.wanted.shown}",
                hint="make one bundle for each of these plans",
            )
    return list(merged.values())


@dataclass(frozen=True)
class BundlePythons:
    """The Python archives of a bundle, each once. `before` is the existing bundle in the folder."""

    folder: Path
    before: Bundle | None
    emit: Emit
    offline: bool
    _found: dict[tuple[str, str], BundlePython | None] = dataclasses.field(default_factory=dict)

    def archive(self, minor: str, platform: str) -> BundlePython | None:
        """Return the archive of a Python, and download it if it is missing. Without one emit a warning."""
        key = (minor, platform)
        if key not in self._found:
            self._found[key] = self._kept(minor, platform) or self._fetched(minor, platform)
        return self._found[key]

    def _kept(self, minor: str, platform: str) -> BundlePython | None:
        if self.before is None:
            return None
        for archive in stage.archives_of(self.before):
            file = next((f for f in self.before.files if f.path == archive.path), None)
            if stage.is_archive_for(archive, minor, platform) and file and stage.is_whole(self.folder, file):
                return archive
        return None

    def _fetched(self, minor: str, platform: str) -> BundlePython | None:
        archive: BundlePython | None = None
        if self.offline:
            why = "--offline forbids downloading it"
        else:
            self.emit(Event(kind="start", stage="bundle", text=f"downloading Python {minor} for {platform}"))
            archive, why = files.fetch_archive(self.folder, minor, platform)
        if archive is None:
            text = f"the bundle has no Python: {why}. The target needs Python {minor}"
            self.emit(Event(kind="warning", stage="bundle", text=text))
        return archive
