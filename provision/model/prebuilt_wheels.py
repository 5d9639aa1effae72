"""Wheels outside of an index, each compiled for one minor release of a framework."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelPage:
    """A page of wheels compiled against builds of a framework, and the rule for their file names.

    `packages` are the packages on it. In `url`, {version} and {label} ("cu128", "cpu") are those of the build, and
    {release} is the release of the package. A page is for one build or for one release. `listing` is a page with
    links to all pages of builds.

    `local` is the local version of a file. {minor} is "2.8" and {digits} "28" (the minor release of the framework).
    {cuda} is "12" or "122" (only the major matters), and {abi} "TRUE" (the C++11 string ABI). Without `local` the
    solver chooses among the files of the page.
    """

    framework: str
    packages: tuple[str, ...]
    url: str
    local: str | None = None
    listing: str | None = None

    @property
    def is_of_release(self) -> bool:
        """Whether each release of the package has a page."""
        return "{release}" in self.url


@dataclass(frozen=True, kw_only=True, slots=True)
class CxxAbi:
    """The C++11 string ABI ("1" or "0") of the builds of a framework.

    A row is for versions (a PEP 440 specifier), a CUDA release and a platform, or for any (None). The first matching
    row applies.
    """

    framework: str
    versions: str
    cxx11: str
    cuda: str | None = None
    platform: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelGlibc:
    """The oldest glibc for the prebuilt wheels of a package, by versions (a PEP 440 specifier). Their names do not have
    it: the tag linux_x86_64 allows every glibc."""

    package: str
    versions: str
    glibc: str


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltFor:
    """The builds that a wheel is compiled for, by its file name.

    These are the minor release of a framework ("2.8"), its CUDA, and the C++11 string ABI ("1" or "0"). The CUDA is a
    `label` ("cu128", "cpu") or a major `cuda` ("12").
    """

    framework: str
    minor: str
    label: str | None = None
    cuda: str | None = None
    cxx11: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PrebuiltWheel:
    """A wheel of a page.

    `version` has no local label. `pythons` are the minor versions that support the file on the target. `sha256` is
    the hash on the page.
    """

    package: str
    version: str
    url: str
    built_for: BuiltFor
    pythons: tuple[str, ...] = ()
    sha256: str | None = None
