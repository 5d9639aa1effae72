"""Declarations of the tables in profile files, with the model value of each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from provision import model

from .index_table_declarations import PAGE_TABLES
from .satellite_table_declarations import SATELLITE_TABLES
from .table_mapping import Kind

Row = dict[str, Any]

TABLE_KEYS = ("table", "framework", "source", "read", "kept", "note")
ROW_EXTRA = ("source", "read", "note")


@dataclass(frozen=True, kw_only=True, slots=True)
class Tested:
    """The CUDA and cuDNN that a release without pins was tested with. `version` is a prefix."""

    version: str
    cuda: str
    cudnn: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Floor:
    """The oldest drivers that documents give for all packages of one CUDA major."""

    cuda: str
    driver_linux: str
    driver_windows: str


KINDS = {
    "builds": Kind(
        model.Build,
        "builds",
        ("framework", "version", "cuda", "platform", "index"),
        ("version", "platform", "index", "python"),
        words=("python", "kernels", "searched"),
        lists=("requires", "companions", "unresolvable"),
        flags=("yanked",),
    ),
    "cudnn": Kind(
        model.CudnnRelease,
        "cudnn",
        ("package", "version", "platform"),
        ("package", "version", "cuda", "platform"),
        words=("kernels",),
        lists=("libraries",),
        flags=("yanked",),
    ),
    "conda": Kind(
        model.CondaBuild,
        "conda",
        ("framework", "channel", "package", "device", "version", "build"),
        ("channel", "package", "device", "build"),
        lists=("along",),
    ),
    "toolkits": Kind(model.ToolkitRelease, "toolkits", ("version",), ("version", "parts"), lists=("parts",)),
    "compilers": Kind(
        model.CudaCompiler, "compilers", ("cuda",), ("cuda", "gcc", "source", "read"), words=("extras",)
    ),
    "pythons": Kind(model.PythonRelease, "pythons", ("version",), ("version", "released")),
    "gpus": Kind(
        model.GpuModel,
        "gpus",
        ("capability",),
        ("capability", "generation"),
        lists=("boards",),
        flags=("tegra",),
    ),
    "cuda": Kind(model.CudaRelease, "cuda", ("cuda",), ("cuda", "linux")),
    **PAGE_TABLES,
    "imports": Kind(
        model.ImportName, "imports", ("module",), ("module", "package"), words=("also",), flags=("common",)
    ),
    "conda_names": Kind(model.CondaName, "conda_names", ("conda",), ("conda",)),
    "system_libraries": Kind(model.SystemLibrary, "system_libraries", ("soname",), ("soname", "deb")),
    "opened_libraries": Kind(
        model.DlopenedLibrary, "opened_libraries", ("package", "library"), ("package", "library")
    ),
    "optional_libraries": Kind(
        model.OptionalLibraries,
        "optional_libraries",
        ("package",),
        ("package", "libraries", "source"),
        words=("libraries",),
    ),
    "replacements": Kind(
        model.Replacement,
        "replacements",
        ("package",),
        ("package", "instead", "without"),
        words=("without",),
    ),
    "majors": Kind(model.CudaMajor, "majors", ("major",), ("major", "linux", "windows")),
    "branches": Kind(model.DriverBranch, "branches", ("branch",), ("branch", "cuda")),
    "tested": Kind(Tested, "", ("version",), ("version", "cuda", "cudnn")),
    "floors": Kind(Floor, "", ("cuda",), ("cuda", "driver_linux", "driver_windows")),
    "known_bad": Kind(
        model.KnownBadRelease,
        "known_bad",
        ("package", "version"),
        ("package", "version", "effect", "why", "source"),
    ),
    **SATELLITE_TABLES,
    "images": Kind(model.BaseImage, "images", ("use", "image"), ("use", "image"), words=("platform", "apt")),
    "causes": Kind(
        model.FailureCause,
        "causes",
        ("cause",),
        ("cause", "layer", "title", "fix", "decides"),
        flags=("about_gpu", "of_jobs"),
    ),
    "findings": Kind(model.FindingText, "findings", ("finding",), ("finding", "cause")),
    "messages": Kind(
        model.FailureMessage, "messages", ("name",), ("name", "says", "example", "source"), lists=("says",)
    ),
    "failures": Kind(
        model.FailureRule,
        "failures",
        ("name",),
        ("name", "cause", "says", "example", "source", "confidence", "weight"),
        lists=("says", "wants", "lacks"),
    ),
    "catalogue": Kind(
        model.CatalogueMessage,
        "catalogue",
        ("name",),
        ("name", "program", "says", "causes", "releases", "source"),
        lists=("says", "causes", "absent", "lacks"),
    ),
}

FILES: dict[str, tuple[str, ...]] = {
    "drivers.yaml": ("cuda", "majors", "branches"),
    "gpus.yaml": ("gpus",),
    "cudnn.yaml": ("cudnn", "floors"),
    "pythons.yaml": ("pythons",),
    "toolkits.yaml": ("toolkits", "compilers"),
    "torch.yaml": ("builds", "tested"),
    "tensorflow.yaml": ("builds", "tested"),
    "jax.yaml": ("builds",),
    "onnxruntime.yaml": ("builds", "tested"),
    "known_bad.yaml": ("known_bad",),
    "conda.yaml": ("conda",),
    "images.yaml": ("images",),
    "satellites.yaml": tuple(SATELLITE_TABLES),
    "indexes.yaml": tuple(PAGE_TABLES),
    "package_names.yaml": ("imports", "conda_names"),
    "system_libraries.yaml": ("system_libraries", "opened_libraries", "optional_libraries", "replacements"),
    "failures.yaml": ("causes", "findings", "messages", "failures", "catalogue"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """A table of a file: `head` are its scalars, `rows` its rows as plain data.

    `lines` has the line of each row, from 1. It is empty for a table that is not from a file.
    """

    head: dict[str, str]
    rows: tuple[Row, ...]
    lines: tuple[int, ...] = ()


def row_key(kind: Kind, head: dict[str, str], row: Row) -> tuple[str | None, ...]:
    """Return the key of a row. A wrong row has one too: its values may be lists."""
    values = [head.get("framework") if k == "framework" else row.get(k) for k in kind.key]
    return tuple([v if v is None else str(v) for v in values])
