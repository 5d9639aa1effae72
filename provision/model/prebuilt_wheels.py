"""Wheels outside of an index, each compiled for one minor release of a framework."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelPage:
    """A page of wheels compiled against builds of a framework, and the rule of their file names.

    `packages` are the packages that it has. In `url`, {version} and {label} ("cu128", "cpu") are the build's, and
    {release} is the release of the package: a page is of one build, or of one release. `listing` is a page that links to
    all pages of builds. `local` is the local version of a file: {minor} "2.8", {digits} "28" (the minor release of the
    framework), {label}, {cuda} "12" or "122" (only the major counts), {abi} "TRUE" (the C++11 string ABI). Without it the
    solver chooses among the files of the page.
    """

    framework: str
    packages: tuple[str, ...]
    url: str
    local: str | None = None
    listing: str | None = None

    @property
    def is_of_release(self) -> bool:
        """Whether there is one page for each release of the package."""
        return "{release}" in self.url


@dataclass(frozen=True, kw_only=True, slots=True)
class CxxAbi:
    """The C++11 string ABI ("1" or "0") of the builds of a framework, by versions (a PEP 440 specifier), CUDA release and
    platform (None for any). The first row that fits a build counts."""

    framework: str
    versions: str
    cxx11: str
    cuda: str | None = None
    platform: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltFor:
    """The builds that a wheel is compiled for, as its file name says: the minor release of a framework ("2.8"), its
    CUDA as a `label` ("cu128", "cpu") or as a `cuda` major ("12"), and the C++11 string ABI ("1" or "0")."""

    framework: str
    minor: str
    label: str | None = None
    cuda: str | None = None
    cxx11: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PrebuiltWheel:
    """A wheel of a page. `version` is without local label, `pythons` are the minor versions that take the file on the
    target, `sha256` is the hash that the page states."""

    package: str
    version: str
    url: str
    built_for: BuiltFor
    pythons: tuple[str, ...] = ()
    sha256: str | None = None
