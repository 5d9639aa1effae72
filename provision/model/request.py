"""Requests of a user or a project, their target, and the sources of packages."""

import dataclasses
import shlex
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from .machine import Machine, Target
from .values import Value
from .words import CheckKind, Device, Manager, normalize_name

if TYPE_CHECKING:
    from .catalog import Profiles


class FrameworkRequest(Value):
    """A requested framework, with its version bounds in PEP 440 form ("" for any)."""

    name: str
    specifier: str = ""


class VersionBound(Value):
    """A bound on a framework from a project's file: PEP 440, without local labels.

    `origin` is its place ("requirements.txt line 4"). `pythons` are the minor versions for which its marker holds, or
    none for a bound that holds for all.
    """

    name: str
    specifier: str
    origin: str
    pythons: tuple[str, ...] = ()

    def holds_for(self, python: str | None) -> bool:
        """Return whether the bound holds for a Python. It does where the Python is unknown."""
        return not self.pythons or python is None or python in self.pythons


PROJECT_FOLDER = "the project's folder"
"""The origin of the requirement of the project itself."""


class RequirementLine(Value):
    """A requirement of a project's file that the solver handles.

    `text` is PEP 508 with absolute paths, and markers and extras as written. `name` is None if only the file at an
    address states it. `hashes` are the required ones ("sha256:..."). `local` is the path of a folder. `vcs` is an
    address such as git+https://... . `constraint` marks a line of a -c file. An `override` is a constraint that
    replaces every requirement of its name. `index` is the address of the only index for the package, as written,
    possibly with credentials. A folder is `stated` if its requirements are further lines, and uv must not read them:
    it would follow sources that name another index of a framework than the plan does.
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
    stated: bool = False

    @property
    def package(self) -> str:
        """The name in normal form, or "" if only the file states it."""
        return normalize_name(self.name or "")

    @property
    def is_direct(self) -> bool:
        """Whether it names a folder, a commit or an address, and no release on an index."""
        return bool(self.local or self.vcs or "@" in self.text.partition(";")[0])


class CpuOnlyFramework(Value):
    """A framework of which a project's files name only the CPU build, such as jax without extras.

    `names` are the packages with their origins, and `lines` those for the solver. `as_framework` are the
    sentences of `ProjectRequirements.left_out` that are true only if the framework is planned.
    """

    framework: str
    names: tuple[str, ...]
    lines: tuple[RequirementLine, ...]
    as_framework: tuple[str, ...] = ()


class ProjectRequirements(Value):
    """The requirements of a project's files.

    These are the named frameworks, the place that names each first, their bounds, the requirements for the solver, and the addresses of sources as
    written, possibly with credentials. `left_out` are lines that the plan decides (nvidia-*, triton, plugins), each
    with its origin. `stack` are the lines of `left_out` that name a package. `files` are the absolute paths of every
    file read. `missing` are sentences on included files that do not exist. `cpu` are the `frameworks` of which only
    the CPU build is named. `computed` is the place of code that computes the project's requirements: only a build tells them.
    """

    frameworks: tuple[str, ...] = ()
    origins: tuple[tuple[str, str], ...] = ()
    bounds: tuple[VersionBound, ...] = ()
    lines: tuple[RequirementLine, ...] = ()
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
    computed: str | None = None


class Check(Value):
    """A module to import, a command to run, or a built-in check.

    `subject` is the module, the command line (run without a shell), or the framework of `compile`. `timeout` is in
    seconds.
    """

    kind: CheckKind
    subject: str
    name: str | None = None
    timeout: float | None = None

    @property
    def label(self) -> str:
        """Return the name of the check, or a description of it."""
        return self.name or (self.subject if self.kind == "run" else f"{self.kind} {self.subject}")

    @property
    def command(self) -> tuple[str, ...]:
        """Return the words of the command line."""
        return tuple(shlex.split(self.subject))


class ProjectTarget(Value):
    """A named target of gpuenv.yaml: `file` (the JSON of detect), or a description of the machine.

    `python`, `cuda`, `device` and `manager` replace those of the project.
    """

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


class ProjectConfig(Value):
    """The content of gpuenv.yaml. Paths are as written, relative to the file's folder.

    `project` is the folder of a pyproject.toml to include, with its `extras` and `groups`. `install` says whether the
    project is installed, or only its dependencies. `packages` are PEP 508 requirements (`gpuenv add` writes them).
    `indexes` replaces addresses: "pypi", "pytorch". `checks` run last in `verify`. `guard` says whether later installs of other tools must
    keep the frameworks.
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
    guard: bool = True


