"""The declared tables of the profile files, with the model value of each row."""

from __future__ import annotations

import dataclasses
import string
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, get_args, get_origin

from .. import model
from ..model.values import Value

Row = dict[str, Any]
TABLE_KEYS = ("table", "framework", "source", "read", "kept", "note")
ROW_EXTRA = ("source", "read", "note")


class Kind(Value, kw_only=False):
    """A kind of table, and the class of its rows, which says what its columns hold.

    `key` identifies a row. `also` are columns that are required beside the fields without a default. `lists` are columns
    written as a list of strings; all other tuples are one string of `words`, and a bool is "yes" or absent. `into` is the
    field of Profiles where that is not the name of the table. A kind without a class is read by
    scripts/update_profiles.py only, which adds documented facts to measured ones: its columns are `also` and `more`.
    """

    cls: type[Any] | None
    key: tuple[str, ...]
    lists: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    into: str = ""

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns in their order."""
        if self.cls:
            return tuple(self.cls.__annotations__)
        return tuple(c for c in (*self.also, *self.more) if c not in ROW_EXTRA)

    @cached_property
    def _types(self) -> dict[str, Any]:
        return self.cls.__annotations__ if self.cls else {}

    @cached_property
    def required(self) -> tuple[str, ...]:
        """The columns without which a row says nothing."""
        optional = {"framework", *(self.cls._field_defaults if self.cls else ())}
        stated = [
            c for c, kind in self._types.items() if c not in optional and type(None) not in get_args(kind)
        ]
        return (*stated, *self.also)

    @cached_property
    def flags(self) -> frozenset[str]:
        """The columns that are "yes" or absent."""
        return frozenset(c for c, kind in self._types.items() if kind is bool)

    @cached_property
    def word_columns(self) -> frozenset[str]:
        """The columns that are one string of words."""
        tuples = (c for c, kind in self._types.items() if get_origin(kind) is tuple and c not in self.lists)
        return frozenset((*self.words, *tuples))


_OF_BUILD, _OF_RELEASE = {"version", "label"}, {"release"}

PAGE_TABLES = {
    "indexes": Kind(model.IndexAddress, ("index",)),
    "pages": Kind(model.WheelPage, ("framework", "packages")),
    # wheels of pages that cannot be read everywhere, as documents list them
    "listed_wheels": Kind(model.ListedWheels, ("package", "url"), also=("source", "read")),
    "abis": Kind(model.CxxAbi, ("framework", "versions", "cuda", "platform")),
    "wheel_glibc": Kind(model.WheelGlibc, ("package", "versions"), also=("source", "read")),
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
    known = ("{minor}", "{digits}", "{cuda}", "{label}")
    if isinstance(rule, str) and (not any(n in rule for n in known) or all(n in rule for n in known[:2])):
        yield "local: expected {minor} or {digits}, the release of the framework, or only {cuda} or {label}"


SATELLITE_TABLES = {
    "satellites": Kind(model.Satellite, ("package", "version", "platform", "cuda"), lists=("needs",)),
    # a package whose releases are measured, one per series; `parts` is the count of numbers in a series
    "satellite_packages": Kind(None, ("package",), also=("package",), more=("parts",)),
    # the documented framework of releases whose metadata names none; `version` is a prefix. `cuda` is the release
    # ("13.0") that the package compares with the framework's when it is imported
    "satellite_frameworks": Kind(
        None,
        ("package", "version"),
        also=("package", "version", "built_for", "source", "read"),
        more=("cuda",),
    ),
    "satellite_optional": Kind(
        model.OptionalLibraries, ("package",), also=("source", "read"), into="optional_libraries"
    ),
    # the extras without which releases of a package lack libraries
    "satellite_extras": Kind(
        None,
        ("package", "versions"),
        also=("package", "versions", "extras", "source", "read"),
        words=("extras",),
    ),
    "traps": Kind(model.PackageTrap, ("package",), also=("read",)),
}


KINDS = {
    "builds": Kind(
        model.Build,
        ("framework", "version", "cuda", "platform", "index"),
        lists=("requires", "companions", "unresolvable"),
    ),
    "cudnn": Kind(model.CudnnRelease, ("package", "version", "platform"), lists=("libraries",)),
    "conda": Kind(
        model.CondaBuild, ("framework", "channel", "package", "device", "version", "build"), lists=("along",)
    ),
    "toolkits": Kind(model.ToolkitRelease, ("version",), lists=("parts",)),
    "compilers": Kind(model.CudaCompiler, ("cuda",), also=("source", "read")),
    "runtime_compilers": Kind(model.RuntimeCompiler, ("package",), also=("source", "read")),
    "pythons": Kind(model.PythonRelease, ("version",)),
    "gpus": Kind(model.GpuModel, ("capability",), lists=("boards",)),
    "cuda": Kind(model.CudaRelease, ("cuda",), also=("linux",)),
    **PAGE_TABLES,
    "imports": Kind(model.ImportName, ("module",)),
    "removed_names": Kind(model.RemovedNames, ("package", "since")),
    "conda_names": Kind(model.CondaName, ("conda",)),
    "system_libraries": Kind(model.SystemLibrary, ("soname",), also=("deb",)),
    "opened_libraries": Kind(model.DlopenedLibrary, ("package", "library")),
    "optional_libraries": Kind(model.OptionalLibraries, ("package",), also=("source",)),
    "replacements": Kind(model.Replacement, ("package",), also=("without",)),
    "majors": Kind(model.CudaMajor, ("major",)),
    "branches": Kind(model.DriverBranch, ("branch",)),
    # the CUDA and cuDNN that a release without pins was tested with; `version` is a prefix
    "tested": Kind(None, ("version",), also=("version", "cuda", "cudnn")),
    "known_bad": Kind(model.KnownBadRelease, ("package", "version", "gpu", "board", "driver", "companion")),
    "limits": Kind(model.CompanionLimit, ("package", "versions", "requires")),
    **SATELLITE_TABLES,
    "images": Kind(model.BaseImage, ("use", "image")),
    "causes": Kind(model.FailureCause, ("cause",)),
    "fixes": Kind(model.FailureFix, ("name",), lists=("steps", "wants", "lacks")),
    "signs": Kind(model.Sign, ("name",), lists=("says", "lacks")),
    "launchers": Kind(model.Launcher, ("command",), lists=("flags",)),
    "programs": Kind(model.KnownProgram, ("program",), lists=("says",)),
    "findings": Kind(model.FindingText, ("finding",)),
    "messages": Kind(model.FailureMessage, ("name",), lists=("says",)),
    "failures": Kind(model.FailureRule, ("name",), lists=("says", "wants", "lacks")),
    "catalogue": Kind(model.CatalogueMessage, ("name",), lists=("says", "causes", "absent", "lacks")),
}

for _name, _kind in KINDS.items():
    if _kind.cls and not _kind.into:
        KINDS[_name] = dataclasses.replace(_kind, into=_name)

FILES: dict[str, tuple[str, ...]] = {
    "drivers.yaml": ("cuda", "majors", "branches"),
    "gpus.yaml": ("gpus",),
    "cudnn.yaml": ("cudnn",),
    "pythons.yaml": ("pythons",),
    "toolkits.yaml": ("toolkits", "compilers", "runtime_compilers"),
    "torch.yaml": ("builds", "tested"),
    "tensorflow.yaml": ("builds", "tested"),
    "jax.yaml": ("builds",),
    "onnxruntime.yaml": ("builds", "tested"),
    "known_bad.yaml": ("known_bad", "limits"),
    "conda.yaml": ("conda",),
    "images.yaml": ("images",),
    "satellites.yaml": tuple(SATELLITE_TABLES),
    "indexes.yaml": tuple(PAGE_TABLES),
    "package_names.yaml": ("imports", "removed_names", "conda_names"),
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


class Table(Value):
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
