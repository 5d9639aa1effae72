"""Which indexes a run asks, and which of them a package comes from."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
)

from ..errors import LockError
from ..model import LockedPackage, PackageSources, Plan, PlannedBuild, RequirementLine, normalize_name
from ..system.redaction import redact
from ..system.untrusted import path_of_url
from ..system.wheel_file import parse_wheel
from . import uv
from .config import (
    is_pytorch,
    pip_settings,
    pytorch_address,
    pytorch_packages,
    strip_name,
    uv_default,
    uv_extra,
    uv_variables,
)
from .simple_api import project_files

_UNDATED = re.compile(r"`([^`\n]+)` is missing an upload date")


def main_index(sources: PackageSources) -> str:
    """Return the default index of a run: the configured one, else uv's own."""
    return sources.default or (uv_default(sources.uv) or uv.own_index()).rstrip("/")


def list_indexes(sources: PackageSources) -> list[str]:
    """Return the indexes of a run in uv's order, without the PyTorch index: the default one is last."""
    extra = map(strip_name, uv_extra(sources.uv))
    named = dict.fromkeys([*sources.extra, *extra, main_index(sources)])
    return [url for url in named if not is_pytorch(url, sources.pytorch)]


def default_index(environ: Mapping[str, str]) -> str:
    """Return the default index of a program without options, without a slash at its end."""
    configured = (
        environ.get("GPUENV_INDEX_PYPI")
        or uv_default(uv_variables(environ))
        or pip_settings(environ).index_url
    )
    return configured.rstrip("/") if configured else uv.own_index()


def cacheable_index(sources: PackageSources) -> list[dict[str, object]]:
    """Return uv's own default index in the form of its configuration, or nothing if another one is configured.

    Its files never change, and its pages count for ten minutes: it says so itself, but proxies drop these headers. Without
    them uv reads every page again, and builds every source archive again, in each solve. The slash at its end gives it a place of
    its own in uv's cache, so that the user's own uv reads what it would read without gpuenv.
    """
    if sources.default or sources.offline or sources.no_index or uv_default(sources.uv):
        return []
    lasting = {"api": "max-age=600", "files": "max-age=365000000, immutable"}
    return [{"url": uv.own_index() + "/", "default": True, "cache-control": lasting}]


# --- the builds of a plan --------------------------------------------------------------------------


def add_locked_indexes(plan: Plan, packages: Sequence[LockedPackage]) -> Plan:
    """Return the plan with the index of each build of a solve, or the folder of its file."""
    places = {normalize_name(p.name): p.index or _parent(p.url) for p in packages}
    return _add_indexes(plan, lambda b: [places.get(normalize_name(b.package_name), "")])


def _parent(url: str) -> str:
    folder = url.rpartition("/")[0]
    return str(path_of_url(folder)) if folder.startswith("file:") else folder


def add_configured_indexes(plan: Plan, sources: PackageSources, needs: Sequence[RequirementLine]) -> Plan:
    """Return the plan with the indexes that are asked for each build: before a solve, or to install a lock by hash.

    `needs` are the project's requirements, which can name the only index of a package.
    """
    bound = {n.package: n.index for n in needs if n.index}

    def places(build: PlannedBuild) -> Sequence[str]:
        if build.index not in ("pypi", "pytorch", "find-links"):
            return ()  # a channel
        if build.index == "find-links" or sources.no_index or sources.offline:
            return sources.find_links
        if build.index == "pytorch":
            return [pytorch_address(sources.pytorch, plan)]
        name = normalize_name(build.package_name)
        return [bound[name]] if name in bound else [*sources.extra, main_index(sources)]

    return _add_indexes(plan, places)


def _add_indexes(plan: Plan, places: Callable[[PlannedBuild], Sequence[str]]) -> Plan:
    def urls(build: PlannedBuild) -> tuple[str, ...]:
        return tuple(dict.fromkeys(redact(url).rstrip("/") for url in places(build) if url))

    return dataclasses.replace(
        plan, builds=tuple(dataclasses.replace(b, index_urls=urls(b)) for b in plan.builds)
    )


