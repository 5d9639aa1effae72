"""Which indexes a run asks, and which of them a package comes from."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
)

from ..errors import LockError
from ..model import LockedPackage, PackageSources, Plan, PlannedBuild, RequirementLine, normalize_name
from ..system import process, trust
from ..system.redaction import redact
from ..system.scratch import make_scratch
from ..system.untrusted import path_of_url
from ..system.wheel_file import parse_wheel
from . import uv
from .config import (
    is_on,
    is_pytorch,
    own_cache,
    pip_settings,
    pytorch_address,
    pytorch_packages,
    uv_default,
    uv_extra,
    uv_variables,
    without_name,
)
from .refusals import find_failure
from .simple_api import parse_project, project_files, project_url, read_folder_page

_UNDATED = re.compile(r"`([^`\n]+)` is missing an upload date")


def main_index(sources: PackageSources) -> str:
    """Return the default index of a run. Raises LockError if uv does not report it."""
    return sources.default or default_index(process.environ(), cache_dir=own_cache(sources))


def list_indexes(sources: PackageSources) -> list[str]:
    """Return the indexes of a run in uv's order, without the PyTorch index: the default one is last."""
    extra = map(without_name, uv_extra(uv_variables(process.environ())))
    named = dict.fromkeys([*sources.extra, *extra, main_index(sources)])
    return [url for url in named if not is_pytorch(url, sources.pytorch)]


def default_index(environ: Mapping[str, str], *, cache_dir: Path | None = None) -> str:
    """Return the URL of the default index, without a slash at its end.

    It is configured for pip or uv, else uv's default. The latter is kept in `cache_dir`. Raises LockError if uv does
    not report it.
    """
    settings = uv_variables(environ)
    configured = environ.get("GPUENV_INDEX_PYPI") or uv_default(settings) or pip_settings(environ).index_url
    if configured:
        return configured.rstrip("/")
    kept = cache_dir / f"default-index-{_digest_settings(settings)}" if cache_dir else None
    if kept and (url := _read_kept(kept)):
        return url
    url = _ask_uv()
    if kept:
        trust.write_cached(kept, url + "\n")
    return url


def lasting_index(sources: PackageSources) -> list[dict[str, object]]:
    """Return uv's own default index in the form of its configuration, or nothing if another one is configured.

    Its files never change, and its pages count for ten minutes: it says so itself, but proxies drop these headers. Without
    them uv reads every page again, and builds every source archive again, in each solve. The slash at its end gives it a place of
    its own in uv's cache, so that the user's own uv reads what it would read without gpuenv.
    """
    if sources.default or sources.offline or sources.no_index or uv_default(uv_variables(process.environ())):
        return []
    lasting = {"api": "max-age=600", "files": "max-age=365000000, immutable"}
    return [{"url": main_index(sources) + "/", "default": True, "cache-control": lasting}]


def _digest_settings(settings: Mapping[str, str]) -> str:
    """Return a digest of everything that decides uv's default: its settings from files and variables, and its
    version."""
    program = Path(uv.program())
    status = program.stat()
    decided = [sorted(settings.items()), str(program.resolve()), status.st_size, status.st_mtime_ns]
    return hashlib.sha256(json.dumps(decided).encode()).hexdigest()[:16]


def _read_kept(path: Path) -> str | None:
    """Return the address that an earlier run wrote, or None for a missing or damaged file."""
    try:
        url = trust.read_cached(path).decode("utf-8", "replace").strip()
    except OSError:
        return None
    return url if re.fullmatch(r"(?:https?|file)://[^\s@]+", url) else None


@functools.cache
def _ask_uv() -> str:
    options = ["--no-deps", "--no-header", "--emit-index-annotation", "--quiet"]
    settings = uv.Settings(alone=True, locked=True, timeout=120)
    with make_scratch("index") as folder:
        requirements = folder / "requirements.in"
        requirements.write_text("packaging\n", encoding="utf-8")
        words = ["pip", "compile", str(requirements), *options]
        done = uv.run_uv(words, PackageSources(), python=sys.executable, settings=settings)
    index = re.search(r"#\s*from\s+(\S+)", done.stdout)
    if not index:
        raise _explain_unknown_index(done.stderr)
    return index[1].rstrip("/")


