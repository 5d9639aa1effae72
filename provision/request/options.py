"""The options that commands share, each defined once, and how they become values."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..cli import completing

if TYPE_CHECKING:
    from ..model import Target

TARGET = "Target"
CHOICE = "Choice"

Env = Annotated[
    Path,
    typer.Argument(
        help="Path of the environment.", show_default=True, autocompletion=completing.environments
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
JsonOfRun = Annotated[
    bool,
    typer.Option(
        "--json", help="One JSON document on standard output; what CMD writes goes to standard error."
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, results only.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Also notes, versions, logs.")]

TargetFile = Annotated[
    Path | None,
    typer.Option(
        "--target",
        help="JSON of `gpuenv detect` of another machine, or a target of gpuenv.yaml.",
        rich_help_panel=TARGET,
        autocompletion=completing.targets,
    ),
]
Driver = Annotated[
    str | None, typer.Option("--driver", help="Driver version, as 535.129.03.", rich_help_panel=TARGET)
]
DriverOs = Annotated[
    str | None, typer.Option("--driver-os", help="linux or windows (WSL).", rich_help_panel=TARGET)
]
GpuNames = Annotated[
    list[str] | None,
    typer.Option("--gpu", help="Capability (9.0) or board (RTX 4090); repeatable.", rich_help_panel=TARGET),
]
GpuIndexes = Annotated[
    str | None,
    typer.Option("--gpus", help="Only these cards of this machine, as 0,2.", rich_help_panel=TARGET),
]
Platform = Annotated[
    str | None,
    typer.Option("--platform", help="linux-x86_64, linux-aarch64 or windows-x86_64.", rich_help_panel=TARGET),
]
Glibc = Annotated[
    str | None, typer.Option("--glibc", help="glibc of the target, as 2.28.", rich_help_panel=TARGET)
]
PythonVersion = Annotated[
    str | None, typer.Option("--python", help="Python version, as 3.11.", rich_help_panel=TARGET)
]

Frameworks = Annotated[
    list[str] | None,
    typer.Option(
        "--framework", "-f", help="torch, tensorflow or jax, as 'torch>=2.6,<2.9'; repeatable.",
        rich_help_panel=CHOICE, autocompletion=completing.frameworks,
    ),
]  # fmt: skip
With = Annotated[
    list[str] | None,
    typer.Option("--with", help="A package to lock along, as torchvision.", rich_help_panel=CHOICE),
]
Requirements = Annotated[
    list[Path] | None,
    typer.Option(
        "--requirement", "-r", help="A requirements file to lock along; repeatable.", rich_help_panel=CHOICE
    ),
]
ProjectDir = Annotated[
    Path | None,
    typer.Option("--project", help="The folder of a pyproject.toml to take along.", rich_help_panel=CHOICE),
]
Extras = Annotated[
    list[str] | None,
    typer.Option("--extra", help="An extra of --project; repeatable.", rich_help_panel=CHOICE),
]
Groups = Annotated[
    list[str] | None,
    typer.Option("--group", help="A dependency group of --project; repeatable.", rich_help_panel=CHOICE),
]
Cuda = Annotated[
    str | None, typer.Option("--cuda", help="CUDA of the build, as 12 or 12.6.", rich_help_panel=CHOICE)
]
Index = Annotated[str, typer.Option("--index", help="auto, pypi, pytorch or a URL.", rich_help_panel=CHOICE)]
ManagerName = Annotated[str, typer.Option("--manager", help="venv or conda.", rich_help_panel=CHOICE)]
Channels = Annotated[
    list[str] | None,
    typer.Option(
        "--channel", help="conda: a channel's name, address or folder; repeatable.", rich_help_panel=CHOICE
    ),
]
DeviceName = Annotated[str, typer.Option("--device", help="auto, cuda or cpu.", rich_help_panel=CHOICE)]
FindLinks = Annotated[
    list[str] | None,
    typer.Option("--find-links", help="A folder of wheels; repeatable.", rich_help_panel=CHOICE),
]
Offline = Annotated[
    bool, typer.Option("--offline", help="No network: wheels at hand only.", rich_help_panel=CHOICE)
]
BundleDir = Annotated[
    Path | None,
    typer.Option("--bundle", help="Install from a folder that `gpuenv bundle` made; no network."),
]
NoBuild = Annotated[
    bool,
    typer.Option(
        "--no-build", help="Run no build code: packages come as wheels, or not.", rich_help_panel=CHOICE
    ),
]
OnlyBinary = Annotated[
    list[str] | None,
    typer.Option(
        "--only-binary", metavar="PKG", help="Never build PKG from source; :all: for every package; repeatable.",
        rich_help_panel=CHOICE,
    ),
]  # fmt: skip
Force = Annotated[
    bool, typer.Option("--force", help="Replace files that gpuenv did not write, or that were edited since.")
]
AllowMd5 = Annotated[bool, typer.Option("--allow-md5", help="conda: take locks that carry md5 alone.")]
ExcludeNewer = Annotated[
    str | None,
    typer.Option(
        "--exclude-newer", metavar="DATE|DURATION", rich_help_panel=CHOICE,
        help="No file uploaded after it, as 2026-01-31 or '7 days'; kept in the lock. false: no limit.",
    ),
]  # fmt: skip
ExcludeNewerExcept = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude-newer-except", metavar="INDEX", rich_help_panel=CHOICE,
        help="pypi, pytorch or the URL of an index that states no upload times; repeatable.",
    ),
]  # fmt: skip
Pre = Annotated[bool, typer.Option("--pre", help="Pre-releases too.", rich_help_panel=CHOICE)]
ProfileDirs = Annotated[
    list[Path] | None,
    typer.Option("--profiles", help="Profiles laid over gpuenv's own.", rich_help_panel=CHOICE),
]
CacheDir = Annotated[
    Path | None,
    typer.Option("--cache-dir", help="Cache of gpuenv and of the installer.", rich_help_panel=CHOICE),
]


@dataclass(frozen=True, kw_only=True)
class Choices:
    """All target and choice options as they were given."""

    target: Path | None = None
    driver: str | None = None
    driver_os: str | None = None
    gpu: list[str] = field(default_factory=list)
    gpus: str | None = None
    platform: str | None = None
    glibc: str | None = None
    python: str | None = None
    python_bounds: str = ""  # of gpuenv.yaml, as ">=3.9"
    framework: list[str] = field(default_factory=list)
    with_: list[str] = field(default_factory=list)
    requirement: list[Path] = field(default_factory=list)
    project: Path | None = None
    extra: list[str] = field(default_factory=list)
    group: list[str] = field(default_factory=list)
    cuda: str | None = None
    index: str = "auto"
    manager: str = "venv"
    channel: list[str] = field(default_factory=list)
    device: str = "auto"
    find_links: list[str] = field(default_factory=list)
    offline: bool = False
    pre: bool = False
    no_build: bool = False
    only_binary: list[str] = field(default_factory=list)
    exclude_newer: str | None = None
    exclude_newer_except: list[str] = field(default_factory=list)
    profiles: list[Path] = field(default_factory=list)
    cache_dir: Path | None = None
    # What only gpuenv.yaml says: its path where it was read, the name of its target, its indexes.
    config: Path | None = None
    target_name: str | None = None
    indexes: dict[str, str] = field(default_factory=dict)
    bundle: Path | None = None
    # The options of command lines alone, as an environment records them.
    given: dict[str, Any] = field(default_factory=dict)
    # The machine that an environment or a lock was made for: judged in place of this one.
    planned: Target | None = None

    @property
    def elsewhere(self) -> bool:
        """Whether the options describe another machine than this one."""
        return bool(self.target or self.driver or self.gpu or self.planned)


def said(context: typer.Context) -> frozenset[str]:
    """The options that a command line names, also with the value that they have without it."""
    source = context.get_parameter_source
    return frozenset(
        name for name in Choices.__dataclass_fields__ if getattr(source(name), "name", "") == "COMMANDLINE"
    )


def choices(given: dict[str, Any]) -> Choices:
    """The `Choices` among a command's parameters; lists that were not given become empty."""
    known = {name: given[name] for name in Choices.__dataclass_fields__ if name in given}
    lists = ("gpu", "framework", "with_", "find_links", "profiles", "channel",
             "requirement", "extra", "group", "only_binary", "exclude_newer_except")  # fmt: skip
    plain: dict[str, Any] = {k: list(v or []) if k in lists else v for k, v in known.items()}
    return Choices(**plain)
