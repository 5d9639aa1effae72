"""Rows of profiles/*.yaml: known builds, cuDNN and CUDA releases, GPUs, drivers and indexes."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

from .failure_catalog import CatalogueMessage, FailureCause, FailureMessage, FailureRule
from .finding_text_rows import FindingText
from .prebuilt_wheels import CxxAbi, WheelGlibc, WheelPage
from .profile_package_rows import (
    CondaName,
    DlopenedLibrary,
    ImportName,
    OptionalLibraries,
    Replacement,
    SystemLibrary,
)
from .satellites import PackageTrap, Satellite


@dataclass(frozen=True, kw_only=True, slots=True)
class Build:
    """One framework build on one index for one platform. The key is (framework, version, cuda, platform, index).

    `version` is the public version. `local` is the local label of the wheel ("cu130", "cpu"), or None on the default
    index. `cuda` is the CUDA release that it was built with ("12.8"), or None for a CPU build. `python` are the minor
    versions with a wheel. `kernels` have the form of TORCH_CUDA_ARCH_LIST ("7.0", "9.0+PTX"). `cudnn` is a PEP 440
    specifier ("==9.10.2.21", ">=9.8.0,<10").

    `requires` are all nvidia-*, cuda-*, triton and plugin requirements that apply on the platform, without markers.
    `companions` are exact or bounded requirements of the matching packages ("torchvision==0.25.0"). `unresolvable`
    says which Pythons cannot use the build's requirements, and why ("3.11: tensorrt 8.5.3.1 has no wheel").
    `searched` are the folders of nvidia/ in which a TensorFlow finds libraries without LD_LIBRARY_PATH ("cudnn").
    `package` is the name of the package if it differs from the framework's ("onnxruntime-gpu").
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
        """Return the name of the package on the index."""
        return self.package or self.framework


@dataclass(frozen=True, kw_only=True, slots=True)
class CondaBuild:
    """The packages of a framework in a conda channel, for one device ("cuda" or "cpu").

    `build` is a pattern of build strings ("*cuda*"). `along` are packages to install with it, in the same version. A
    row with a `version` describes builds whose metadata has neither CUDA nor cuDNN (a PEP 440 specifier). If the row
    has none either, the packages `cuda-version` and `cudnn` of the solution apply.
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
    """One cuDNN release for one CUDA major on one platform.

    `package` and `version` are those of the index. `glibc` is the oldest one that works. `kernels` are the
    capabilities that it has kernels for (as `Build.kernels`). `libraries` are sonames. `driver_linux` and `driver_windows` are the oldest drivers.
    """

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
    """A release of NVIDIA's package `cuda-toolkit`.

    `parts` are an extra and its requirements: "cufft nvidia-cufft==12.0.0.61.* nvidia-nvjitlink<14,>=13.0.88".
    """

    version: str
    parts: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class CudaCompiler:
    """The compiler nvcc of a CUDA release ("13.2").

    It has the newest supported major version of gcc, and the extras of `cuda-toolkit` that install the compiler. No
    extras mean that no wheel has it.
    """

    cuda: str
    gcc: str
    extras: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuModel:
    """A compute capability: its generation, boards, CUDA releases and driver branches.

    `last_cuda` is None while the newest CUDA supports it. The last driver branch ("470") is None while current or
    unknown. A Tegra part runs only kernels that are compiled for exactly its capability.
    """

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
    """A CUDA release ("12.8") and the oldest driver that supports it natively, per driver OS."""

    cuda: str
    linux: str | None
    windows: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CudaMajor:
    """A CUDA major with minor-version compatibility, and the oldest driver for all of its releases."""

    major: str
    linux: str
    windows: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DriverBranch:
    """A driver branch ("580") and the CUDA that its libcuda supports ("13.0")."""

    branch: str
    cuda: str


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownBadRelease:
    """A release with a public issue against it.

    `effect` is "refuse" or "avoid". A release to avoid is chosen only if no other version fits, and a wheel that pins
    it gets a warning.
    """

    package: str
    version: str
    effect: str
    why: str
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class BaseImage:
    """The base of an export.

    `use` is "container" or "devcontainer" (an image), "runner" (a label of a CI machine) or "action" (a step of CI).
    `python` is the minor version that it has, and `apt` the packages that must be installed first. `cuda` and `cudnn`
    (a PEP 440 specifier) are set if the image has them. `user` is its unprivileged user.
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
    """The address of an index: "pypi" (the default index) or "pytorch"."""

    index: str
    url: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PythonRelease:
    """A minor version of Python ("3.13"), and the day of its first release."""

    version: str
    released: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Profiles:
    """All rows of the profiles."""

    builds: tuple[Build, ...] = ()
    cudnn: tuple[CudnnRelease, ...] = ()
    toolkits: tuple[ToolkitRelease, ...] = ()
    compilers: tuple[CudaCompiler, ...] = ()
    pythons: tuple[PythonRelease, ...] = ()
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
    abis: tuple[CxxAbi, ...] = ()
    wheel_glibc: tuple[WheelGlibc, ...] = ()
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
    """A table of a profile file, unchanged. `count` is the number of its rows."""

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
    """The tables that `gpuenv profiles` shows."""

    SCHEMA: ClassVar[str] = "gpuenv.profiles/1"

    tables: tuple[ProfileTable, ...]
