"""Reads packages from uv's pylock.toml and from its annotated list."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

import tomli
from packaging.pylock import Package as PylockPackage, Pylock, PylockSelectError, PylockValidationError
from packaging.tags import Tag
from packaging.utils import canonicalize_name

from ..errors import LockError
from ..index.markers_and_tags_of_platform import wheel_tags
from ..model import LockedPackage, Plan
from ..system.file_digest import hash_file
from ..system.grants import escape_references
from ..system.untrusted_names_to_paths import file_name_of_url
from . import pylock
from .pylock import vcs_url


def list_target_tags(plan: Plan) -> list[Tag]:
    """Return the wheel tags that the plan's Python supports on the target, best first."""
    return wheel_tags(plan.python or "", plan.platform, plan.target.glibc)


def parse_pylock(text: str, plan: Plan) -> tuple[LockedPackage, ...]:
    """Return one wheel per package, whose tags fit the target best. Raises LockError."""
    locked = _read_pylock(text)
    ranks = {str(tag): i for i, tag in enumerate(list_target_tags(plan))}
    return tuple(_choose_file(p, ranks) for p in locked.packages)


def parse_versions(text: str) -> dict[str, str]:
    """Return the version of each package of an index, from either form of uv's answer. Raises LockError."""
    if not text.startswith("lock-version"):
        pins = re.findall(r"(?m)^([A-Za-z0-9._-]+)={2,3}([^\s;]+)", text)
        return {str(canonicalize_name(name)): version for name, version in pins}
    packages = _read_pylock(text).packages
    return {str(p.name): str(p.version) for p in packages if p.version and (p.wheels or p.sdist)}


@functools.lru_cache(maxsize=2)
def _read_pylock(text: str) -> Pylock:
    try:
        return Pylock.from_dict(tomli.loads(text))
    except (ValueError, PylockValidationError, PylockSelectError) as error:
        raise LockError(
            f"the solver's answer cannot be read: {error}",
            hint="reinstall gpuenv: its uv was replaced by another version",
        ) from error


def _choose_file(package: PylockPackage, ranks: dict[str, int]) -> LockedPackage:
    """Return the file or source of a package.

    It is a commit, a folder, the file of an address, the best wheel, or the source archive if there is no wheel.
    """
    name, version = str(package.name), str(package.version or "")
    if package.vcs is not None:
        return LockedPackage(
            name=name, version=version, url=escape_references(vcs_url(package.vcs)), unhashed=True
        )
    if package.directory is not None:
        url, editable = Path(package.directory.path).absolute().as_uri(), bool(package.directory.editable)
        return LockedPackage(name=name, version=version, url=url, unhashed=True, editable=editable)
    file = package.archive or (None if package.wheels else package.sdist)
    if file is None:
        return choose_best_wheel(package, ranks)
    url = escape_references(file.url or Path(file.path or "").absolute().as_uri())
    sha256 = file.hashes.get("sha256") or _hash_of(url)
    return pylock.check_file_name(LockedPackage(
        name=name, version=version, url=url, sha256=sha256, index=package.index, size=file.size,
        unhashed=sha256 is None,
    ))  # fmt: skip


def _hash_of(url: str) -> str | None:
    """Return the sha256 of a local file, or None for a remote one without a known hash."""
    if not url.startswith("file:"):
        return None
    return hash_file(unquote(urlsplit(url).path))["sha256"]


def choose_best_wheel(package: PylockPackage, ranks: dict[str, int]) -> LockedPackage:
    """Return the wheel of a package with the best tags. Raises LockError if none fits."""
    from packaging.utils import parse_wheel_filename

    fitting = []
    for wheel in package.wheels or ():
        name = wheel.name or file_name_of_url(wheel.url or wheel.path or "")
        _, _, build, tags = parse_wheel_filename(name)
        rank = min((ranks[str(t)] for t in tags if str(t) in ranks), default=None)
        if rank is not None:
            # A later build tag replaces an earlier upload of the same wheel (PEP 427).
            fitting.append(((rank, -(build[0] if build else 0)), wheel))
    if not fitting or package.version is None:
        raise LockError(
            f"{package.name} {package.version or ''} has no wheel that fits the target",
            hint="try another --python",
        )
    wheel = min(fitting, key=lambda pair: pair[0])[1]
    return pylock.check_file_name(LockedPackage(
        name=str(package.name), version=str(package.version), url=escape_references(wheel.url or wheel.path or ""),
        sha256=wheel.hashes.get("sha256"), index=package.index, size=wheel.size,
    ))  # fmt: skip


def parse_annotations(text: str) -> dict[str, str]:
    """Return the index of each package, from `# from URL` under each pin of `uv pip compile`."""
    indexes: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        pin = re.match(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?={2,3}", line)
        if pin:
            name = pin.group(1).lower()
        origin = re.match(r"\s+# from (\S+)", line)
        if origin and name:
            indexes[name] = origin.group(1)
    return indexes


class Requirers(Mapping[str, tuple[str, ...]]):
    """The packages that require each package. They are solved at their first use, because few locks need them."""

    def __init__(self, annotated: Callable[[], str]) -> None:
        self._annotated = annotated

    @functools.cached_property
    def _requirers(self) -> dict[str, tuple[str, ...]]:
        return parse_requirers(self._annotated())

    def __getitem__(self, name: str) -> tuple[str, ...]:
        return self._requirers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._requirers)

    def __len__(self) -> int:
        return len(self._requirers)


def parse_requirers(text: str) -> dict[str, tuple[str, ...]]:
    """Return the packages that require each package, from `# via NAME` under each pin of `uv pip compile`.

    Files and the plan are omitted.
    """
    requirers: dict[str, tuple[str, ...]] = {}
    name = ""
    for line in text.splitlines():
        if pin := re.match(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?(?:={2,3}| @ )", line):
            name = pin[1].lower()
            requirers[name] = ()
        elif name and (by := re.fullmatch(r"\s+#\s+(?:via\s+)?([A-Za-z0-9][A-Za-z0-9._-]*)", line)):
            requirers[name] = (*requirers[name], by[1].lower())
    known = requirers.keys()
    return {n: tuple(b for b in by if b in known) for n, by in requirers.items()}