def _explain_unknown_index(log: str) -> LockError:
    """Return the error for an index that did not answer, or for any other failure of uv."""
    if failure := find_failure(redact(log)):
        return LockError(failure.message, hint=failure.hint, unreachable=failure.address)
    hint = "name a reachable index in PIP_INDEX_URL"
    return LockError("uv did not report the default package index", hint=hint, log=log)


# --- the builds of a plan --------------------------------------------------------------------------


def name_locked(plan: Plan, packages: Sequence[LockedPackage]) -> Plan:
    """Return the plan with the index of each build of a solve, or the folder of its file."""
    places = {normalize_name(p.name): p.index or _parent(p.url) for p in packages}
    return _named(plan, lambda b: [places.get(normalize_name(b.package_name), "")])


def _parent(url: str) -> str:
    folder = url.rpartition("/")[0]
    return str(path_of_url(folder)) if folder.startswith("file:") else folder


def name_configured(plan: Plan, sources: PackageSources, needs: Sequence[RequirementLine]) -> Plan:
    """Return the plan with the indexes that are asked for each build: before a solve, or to install a lock by hash.

    `needs` are the project's requirements, which can name the only index of a package.
    """
    bound = {n.package: n.index for n in needs if n.index}
    try:
        default = main_index(sources)
    except LockError:
        default = ""  # uv does not say which one it would ask

    def places(build: PlannedBuild) -> Sequence[str]:
        if build.index not in ("pypi", "pytorch", "find-links"):
            return ()  # a channel
        if build.index == "find-links" or sources.no_index or sources.offline:
            return sources.find_links
        if build.index == "pytorch":
            return [pytorch_address(sources.pytorch, plan)]
        name = normalize_name(build.package_name)
        return [bound[name]] if name in bound else [*sources.extra, default]

    return _named(plan, places)


def _named(plan: Plan, places: Callable[[PlannedBuild], Sequence[str]]) -> Plan:
    def urls(build: PlannedBuild) -> tuple[str, ...]:
        return tuple(dict.fromkeys(redact(url).rstrip("/") for url in places(build) if url))

    return dataclasses.replace(
        plan, builds=tuple(dataclasses.replace(b, index_urls=urls(b)) for b in plan.builds)
    )


# --- uv's answer -----------------------------------------------------------------------------------


def indexes_of_files(
    packages: Sequence[LockedPackage],
    sources: PackageSources,
    bound: Mapping[str, str],
    *,
    only_wheels: bool = False,
) -> dict[str, str] | None:
    """Return the index of each package by its address, or None if one can belong to several places or to none.

    uv states indexes only in another form of its answer, which takes a second run. `bound` are packages with their
    only index. With `only_wheels` no index is used.
    """
    configured = uv_variables(process.environ())
    links = [*sources.find_links, *filter(None, configured.get("UV_FIND_LINKS", "").split(","))]
    without = only_wheels or sources.no_index or is_on(configured.get("UV_NO_INDEX"))
    every = [] if without else list_indexes(sources)
    found = {}
    for package in packages:
        indexes = [bound[package.name]] if package.name in bound else every
        could = {index for index in indexes if _may_list(index, package)}
        could |= {_as_url(link) for link in links if _may_hold(link, package.url)}
        if len(could) != 1 or not all(map(_is_shown_by_uv, [*indexes, *links])):
            return None
        found[package.name] = could.pop()
    return found


def _may_list(index: str, package: LockedPackage) -> bool:
    """Return whether an index can list a package's address.

    Pages of a folder are read. Any other index is assumed to list every downloadable file.
    """
    if not index.startswith("file:"):
        return not package.url.startswith("file:")
    page = project_url(index, package.name)
    try:
        return any(file.url == package.url for file in parse_project(page, read_folder_page(page)))
    except LockError:
        return True


def _may_hold(link: str, url: str) -> bool:
    """Return whether a file can belong to a folder of wheels, or to a page of them, which can list every address."""
    if link.startswith(("http:", "https:")):
        return True
    return url.startswith("file:") and path_of_url(url).parent == path_of_url(_as_url(link))


def _is_shown_by_uv(place: str) -> bool:
    """Return whether uv's answer has a place unchanged: a folder, or an address without credentials."""
    scheme = place.partition("://")[0] if "://" in place else "file"
    return scheme in ("http", "https", "file") and "@" not in place and "$" not in place


def _as_url(place: str) -> str:
    return place if "://" in place else Path(place).absolute().as_uri()


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
