"""What a bundle contains of a lock: the path of each package, its addresses, wheels that are built, and gpuenv's own packages."""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from ..conda import engine
from ..config.options import Choices
from ..detect import find_python
from ..environment.install import refuse_builds
from ..environment.uv_install import format_unhashed
from ..errors import BuildError, LockError
from ..index.config import is_pytorch, pytorch_address, split_pytorch
from ..index.downloads import Addresses, Download, add_credentials
from ..index.http import Http
from ..index.places import list_indexes
from ..index.wheel_names import expand_address
from ..lock.compile import Answer
from ..lock.formats import get_format
from ..lock.pinned import lock_plan
from ..lock.source_builds import forbid_builds
from ..model import (
    Emit,
    Event,
    Lock,
    LockedPackage,
    PackageSources,
    Plan,
    Profiles,
    drop_event,
    make_lock_name,
)
from ..system import process
from ..system.files import hash_file
from ..system.redaction import clean, redact
from ..system.untrusted import file_name_of_url
from ..system.wheel_file import plain_name
from . import wheels
from .files import channel_file


def choose_per_platform(locks: Iterable[BundledLock]) -> list[BundledLock]:
    """Return the lock with the oldest glibc for each platform: its wheels serve all machines of the platform."""
    by_platform: dict[str, BundledLock] = {}
    for locked in locks:
        first = by_platform.setdefault(locked.plan.platform, locked)
        if _glibc(locked) < _glibc(first):
            by_platform[locked.plan.platform] = locked
    return list(by_platform.values())


def _glibc(locked: BundledLock) -> tuple[int, ...]:
    return tuple(int(n) for n in (locked.solved.target.glibc or "999").split("."))


def get_bundle_path(package: LockedPackage, folder: str = "wheels") -> str:
    """Return the path of a package in the bundle. `folder` is its folder, except for conda packages."""
    if package.is_conda:
        return channel_file(package)
    return f"{folder}/{plain_name(file_name_of_url(package.url))}"


