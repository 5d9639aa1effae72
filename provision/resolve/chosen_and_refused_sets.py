"""Hold the chosen set of builds and packages, and the sets that a solver refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..model import PackageRelease
from .compatible_build_sets import CandidateBuilds


@dataclass(frozen=True)
class Chosen:
    """A set: builds, a Python, and a release of each named package.

    `behind` is the age of each release relative to the newest one, in days.
    """

    candidate: CandidateBuilds
    releases: Mapping[str, PackageRelease]
    behind: Mapping[str, int]
    key: tuple[object, ...]

    @property
    def compiles(self) -> bool:
        """Whether a package is compiled although there are sets without that."""
        return bool(self.key[0])

    @property
    def most_behind(self) -> int:
        return max(self.behind.values(), default=0)


@dataclass(frozen=True)
class Refused:
    """Versions of named packages and frameworks that a solver found incompatible.

    With `cuda` this applies only if no build has that CUDA major.
    """

    versions: Mapping[str, str]
    because: str
    cuda: str | None = None
