"""The downloads of a bundle: the path of each package in it, its addresses, and gpuenv's own packages."""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from ..conda import engine
from ..config.options import Choices
from ..errors import LockError
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
from ..model.values import Value
from ..system import process
from ..system.redaction import clean, redact
from ..system.untrusted import file_name_of_url
from ..system.wheel_file import plain_name
from . import wheels
from .files import channel_file


class LockForBundle(Value):
    """A lock with the package sources and options for its bundle.

    `options_digest` identifies the options. `file` is the name of the lock if it is for one plan of several.
    """

    lock: Lock
    sources: PackageSources
    profiles: Profiles
    choices: Choices
    options_digest: str
    file: str | None = None

    @property
    def file_name(self) -> str:
        """The name of the lock in the bundle."""
        return self.file or make_lock_name(self.lock.manager)


def choose_per_platform(locks: Iterable[LockForBundle]) -> list[LockForBundle]:
    """Return the lock with the oldest glibc for each platform: its wheels serve all machines of the platform."""
    by_platform: dict[str, LockForBundle] = {}
    for locked in locks:
        first = by_platform.setdefault(locked.lock.plan.platform, locked)
        if _glibc(locked) < _glibc(first):
            by_platform[locked.lock.plan.platform] = locked
    return list(by_platform.values())


def _glibc(locked: LockForBundle) -> tuple[int, ...]:
    return tuple(int(n) for n in (locked.lock.target.glibc or "999").split("."))


def get_bundle_path(package: LockedPackage, folder: str = "wheels") -> str:
    """Return the path of a package in the bundle. `folder` is its folder, except for conda packages."""
    if package.is_conda:
        return channel_file(package)
    return f"{folder}/{plain_name(file_name_of_url(package.url))}"


@dataclasses.dataclass
class BundledPackages:
    """The downloads of a lock's packages, from the user's indexes and channels.

    Each package comes only from the indexes that it is named for.
    """

    folder: Path
    locked: LockForBundle

    def items(self, packages: Sequence[LockedPackage], folder: str = "wheels") -> list[Download]:
        """Return each package as a download. Sizes that the lock does not state are requested."""
        sizes = self._sizes([p for p in packages if p.size is None])
        by_path = {}
        for package in packages:
            path = self.folder / get_bundle_path(package, folder)
            by_path[path] = Download(
                path=path, root=self.folder, urls=self._urls(package), shown=redact(package.url),
                hashes=_hashes(package), size=package.size or sizes.get(package.url),
            )  # fmt: skip
        return list(by_path.values())

    @functools.cached_property
    def http(self) -> Http:
        return Http()

    def _sizes(self, packages: Sequence[LockedPackage]) -> dict[str, int | None]:
        """Return the sizes of packages, or nothing if a server does not answer."""
        if self.locked.sources.offline or not packages:
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
        theirs, _ = split_pytorch((package,), self.locked.lock.plan)
        pytorch = pytorch_address(self.locked.sources.pytorch, self.locked.lock.plan)
        return self._addresses.find(package, (pytorch,) if theirs else self._default)

    @functools.cached_property
    def _addresses(self) -> Addresses:
        folders = [Path(p) for p in self.locked.sources.find_links if "://" not in p and Path(p).is_dir()]
        return Addresses(self.http, folders, offline=self.locked.sources.offline)

    @functools.cached_property
    def _default(self) -> tuple[str, ...]:
        """The default index and extra indexes in the configuration of pip and uv."""
        sources = self.locked.sources
        if sources.offline or sources.no_index:
            return ()
        explicit = (url for url in sources.explicit if not is_pytorch(url, sources.pytorch))
        return (*list_indexes(sources), *explicit)

    @functools.cached_property
    def _channel_addresses(self) -> dict[str, list[str]]:
        """The addresses of conda packages for this user: mirrors, and addresses with credentials."""
        urls = [p.url for p in self.locked.lock.packages if p.is_conda]
        auth_file = process.environ().get("RATTLER_AUTH_FILE")
        request = {"urls": urls, "channels": list(self.locked.choices.channel), "auth_file": auth_file}
        answer = engine.ask("addresses", request, lambda _event: None, LockError)
        if "error" in answer:
            raise LockError(
                f"cannot read the conda configuration: {clean(answer['error']['text'])}",
                hint="correct .condarc, rattler's config.toml or the file in RATTLER_AUTH_FILE",
            )
        return dict(answer["addresses"])


def _hashes(package: LockedPackage) -> dict[str, str]:
    hashes = {k: v for k, v in (("sha256", package.sha256), ("md5", package.md5)) if v}
    if not hashes:
        raise LockError(
            f"the lock has no hash for {package.name} {package.version}", hint="lock again: gpuenv lock"
        )
    return {"sha256": hashes["sha256"]} if "sha256" in hashes else hashes


def solve_own_packages(
    locked: LockForBundle, emit: Emit
) -> tuple[tuple[LockedPackage, ...], tuple[str, ...]]:
    """Return gpuenv's own packages for every supported Python, and these Pythons, newest first.

    They include pip, and the installed version of uv. Raises LockError if no Python has all packages.
    """
    emit(Event("start", "bundle", "solving the packages of gpuenv itself"))
    wanted = [
        *wheels.own_requirements(*get_format(locked.lock.manager).EXTRAS),
        f"uv=={importlib.metadata.version('uv')}",
        "pip",
    ]
    bounds = SpecifierSet(wheels.own_pythons())
    known = {p for b in locked.profiles.builds for p in b.python if f"{p}.99" in bounds}
    minors = sorted(known, key=Version, reverse=True)
    with ThreadPoolExecutor(len(minors)) as pool:
        solved = list(pool.map(lambda minor: _solve(locked, wanted, minor), minors))
    served = {m: one.packages for m, one in zip(minors, solved, strict=True) if isinstance(one, Answer)}
    if not served:
        raise next(one for one in solved if isinstance(one, LockError))
    return tuple({p.url: p for packages in served.values() for p in packages}.values()), tuple(served)


def _solve(locked: LockForBundle, wanted: Sequence[str], minor: str) -> Answer | LockError:
    """Return the packages for one Python, or the error. Raises LockError if the index does not answer."""
    plan = Plan(
        builds=(), python=minor, platform=locked.lock.plan.platform, manager="venv", device="cpu",
        target=locked.lock.target, packages=tuple(wanted),
    )  # fmt: skip
    try:
        return lock_plan(plan, drop_event, forbid_builds(locked.sources, drop_event))
    except LockError as error:
        if error.unreachable:
            raise
        return error
