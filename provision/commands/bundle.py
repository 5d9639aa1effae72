"""`gpuenv bundle`: everything that a machine without a network needs, in one folder."""

from __future__ import annotations

import dataclasses
import functools
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import __version__, bundle as stage, profiles
from ..bundle import bundle_readme, gpuenv_wheel, python_archives
from ..bundle.collect_files import Item, bytes_there, collect, needed
from ..bundle.rebuilt_wheels import build_requires, wheel_of_unhashed
from ..environment import place
from ..errors import BuildError, LockError
from ..index.download_files import digests
from ..managers.conda import engine as conda
from ..managers.protocol import locking
from ..model import (
    Bundle,
    BundleFile,
    BundlePython,
    Emit,
    Event,
    Lock,
    LockedPackage,
    Plan,
    PlannedBuild,
    Preview,
    drop_event,
    make_lock_name,
)
from ..model.command_options import argument, group, option
from ..request import environment_paths as where
from ..request.options import Choices
from ..system.write_inside_folder import write_file
from ..wheels import solve_wheels
from ..wheels.allowed_source_builds import SourceBuilds
from ..wheels.cache_and_disk import size
from ..wheels.uv_install import unhashed_line
from . import bundle_lock, interrupted_run, missing_library_warnings
from .bundle_files import BundledPackages, get_bundle_path, solve_own_packages
from .default_env import note_project
from .read_request import find_interpreter

# The archive of a Python and what it unpacks to while uv checks it: 45 and 190 MB (CPython 3.13 on Linux).
_PYTHON_ROOM = 250_000_000
_TOLD_EVERY = 0.2


@dataclass(frozen=True, kw_only=True)
class BundleOptions:
    """The options of `bundle`."""

    folder: Path = argument(metavar="DIR", help="Folder of the bundle: a new one, or a bundle to continue.")
    lock: Path | None = option(None, help="Bundle this lock file, without solving again.")
    dry_run: bool = option(False, help="Show what would be done, without changes.")
    force: bool = option(False, help="Replace files that gpuenv did not write or that were edited.")
    allow_md5: bool = option(False, help="conda: accept packages that have only an MD5 hash.")
    choices: Choices = group(Choices)


def bundle(options: BundleOptions, emit: Emit = drop_event) -> Bundle | Plan | Preview:
    """Make a bundle, or bring one to its end, or up to date. Return the plan where no build fits."""
    folder = where.make_absolute(options.folder)
    note_project(emit)
    if options.dry_run:
        from .bundle_preview import preview

        return preview(folder, options.choices, options.lock, emit, allow_md5=options.allow_md5)
    stage.claim(folder)
    with place.lock_place(folder, emit):
        before = stage.claim(folder)
        stage.assert_writable(folder)
        if before and not options.force:
            stage.refuse_edited(folder, before)
        got = bundle_lock.of(emit, folder, before, options.choices, options.lock, allow_md5=options.allow_md5)
        if isinstance(got, Plan):
            return got
        making = _BundleWriter(folder, before, got, emit)
        with interrupted_run.describe_by(making.left):
            made = making.done()
    shown = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
    step = f"gpuenv create ENV --bundle {shown}  # on the target; {shown}/{stage.README} describes how to install gpuenv there"
    emit(Event(kind="next", stage="bundle", text=step))
    return made


