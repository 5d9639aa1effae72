"""The files of a bundle: where each goes, and where it may be had from. gpuenv's own packages among them, for
whichever Python the target has."""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from ..bundle import gpuenv_wheel
from ..bundle.collect_files import Item
from ..bundle.conda_channel import channel_file
from ..errors import LockError
from ..index import pytorch_index, uv_config
from ..index.download_files import Addresses, FileRequest, add_credentials
from ..index.http import Http
from ..index.pip_config import default_index, pip_configuration
from ..index.wheel_folders import expand_address
from ..managers.conda import engine as conda
from ..managers.protocol import locking
from ..model import Emit, Event, Lock, LockedPackage, Plan
from ..request import environment_paths as where
from ..system import process
from ..system.redaction import redact, redact_text
from ..system.untrusted_names import file_name_of_url
from ..wheels import several_pythons, solve_wheels
from ..wheels.allowed_source_builds import SourceBuilds
from .bundle_lock import LockForBundle


def get_bundle_path(package: LockedPackage, folder: str = "wheels") -> str:
    """The path in a bundle of a package of its lock, or of one that goes into another folder."""
    if package.is_conda:
        return channel_file(package)
    return f"{folder}/{file_name_of_url(package.url)}"


@dataclass
class BundledPackages:
    """Looks files up: on the indexes and channels of the user, each package on those it is named for."""

    folder: Path
    got: LockForBundle

    def items(self, packages: Sequence[LockedPackage], folder: str = "wheels") -> list[Item]:
        """Each package as a file to be had; sizes that the lock does not tell are asked for."""
        sizes = self._sizes([p for p in packages if p.size is None])
        found = {}
        for package in packages:
            place = get_bundle_path(package, folder)
            wanted = FileRequest(
                path=self.folder / place, root=self.folder, urls=self._urls(package), shown=redact(package.url),
                hashes=_hashes(package), size=package.size or sizes.get(package.url),
            )  # fmt: skip
            found[place] = Item(path=place, wanted=wanted)
        return list(found.values())

    @functools.cached_property
    def http(self) -> Http:
        return Http(pip_configuration(process.environ()))

    def _sizes(self, packages: Sequence[LockedPackage]) -> dict[str, int | None]:
        """A server that refuses the question leaves them unknown."""
        if self.got.sources.offline or not packages:
            return {}
        urls = {p.url: add_credentials(expand_address(p), self._default) for p in packages}
        try:
            told = self.http.sizes(urls.values())
        except LockError:
            return {}
        return {url: told[asked] for url, asked in urls.items()}

    def _urls(self, package: LockedPackage) -> Iterable[str]:
        if package.url.startswith((self.folder / "wheels").as_uri() + "/"):
            return ()  # it was made here, and is had from nowhere else
        if package.is_conda:
            return self._channel_addresses.get(package.url, [package.url])
        theirs, _ = pytorch_index.split((package,), self.got.lock.plan)
        return self._addresses.of(package, self._pytorch if theirs else self._default)

    @functools.cached_property
    def _addresses(self) -> Addresses:
        folders = [Path(p) for p in self.got.sources.find_links if "://" not in p and Path(p).is_dir()]
        return Addresses(self.http, folders, offline=self.got.sources.offline)

    @functools.cached_property
    def _default(self) -> tuple[str, ...]:
        """The default index and its extra ones, as pip and uv are configured."""
        sources, environ = self.got.sources, process.environ()
        if sources.offline or sources.no_index:
            return ()
        cache = where.get_cache_dir(self.got.choices)
        first = sources.default or default_index(environ, cache_dir=cache)
        more = uv_config.extra_indexes(uv_config.variables(environ))
        extra = [*sources.extra, *sources.explicit, *map(uv_config.address, more)]
        return (first, *(url for url in extra if not pytorch_index.is_one(url, sources.pytorch)))

    @functools.cached_property
    def _pytorch(self) -> tuple[str, ...]:
        return (pytorch_index.address(self.got.sources.pytorch, self.got.lock.plan),)

    @functools.cached_property
    def _channel_addresses(self) -> dict[str, list[str]]:
        """Where conda packages lie for this user: mirrors, and addresses with what lets one in."""
        urls = [p.url for p in self.got.lock.packages if p.is_conda]
        auth_file = process.environ().get("RATTLER_AUTH_FILE")
        request = {"urls": urls, "channels": list(self.got.choices.channel), "auth_file": auth_file}
        answer = conda.ask("addresses", request, lambda _event: None, LockError)
        if "error" in answer:
            raise LockError(
                f"cannot read the conda configuration: {redact_text(answer['error']['text'])}",
                hint="correct .condarc, rattler's config.toml or the file in RATTLER_AUTH_FILE",
            )
        return dict(answer["addresses"])


def _hashes(package: LockedPackage) -> dict[str, str]:
    found = {k: v for k, v in (("sha256", package.sha256), ("md5", package.md5)) if v}
    if not found:
        raise LockError(
            f"the lock has no hash for {package.name} {package.version}", hint="lock again: gpuenv lock"
        )
    return {"sha256": found["sha256"]} if "sha256" in found else found


def solve_own_packages(got: LockForBundle, emit: Emit) -> tuple[tuple[LockedPackage, ...], tuple[str, ...]]:
    """What gpuenv requires, and pip, for every Python that it runs on and has wheels for; and which Pythons
    those are, the newest first. Of uv the version that is here. Raises LockError where there are none."""
    emit(Event(kind="start", stage="bundle", text="solving the packages of gpuenv itself"))
    wanted = [
        *gpuenv_wheel.requirements(*locking(got.lock.manager).EXTRAS),
        f"uv=={importlib.metadata.version('uv')}",
        "pip",
    ]
    minors = _minors(got)
    found = several_pythons.wheels_for(wanted, minors, got.lock.plan, got.sources)
    rest = [m for m in minors if m not in found]
    refusals = []
    with ThreadPoolExecutor(max(1, len(rest))) as pool:
        for minor, one in zip(rest, pool.map(lambda m: _solved(got, wanted, m), rest), strict=True):
            if isinstance(one, Lock):
                found[minor] = one.packages
            else:
                refusals.append(one)
    if not found:
        raise refusals[0]
    served = tuple(m for m in minors if m in found)
    return tuple({p.url: p for m in served for p in found[m]}.values()), served


def _solved(got: LockForBundle, wanted: Sequence[str], minor: str) -> Lock | LockError:
    """The packages for one Python, or why there are none. Raises LockError where the index is silent."""
    plan = Plan(
        builds=(), python=minor, platform=got.lock.plan.platform, manager="venv", device="cpu",
        target=got.lock.target, packages=tuple(wanted),
    )  # fmt: skip
    try:
        return solve_wheels.lock(
            plan,
            got.sources,
            _ignore,
            solve_wheels.SolveOptions(builds=SourceBuilds(_ignore, forbidden_by="a bundle")),
        )
    except LockError as error:
        if error.unreachable:
            raise
        return error


def _ignore(_event: Event) -> None:
    """Several solves run at a time: what each does is not shown."""


def _minors(got: LockForBundle) -> list[str]:
    """The Pythons that gpuenv runs on, of those that any build is known for, the newest first."""
    bounds = SpecifierSet(gpuenv_wheel.requires_python())
    known = {p for b in got.profiles.builds for p in b.python if f"{p}.99" in bounds}
    return sorted(known, key=Version, reverse=True)
