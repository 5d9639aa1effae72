"""The declared tables of the profile files, with the model value of each row."""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from .. import model
from ..model.values import dataclass

Row = dict[str, Any]
TABLE_KEYS = ("table", "framework", "source", "read", "kept", "note")
ROW_EXTRA = ("source", "read", "note")


class Kind(NamedTuple):
    """A kind of table, and the class of its rows.

    `into` is the field of Profiles, and `key` identifies a row. `words` are columns written as one string of words, `lists`
    as a list of strings, `flags` as "yes" or absent. A kind without a class is read by scripts/update_profiles.py only,
    which adds documented facts to measured ones: its columns are those required and `more`.
    """

    cls: type[Any] | None
    into: str
    key: tuple[str, ...]
    required: tuple[str, ...]
    words: tuple[str, ...] = ()
    lists: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    more: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns in their order."""
        if self.cls:
            return tuple(self.cls.__annotations__)
        return tuple(c for c in (*self.required, *self.more) if c not in ROW_EXTRA)


_OF_BUILD, _OF_RELEASE = {"version", "label"}, {"release"}

PAGE_TABLES = {
    "indexes": Kind(model.IndexAddress, "indexes", ("index",), ("index", "url")),
    "pages": Kind(
        model.WheelPage, "pages", ("framework", "packages"), ("packages", "url"), words=("packages",)
    ),
    # wheels of pages that cannot be read everywhere, as documents list them
    "listed_wheels": Kind(
        model.ListedWheels,
        "listed_wheels",
        ("package", "url"),
        ("package", "releases", "url", "platform", "source", "read"),
        words=("releases", "platform"),
    ),
    "abis": Kind(model.CxxAbi, "abis", ("framework", "versions", "cuda", "platform"), ("versions", "cxx11")),
    "wheel_glibc": Kind(
        model.WheelGlibc,
        "wheel_glibc",
        ("package", "versions"),
        ("package", "versions", "glibc", "source", "read"),
    ),
}


def find_page_problems(row: Mapping[str, object]) -> Iterator[str]:
    """Yield the mistakes in the placeholders of a page's row."""
    url, rule = row.get("url"), row.get("local")
    if not isinstance(url, str):
        return
    try:
        names = {name for _, name, _, _ in string.Formatter().parse(url) if name is not None}
    except ValueError as error:
        yield f"url: {error}"
        return
    if unknown := sorted(names - _OF_BUILD - _OF_RELEASE):
        yield f"url: {{{unknown[0]}}} is not one of {{version}}, {{label}} and {{release}}"
    if names & _OF_RELEASE and names & _OF_BUILD:
        yield "url: a page is of one release or of one build, not of both"
    if names & _OF_RELEASE and not rule:
        yield "local: missing. It tells for which build a wheel on the page is"
    known = ("{minor}", "{digits}", "{cuda}", "{label}")
    if isinstance(rule, str) and (not any(n in rule for n in known) or all(n in rule for n in known[:2])):
        yield "local: expected {minor} or {digits}, the release of the framework, or only {cuda} or {label}"


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
    # a package whose releases are measured, one per series; `parts` is the count of numbers in a series
    "satellite_packages": Kind(None, "", ("package",), ("package",), more=("parts",)),
    # the documented framework of releases whose metadata names none; `version` is a prefix. `cuda` is the release
    # ("13.0") that the package compares with the framework's when it is imported
    "satellite_frameworks": Kind(
        None,
        "",
        ("package", "version"),
        ("package", "version", "built_for", "source", "read"),
        more=("cuda",),
    ),
    "satellite_optional": Kind(
        model.OptionalLibraries,
        "optional_libraries",
        ("package",),
        ("package", "libraries", "source", "read"),
        words=("libraries",),
    ),
    # the extras without which releases of a package lack libraries
    "satellite_extras": Kind(
        None,
        "",
        ("package", "versions"),
        ("package", "versions", "extras", "source", "read"),
        words=("extras",),
    ),
    "traps": Kind(model.PackageTrap, "traps", ("package", "versions"), ("package", "why", "source", "read")),
}


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
    "runtime_compilers": Kind(
        model.RuntimeCompiler,
        "runtime_compilers",
        ("package",),
        ("package", "does", "source", "read"),
        words=("needs", "places", "cache", "unless"),
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
    # the CUDA and cuDNN that a release without pins was tested with; `version` is a prefix
    "tested": Kind(None, "", ("version",), ("version", "cuda", "cudnn")),
    # the oldest drivers that documents give for all packages of one CUDA major
    "floors": Kind(None, "", ("cuda",), ("cuda", "driver_linux", "driver_windows")),
    "known_bad": Kind(
        model.KnownBadRelease,
        "known_bad",
        ("package", "version", "gpu", "board", "driver", "companion"),
        ("package", "version", "effect", "why", "source"),
    ),
    **SATELLITE_TABLES,
    "images": Kind(model.BaseImage, "images", ("use", "image"), ("use", "image"), words=("platform", "apt")),
    "causes": Kind(
        model.FailureCause,
        "causes",
        ("cause",),
        ("cause", "layer", "title", "decides"),
        flags=("about_gpu", "of_jobs"),
    ),
    "fixes": Kind(
        model.FailureFix, "fixes", ("name",), ("name", "cause", "steps"), lists=("steps", "wants", "lacks")
    ),
    "signs": Kind(model.Sign, "signs", ("name",), ("name", "sign", "says"), lists=("says", "lacks")),
    "launchers": Kind(
        model.Launcher, "launchers", ("command",), ("command", "tool", "gives", "flags"), lists=("flags",)
    ),
    "programs": Kind(
        model.KnownProgram,
        "programs",
        ("program",),
        ("program", "says", "source"),
        words=("modules",),
        lists=("says",),
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
    "toolkits.yaml": ("toolkits", "compilers", "runtime_compilers"),
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
    "failures.yaml": (
        "causes",
        "fixes",
        "signs",
        "launchers",
        "programs",
        "findings",
        "messages",
        "failures",
        "catalogue",
    ),
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
