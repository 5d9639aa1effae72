"""The nouns of gpuenv: frozen values that the six stages hand to each other.

Read this file first. Nothing here does I/O. Field names are the names in the JSON documents
(`as_document`), unknown is None, and what can be many is a tuple, never None. Versions are
strings as their makers print them ("580.159.04", "9.10.2.21"); comparing is the reader's work.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar, Union

Device = Literal["auto", "cuda", "cpu"]
Manager = Literal["venv", "conda"]
Status = Literal["pass", "warn", "fail", "skip"]
Confidence = Literal["certain", "likely", "possible"]
Outcome = Literal["works", "cpu", "wrong", "fails"]

FRAMEWORKS = ("torch", "tensorflow", "jax")
PLATFORMS = ("linux-x86_64", "linux-aarch64", "windows-x86_64")
NVIDIA_LIBRARY_FAMILIES = ("libcudnn", "libcublas", "libcudart", "libnvrtc", "libnvJitLink")


# --- what a machine is ---------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetGpu:
    """A GPU that a plan must serve: compute capability "9.0", board name where known."""

    capability: str
    name: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """The machine an environment is meant for, as far as a plan depends on it.

    `driver` None means no limit by the driver; no `gpus` means no limit by GPUs.
    `driver_os` is "windows" in WSL, where driver numbers and floors are those of Windows.
    `forward_compat` is the CUDA that a cuda-compat libcuda speaks, where one is in use.
    """

    SCHEMA: ClassVar[str] = "gpuenv.target/1"

    platform: str
    glibc: str | None = None
    driver: str | None = None
    driver_os: str | None = None
    driver_cuda: str | None = None
    gpus: tuple[TargetGpu, ...] = ()
    forward_compat: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """One physical GPU of this machine. `index` is NVML's, `memory_mib` the whole memory in MiB,
    `mig` the UUIDs of its MIG devices (empty when MIG is off)."""

    index: int
    name: str | None = None
    capability: str | None = None
    uuid: str | None = None
    memory_mib: int | None = None
    mig: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Driver:
    """Versions of the user-mode driver library and of the kernel module: they must be equal.

    `source` says who told: nvml, libcuda, proc, sys or nvidia-smi. `libcuda` is the file that
    the loader finds for libcuda.so.1, `problem` why the driver cannot be used (None when it can).
    """

    library: str | None = None
    kernel_module: str | None = None
    cuda: str | None = None
    source: str | None = None
    libcuda: str | None = None
    problem: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """Where gpuenv runs. `container` is a kind ("docker", "podman", "kubernetes", "apptainer",
    "other"), `slurm` is "login" or "job"."""

    container: str | None = None
    wsl: bool = False
    colab: bool = False
    slurm: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Hardware:
    """A display or accelerator device seen on the PCI bus, or a board recognised otherwise."""

    vendor: str
    address: str
    device: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Python:
    """A CPython found on this machine. `source`: path, pyenv, uv, conda or system."""

    path: str
    version: str
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Library:
    """A cuDNN or CUDA file. `owner` is the distribution whose file it is, `inside` whether it
    lies in the environment judged (None where no environment is)."""

    soname: str
    path: str
    version: str | None = None
    owner: str | None = None
    inside: bool | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """Words that show something: where they stand (`source`), at which line (1-based)."""

    text: str
    source: str | None = None
    line: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A cause (a label of the taxonomy), what shows it, and what to do about it."""

    cause: str
    title: str
    evidence: tuple[Evidence, ...] = ()
    fix: str | None = None
    confidence: Confidence = "likely"


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """What `detect` saw of this machine; parts that were not asked for stay empty."""

    SCHEMA: ClassVar[str] = "gpuenv.machine/1"

    target: Target
    driver: Driver = Driver()
    gpus: tuple[Gpu, ...] = ()
    context: Context = Context()
    hardware: tuple[Hardware, ...] = ()
    pythons: tuple[Python, ...] = ()
    libraries: tuple[Library, ...] = ()
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Holder:
    """A process that holds GPU memory. `gpu` is NVML's index, None where only its open device file is
    known; `framework` is one that reserves nearly the whole GPU by itself (jax, tensorflow)."""

    pid: int
    gpu: int | None = None
    memory_mib: int | None = None
    name: str | None = None
    framework: str | None = None