class Request(Value):
    """A user's request.

    `pythons` are the allowed minor versions, best first. An empty tuple allows any version that a build supports.
    `python` is the required one. `cuda` is a prefix ("12" or "12.6"). `index` is auto, pypi, pytorch or a URL.
    `device` is "cuda" or "cpu" when `resolve` gets it. `file` is the project's file that names the frameworks, None for
    options.

    `packages` are companions and other packages to lock, as PEP 508 requirements. `stack` are lines of the project's
    files on packages that the plan decides, such as NVIDIA's. `along` are the names of the project's other
    requirements. `bounds` are its bounds on frameworks, and `requires_python` on the Python, from the file
    `python_origin`.
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
    file: str | None = None


class AvailableWheel(Value):
    """An available wheel file. `tags` are its expanded tags ("cp312-cp312-manylinux_2_28_x86_64")."""

    name: str
    version: str
    url: str
    tags: tuple[str, ...]


class AvailableWheels(Value):
    """The wheels that are available.

    `only_wheels` is set offline and with a bundle, and means that no other wheels exist. `unreachable` are the
    indexes that did not answer.
    """

    wheels: tuple[AvailableWheel, ...] = ()
    only_wheels: bool = False
    unreachable: tuple[str, ...] = ()


class PackageSources(Value):
    """The sources of packages: the user's pip and uv configuration, with the options on top.

    `default` None means the installer's default index. `pytorch` is the base address of the PyTorch index. URLs may
    have credentials, which only the installer's environment gets. `timeout` is in seconds. `trusted` are hosts whose
    certificate is not checked. `no_build` forbids builds of source code, and `only_binary` does for some packages
    (":all:" for every one). `no_code` forbids a solve to run any, and leaves out the packages that need it.

    `exclude_newer` is a time in uv's form. A solve ignores files uploaded later, except on the indexes of
    `exclude_newer_except`. `explicit` are indexes for single packages. A solve uses them only for those packages, and
    a lock's files are fetched from them by hash.

    `uv` is the configuration of uv as its variables, read once (`index.config`), with credentials as well.

    `pages` are the index pages that were read in this run, by address, or None for a missing page. So each page is read once in a run.
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
    no_code: bool = False
    explicit: tuple[str, ...] = ()
    uv: Mapping[str, str] = field(
        default_factory=dict, repr=False, compare=False, metadata={"internal": True}
    )
    pages: dict[str, tuple[str, bytes]] = field(
        default_factory=dict, repr=False, compare=False, metadata={"internal": True}
    )


_NO_REQUIREMENTS = ProjectRequirements()


class RequestContext(Value):
    """The input of the stages: the request, its target, and the sources of packages.

    `machine` is None if the options describe another machine. `reason` says why the request has its device.
    `pythons_known` says that the request names the Pythons of this machine.

    `targets` are those of several machines for one plan. `target` is then their oldest driver and glibc with all
    their GPUs.
    """

    request: Request
    target: Target
    machine: Machine | None
    profiles: "Profiles"
    available: AvailableWheels
    sources: PackageSources
    reason: str = ""
    pythons_known: bool = False
    requirements: ProjectRequirements = _NO_REQUIREMENTS
    channels: tuple[str, ...] = ()
    targets: tuple[Target, ...] = ()

    def with_request(self, **changes: Any) -> "RequestContext":
        """Return the context with a changed request. Other `pythons` are no longer those of this machine."""
        known = self.pythons_known and "pythons" not in changes
        return dataclasses.replace(
            self, request=dataclasses.replace(self.request, **changes), pythons_known=known
        )