# --- uv's answer -----------------------------------------------------------------------------------


def map_only_indexes(
    names: Iterable[str], sources: PackageSources, bound: Mapping[str, str]
) -> dict[str, str] | None:
    """Return the index of each package, or None where a package can come from several places.

    `bound` are packages with their only index. uv shows an address with credentials or variables in its own way.
    """
    others = sources.no_index or sources.extra or sources.find_links or uv_extra(sources.uv)
    if others or sources.uv.keys() & {"UV_FIND_LINKS", "UV_NO_INDEX"}:
        return None
    index = main_index(sources)
    if any("@" in url or "$" in url for url in (index, *bound.values())):
        return None
    return {name: bound.get(name, index) for name in names}


def drop_pages(packages: tuple[LockedPackage, ...], sources: PackageSources) -> tuple[LockedPackage, ...]:
    """Return the packages without the pages of wheels as their index. They are installed from their own addresses."""
    pages = {redact(p).rstrip("/") for p in sources.find_links if p.startswith(("http:", "https:"))}
    return tuple(
        dataclasses.replace(p, index=None) if p.index and p.index.rstrip("/") in pages else p
        for p in packages
    )


# --- upload times ----------------------------------------------------------------------------------


@dataclass
class UploadTimes:
    """The limit `--exclude-newer` of a solve, and the packages of excepted indexes, which have none.

    uv ignores files without an upload time, and names them in a warning. The solve would then report that packages do
    not exist, or take another index's. So each named package is looked up. An index that lists it without times stops
    the solve. If the user excepted that index, its packages have no limit.
    """

    sources: PackageSources
    plan: Plan
    exempt: list[str] = field(default_factory=list)

    def options(self) -> list[str]:
        """Return the options of uv. Without --quiet it names the files without upload time."""
        if self.sources.exclude_newer is None:
            return ["--quiet"]
        return [w for name in self.exempt for w in ("--exclude-newer-package", f"{name}=false")]

    def exempt_undated(self, log: str) -> bool:
        """Return whether uv must run again, without a limit for packages of excepted indexes.

        Raises LockError if another index does not state upload times.
        """
        if self.sources.exclude_newer is None:
            return False
        fresh = [n for n in dict.fromkeys(map(_project, _UNDATED.findall(log))) if n not in self.exempt]
        from .http import Http  # plans need no HTTP

        http = Http()
        for name in fresh:
            if name in pytorch_packages(self.plan):
                indexes = [pytorch_address(self.sources.pytorch, self.plan)]
            else:
                indexes = list_indexes(self.sources)
            undated = [i for i in indexes if any(not f.uploaded for f in project_files(http, i, name))]
            refused = [i for i in undated if not self._is_excepted(i)]
            if refused or not undated:
                raise self._explain_refusal(name, refused)
        self.exempt += fresh
        return bool(fresh)

    def _explain_refusal(self, name: str, refused: list[str]) -> LockError:
        where = " and ".join(redact(p) for p in refused) or "an index"
        word = "INDEX"
        if refused:
            word = "pytorch" if is_pytorch(refused[0], self.sources.pytorch) else redact(refused[0])
        return LockError(
            f"{where} does not state upload times of {name}, which --exclude-newer needs",
            hint=f"use --exclude-newer-except {word} to allow packages of that index of any age",
        )

    def _is_excepted(self, index: str) -> bool:
        words = {redact(index).rstrip("/")}
        if is_pytorch(index, self.sources.pytorch):
            words.add("pytorch")
        elif index == main_index(self.sources):
            words.add("pypi")
        return not words.isdisjoint(self.sources.exclude_newer_except)


def _project(file: str) -> str:
    """Return the project of a file by its name."""
    try:
        if file.endswith(".whl"):
            return parse_wheel(file).name
        return str(parse_sdist_filename(file)[0])
    except (InvalidWheelFilename, InvalidSdistFilename):
        return str(canonicalize_name(file.partition("-")[0]))
