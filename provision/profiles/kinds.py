"""Which tables the profile files hold, and how a row of each maps to a value of the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from provision import model

Row = dict[str, Any]

TABLE_KEYS = ("table", "framework", "source", "read", "kept", "note")
ROW_EXTRA = ("source", "read", "note")


@dataclass(frozen=True, kw_only=True, slots=True)
class Tested:
    """What documents say that a release without pins was tested with; `version` is a prefix."""

    version: str
    cuda: str
    cudnn: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Floor:
    """The oldest drivers that documents give for all packages of one CUDA major."""

    cuda: str
    driver_linux: str
    driver_windows: str


class Kind(NamedTuple):
    """How one kind of table maps to a class: `words` are fields written as one string of words,
    `lists` as a list of strings, `flags` as "yes" or absent; `key` tells rows apart. `into` is the field of
    Profiles; a kind without one is read by scripts/update_profiles.py only, which joins what documents
    say to what it measures."""

    cls: type[Any]
    into: str
    key: tuple[str, ...]
    required: tuple[str, ...]
    words: tuple[str, ...] = ()
    lists: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


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
    "gpus": Kind(
        model.GpuModel,
        "gpus",
        ("capability",),
        ("capability", "generation"),
        lists=("boards",),
        flags=("tegra",),
    ),
    "cuda": Kind(model.CudaRelease, "cuda", ("cuda",), ("cuda", "linux")),
    "indexes": Kind(model.IndexAddress, "indexes", ("index",), ("index", "url")),
    "pages": Kind(
        model.WheelPage,
        "pages",
        ("framework", "packages"),
        ("packages", "url"),
        words=("packages",),
    ),
    "imports": Kind(
        model.ImportName, "imports", ("module",), ("module", "package"), words=("also",), flags=("common",)
    ),
    "conda_names": Kind(model.CondaName, "conda_names", ("conda",), ("conda",)),
    "majors": Kind(model.CudaMajor, "majors", ("major",), ("major", "linux", "windows")),
    "branches": Kind(model.DriverBranch, "branches", ("branch",), ("branch", "cuda")),
    "tested": Kind(Tested, "", ("version",), ("version", "cuda", "cudnn")),
    "floors": Kind(Floor, "", ("cuda",), ("cuda", "driver_linux", "driver_windows")),
    "known_bad": Kind(
        model.KnownBad,
        "known_bad",
        ("package", "version"),
        ("package", "version", "effect", "why", "source"),
    ),
    "images": Kind(model.Image, "images", ("use", "image"), ("use", "image"), words=("platform", "apt")),
    "causes": Kind(
        model.FailureCause,
        "causes",
        ("cause",),
        ("cause", "layer", "title", "fix", "decides"),
        flags=("about_gpu",),
    ),
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
}

FILES: dict[str, tuple[str, ...]] = {
    "drivers.yaml": ("cuda", "majors", "branches"),
    "gpus.yaml": ("gpus",),
    "cudnn.yaml": ("cudnn", "floors"),
    "toolkits.yaml": ("toolkits",),
    "torch.yaml": ("builds", "tested"),
    "tensorflow.yaml": ("builds", "tested"),
    "jax.yaml": ("builds",),
    "known_bad.yaml": ("known_bad",),
    "conda.yaml": ("conda",),
    "images.yaml": ("images",),
    "indexes.yaml": ("indexes", "pages"),
    "package_names.yaml": ("imports", "conda_names"),
    "failures.yaml": ("causes", "messages", "failures"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """A table as its file has it: `head` are its scalars, `rows` its rows as plain data, and
    `lines` the 1-based line of each row (empty for a table that was not read from a file)."""

    head: dict[str, str]
    rows: tuple[Row, ...]
    lines: tuple[int, ...] = ()