@dataclasses.dataclass
class BundledLock:
    """A lock, and its downloads from the user's indexes and channels into the folder of a bundle.

    `solved` is the lock as it was solved. Each package comes only from the indexes that it is named for. `options_digest` identifies
    the options. `file` is the name of the lock if it is for one plan of several. `notes` are for the README.
    """

    folder: Path
    solved: Lock
    sources: PackageSources
    profiles: Profiles
    choices: Choices
    options_digest: str
    emit: Emit
    file: str | None = None
    notes: list[str] = dataclasses.field(default_factory=list)

    @property
    def plan(self) -> Plan:
        return self.solved.plan

    @property
    def file_name(self) -> str:
        """The name of the lock in the bundle."""
        return self.file or make_lock_name(self.solved.manager)

    def items(self, packages: Sequence[LockedPackage], folder: str = "wheels") -> list[Download]:
        """Return each package as a download. Sizes that the lock does not state are requested."""
        sizes = self._sizes([p for p in packages if p.size is None])
        return [
            Download(
                path=self.folder / get_bundle_path(package, folder), root=self.folder, urls=self._urls(package),
                shown=redact(package.url), hashes=_hashes(package), size=package.size or sizes.get(package.url),
            )
            for package in packages
        ]  # fmt: skip

    @functools.cached_property
    def http(self) -> Http:
        return Http()

    def _sizes(self, packages: Sequence[LockedPackage]) -> dict[str, int | None]:
        """Return the sizes of packages, or nothing if a server does not answer."""
        if self.sources.offline or not packages:
            return {}
        urls = {p.url: add_credentials(expand_address(p), self._default) for p in packages}
        try:
            sizes = self.http.sizes(urls.values())
        except LockError:
            return {}
        return {url: sizes[address] for url, address in urls.items()}

    def _urls(self, package: LockedPackage) -> Iterable[str]:
        if package.url.startswith((self.folder / "wheels").as_uri() + "/"):
            return ()  # it was made here, and is had from nowhere else
        if package.is_conda:
            return self._channel_addresses.get(package.url, [package.url])
        theirs, _ = split_pytorch((package,), self.plan)
        pytorch = pytorch_address(self.sources.pytorch, self.plan)
        return self._addresses.find(package, (pytorch,) if theirs else self._default)

    @functools.cached_property
    def _addresses(self) -> Addresses:
        folders = [Path(p) for p in self.sources.find_links if "://" not in p and Path(p).is_dir()]
        return Addresses(self.http, folders, offline=self.sources.offline)

    @functools.cached_property
    def _default(self) -> tuple[str, ...]:
        """The default index and extra indexes in the configuration of pip and uv."""
        sources = self.sources
        if sources.offline or sources.no_index:
            return ()
        explicit = (url for url in sources.explicit if not is_pytorch(url, sources.pytorch))
        return (*list_indexes(sources), *explicit)

    @functools.cached_property
    def _channel_addresses(self) -> dict[str, list[str]]:
        """The addresses of conda packages for this user: mirrors, and addresses with credentials."""
        urls = [p.url for p in self.solved.packages if p.is_conda]
        auth_file = process.environ().get("RATTLER_AUTH_FILE")
        request = {"urls": urls, "channels": list(self.choices.channel), "auth_file": auth_file}
        answer = engine.ask("addresses", request, lambda _event: None, LockError)
        if "error" in answer:
            raise LockError(
                f"cannot read the conda configuration: {clean(answer['error']['text'])}",
                hint="correct .condarc, rattler's config.toml or the file in RATTLER_AUTH_FILE",
            )
        return dict(answer["addresses"])

    @functools.cached_property
    def lock(self) -> Lock:
        """The lock with a wheel for each folder and commit. The wheels are built on first use.

        Raises BuildError if an option forbids builds.
        """
        refuse_builds(self.solved, self.sources)
        packages = tuple(self._build_wheel(p) if p.unhashed else p for p in self.solved.packages)
        return dataclasses.replace(self.solved, packages=packages)

    def _build_wheel(self, package: LockedPackage) -> LockedPackage:
        """Build the wheel of a folder or commit, and return it as a package."""
        line = format_unhashed(package)
        self.emit(Event("start", "bundle", f"building a wheel of {line}"))
        python = find_python(self.plan.python or "", None, None) or sys.executable
        folder = self.folder / "wheels"
        name = wheels.build_unhashed(package, line, folder, python, self.sources)
        self.notes.append(
            f"the bundle contains {package.name} as a wheel that was built earlier from {line.removeprefix('-e ')}"
        )
        return LockedPackage(
            name=package.name, version=name.split("-")[1], url=(folder / name).as_uri(),
            sha256=hash_file(folder / name), size=(folder / name).stat().st_size,
        )  # fmt: skip

    def build_tools(self) -> list[Download]:
        """Return the packages that build the lock's source archives on the target."""
        sources = [
            p for p in self.lock.packages
            if get_bundle_path(p).startswith("wheels/") and not get_bundle_path(p).endswith(".whl")
        ]  # fmt: skip
        tools: list[LockedPackage] = []
        for package in sources:
            wanted = wheels.build_requires(self.folder / get_bundle_path(package))
            plan = dataclasses.replace(self.plan, builds=(), packages=wanted)
            self.notes.append(
                f"{package.name} {package.version} has no wheel: it is built from source on the target"
            )
            try:
                rules = forbid_builds(self.sources, self.emit)
                tools += lock_plan(plan, drop_event, rules).packages
            except LockError as error:
                text = f"the build requirements of {package.name} ({', '.join(wanted)}) are not in the bundle: {error.message}"
                self.emit(Event("warning", "bundle", text))
                self.notes.append(text)
        return self.items(tools)

    def channel_files(self) -> list[str]:
        """Index the folders of conda packages as channels, and return the files of the indexes."""
        packages = self.lock.packages
        folders = sorted({"/".join(get_bundle_path(p).split("/")[:2]) for p in packages
                          if get_bundle_path(p).startswith("channel/")})  # fmt: skip
        for name in folders:
            answer = engine.ask("index", {"folder": str(self.folder / name)}, lambda _event: None, BuildError)
            if "error" in answer:
                raise BuildError(
                    f"the packages in {self.folder / name} cannot be indexed: {answer['error']['text']}"
                )
        package_files = {get_bundle_path(p) for p in packages}
        files = [p.relative_to(self.folder).as_posix() for n in folders for p in (self.folder / n).rglob("*")
                 if p.is_file() and not p.name.startswith(".")]  # fmt: skip
        return [p for p in sorted(files) if p not in package_files]

    def own_packages(self) -> tuple[list[Download], tuple[str, ...]]:
        """Return gpuenv's own packages for every supported Python, and these Pythons, newest first.

        They include pip, and the installed version of uv. Raises LockError if no Python has all packages.
        """
        self.emit(Event("start", "bundle", "solving the packages of gpuenv itself"))
        wanted = [
            *wheels.own_requirements(*get_format(self.solved.manager).EXTRAS),
            f"uv=={importlib.metadata.version('uv')}",
            "pip",
        ]
        bounds = SpecifierSet(wheels.own_pythons())
        known = {p for b in self.profiles.builds for p in b.python if f"{p}.99" in bounds}
        minors = sorted(known, key=Version, reverse=True)
        with ThreadPoolExecutor(len(minors)) as pool:
            solved = list(pool.map(lambda minor: self._solve(wanted, minor), minors))
        served = {m: one.packages for m, one in zip(minors, solved, strict=True) if isinstance(one, Answer)}
        if not served:
            raise next(one for one in solved if isinstance(one, LockError))
        packages = {p.url: p for packages in served.values() for p in packages}
        return self.items([*packages.values()], "gpuenv"), tuple(served)

    def _solve(self, wanted: Sequence[str], minor: str) -> Answer | LockError:
        """Return the packages for one Python, or the error. Raises LockError if the index does not answer."""
        plan = Plan(
            builds=(), python=minor, platform=self.plan.platform, manager="venv", device="cpu",
            target=self.solved.target, packages=tuple(wanted),
        )  # fmt: skip
        try:
            return lock_plan(plan, drop_event, forbid_builds(self.sources, drop_event))
        except LockError as error:
            if error.unreachable:
                raise
            return error


def _hashes(package: LockedPackage) -> dict[str, str]:
    for name, digest in (("sha256", package.sha256), ("md5", package.md5)):
        if digest:
            return {name: digest}
    raise LockError(
        f"the lock has no hash for {package.name} {package.version}", hint="lock again: gpuenv lock"
    )
