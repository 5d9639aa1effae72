"""What is wanted, by a user or a project, and what is to be had."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from provision.model.checks import Check
from provision.model.package_sets import PassedOverBuild
from provision.model.shared_words import Device, Manager


@dataclass(frozen=True, kw_only=True, slots=True)
class FrameworkRequest:
    """A framework asked for, with its version bounds in PEP 440 form ("" for any)."""

    name: str
    specifier: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class VersionBound:
    """A bound that a project's file puts on a framework: PEP 440, without local labels, and where it
    stands ("requirements.txt line 4")."""

    name: str
    specifier: str
    origin: str


PROJECT_FOLDER = "the project's folder"
"""The origin of the need for the project itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RequirementLine:
    """A requirement of a project's file that is left to the solver.

    `text` is PEP 508 with absolute paths, markers and extras as written; `name` is None where only the
    file behind an address knows it. `hashes` are those that the file insists on ("sha256:..."), `local`
    marks a folder (its path), `vcs` an address like git+https://..., `constraint` a line of a -c file. An
    `override` is a constraint that replaces every requirement of its name. `index` is the address of the only
    index that has the package (as written: credentials!).
    """

    text: str
    origin: str
    name: str | None = None
    hashes: tuple[str, ...] = ()
    local: str | None = None
    editable: bool = False
    vcs: bool = False
    constraint: bool = False
    override: bool = False
    index: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CpuOnlyFramework:
    """A framework of which a project's files name the CPU build alone, as jax without extras.

    `names` are the packages with their origins, `needs` the lines for the solver. `as_framework` are the sentences
    of `ProjectRequirements.left_out` that are true only where the framework is planned.
    """

    framework: str
    names: tuple[str, ...]
    needs: tuple[RequirementLine, ...]
    as_framework: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ProjectRequirements:
    """What a project's files ask for: the frameworks that they name, their bounds, what is left to the
    solver, and where the files say that packages come from (addresses as written: credentials!).

    `left_out` are lines that the plan decides (nvidia-*, triton, plugins), each with its origin; `files`
    are the absolute paths of every file read. `missing` are sentences on included files that do not exist.
    `cpu` are those of `frameworks` of which only the CPU build is named. `stack` are the lines of `left_out` that
    name a package.
    """

    frameworks: tuple[str, ...] = ()
    bounds: tuple[VersionBound, ...] = ()
    needs: tuple[RequirementLine, ...] = ()
    requires_python: str = ""
    python_origin: str | None = None
    index_url: str | None = None
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    exclude_newer: str | None = None
    pre: bool = False
    left_out: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    cpu: tuple[CpuOnlyFramework, ...] = ()
    stack: tuple[RequirementLine, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ProjectTarget:
    """A named target of gpuenv.yaml: `file` (the JSON of detect) or the target's own words. `python`,
    `cuda`, `device` and `manager` take the place of the project's own for it."""

    file: str | None = None
    driver: str | None = None
    driver_os: str | None = None
    gpus: tuple[str, ...] = ()
    platform: str | None = None
    glibc: str | None = None
    python: str | None = None
    cuda: str | None = None
    device: str | None = None
    manager: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ProjectConfig:
    """gpuenv.yaml: what a project asks for. Paths are as written, relative to the file's folder.

    `project` is the folder of a pyproject.toml to take along with its `extras` and `groups`, and `install` says
    whether it is installed or only its dependencies are; `packages` are PEP 508 requirements (`gpuenv add` writes them); `indexes` replaces addresses: "pypi", "pytorch". `checks` are
    what `verify` tries last.
    """

    frameworks: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()
    project: str | None = None
    install: bool = True
    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    python: str | None = None
    manager: str | None = None
    device: str | None = None
    cuda: str | None = None
    index: str | None = None
    indexes: dict[str, str] = dataclasses.field(default_factory=dict)
    find_links: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    targets: dict[str, ProjectTarget] = dataclasses.field(default_factory=dict)
    checks: tuple[Check, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What the user asked for.

    `pythons` are the minor versions that may be used, best first; empty means any that a build
    supports. `python` is one the user insists on. `cuda` is a prefix ("12" or "12.6"). `index`
    is auto, pypi, pytorch or a URL. `device` is already "cuda" or "cpu" when resolve sees it.
    `packages` are companions and other packages to be locked along, as PEP 508 requirements.
    `stack` are lines of the project's files on packages that the plan decides, as NVIDIA's.
    `along` are the names of what the project's files ask for beside frameworks, `bounds` are what they say
    of frameworks, `requires_python` (with `python_origin`, where it is written) of the Python. `passed_over` are
    builds that fit and do not go with the packages that were named; `pins` are the releases of those.
    """

    frameworks: tuple[FrameworkRequest, ...]
    packages: tuple[str, ...] = ()
    stack: tuple[RequirementLine, ...] = ()
    along: tuple[str, ...] = ()
    bounds: tuple[VersionBound, ...] = ()
    requires_python: str = ""
    python_origin: str | None = None
    cuda: str | None = None
    index: str = "auto"
    manager: Manager = "venv"
    device: Device = "auto"
    python: str | None = None
    pythons: tuple[str, ...] = ()
    pre: bool = False
    passed_over: tuple[PassedOverBuild, ...] = ()
    pins: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class AvailableWheel:
    """A wheel file at hand: `tags` are its expanded "cp312-cp312-manylinux_2_28_x86_64" tags."""

    name: str
    version: str
    url: str
    tags: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class AvailableWheels:
    """What is to be had. `only_wheels` is set offline and with a bundle: then the wheels are all
    there is. `unreachable` names the indexes that did not answer."""

    wheels: tuple[AvailableWheel, ...] = ()
    only_wheels: bool = False
    unreachable: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageSources:
    """Where packages come from: the user's pip and uv configuration with the options laid over it.

    `default` None means the installer's own default index. `pytorch` is the base address of the
    PyTorch index. URLs may carry credentials: they reach the installer's environment and nothing
    else. `timeout` is in seconds, `trusted` are hosts whose certificate is not looked at. `no_build` forbids that
    source code is built, `only_binary` for these packages (":all:" for every one). `exclude_newer` is a time in
    uv's form: a solve takes no file that was uploaded after it, but from the indexes of `exclude_newer_except`.
    `explicit` are indexes for single packages: a solve asks them for those alone, and a lock's files are fetched
    from them by hash.
    """

    default: str | None = None
    extra: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    pytorch: str = ""
    cert: str | None = None
    proxy: str | None = None
    timeout: float | None = None
    trusted: tuple[str, ...] = ()
    no_index: bool = False
    offline: bool = False
    cache_dir: str | None = None
    exclude_newer: str | None = None
    exclude_newer_except: tuple[str, ...] = ()
    no_build: bool = False
    only_binary: tuple[str, ...] = ()
    explicit: tuple[str, ...] = ()