# --- what is known: rows of profiles/*.yaml --------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Build:
    """One framework build on one index for one platform; the key is (framework, version, cuda,
    platform, index).

    `version` is the public version, `local` the local label that the wheel carries ("cu130",
    "cpu"; None on the default index). `cuda` is what it was built with ("12.8"), None for a CPU
    build. `python` are the minor versions with a wheel, `kernels` are written as in
    TORCH_CUDA_ARCH_LIST ("7.0", "9.0+PTX"). `cudnn` is a PEP 440 specifier ("==9.10.2.21",
    ">=9.8.0,<10"). `requires` are all nvidia-*, cuda-*, triton and plugin requirements, their
    markers already judged for the platform. `companions` are exact or bounded requirements of
    the packages that go with it ("torchvision==0.25.0"). `unresolvable` says which Pythons
    cannot take the build's requirements, and why ("3.11: tensorrt 8.5.3.1 has no wheel").
    `searched` are the folders of nvidia/ whose libraries a TensorFlow finds by itself ("cudnn").
    """

    framework: str
    version: str
    cuda: str | None
    platform: str
    index: str
    python: tuple[str, ...]
    glibc: str | None = None
    kernels: tuple[str, ...] = ()
    cudnn: str | None = None
    requires: tuple[str, ...] = ()
    companions: tuple[str, ...] = ()
    local: str | None = None
    yanked: bool = False
    unresolvable: tuple[str, ...] = ()
    searched: tuple[str, ...] = ()
    sha256: str | None = None
    bytes: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CondaBuild:
    """How one framework is called in a conda channel, for one device ("cuda" or "cpu").

    `build` is a pattern of build strings ("*cuda*"); `along` are packages that are asked for with
    it, in the same version. A row with a `version` describes builds that say nothing else of the
    CUDA and the cuDNN (a PEP 440 specifier) that they were made with; where the row says nothing,
    the packages `cuda-version` and `cudnn` that the solver takes along do.
    """

    framework: str
    channel: str
    package: str
    device: str
    build: str
    version: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    along: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class CudnnRelease:
    """One cuDNN release for one CUDA major on one platform: the package and version on the index,
    the oldest glibc, the capabilities it has kernels for (as `Build.kernels`), its sublibraries
    (sonames), and the oldest drivers."""

    package: str
    version: str
    cuda: str
    platform: str
    glibc: str | None = None
    kernels: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    driver_linux: str | None = None
    driver_windows: str | None = None
    yanked: bool = False
    sha256: str | None = None
    bytes: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolkitRelease:
    """A release of NVIDIA's `cuda-toolkit` package: `parts` are an extra and what it brings,
    "cufft nvidia-cufft==12.0.0.61.* nvidia-nvjitlink<14,>=13.0.88"."""

    version: str
    parts: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuModel:
    """A compute capability: its generation, boards, the CUDA releases that know it (`last_cuda`
    None while current), the first and last driver branch ("470"; None while current or unknown),
    and whether it is a Tegra part, which runs kernels made for itself only."""

    capability: str
    generation: str
    boards: tuple[str, ...] = ()
    first_cuda: str | None = None
    last_cuda: str | None = None
    first_driver: str | None = None
    last_driver: str | None = None
    tegra: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class CudaRelease:
    """A CUDA release ("12.8") and the oldest driver that speaks it natively, per driver OS."""

    cuda: str
    linux: str | None
    windows: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CudaMajor:
    """A CUDA major with minor-version compatibility, and the oldest driver for any of it."""

    major: str
    linux: str
    windows: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DriverBranch:
    """A driver branch ("580") and the CUDA that its libcuda speaks ("13.0")."""

    branch: str
    cuda: str


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownBad:
    """A release with a public issue against it. `effect` is refuse, or avoid: never taken where
    another version fits, a warning where a wheel pins it."""

    package: str
    version: str
    effect: str
    why: str
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FailureCause:
    """A root cause: its layer ("1" is the lowest, the driver), what it is called, what to do about it,
    and `decides`: the evidence that would prove it, with the command that finds it. In `title` and
    `fix`, {name} is a fact, and a part in [[double brackets]] is left out where its fact is unknown."""

    cause: str
    layer: str
    title: str
    fix: str
    decides: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FailureMessage:
    """What programs print, or people write, of one meaning: patterns (`says`), one of which must
    stand in the text. `example` is one such line, `source` where it is printed."""

    name: str
    says: tuple[str, ...]
    example: str
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FailureRule:
    """What a text means: any of `says` stands in it (patterns, or "@name" of a message), all of
    `wants` hold and none of `lacks`: names of messages, or facts ("torch==1.8.0", "os=windows").

    `weight` ("1" to "100") orders causes that the same words allow; `confidence` is certain only
    where the words prove the cause. `title` and `fix` stand in place of the cause's own."""

    name: str
    cause: str
    says: tuple[str, ...]
    example: str
    source: str
    confidence: str
    weight: str
    wants: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    title: str | None = None
    fix: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """What an export starts from. `use`: "container" or "devcontainer" (an image), "runner" (a label of
    a CI machine) or "action" (a step of a CI).

    `python` is the minor version that it brings, `apt` what must be installed for it first. `cuda` and
    `cudnn` (a PEP 440 specifier) are set where the image brings them; `user` is its user that is not root.
    """

    use: str
    image: str
    platform: tuple[str, ...] = ()
    glibc: str | None = None
    python: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    apt: tuple[str, ...] = ()
    user: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexAddress:
    """Where an index lies: "pypi" (the default index) or "pytorch"."""

    index: str
    url: str


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelPage:
    """A page of wheels compiled against builds of a framework: `packages` are the names it has, in `url`
    {version} and {label} ("cu128", "cpu") are the build's."""

    framework: str
    packages: tuple[str, ...]
    url: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Profiles:
    """All that the profiles know."""

    builds: tuple[Build, ...] = ()
    cudnn: tuple[CudnnRelease, ...] = ()
    toolkits: tuple[ToolkitRelease, ...] = ()
    gpus: tuple[GpuModel, ...] = ()
    cuda: tuple[CudaRelease, ...] = ()
    majors: tuple[CudaMajor, ...] = ()
    branches: tuple[DriverBranch, ...] = ()
    known_bad: tuple[KnownBad, ...] = ()
    causes: tuple[FailureCause, ...] = ()
    messages: tuple[FailureMessage, ...] = ()
    failures: tuple[FailureRule, ...] = ()
    conda: tuple[CondaBuild, ...] = ()
    images: tuple[Image, ...] = ()
    indexes: tuple[IndexAddress, ...] = ()
    pages: tuple[WheelPage, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileTable:
    """A table of a profile file as it stands there; `count` is the number of its rows."""

    file: str
    table: str
    framework: str | None
    kept: str | None
    source: str
    read: str
    rows: tuple[dict[str, Any], ...] = ()
    count: int | None = None

    def without_rows(self) -> ProfileTable:
        return dataclasses.replace(self, rows=(), count=len(self.rows))


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileTables:
    """What `gpuenv profiles` shows."""

    SCHEMA: ClassVar[str] = "gpuenv.profiles/1"

    tables: tuple[ProfileTable, ...]


# --- what is wanted and what is to be had -------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """A framework asked for, with its version bounds in PEP 440 form ("" for any)."""

    name: str
    specifier: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bound:
    """A bound that a project's file puts on a framework: PEP 440, without local labels, and where it
    stands ("requirements.txt line 4")."""

    name: str
    specifier: str
    origin: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Need:
    """A requirement of a project's file that is left to the solver.

    `text` is PEP 508 with absolute paths, markers and extras as written; `name` is None where only the
    file behind an address knows it. `hashes` are those that the file insists on ("sha256:..."), `local`
    marks a folder (its path), `vcs` an address like git+https://..., `constraint` a line of a -c file.
    """

    text: str
    origin: str
    name: str | None = None
    hashes: tuple[str, ...] = ()
    local: str | None = None
    editable: bool = False
    vcs: bool = False
    constraint: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Demands:
    """What a project's files ask for: the frameworks that they name, their bounds, what is left to the
    solver, and where the files say that packages come from (addresses as written: credentials!).

    `left_out` are lines that the plan decides (nvidia-*, triton, plugins), each with its origin; `files`
    are the absolute paths of every file read.
    """

    frameworks: tuple[str, ...] = ()
    bounds: tuple[Bound, ...] = ()
    needs: tuple[Need, ...] = ()
    requires_python: str = ""
    python_origin: str | None = None
    index_url: str | None = None
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    pre: bool = False
    left_out: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


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
class Project:
    """gpuenv.yaml: what a project asks for. Paths are as written, relative to the file's folder.

    `project` is the folder of a pyproject.toml to take along with its `extras` and `groups`; `packages`
    are PEP 508 requirements (`gpuenv add` writes them); `indexes` replaces addresses: "pypi", "pytorch".
    """

    frameworks: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()
    project: str | None = None
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What the user asked for.

    `pythons` are the minor versions that may be used, best first; empty means any that a build
    supports. `python` is one the user insists on. `cuda` is a prefix ("12" or "12.6"). `index`
    is auto, pypi, pytorch or a URL. `device` is already "cuda" or "cpu" when resolve sees it.
    `packages` are companions and other packages to be locked along, as PEP 508 requirements.
    `along` are the names of what the project's files ask for beside frameworks, `bounds` are what they say
    of frameworks, `requires_python` (with `python_origin`, where it is written) of the Python.
    """

    frameworks: tuple[Wanted, ...]
    packages: tuple[str, ...] = ()
    along: tuple[str, ...] = ()
    bounds: tuple[Bound, ...] = ()
    requires_python: str = ""
    python_origin: str | None = None
    cuda: str | None = None
    index: str = "auto"
    manager: Manager = "venv"
    device: Device = "auto"
    python: str | None = None
    pythons: tuple[str, ...] = ()
    pre: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Wheel:
    """A wheel file at hand: `tags` are its expanded "cp312-cp312-manylinux_2_28_x86_64" tags."""

    name: str
    version: str
    url: str
    tags: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Supply:
    """What is to be had. `only_wheels` is set offline and with a bundle: then the wheels are all
    there is. `unreachable` names the indexes that did not answer."""

    wheels: tuple[Wheel, ...] = ()
    only_wheels: bool = False
    unreachable: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Sources:
    """Where packages come from: the user's pip and uv configuration with the options laid over it.

    `default` None means the installer's own default index. `pytorch` is the base address of the
    PyTorch index. URLs may carry credentials: they reach the installer's environment and nothing
    else. `timeout` is in seconds, `trusted` are hosts whose certificate is not looked at.
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


# --- what is decided -----------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Reason:
    """An objection: a code of the design's list and a sentence with both numbers in it."""

    code: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Rejected:
    """A build that was not taken, and every objection to it."""

    framework: str
    version: str
    cuda: str | None
    index: str
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedBuild:
    """One framework's build. `requirements` are the pins that make it, as PEP 508 strings;
    `cudnn` is the four-part version (None for a CPU build)."""

    framework: str
    version: str
    cuda: str | None
    index: str
    requirements: tuple[str, ...]
    cudnn: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What resolve decided, or why nothing fits (`builds` empty, `hint` what would help)."""

    SCHEMA: ClassVar[str] = "gpuenv.plan/1"

    builds: tuple[PlannedBuild, ...]
    python: str | None
    platform: str
    manager: Manager
    device: Device
    target: Target
    cuda_major: str | None = None
    cudnn: str | None = None
    packages: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    hint: str | None = None
    rejected: tuple[Rejected, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Package:
    """One locked file. `index` is the index or channel it came from (None for a local file), `size`
    bytes. `depends` is what a conda package requires, as its channel has it.

    `url` is a wheel's or a source archive's, or of what cannot carry a hash (`unhashed`): a folder
    ("file:///...", `editable` or not) or a commit ("git+https://...@<40 hex digits>")."""

    name: str
    version: str
    url: str
    sha256: str | None = None
    md5: str | None = None
    index: str | None = None
    size: int | None = None
    unhashed: bool = False
    editable: bool = False
    depends: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Lock:
    """Exactly what is installed, and the hardware it was made for. `inputs` is a digest of what the
    project's files asked for when the lock was made (None without files)."""

    SCHEMA: ClassVar[str] = "gpuenv.lock/1"

    manager: Manager
    target: Target
    plan: Plan
    packages: tuple[Package, ...]
    inputs: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """A built environment: absolute `path`, its `python` executable, whether it was `changed`."""

    SCHEMA: ClassVar[str] = "gpuenv.environment/1"

    path: str
    manager: str | None
    python: str
    python_version: str | None = None
    made_by_gpuenv: bool = False
    changed: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class InstalledPackage:
    """A distribution as it was installed: the sha256 of its RECORD (None where it has none)."""

    name: str
    version: str
    record: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Installed:
    """What an environment's lock put into it, at the moment it was built: `.gpuenv/installed.json`."""

    SCHEMA: ClassVar[str] = "gpuenv.installed/1"

    packages: tuple[InstalledPackage, ...] = ()


ChangeKind = Literal["replaced", "removed", "modified", "overwritten", "python", "driver", "gpu", "cudnn"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """What is not as the lock has it, in a sentence: a package (of another version, gone, changed since
    it was installed, or written over by `by`, which the lock does not name), the Python, the machine's
    driver and GPUs, or the cuDNN that was loaded. `paths` are files that show it."""

    kind: ChangeKind
    name: str
    text: str
    locked: str | None = None
    found: str | None = None
    by: str | None = None
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Stranger:
    """An installed package that the lock does not name. `over` are the locked packages some of whose files
    it lists too, with other bytes; `requires` the names that it requires, those of extras included;
    `conda` says that a channel brought it."""

    name: str
    version: str
    over: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    conda: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Drift:
    """How an environment differs from its lock."""

    changes: tuple[Change, ...] = ()
    strangers: tuple[Stranger, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class PutBack:
    """A package that was put back: the version it `had` (None: it was not there), and has `now`."""

    name: str
    had: str | None
    now: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Removed:
    """A package that the lock does not name, taken out."""

    name: str
    version: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Left:
    """A package that the lock does not name, left where it is."""

    name: str
    version: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Repaired:
    """What `repair` did. `packages` and `removed` are empty where nothing had changed."""

    SCHEMA: ClassVar[str] = "gpuenv.repair/1"

    packages: tuple[PutBack, ...] = ()
    removed: tuple[Removed, ...] = ()
    left: tuple[Left, ...] = ()
    environment: Environment | None = None
    verdict: Verdict | None = None


# --- what was proved -----------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """One link of the chain: driver, runtime, libraries, cudnn, framework, convolution, loaded."""

    stage: str
    status: Status
    detail: str
    framework: str | None = None
    device: str | None = None
    seconds: float | None = None
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Convolution:
    """One graded convolution. `max_error` is relative, by norm, against a float64 reference;
    `pass_` is forward, grad_input or grad_weight (written `pass` in JSON)."""

    case: str
    dtype: str
    pass_: str
    max_error: float | None
    tolerance: float
    ok: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceVerdict:
    """A device as the framework sees it: `index` is the CUDA ordinal (-1 for the CPU)."""

    index: int
    uuid: str | None = None
    name: str | None = None
    capability: str | None = None
    convolutions: tuple[Convolution, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class FrameworkVerdict:
    """What one framework showed. cuDNN versions here have three parts, as cuDNN reports them."""

    name: str
    version: str | None = None
    cuda: str | None = None
    cudnn_built: str | None = None
    cudnn_loaded: str | None = None
    devices: tuple[DeviceVerdict, ...] = ()
    libraries: tuple[Library, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """The verdict on an environment: the worst of its stages. `drift` is what has changed since it was
    built from its lock, `unhashed` are packages that no hash holds (folders, commits), with their
    addresses."""

    SCHEMA: ClassVar[str] = "gpuenv.verdict/1"

    env: str
    python: str
    verdict: Outcome
    stages: tuple[Stage, ...] = ()
    frameworks: tuple[FrameworkVerdict, ...] = ()
    findings: tuple[Finding, ...] = ()
    hint: str | None = None
    drift: tuple[Change, ...] = ()
    unhashed: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Findings:
    """What `diagnose` found, the likeliest first."""

    SCHEMA: ClassVar[str] = "gpuenv.findings/1"

    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Created:
    """What `create` did: what each stage handed on, as far as it was reached."""

    SCHEMA: ClassVar[str] = "gpuenv.create/1"

    machine: Machine | None = None
    plan: Plan | None = None
    lock: Lock | None = None
    environment: Environment | None = None
    verdict: Verdict | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedFramework:
    """A framework that an environment was made with."""

    name: str
    version: str
    cuda: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Listed:
    """An environment that gpuenv made, as `list` shows it. `verdict` is the last one and `verified` when
    it was given (ISO 8601, UTC). `bytes` is what it takes on disk (None where measuring would take too
    long), `shared_bytes` the part of it in files that have a name elsewhere as well."""

    path: str
    manager: str | None = None
    frameworks: tuple[ListedFramework, ...] = ()
    cuda: str | None = None
    cudnn: str | None = None
    python: str | None = None
    verdict: str | None = None
    verified: str | None = None
    bytes: int | None = None
    shared_bytes: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """The environments that gpuenv made on this machine."""

    SCHEMA: ClassVar[str] = "gpuenv.list/1"

    environments: tuple[Listed, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class RemovedEnvironment:
    """An environment that was removed: what it took, what that freed, the Jupyter kernels that went."""

    path: str
    bytes: int
    freed_bytes: int
    kernels: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Removal:
    """What `remove` did."""

    SCHEMA: ClassVar[str] = "gpuenv.remove/1"

    removed: tuple[RemovedEnvironment, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """A text to paste into an issue; `hidden` counts what was left out of it, by kind."""

    SCHEMA: ClassVar[str] = "gpuenv.report/1"

    gpuenv: str
    text: str
    hidden: dict[str, int] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Exported:
    """A lock in another tool's form: its `text`, and the file it was written to, if any."""

    SCHEMA: ClassVar[str] = "gpuenv.export/1"

    format: str
    path: str | None
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class BundleFile:
    """A file of a bundle: its path inside (with /), its bytes and hash (None until it is there)."""

    path: str
    size: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class BundlePython:
    """An archive of a standalone Python: uv's name for it ("cpython-3.12.16-linux-x86_64-gnu"), its version,
    and its path in the bundle."""

    key: str
    version: str
    path: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Bundle:
    """What a machine without a network needs: gpuenv-bundle.json. `lock` is the file name of its lock, `gpuenv`
    the version that made it, `asked` a digest of the options that it was made with, and `complete` whether every
    file is there. `python` is the minor version that the environment will have, `archive` the Python in it."""

    SCHEMA: ClassVar[str] = "gpuenv.bundle/1"

    gpuenv: str
    manager: Manager
    lock: str
    target: Target
    device: Device
    frameworks: tuple[str, ...]
    python: str | None
    asked: str
    complete: bool = False
    archive: BundlePython | None = None
    files: tuple[BundleFile, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenFile:
    """A file that `init` looked after: `done` is written, changed or kept."""

    path: str
    done: str
    detail: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Initialised:
    """What `gpuenv init` did in a folder: the frameworks of its gpuenv.yaml, and each file."""

    SCHEMA: ClassVar[str] = "gpuenv.init/1"

    folder: str
    frameworks: tuple[str, ...]
    files: tuple[WrittenFile, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """Something a stage tells while it works. `kind`: start, progress, note, warning or done.
    `done` and `total` are in `unit` (bytes, packages, stages)."""

    kind: str
    stage: str
    text: str
    done: int | None = None
    total: int | None = None
    unit: str | None = None


# --- to and from plain data ----------------------------------------------------------------

T = TypeVar("T")


def as_plain(value: Any) -> Any:
    """A value as dicts, lists and scalars, field names as JSON names (`pass_` becomes `pass`)."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name.rstrip("_"): as_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, (tuple, list)):
        return [as_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: as_plain(v) for k, v in value.items()}
    return value


def as_document(value: Any) -> dict[str, Any]:
    """`as_plain` with the value's `schema` in front; for values that have one."""
    return {"schema": value.SCHEMA, **as_plain(value)}


def from_plain(cls: type[T], data: Any, where: str = "") -> T:
    """Read a value back from plain data, strictly.

    Raises ValueError naming the key path of the first thing wrong: a missing or unknown key,
    or a scalar of another type. `schema` is allowed and must be the class's own.
    """
    if not isinstance(data, dict):
        raise ValueError(f"{where or cls.__name__}: expected a table, got {type(data).__name__}")
    data = dict(data)
    schema = data.pop("schema", None)
    if schema is not None and schema != getattr(cls, "SCHEMA", None):
        raise ValueError(f"{where or 'schema'}: {schema!r} is not {getattr(cls, 'SCHEMA', None)!r}")
    hints = typing.get_type_hints(cls)
    kwargs = {}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]  # T is a dataclass by contract
        key = field.name.rstrip("_")
        path = f"{where}.{key}" if where else key
        if key in data:
            kwargs[field.name] = _convert(hints[field.name], data.pop(key), path)
        elif type(None) in typing.get_args(hints[field.name]):
            kwargs[field.name] = None  # TOML has no null: what is unknown is left out there
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ValueError(f"{path}: missing")
    if data:
        raise ValueError(f"{where + '.' if where else ''}{min(data)}: unknown key")
    return cls(**kwargs)


def _convert(hint: Any, value: Any, where: str) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        return _convert(next(a for a in args if a is not type(None)), value, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise ValueError(f"{where}: expected a list, got {type(value).__name__}")
        return tuple(_convert(args[0], v, f"{where}[{i}]") for i, v in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            raise ValueError(f"{where}: expected a table, got {type(value).__name__}")
        return {str(k): _convert(args[1], v, f"{where}.{k}") for k, v in value.items()}
    if origin is Literal:
        if value not in args:
            raise ValueError(f"{where}: {value!r} is not one of {', '.join(map(str, args))}")
        return value
    if dataclasses.is_dataclass(hint):
        return from_plain(typing.cast("type[Any]", hint), value, where)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise ValueError(f"{where}: expected {hint.__name__}, got {type(value).__name__}")
    return value