@dataclasses.dataclass
class _BundleWriter:
    """A bundle in the making. From its first moment the manifest says what will be in it."""

    folder: Path
    before: Bundle | None
    got: bundle_lock.LockForBundle
    emit: Emit
    notes: list[str] = dataclasses.field(default_factory=list)
    planned: list[Item] = dataclasses.field(default_factory=list)

    @functools.cached_property
    def files(self) -> BundledPackages:
        return BundledPackages(self.folder, self.got)

    def done(self) -> Bundle:
        mine, minors = solve_own_packages(self.got, self.emit)
        if self.before is None:
            stage.settle(self.folder, self._manifest(self.got.lock, ()))  # from here on the folder is ours
        packages = self._with_wheels_of_unhashed()
        items = [*self.files.items(packages), *self.files.items(mine, "gpuenv")]
        made = self._begun(dataclasses.replace(self.got.lock, packages=packages), items)
        self._fetch(items)
        lock = dataclasses.replace(self.got.lock, packages=packages)
        missing_library_warnings.MissingLibraries(
            self.emit, lock, self.got.choices, self.got.sources, [self.folder / "wheels"]
        ).warn()
        tools = self._tools(packages)
        self._fetch(tools)
        paths = [i.path for i in [*items, *tools]]
        paths += [f"gpuenv/{gpuenv_wheel.wheel(self.folder / 'gpuenv', profiles.directory())}"]
        paths += self._channels(packages)
        return self._finished(made, paths, self._python(minors))

    def left(self) -> interrupted_run.RunRemains:
        """What is in the folder where this is interrupted."""
        name = f"{self.folder.name}/"
        if not self.planned:
            return interrupted_run.RunRemains(text=f"no file was fetched into {name} by this run")
        if all(item.wanted.size for item in self.planned):
            there = of(bytes_there(self.planned), sum(item.wanted.size or 0 for item in self.planned))
        else:  # an index that gives no sizes
            there = f"{sum(i.wanted.path.is_file() for i in self.planned)} of {len(self.planned)} files"
        return interrupted_run.RunRemains(
            text=f"{there} in {name}", hint="run the same command again to continue"
        )

    # --- what goes into it -----------------------------------------------------------------------

    def _with_wheels_of_unhashed(self) -> tuple[LockedPackage, ...]:
        """The lock's packages, folders and commits as wheels of what they are today."""
        found = []
        for package in self.got.lock.packages:
            if not package.unhashed:
                found.append(package)
                continue
            line = unhashed_line(package)
            self.emit(Event(kind="start", stage="bundle", text=f"building a wheel of {line}"))
            python = find_interpreter(self.got.lock.plan.python or "", None, None, None) or sys.executable
            wheels = self.folder / "wheels"
            name = wheel_of_unhashed(package, line, wheels, python, self.got.sources)
            self.notes.append(
                f"the bundle contains {package.name} as a wheel that was built earlier from {line.removeprefix('-e ')}"
            )
            sha256 = digests(wheels / name, ["sha256"])["sha256"]
            found.append(
                LockedPackage(
                    name=package.name, version=name.split("-")[1], url=(wheels / name).as_uri(), sha256=sha256,
                    size=(wheels / name).stat().st_size,
                )
            )  # fmt: skip
        return tuple(found)

    def _tools(self, packages: Sequence[LockedPackage]) -> list[Item]:
        """What builds the source archives among the packages, on the target."""
        sources = [
            p
            for p in packages
            if get_bundle_path(p).startswith("wheels/") and not get_bundle_path(p).endswith(".whl")
        ]
        found: list[LockedPackage] = []
        for package in sources:
            wanted = build_requires(self.folder / get_bundle_path(package))
            plan = dataclasses.replace(self.got.lock.plan, builds=(), packages=wanted)
            self.notes.append(
                f"{package.name} {package.version} has no wheel: it is built from source on the target"
            )
            try:
                builds = SourceBuilds(self.emit, forbidden_by="a bundle")
                found += solve_wheels.lock(
                    plan, self.got.sources, lambda _event: None, solve_wheels.SolveOptions(builds=builds)
                ).packages
            except LockError as error:
                told = f"the build requirements of {package.name} ({', '.join(wanted)}) are not in the bundle: {error.message}"
                self.emit(Event(kind="warning", stage="bundle", text=told))
                self.notes.append(told)
        return self.files.items(found)

    def _python(self, minors: Sequence[str]) -> BundlePython | None:
        """The environment's Python, of a conda environment one for gpuenv alone; None, told, without one."""
        plan = self.got.lock.plan
        minor = minors[0] if locking(plan.manager).BRINGS_PYTHON else plan.python or ""
        held = self.before.archive if self.before else None
        if (
            held
            and held.version.startswith(minor + ".")
            and held.key.split("-")[2:4] == plan.platform.split("-")
        ):
            file = next((f for f in self.before.files if f.path == held.path), None) if self.before else None
            if file and stage.is_whole(self.folder, file):
                return held
        if self.got.sources.offline:
            archive, why = None, "--offline forbids downloading it"
        else:
            self.emit(
                Event(kind="start", stage="bundle", text=f"downloading Python {minor} for {plan.platform}")
            )
            archive, why = python_archives.fetch_archive(self.folder, minor, plan.platform)
        if archive is None:
            told = f"the bundle has no Python: {why}. The target needs Python {minor}"
            self.emit(Event(kind="warning", stage="bundle", text=told))
        return archive

    def _channels(self, packages: Sequence[LockedPackage]) -> list[str]:
        """The indexes of the conda packages: each folder of them is a channel."""
        folders = sorted({"/".join(get_bundle_path(p).split("/")[:2]) for p in packages
                          if get_bundle_path(p).startswith("channel/")})  # fmt: skip
        for name in folders:
            answer = conda.ask("index", {"folder": str(self.folder / name)}, lambda _event: None, BuildError)
            if "error" in answer:
                raise BuildError(
                    f"the packages in {self.folder / name} cannot be indexed: {answer['error']['text']}"
                )
        own = {get_bundle_path(p) for p in packages}
        found = [p.relative_to(self.folder).as_posix() for n in folders for p in (self.folder / n).rglob("*")
                 if p.is_file() and not p.name.startswith(".")]  # fmt: skip
        return [p for p in sorted(found) if p not in own]

    # --- making it -------------------------------------------------------------------------------

    def _begun(self, made_lock: Lock, items: Sequence[Item]) -> Bundle:
        """Write the lock, and a manifest of what is to come, in place of what was there before."""
        plan = made_lock.plan
        name = make_lock_name(plan.manager)
        path = self.folder / name
        planned = [
            BundleFile(path=i.path, size=i.wanted.size, sha256=i.wanted.hashes.get("sha256")) for i in items
        ]
        mine = {f.path for f in planned}
        if self.before:
            stage.settle(self.folder, dataclasses.replace(self.before, complete=False))
            planned += [f for f in self.before.files if f.path not in (*mine, name)]  # removed at the end
        locking(plan.manager).write_lock(path, made_lock, self.got.virtual, alone=True)
        made = self._manifest(made_lock, (*stage.items_of(self.folder, [name]), *planned))
        stage.settle(self.folder, made)
        return made

    def _manifest(self, made_lock: Lock, files: Sequence[BundleFile]) -> Bundle:
        plan = made_lock.plan
        return Bundle(
            gpuenv=__version__, manager=plan.manager, lock=make_lock_name(plan.manager), target=made_lock.target,
            device=plan.device, frameworks=tuple(_describe_options(b) for b in plan.builds), python=plan.python,
            asked=self.got.asked, archive=self.before.archive if self.before else None, files=tuple(files),
        )  # fmt: skip

    def _fetch(self, items: Sequence[Item]) -> None:
        """Fetch what is missing, after its size and the free disk were told."""
        if not items:
            return
        self.planned += items
        self.emit(Event(kind="start", stage="bundle", text=f"checking {len(items)} files for completeness"))
        need = needed(self.folder, items)
        total = sum(i.wanted.size or 0 for i in items)
        words = (
            f"{size(need.bytes)} to download ({len(need.items)} of {len(items)} files, {size(total)} in all)"
        )
        self.emit(Event(kind="start", stage="bundle", text=f"{words}; {size(need.free)} free",
                        total=need.bytes, unit="bytes", files=len(need.items)))  # fmt: skip
        if need.free < need.bytes + _PYTHON_ROOM:
            raise BuildError(
                f"{self.folder} has {size(need.free)} free; the bundle needs {size(need.bytes + _PYTHON_ROOM)} more",
                hint="free space, or choose a DIR on another disk; finished files are kept",
            )
        collect(self.files.http, need.items, self._teller(need.bytes))

    def _teller(self, total: int) -> Callable[[int], None]:
        last = 0.0

        def told(done: int) -> None:
            nonlocal last
            if time.monotonic() - last > _TOLD_EVERY:
                last = time.monotonic()
                self.emit(Event(kind="progress", stage="bundle", text=f"{size(done)} of {size(total)}",
                                done=done, total=total, unit="bytes"))  # fmt: skip

        return told

    def _finished(self, bundle: Bundle, paths: Sequence[str], archive: BundlePython | None) -> Bundle:
        bundle = dataclasses.replace(bundle, archive=archive, notes=tuple(self.notes))
        try:
            write_file(self.folder / stage.README, bundle_readme.text(bundle))
        except OSError as error:
            raise stage.not_writable(self.folder, error) from error
        names = dict.fromkeys([bundle.lock, *paths, *([archive.path] if archive else []), stage.README])
        finished = dataclasses.replace(bundle, files=stage.items_of(self.folder, list(names)), complete=True)
        stage.remove_old(self.folder, bundle, finished.files)
        stage.settle(self.folder, finished)
        return finished


def of(part: int, total: int) -> str:
    """A part of a size: "3.1 of 4.2 GB"."""
    less, whole = size(part), size(total)
    number, unit = less.split(" ", 1)
    return f"{number if whole.endswith(f' {unit}') else less} of {whole}"


def _describe_options(build: PlannedBuild) -> str:
    return f"{build.framework} {build.version}" + (f" (CUDA {build.cuda})" if build.cuda else "")
