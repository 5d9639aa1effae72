"""What a search for a lock says of the solutions that it compared."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class PassedOverBuild:
    """A build that fits the target, and was not chosen because it conflicts with a named package."""

    framework: str
    version: str
    cuda: str | None
    index: str
    because: str


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldBackPackage:
    """A named package that is not locked in the newest release within its bounds.

    It has the reason, and the cost of the newest release, or None if no set has that release.
    """

    package: str
    locked: str
    newest: str
    because: str
    alternative: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageSet:
    """A solution that was compared.

    `builds` are "torch 2.14.1 (CUDA 13.0)", and `packages` "vllm 0.33.0". `oldest` is the package that is furthest
    behind its newest release, and `behind` the number of days. `reason` says why there is no set, or why another was
    chosen. It is "" for the chosen set.
    """

    builds: tuple[str, ...]
    python: str | None = None
    packages: tuple[str, ...] = ()
    oldest: str | None = None
    behind: int = 0
    reason: str = ""
