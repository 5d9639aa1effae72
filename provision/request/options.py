"""The options of the target, the choice and the sources: declared here for all commands that have them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..model.option import CHOICE, SOURCES, TARGET, option

if TYPE_CHECKING:
    from ..model import Target


STDIN = "-"
"""The value of --target that reads hosts from standard input."""


@dataclass(frozen=True, kw_only=True)
class Choices:
    """The options of target, choice and sources as they were given."""

    target: Path | None = option(
        None, help="JSON of `gpuenv detect` of another machine, or a target of gpuenv.yaml.",
        panel=TARGET, complete="targets",
    )  # fmt: skip
    driver: str | None = option(None, help="Driver version, as 535.129.03.", panel=TARGET)
    driver_os: str | None = option(None, help="linux or windows (WSL).", panel=TARGET)
    gpu: list[str] = option(
        list, help="Capability (9.0) or board (RTX 4090); repeatable.", panel=TARGET, complete="gpus"
    )
    gpus: str | None = option(None, help="Only these cards of this machine, as 0,2.", panel=TARGET)
    platform: str | None = option(
        None, help="linux-x86_64, linux-aarch64 or windows-x86_64.", panel=TARGET, complete="platforms"
    )
    glibc: str | None = option(None, help="glibc of the target, as 2.28.", panel=TARGET)
    python: str | None = option(None, help="Python version, as 3.11.", panel=TARGET)
    python_bounds: str = ""  # of gpuenv.yaml, as ">=3.9"
    framework: list[str] = option(
        list, "--framework", "-f", help="torch, tensorflow or jax, as 'torch>=2.6,<2.9'; repeatable.",
        panel=CHOICE, complete="frameworks",
    )  # fmt: skip
    with_: list[str] = option(
        list, "--with", help="A package to lock along, as torchvision; nvcc: the compiler.", panel=CHOICE
    )
    requirement: list[Path] = option(
        list, "--requirement", "-r", help="A requirements file to lock along; repeatable.", panel=CHOICE
    )
    project: Path | None = option(None, help="The folder of a pyproject.toml to take along.", panel=CHOICE)
    extra: list[str] = option(list, help="An extra of --project; repeatable.", panel=CHOICE)
    group: list[str] = option(list, help="A dependency group of --project; repeatable.", panel=CHOICE)
    cuda: str | None = option(None, help="CUDA of the build, as 12 or 12.6.", panel=CHOICE)
    index: str = option("auto", help="auto, pypi, pytorch or a URL.", panel=SOURCES)
    manager: str = option("venv", help="venv or conda.", panel=CHOICE, complete="managers")
    channel: list[str] = option(
        list, help="conda: a channel's name, address or folder; repeatable.", panel=SOURCES
    )
    device: str = option("auto", help="auto, cuda or cpu.", panel=CHOICE, complete="devices")
    find_links: list[str] = option(list, help="A folder of wheels; repeatable.", panel=SOURCES)
    offline: bool = option(False, help="No network: wheels at hand only.", panel=SOURCES)
    pre: bool = option(False, help="Pre-releases too.", panel=CHOICE)
    allow_old: bool = option(
        False, help="Take a release that is more than two years older than the newest one.", panel=CHOICE
    )
    no_build: bool = option(False, help="Run no build code: packages come as wheels, or not.", panel=SOURCES)
    only_binary: list[str] = option(
        list, help="Never build PKG from source; :all: for every package; repeatable.",
        panel=SOURCES, metavar="PKG",
    )  # fmt: skip
    exclude_newer: str | None = option(
        None, help="No file uploaded after it, as 2026-01-31 or '7 days'; kept in the lock. false: no limit.",
        panel=SOURCES, metavar="DATE|DURATION",
    )  # fmt: skip
    exclude_newer_except: list[str] = option(
        list, help="pypi, pytorch or the URL of an index that states no upload times; repeatable.",
        panel=SOURCES, metavar="INDEX",
    )  # fmt: skip
    profiles: list[Path] = option(list, help="Profiles laid over gpuenv's own.", panel=SOURCES)
    cache_dir: Path | None = option(None, help="Cache of gpuenv and of the installer.", panel=SOURCES)
    # What only gpuenv.yaml says: its path where it was read, the name of its target, its indexes.
    config: Path | None = None
    target_name: str | None = None
    indexes: dict[str, str] = field(default_factory=dict)
    bundle: Path | None = None
    dependencies_only: bool = False  # of gpuenv.yaml: project: {path: ., install: false}
    # The options of command lines alone, as an environment records them.
    given: dict[str, Any] = field(default_factory=dict)
    # The machine that an environment or a lock was made for: judged in place of this one.
    planned: Target | None = None
    # The options that the command line names, also those with their default value.
    named: frozenset[str] = field(default=frozenset(), compare=False)

    @property
    def elsewhere(self) -> bool:
        """Whether the options describe another machine than this one."""
        return bool(self.target or self.driver or self.gpu or self.planned)

    def asked(self) -> frozenset[str]:
        """Return the options that the caller decides: those named, and those that differ from their default."""
        default = Choices()
        names = [f.name for f in dataclasses.fields(self) if f.name != "named"]
        return self.named | {n for n in names if getattr(self, n) != getattr(default, n)}
