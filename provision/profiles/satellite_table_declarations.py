"""The declared tables of satellites.yaml: measured rows, and manual rows for facts that no wheel contains."""

from __future__ import annotations

from dataclasses import dataclass

from provision import model

from .table_mapping import Kind


@dataclass(frozen=True, kw_only=True, slots=True)
class SatellitePackage:
    """A package whose releases are measured, one per series. `parts` is the count of numbers in a series."""

    package: str
    parts: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SatelliteFramework:
    """The documented framework of releases whose metadata names none. `version` is a prefix.

    `cuda` is the release ("13.0") that the package compares with the framework's when it is imported.
    """

    package: str
    version: str
    built_for: str
    cuda: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SatelliteExtras:
    """The extras without which releases of a package lack libraries; `versions` is a specifier."""

    package: str
    versions: str
    extras: str


SATELLITE_TABLES = {
    "satellites": Kind(
        model.Satellite,
        "satellites",
        ("package", "version", "platform", "cuda"),
        ("package", "version", "platform", "index", "form"),
        words=("pythons", "kernels", "extras"),
        lists=("needs", "optional", "bundles"),
        flags=("nvcc",),
    ),
    "satellite_packages": Kind(SatellitePackage, "", ("package",), ("package",)),
    "satellite_frameworks": Kind(
        SatelliteFramework,
        "",
        ("package", "version"),
        ("package", "version", "built_for", "source", "read"),
    ),
    "satellite_optional": Kind(
        model.OptionalLibraries,
        "optional_libraries",
        ("package",),
        ("package", "libraries", "source", "read"),
        words=("libraries",),
    ),
    "satellite_extras": Kind(
        SatelliteExtras,
        "",
        ("package", "versions"),
        ("package", "versions", "extras", "source", "read"),
        words=("extras",),
    ),
    "traps": Kind(model.PackageTrap, "traps", ("package", "versions"), ("package", "why", "source", "read")),
}
