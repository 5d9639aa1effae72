"""Applies `--exclude-newer` to indexes without upload times, and to packages without a limit.

uv ignores files without an upload time, and names them in a warning. The solve would then report that packages do not
exist, or take another index's. So each named package is looked up. An index that lists it without times stops the
solve. If the user excepted that index, its packages have no limit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)

from ..errors import LockError
from ..index import pytorch_index, uv_config
from ..index.http import Http
from ..index.pip_config import default_index, pip_configuration
from ..index.simple_api import project_files
from ..model import PackageSources, Plan
from ..system import process
from ..system.redaction import redact
from .cache_and_disk import own_cache

_UNDATED = re.compile(r"`([^`\n]+)` is missing an upload date")


@dataclass
class UploadTimes:
    """The limit of a solve, and the packages of excepted indexes, which have none."""

    sources: PackageSources
    plan: Plan
    exempt: list[str] = field(default_factory=list)

    def options(self) -> list[str]:
        """Return the options of uv. Without --quiet it names the files without upload time."""
        if self.sources.exclude_newer is None:
            return ["--quiet"]
        return [w for name in self.exempt for w in ("--exclude-newer-package", f"{name}=false")]

    def learn(self, log: str) -> bool:
        """Return whether uv must run again, without a limit for packages of excepted indexes.

        Raises LockError if another index does not state upload times.
        """
        if self.sources.exclude_newer is None:
            return False
        names = list(dict.fromkeys(map(_name, _UNDATED.findall(log))))
        fresh = [n for n in names if n not in self.exempt]
        for name in fresh:
            places = self._find_undated(name)
            refused = [p for p in places if not self._is_excepted(p)]
            if refused or not places:
                raise self._explain_refusal(name, refused)
        self.exempt += fresh
        return bool(fresh)

    def _explain_refusal(self, name: str, refused: list[str]) -> LockError:
        where = " and ".join(redact(p) for p in refused) or "an index"
        first = self._word(refused[0]) if refused else "INDEX"
        return LockError(
            f"{where} does not state upload times of {name}, which --exclude-newer needs",
            hint=f"use --exclude-newer-except {first} to allow packages of that index of any age",
        )

    def _word(self, place: str) -> str:
        return "pytorch" if pytorch_index.is_one(place, self.sources.pytorch) else redact(place)

    def _is_excepted(self, place: str) -> bool:
        known = {redact(place).rstrip("/")}
        if pytorch_index.is_one(place, self.sources.pytorch):
            known.add("pytorch")
        elif place == self._default:
            known.add("pypi")
        return not known.isdisjoint(self.sources.exclude_newer_except)

    def _find_undated(self, name: str) -> list[str]:
        """Return the indexes that list files of a package without upload times."""
        http = Http(pip_configuration(process.environ()))
        return [p for p in self._places(name) if any(not f.uploaded for f in project_files(http, p, name))]

    def _places(self, name: str) -> list[str]:
        if name in pytorch_index.list_index_packages(self.plan):
            return [pytorch_index.address(self.sources.pytorch, self.plan)]
        more = uv_config.extra_indexes(uv_config.variables(process.environ()))
        named = [*self.sources.extra, *map(uv_config.address, more)]
        others = (url for url in named if not pytorch_index.is_one(url, self.sources.pytorch))
        return list(dict.fromkeys([self._default, *others]))

    @property
    def _default(self) -> str:
        return self.sources.default or default_index(process.environ(), cache_dir=own_cache(self.sources))


def _name(file: str) -> str:
    try:
        if file.endswith(".whl"):
            return str(parse_wheel_filename(file)[0])
        return str(parse_sdist_filename(file)[0])
    except (InvalidWheelFilename, InvalidSdistFilename):
        return str(canonicalize_name(file.partition("-")[0]))
