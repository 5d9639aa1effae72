"""Rows of the profiles on packages: modules, conda names, and needed libraries."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportName:
    """The distribution of a module: `package` "opencv-python" for `module` "cv2".

    `also` are other distributions of it. `implies` is the framework of a program that imports the module and no
    framework. `common` marks a name that programs also use for their own folders.
    """

    module: str
    package: str
    also: tuple[str, ...] = ()
    implies: str | None = None
    common: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class CondaName:
    """The equivalent of a conda package outside conda: the wheel `package`, or `means`.

    `means` is "cuda" (its version is the CUDA release), "cpu" (builds without CUDA), "plan" (the plan decides it) or
    "program" (no Python package, no wheel).
    """

    conda: str
    package: str | None = None
    means: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemLibrary:
    """The packages of Linux distributions that have a library, by its soname.

    `deb` is the package of Debian and Ubuntu. `deb_t64` is its name since Debian 13 and Ubuntu 24.04, if it changed.
    `rpm` is the package of Fedora and RHEL.
    """

    soname: str
    deb: str | None = None
    deb_t64: str | None = None
    rpm: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class DlopenedLibrary:
    """A library that a package opens by name at import: its sonames, one of which is enough.

    `bundled` is a pattern of the package's own files that replace it.
    """

    package: str
    library: str
    bundled: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class OptionalLibraries:
    """Libraries that only optional modules of a package need, by name without "lib" and ".so"."""

    package: str
    libraries: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Replacement:
    """A package with the same modules that needs fewer libraries of the system."""

    package: str
    instead: str
    without: tuple[str, ...] = ()
