"""What is known: the rows of profiles/*.yaml."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

from .finding_texts import FindingText
from .satellites import PackageTrap, Satellite


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
    `package` is the package of the build where its name is not the framework's ("onnxruntime-gpu").
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
    package: str | None = None

    @property
    def package_name(self) -> str:
        """The name of the package on the index."""
        return self.package or self.framework


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
class CudaCompiler:
    """nvcc of a CUDA release ("13.2"): the newest major version of gcc that it takes, and the extras of
    `cuda-toolkit` that bring it with what compiling needs; none where no wheel has it."""

    cuda: str
    gcc: str
    extras: tuple[str, ...] = ()


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
class KnownBadRelease:
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
    and `decides`: the evidence that would prove it, with the command that finds it. One with `about_gpu` is a
    failure to use a GPU: no cause in an environment that was made for the CPU. In `title` and
    `fix`, {name} is a fact, and a part in [[double brackets]] is left out where its fact is unknown. `in_container`
    and `on_windows` are the fix there, where it is another. One with `of_jobs` comes and goes with the jobs on a
    machine: no fault of the machine."""

    cause: str
    layer: str
    title: str
    fix: str
    decides: str
    about_gpu: bool = False
    in_container: str | None = None
    on_windows: str | None = None
    of_jobs: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class FailureMessage:
    """What programs print, or people write, of one meaning: patterns (`says`), one of which must
    stand in the text. `example` is one such line, `source` where it is printed."""

    name: str
    says: tuple[str, ...]
    example: str
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CatalogueMessage:
    """A message as the source of its program has it: `says` are its spellings (patterns), `code` its number where
    the program prints it by number too. `causes` are what it can mean, the likeliest first. `releases` are
    those in which it was read, "A to B" with all between them, or seen in public logs; "unknown" where no release was
    read. `absent` are the nearest releases that were read and lack it: the range is open on a side where none is named.
    `source` is the file that prints it. Where one of the messages in `lacks` is said, it means something else."""

    name: str
    program: str
    says: tuple[str, ...]
    causes: tuple[str, ...]
    releases: str
    source: str
    code: str | None = None
    absent: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()


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
class BaseImage:
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
class ImportName:
    """The distribution that brings a module: `package` "opencv-python" for `module` "cv2"; `also` are
    other distributions that bring it. `implies` is the framework of a program that imports the module and names
    no framework. `common` marks a name that programs also give to folders of their own."""

    module: str
    package: str
    also: tuple[str, ...] = ()
    implies: str | None = None
    common: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class CondaName:
    """What a package of conda is outside of conda: the wheel `package`, or what it `means`: "cuda" (its version
    is the CUDA release), "cpu" (builds without CUDA), "plan" (the plan decides it), "program" (no Python
    package, no wheel)."""

    conda: str
    package: str | None = None
    means: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemLibrary:
    """The package of a distribution that has a library, by the soname that programs need. `deb` is Debian's and
    Ubuntu's package, `deb_t64` its name since Debian 13 and Ubuntu 24.04 where it changed, `rpm` Fedora's and RHEL's."""

    soname: str
    deb: str | None = None
    deb_t64: str | None = None
    rpm: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class DlopenedLibrary:
    """A library that a package opens by name when it is imported: its sonames, one of which is enough. `bundled` is a
    pattern of the package's own files that serve in its place."""

    package: str
    library: str
    bundled: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class OptionalLibraries:
    """Libraries that only optional modules of a package need, by name without "lib" and ".so": it does without."""

    package: str
    libraries: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Replacement:
    """A package that brings the same modules without needing some libraries of the system."""

    package: str
    instead: str
    without: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Profiles:
    """All that the profiles know."""

    builds: tuple[Build, ...] = ()
    cudnn: tuple[CudnnRelease, ...] = ()
    toolkits: tuple[ToolkitRelease, ...] = ()
    compilers: tuple[CudaCompiler, ...] = ()
    gpus: tuple[GpuModel, ...] = ()
    cuda: tuple[CudaRelease, ...] = ()
    majors: tuple[CudaMajor, ...] = ()
    branches: tuple[DriverBranch, ...] = ()
    known_bad: tuple[KnownBadRelease, ...] = ()
    causes: tuple[FailureCause, ...] = ()
    findings: tuple[FindingText, ...] = ()
    messages: tuple[FailureMessage, ...] = ()
    failures: tuple[FailureRule, ...] = ()
    catalogue: tuple[CatalogueMessage, ...] = ()
    conda: tuple[CondaBuild, ...] = ()
    images: tuple[BaseImage, ...] = ()
    indexes: tuple[IndexAddress, ...] = ()
    pages: tuple[WheelPage, ...] = ()
    imports: tuple[ImportName, ...] = ()
    conda_names: tuple[CondaName, ...] = ()
    system_libraries: tuple[SystemLibrary, ...] = ()
    opened_libraries: tuple[DlopenedLibrary, ...] = ()
    optional_libraries: tuple[OptionalLibraries, ...] = ()
    replacements: tuple[Replacement, ...] = ()
    satellites: tuple[Satellite, ...] = ()
    traps: tuple[PackageTrap, ...] = ()


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
