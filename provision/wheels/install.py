"""A lock's packages into an environment, hashes required, by uv.

uv is asked first without the network: what the cache holds is linked at once. Only when something
is missing are the indexes asked, after the download's size and the free disk were looked at.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ..environment.place import MARK
from ..errors import BuildError
from ..index import pytorch_index, uv, uv_config
from ..index.uv import without_credentials
from ..index.wheel_folders import address_of
from ..model import Event, Lock, LockedPackage, PackageSources, normalize_name
from ..system import process, scratch_folders
from . import after_install, bytecode_cache, cache_and_disk
from .cache_and_disk import check_disk, installer_cache, own_cache, size
from .compare_built_metadata import check_built
from .compile_bytecode import Compiling, parted
from .uv_log import TIMEOUT, cache_is_damaged, not_built, only_missing, progress, undeclared, why_not


def install_wheels(
    lock: Lock,
    path: Path,
    sources: PackageSources,
    emit: Callable[[Event], None],
    *,
    reinstall: bool = False,
    target: Path | None = None,
    fetched: Callable[[Path], None] | None = None,
) -> None:
    """Install a lock's packages, and nothing else, into an environment of any kind: those with a hash
    first, then what cannot carry one. `reinstall` takes out and puts in again what is there already;
    with a `target` the packages with a hash are unpacked into that folder, not into the environment.
    `fetched` is called with `path` whenever wheels have come into it, before anything is built or compiled.
    Raises BuildError."""
    _refuse_builds(lock, sources)
    hashed = [p for p in lock.packages if not p.unhashed]
    words = f"{'fetching' if target else 'installing'} {_count(len(lock.packages))}"
    emit(Event(kind="start", stage="build", text=words, total=len(lock.packages)))
    check_disk(path, sum(p.size or 0 for p in hashed))
    whole = Wanted(lock, path, sources, reinstall=reinstall, target=target, fetched=fetched)
    with _compiling(path, sources, emit) if not target else nullcontext() as compiling:
        if hashed:
            _install_hashed(whole, emit, compiling)
        if target:
            return
        _install_unhashed(whole, emit)
        if compiling:
            compiling.finish([p for p in hashed if is_wheel(p)])
    for site_packages in path.glob("lib/python3*/site-packages"):
        if linked := after_install.link_unfound(site_packages):
            text = f"links created for the libraries, so that TensorFlow's loader finds them: {', '.join(linked)}"
            emit(Event(kind="note", stage="build", text=text))
    emit(Event(kind="done", stage="build", text=f"{len(lock.packages)} packages installed"))


def _count(packages: int) -> str:
    return f"{packages} package{'' if packages == 1 else 's'}"


def _refuse_builds(lock: Lock, sources: PackageSources) -> None:
    """Raise BuildError where the lock has packages that are built from source, and an option forbids that."""
    never = {normalize_name(name) for name in sources.only_binary}
    every = sources.no_build or ":all:" in never
    built = [p for p in lock.packages if not is_wheel(p)]
    refused = [f"{p.name} {p.version}".rstrip() for p in built if every or normalize_name(p.name) in never]
    if refused:
        option = "--no-build" if sources.no_build else "--only-binary"
        raise BuildError(
            f"the lock has packages that are built from source, but {option} forbids builds: {', '.join(refused)}",
            hint=f"remove {option}, or lock releases that have wheels",
        )


def _compiling(
    path: Path, sources: PackageSources, emit: Callable[[Event], None]
) -> AbstractContextManager[Compiling | None]:
    if not _compiles():
        return nullcontext()
    return Compiling(path, python_of(path), own_cache(sources), emit)


def _compiles() -> bool:
    environ = process.environ()
    return bytecode_cache.wanted({**environ, **uv_config.variables(environ)})


def _install_hashed(whole: Wanted, emit: Callable[[Event], None], compiling: Compiling | None) -> None:
    """What a hash holds: from the cache, and only where something is missing from the indexes. What is named
    for the PyTorch index is asked for there alone, all else never there."""
    lock, sources = whole.lock, whole.sources
    wheels = tuple(p for p in lock.packages if not p.unhashed and is_wheel(p))
    archives = tuple(p for p in lock.packages if not p.unhashed and not is_wheel(p))
    at_hand, missing = cache_and_disk.may_be_here(wheels, sources), []
    parts = [
        p
        for some in filter(None, pytorch_index.split(wheels, lock.plan))
        for p in cache_and_disk.split(some, sources)
    ]
    for packages, only_files in parts:
        wanted = dataclasses.replace(
            whole.only(packages, cache_and_disk.file_names(sources)),
            sources=dataclasses.replace(sources, no_index=only_files),
        )
        done = wanted.install(offline=True) if at_hand else None
        if done and not done.ok and only_files and cache_is_damaged(done.stderr):
            words = "uv's cache is damaged: installing without it"
            emit(Event(kind="warning", stage="build", text=words))
            done = wanted.install_uncached()
        if done and not done.ok and (sources.offline or not only_missing(done.stderr)):
            raise why_not(done, whole.path, lock)
        missing += [] if done and done.ok else [wanted]
    total = sum(p.size or 0 for wanted in missing for p in wanted.lock.packages)
    if missing:
        emit(
            Event(
                kind="start", stage="build", total=total or None, unit="bytes",
                files=sum(len(w.lock.packages) for w in missing),
                text=f"downloading {'up to ' if at_hand else ''}{size(total)} "
                f"({_count(sum(len(w.lock.packages) for w in missing))})",
            )
        )  # fmt: skip
        check_disk(installer_cache(sources), total, cached=True)
    for wanted in missing:
        first, rest = parted(wanted.lock.packages) if compiling else (wanted.lock.packages, ())
        _fetch(wanted.only(first), lock, emit)
        if compiling and rest:
            compiling.begin(first)
            whole.report_fetched()
            _fetch(wanted.only(rest), lock, emit)
    whole.report_fetched()
    for package in archives:
        _build(whole.only((package,)), emit)


def _fetch(wanted: Wanted, lock: Lock, emit: Callable[[Event], None]) -> None:
    done = wanted.install(offline=False, emit=emit)
    if not done.ok:
        raise why_not(done, wanted.path, lock)


def _build(wanted: Wanted, emit: Callable[[Event], None]) -> None:
    """One source archive, after all wheels: one that is compiled against a framework without saying so
    (flash-attn imports torch in its setup.py) is built with what the environment holds."""
    (package,) = wanted.lock.packages
    text = f"building {package.name} {package.version} from its source"
    emit(
        Event(
            kind="start",
            stage="build",
            text=f"{text} (the hash of the source is checked, the build tools have no hashes)",
        )
    )
    done = wanted.install(offline=True)
    if not done.ok and not wanted.sources.offline and not undeclared(done.stderr):
        done = wanted.install(offline=False, emit=emit)
    if not done.ok and undeclared(done.stderr):
        more = ("--no-build-isolation-package", package.name)
        without_isolation = dataclasses.replace(wanted, options=(*wanted.options, *more))
        done = without_isolation.install(offline=wanted.sources.offline, emit=emit)
    if not done.ok:
        raise not_built(package, done)
    check_built(package, wanted.lock.plan, wanted.target or wanted.path, wanted.sources)


def _install_unhashed(whole: Wanted, emit: Callable[[Event], None]) -> None:
    """Folders and commits, last and without dependencies: all they need is in the lock."""
    rows = [unhashed_line(p) for p in whole.lock.packages if p.unhashed]
    if not rows:
        return
    emit(Event(kind="note", stage="build", text=f"building from source, without a hash: {', '.join(rows)}"))
    wanted = dataclasses.replace(whole, requirements="\n".join(rows) + "\n")
    done = wanted.install(offline=whole.sources.offline, emit=emit)
    if not done.ok:
        raise why_not(done, whole.path, whole.lock)


def requirements_text(lock: Lock, files: Collection[str] = ()) -> str:
    """Return the lock as pinned requirements with hashes: they fit any index, mirror or folder. What came from
    an address of its own is asked for there, unless it is one of the `files` in folders."""
    lines = []
    for package in lock.packages:
        if package.unhashed:
            continue
        if package.sha256 is None:
            raise BuildError(f"the lock has no hash for {package.name} {package.version}")
        direct = package.index is None and not package.url.startswith("file:")
        direct = direct and cache_and_disk.file_name(package) not in files
        what = f"{package.name} @ {address_of(package)}" if direct else f"{package.name}==={package.version}"
        lines.append(f"{what} --hash=sha256:{package.sha256}")
    return "\n".join(lines) + "\n"


def unhashed_line(package: LockedPackage) -> str:
    """A folder or a commit as pip and uv name it."""
    if package.url.startswith("file:"):
        folder = unquote(urlsplit(package.url).path)
        return f"-e {folder}" if package.editable else folder
    return f"{package.name} @ {address_of(package)}"


def _sources(packages: Sequence[LockedPackage]) -> list[str]:
    """What is built from its source archive: all else comes as a wheel or not at all."""
    names = [p.name for p in packages if not is_wheel(p)]
    return ["--only-binary", ":all:", *(word for name in names for word in ("--no-binary", name))]


def is_wheel(package: LockedPackage) -> bool:
    return urlsplit(package.url).path.endswith(".whl")


def python_of(env: Path) -> Path:
    return env / ("Scripts" if os.name == "nt" else "bin") / "python"


@dataclass(frozen=True)
class Wanted:
    """Requirements to be put into an environment by uv, and how. What is fetched into another folder, a `target`
    beside an environment that stands, leaves nothing in the environment, whenever the run is killed."""

    lock: Lock
    path: Path
    sources: PackageSources
    requirements: str = ""
    options: tuple[str, ...] = ()
    reinstall: bool = False
    target: Path | None = None
    fetched: Callable[[Path], None] | None = None

    def only(self, packages: tuple[LockedPackage, ...], files: Collection[str] = ()) -> Wanted:
        """Return some of the packages with their hashes in place of all. `files` are as in `requirements_text`."""
        lock = dataclasses.replace(self.lock, packages=packages)
        options = ("--require-hashes", *_sources(packages))
        return dataclasses.replace(
            self, lock=lock, requirements=requirements_text(lock, files), options=options
        )

    def report_fetched(self) -> None:
        """Say that wheels have come into the environment."""
        if self.fetched and not self.target:
            self.fetched(self.path)

    def install_uncached(self) -> process.Finished:
        """Install from files, with a cache that is empty and removed afterwards."""
        cache = (self.target.parent if self.target else self.path / MARK) / "fetched"
        sources = dataclasses.replace(self.sources, cache_dir=str(cache))
        try:
            return dataclasses.replace(self, sources=sources).install(offline=True)
        finally:
            shutil.rmtree(cache, ignore_errors=True)

    def install(self, *, offline: bool, emit: Callable[[Event], None] | None = None) -> process.Finished:
        theirs, others = pytorch_index.split(self.lock.packages, self.lock.plan)
        sources = _for_lock(self.lock, self.sources, offline=offline)
        wheels = all(is_wheel(p) and not p.unhashed for p in self.lock.packages)
        # bytecode_cache.fill compiles wheels
        variables = {"UV_COMPILE_BYTECODE": "0"} if wheels and _compiles() else {}
        words = [
            "pip", "install", "--no-deps", *self.options, *(["--target", str(self.target.absolute())] if self.target else []),
            *(["--reinstall"] if self.reinstall else []), "--requirements",
        ]  # fmt: skip

        there: dict[str, int] = {}

        def on_line(line: str) -> None:
            if emit and (bar := progress(line)):
                name, done, _ = bar
                there[name] = max(done, there.get(name, 0))
                text = f"downloading {name}"
                emit(Event(kind="progress", stage="build", text=text, done=sum(there.values()), unit="bytes"))

        # uv tells its progress to a terminal only, and draws it again and again: not where nobody would see it
        watched = emit is not None and os.name == "posix" and sys.stderr.isatty()
        requirements, logins = without_credentials(self.requirements)
        # The lock chose the wheels; what builds a source is chosen now, under the rules of a solve.
        settings = uv.Settings(
            alone=bool(theirs) and not others, locked=wheels, variables=variables, git_logins=logins,
            timeout=TIMEOUT, on_line=on_line, terminal=watched,
        )  # fmt: skip
        with scratch_folders.scratch("install") as folder:  # private: the text has the values of variables
            file = folder / "requirements.txt"
            file.write_text(requirements, encoding="utf-8")
            done = uv.run_uv([*words, str(file)], sources, python=python_of(self.path), settings=settings)
        after_install.redact_installed(self.lock, self.path, self.target)
        return done


def _for_lock(lock: Lock, sources: PackageSources, *, offline: bool) -> PackageSources:
    """The sources, with the folders that the lock names put to them; for what is named for the PyTorch index
    that one in place of the default index, where it lies for us today."""
    folders = [str(Path(unquote(urlsplit(p.url).path)).parent) for p in lock.packages
               if p.url.startswith("file:") and p.index is None]  # fmt: skip
    links = dict.fromkeys([*sources.find_links, *(f for f in folders if Path(f).is_dir())])
    theirs, others = pytorch_index.split(lock.packages, lock.plan)
    if theirs and not others:
        base = sources.pytorch
        default = pytorch_index.address(base, lock.plan) if base else theirs[0].index
        sources = dataclasses.replace(sources, default=default, extra=())
    else:  # the hash decides, so an index that is for single packages may be asked for all
        sources = dataclasses.replace(sources, extra=(*sources.extra, *sources.explicit))
    return dataclasses.replace(sources, find_links=tuple(links), offline=offline or sources.offline)
