"""Rows of profiles/*.yaml: builds, CUDA and cuDNN releases, GPUs, drivers, packages, causes of failures.

Rows are named tuples: there are thousands, of thirty kinds, and a frozen dataclass takes five times as long to define.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from .values import Value
from .words import FRAMEWORKS, Confidence, normalize_name, requirement_name


class WheelPage(NamedTuple):
    """A page of wheels compiled against builds of a framework, and the rule for their file names.

    `packages` are the packages on it. In `url`, {version} and {label} ("cu128", "cpu") are those of the build, and
    {release} is the release of the package. A page is for one build or for one release. `listing` is a page with
    links to all pages of builds.

    `local` is the local version of a file. {minor} is "2.8" and {digits} "28" (the minor release of the framework).
    {cuda} is "12" or "122" (only the major matters), and {abi} "TRUE" (the C++11 string ABI).
    """

    framework: str
    packages: tuple[str, ...]
    url: str
    local: str
    listing: str | None = None

    @property
    def is_of_release(self) -> bool:
        """Whether each release of the package has a page."""
        return "{release}" in self.url


class CxxAbi(NamedTuple):
    """The C++11 string ABI ("1" or "0") of the builds of a framework.

    A row is for versions (a PEP 440 specifier), a CUDA release and a platform, or for any (None). The first matching
    row applies.
    """

    framework: str
    versions: str
    cxx11: str
    cuda: str | None = None
    platform: str | None = None


class WheelGlibc(NamedTuple):
    """The oldest glibc for the prebuilt wheels of a package, by versions (a PEP 440 specifier). Their names do not have
    it: the tag linux_x86_64 allows every glibc."""

    package: str
    versions: str
    glibc: str


class ListedWheels(NamedTuple):
    """Wheels of a page that are known without reading it, from documents. Nothing in them was measured.

    In `url`, {release} is one of `releases` and {machine} that of a platform ("x86_64"). `oldest_gpu` is the lowest
    compute capability that the documents name.
    """

    package: str
    releases: tuple[str, ...]
    url: str
    platform: tuple[str, ...]
    oldest_gpu: str | None = None


class BuiltFor(NamedTuple):
    """The builds that a wheel is compiled for, by its file name.

    These are the minor release of a framework ("2.8"), its CUDA, and the C++11 string ABI ("1" or "0"). The CUDA is a
    `label` ("cu128", "cpu") or a major `cuda` ("12"). `bounds` ("==2.13.0") are those of the release, where its name
    has no minor release ("").
    """

    framework: str
    minor: str
    label: str | None = None
    cuda: str | None = None
    cxx11: str | None = None
    bounds: str = ""


class PrebuiltWheel(NamedTuple):
    """A wheel of a page.

    `version` has no local label. `pythons` are the minor versions that support the file on the target. `sha256` is
    the hash on the page.
    """

    package: str
    version: str
    url: str
    built_for: BuiltFor
    pythons: tuple[str, ...] = ()
    sha256: str | None = None


class Satellite(NamedTuple):
    """One release of a package with compiled code, on one platform.

    Rows that differ only in `cuda` are alternatives in one wheel. `form` is "wheel", "source", or "download" (a
    source whose build downloads a wheel from another index). `pythons` are the minor versions with a wheel. "3.10+"
    is a wheel for 3.10 and all later ones (abi3, or no Python code). `glibc` is the oldest glibc that its tag and its
    symbols allow.

    `cuda` is the CUDA major ("13"), or the release of an alternative ("12.8"). It is None without CUDA libraries.
    `cuda_by` is the evidence: "needed" (DT_NEEDED), "dlopen" (names in the code), "name" (of the package). `needs`
    are the NVIDIA libraries in DT_NEEDED of its libraries, without those that only an optional module needs. `cudnn` is a PEP 440 specifier, with `cudnn_by` like `cuda_by`. `kernels`
    are the GPUs for which any of its libraries has code. Code for one GPU alone (sm_90a) is shown as 9.0.

    `built_for` is the framework requirement ("torch==2.14.0"): what its metadata states, or with `built_by` "document" what
    the table `satellite_frameworks` says of its series. `abi` is "stable" (runs with any later release of the
    framework) or "exact" (compiled for one release, unknown if `built_for` is a range). It is None if its code does
    not call a framework. `extras` have libraries that the
    release needs and does not require.
    """

    package: str
    version: str
    platform: str
    form: str
    pythons: tuple[str, ...] = ()
    glibc: str | None = None
    cuda: str | None = None
    cuda_by: str | None = None
    needs: tuple[str, ...] = ()
    built_for: str | None = None
    built_by: str | None = None
    abi: str | None = None
    cudnn: str | None = None
    cudnn_by: str | None = None
    kernels: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()
    sha256: str | None = None
    bytes: str | None = None

    @classmethod
    def from_columns(cls, columns: dict[str, Any]) -> "Satellite":
        """Return the row of plain values, which have lists. Raises TypeError for a missing or unknown column."""
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in columns.items()}
        return cls(**values)


class PackageTrap(NamedTuple):
    """A package whose content differs from its name.

    It has the reason, and the package to install in its place.
    `action` is None if the name is always a mistake, and "warn" if it can be intended. It is "replace" if the plan's
    CUDA decides the replacement.
    """

    package: str
    why: str
    source: str
    instead: str | None = None
    action: str | None = None


class ImportName(NamedTuple):
    """The distribution of a module: `package` "opencv-python" for `module` "cv2".

    `also` are other distributions of it. `implies` is the framework of a program that imports the module and no
    framework. `common` marks a name that programs also use for their own folders.
    """

    module: str
    package: str
    also: tuple[str, ...] = ()
    implies: str | None = None
    common: bool = False


class RemovedNames(NamedTuple):
    """Names of a package's top module that its releases from `since` on do not have."""

    package: str
    since: str
    names: tuple[str, ...]

    def has(self, exact: str) -> bool:
        """Return whether an imported name ("tensorflow:Session", "tensorflow.contrib.slim:") is one of these."""
        first, _, rest = exact.replace(":", ".").partition(".")
        return first == self.package and rest.partition(".")[0] in self.names


class CondaName(NamedTuple):
    """The equivalent of a conda package outside conda: the wheel `package`, or `means`.

    `means` is "cuda" (its version is the CUDA release), "cpu" (builds without CUDA), "plan" (the plan decides it) or
    "program" (no Python package, no wheel).
    """

    conda: str
    package: str | None = None
    means: str | None = None


class SystemLibrary(NamedTuple):
    """The packages of Linux distributions that have a library, by its soname.

    `deb` is the package of Debian and Ubuntu. `deb_t64` is its name since Debian 13 and Ubuntu 24.04, if it changed.
    `rpm` is the package of Fedora and RHEL.
    """

    soname: str
    deb: str | None = None
    deb_t64: str | None = None
    rpm: str | None = None


class DlopenedLibrary(NamedTuple):
    """A library that a package opens by name at import: its sonames, one of which is enough.

    `bundled` is a pattern of the package's own files that replace it.
    """

    package: str
    library: str
    bundled: str | None = None


class OptionalLibraries(NamedTuple):
    """Libraries that only optional modules of a package need, by name without "lib" and ".so".

    With `kernels` the package's own GPU code is such a part: it also works on GPUs that this code is not built for.
    """

    package: str
    libraries: tuple[str, ...] = ()
    kernels: bool = False


class Replacement(NamedTuple):
    """A package with the same modules that needs fewer libraries of the system."""

    package: str
    instead: str
    without: tuple[str, ...] = ()


class CompanionLimit(NamedTuple):
    """The bounds on a package ("numpy<2") that releases of a framework (`package`) need, and that their metadata does not
    state."""

    package: str
    versions: str
    requires: str
    why: str
    source: str


class FailureCause(NamedTuple):
    """A root cause of failures: its layer ("1" is the lowest, the driver) and title. Its fixes are a table.

    `decides` is the evidence that would prove it, with the command that shows it. A cause with `about_gpu` is a
    failure to use a GPU, and never applies to a CPU environment. A cause with `of_jobs` depends on the jobs that run
    on a machine, and is no fault of the machine. A text without a sign of what `only` names ("wsl") never has the
    cause. With `by_build`, another build of the framework can help. In `title` and `decides`, {name} is a slot. A part in [[double brackets]] is omitted if its slot is unknown.
    """

    cause: str
    layer: str
    title: str
    decides: str
    about_gpu: bool = False
    of_jobs: bool = False
    only: str | None = None
    by_build: bool = False


class FailureFix(NamedTuple):
    """A fix of a cause. Of a cause's rows the first counts whose `wants` all hold, whose `lacks` do not, and whose slots
    ({name}) are all known. So the last row of a cause has no condition and no slot.

    A step begins with the place of its commands ("host: ..."). A part in [[double brackets]] is omitted if its slot
    is unknown.
    """

    name: str
    cause: str
    steps: tuple[str, ...]
    wants: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()


class Sign(NamedTuple):
    """What a text says of where it is from: `sign` is a name and its value ("container=podman").

    Of the rows of one name the first counts whose `says` is in the text. `pip` is how pip is started there.
    """

    name: str
    sign: str
    says: tuple[str, ...]
    lacks: tuple[str, ...] = ()
    pip: str | None = None


class Launcher(NamedTuple):
    """A command that starts a program elsewhere, the flag that gives it the GPU (`gives`), and all such `flags`."""

    command: str
    gives: str
    flags: tuple[str, ...]


class KnownProgram(NamedTuple):
    """A program or package, by its `modules` in tracebacks or the patterns of `says`. `uses` is its
    framework.

    Its own project's commands: `install`, `gpu_build` and `conda_build` install a build for the GPU, `libraries` the
    CUDA libraries that it opens, `check` shows whether it sees a GPU. `cpu_package` is what `pip list` shows of a build
    for the CPU. `memory` says how it needs less memory of the
    GPU, `workers` how its workers start. In all of them, {name} is a slot.
    """

    program: str
    says: tuple[str, ...]
    source: str
    modules: tuple[str, ...] = ()
    uses: str | None = None
    install: str | None = None
    gpu_build: str | None = None
    conda_build: str | None = None
    libraries: str | None = None
    check: str | None = None
    cpu_package: str | None = None
    memory: str | None = None
    workers: str | None = None


class FailureMessage(NamedTuple):
    """Patterns (`says`) of texts with the same meaning. One of them must match.

    `example` is one such line, and `source` the program or file that prints it.
    """

    name: str
    says: tuple[str, ...]
    example: str
    source: str


class CatalogueMessage(NamedTuple):
    """A message from the source code of a program.

    `says` are patterns for its forms. `code` is its number if the program prints one. `causes` are its possible
    causes, the likeliest first. `source` is the file that prints it. If a message in `lacks` is also in the text, it
    has another meaning.

    `releases` are the releases whose source has it, "A to B" with all between them, or the releases seen in public
    logs. They are "unknown" if no release was read. `absent` are the nearest releases without it. Without an `absent`
    release on a side, the range is open on that side.
    """

    name: str
    program: str
    says: tuple[str, ...]
    causes: tuple[str, ...]
    releases: str
    source: str
    code: str | None = None
    absent: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()


class FailureRule(NamedTuple):
    """A rule from a text to a cause. Any of `says` must match (patterns, or "@name" of a message).

    All of `wants` and none of `lacks` must be true. They are names of messages, or facts ("torch==1.8.0",
    "os=windows"). `weight` ("1" to "100") orders causes that the same words allow, by the scale in `provision/diagnose/case.py`. `confidence` is "certain" only if
    the words prove the cause. `title` and `decides` replace those of the cause.
    """

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
    decides: str | None = None


class FindingText(NamedTuple):
    """A situation that `detect` or `verify` finds, its cause and how sure that is (by default likely). A text of None is
    that of the cause.

    In `title` and `fix`, {name} is a slot. A part in [[double brackets]] is omitted for an unknown slot.
    """

    finding: str
    cause: str
    title: str | None = None
    fix: str | None = None
    confidence: Confidence | None = None


class Build(NamedTuple):
    """One framework build on one index for one platform. The key is (framework, version, cuda, platform, index).

    `version` is the public version. `local` is the local label of the wheel ("cu130", "cpu"), or None on the default
    index. `cuda` is the CUDA release that it was built with ("12.8"), or None for a CPU build. `python` are the minor
    versions with a wheel. `kernels` have the form of TORCH_CUDA_ARCH_LIST ("7.0", "9.0+PTX"). `cudnn` is a PEP 440
    specifier ("==9.10.2.21", ">=9.8.0,<10").

    `requires` are all nvidia-*, cuda-*, triton and plugin requirements that apply on the platform, without markers.
    `companions` are exact or bounded requirements of the matching packages ("torchvision==0.25.0"). `unresolvable`
    says which Pythons cannot use the build's requirements, and why ("3.11: tensorrt 8.5.3.1 has no wheel").
    `searched` are the folders of nvidia/ in which a TensorFlow finds libraries without LD_LIBRARY_PATH ("cudnn").
    `package` is the name of the package if it differs from the framework's ("onnxruntime-gpu"). `variant` is the label of
    a wheel variant, which an index states and no row.
    """

    framework: str
    version: str
    cuda: str | None
    platform: str
    index: str  # type: ignore[assignment]  # nobody asks a row for the index of a value
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
    variant: str | None = None

    @property
    def package_name(self) -> str:
        """Return the name of the package on the index."""
        return self.package or self.framework


class CondaBuild(NamedTuple):
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


class CudnnRelease(NamedTuple):
    """One cuDNN release for one CUDA major on one platform.

    `package` and `version` are those of the index. `glibc` is the oldest one that works. `kernels` are the
    capabilities that it has kernels for (as `Build.kernels`). `libraries` are sonames.
    """

    package: str
    version: str
    cuda: str
    platform: str
    glibc: str | None = None
    kernels: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    yanked: bool = False
    sha256: str | None = None
    bytes: str | None = None


class ToolkitRelease(NamedTuple):
    """A release of NVIDIA's package `cuda-toolkit`.

    `parts` are an extra and its requirements: "cufft nvidia-cufft==12.0.0.61.* nvidia-nvjitlink<14,>=13.0.88".
    """

    version: str
    parts: tuple[str, ...]


class CudaCompiler(NamedTuple):
    """The compiler nvcc of a CUDA release ("13.2").

    It has the newest supported major version of gcc, and the extras of `cuda-toolkit` that install the compiler. No
    extras mean that no wheel has it.
    """

    cuda: str
    gcc: str
    extras: tuple[str, ...] = ()


class RuntimeCompiler(NamedTuple):
    """A package that compiles when it runs, and for what (`does`).

    `needs` are of "cc", "cxx", "headers", "nvcc" and "ninja". `file` is a file that it looks for in `places`, and `brings`
    the requirement that installs it. It writes to the first folder of `cache` whose variable is set. It compiles nothing
    beside a package of `unless`.
    """

    package: str
    does: str
    needs: tuple[str, ...] = ()
    file: str | None = None
    places: tuple[str, ...] = ()
    brings: str | None = None
    cache: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()


class GpuModel(NamedTuple):
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


class CudaRelease(NamedTuple):
    """A CUDA release ("12.8") and the oldest driver that supports it natively, per driver OS."""

    cuda: str
    linux: str | None
    windows: str | None = None


class CudaMajor(NamedTuple):
    """A CUDA major with minor-version compatibility, and the oldest driver for all of its releases."""

    major: str
    linux: str
    windows: str


class DriverBranch(NamedTuple):
    """A driver branch ("580") and the CUDA that its libcuda supports ("13.0")."""

    branch: str
    cuda: str


class KnownBadRelease(NamedTuple):
    """A release with a public issue against it.

    `effect` is "refuse" or "avoid". A release to avoid is chosen only if no other version fits, and a wheel that pins
    it gets a warning. It is bad only where its conditions hold: a GPU of capability `gpu` whose name contains `board`, a
    version of the driver within `driver`, and the requirement `companion` beside it.
    """

    package: str
    version: str
    effect: str
    why: str
    source: str
    gpu: str | None = None
    board: str | None = None
    driver: str | None = None
    companion: str | None = None

    def applies(
        self,
        gpus: Iterable[tuple[str | None, str | None]],
        driver: str | None,
        versions: Mapping[str, str],
    ) -> bool:
        """Return whether the conditions hold. `gpus` are (capability, name), `versions` those of the packages."""
        from packaging.requirements import Requirement
        from packaging.specifiers import SpecifierSet

        fits = (
            self.gpu in (None, capability) and (self.board or "") in (name or "") for capability, name in gpus
        )
        if (self.gpu or self.board) and not any(fits):
            return False
        if self.driver and not (driver and SpecifierSet(self.driver).contains(driver)):
            return False
        companion = Requirement(self.companion) if self.companion else None
        return companion is None or (
            companion.name in versions
            and companion.specifier.contains(versions[companion.name], prereleases=True)
        )


class BaseImage(NamedTuple):
    """The base of an export.

    `use` is "container" or "devcontainer" (an image), "runner" (a label of a CI machine) or "action" (a step of CI).
    `python` is the minor version that it has, and `apt` the packages that must be installed first. `cuda` and `cudnn`
    (a PEP 440 specifier) are set if the image has them. `user` is its unprivileged user. `digest` is what its tag meant
    on the day `pushed`, for every platform of the row.
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
    digest: str | None = None
    pushed: str | None = None


class IndexAddress(NamedTuple):
    """The address of an index: "pypi" (the default index) or "pytorch"."""

    index: str  # type: ignore[assignment]  # nobody asks a row for the index of a value
    url: str


class PythonRelease(NamedTuple):
    """A minor version of Python ("3.13"), and the day of its first release."""

    version: str
    released: str


class Profiles(Value):
    """All rows of the profiles."""

    builds: tuple[Build, ...] = ()
    cudnn: tuple[CudnnRelease, ...] = ()
    toolkits: tuple[ToolkitRelease, ...] = ()
    compilers: tuple[CudaCompiler, ...] = ()
    runtime_compilers: tuple[RuntimeCompiler, ...] = ()
    pythons: tuple[PythonRelease, ...] = ()
    gpus: tuple[GpuModel, ...] = ()
    cuda: tuple[CudaRelease, ...] = ()
    majors: tuple[CudaMajor, ...] = ()
    branches: tuple[DriverBranch, ...] = ()
    known_bad: tuple[KnownBadRelease, ...] = ()
    limits: tuple[CompanionLimit, ...] = ()
    causes: tuple[FailureCause, ...] = ()
    fixes: tuple[FailureFix, ...] = ()
    signs: tuple[Sign, ...] = ()
    launchers: tuple[Launcher, ...] = ()
    programs: tuple[KnownProgram, ...] = ()
    findings: tuple[FindingText, ...] = ()
    messages: tuple[FailureMessage, ...] = ()
    failures: tuple[FailureRule, ...] = ()
    catalogue: tuple[CatalogueMessage, ...] = ()
    conda: tuple[CondaBuild, ...] = ()
    images: tuple[BaseImage, ...] = ()
    indexes: tuple[IndexAddress, ...] = ()
    pages: tuple[WheelPage, ...] = ()
    listed_wheels: tuple[ListedWheels, ...] = ()
    abis: tuple[CxxAbi, ...] = ()
    wheel_glibc: tuple[WheelGlibc, ...] = ()
    imports: tuple[ImportName, ...] = ()
    removed_names: tuple[RemovedNames, ...] = ()
    conda_names: tuple[CondaName, ...] = ()
    system_libraries: tuple[SystemLibrary, ...] = ()
    opened_libraries: tuple[DlopenedLibrary, ...] = ()
    optional_libraries: tuple[OptionalLibraries, ...] = ()
    replacements: tuple[Replacement, ...] = ()
    satellites: tuple[Satellite, ...] = ()
    traps: tuple[PackageTrap, ...] = ()

    @cached_property
    def tegra(self) -> frozenset[str]:
        """The capabilities of Tegra parts."""
        return frozenset(g.capability for g in self.gpus if g.tegra)

    @cached_property
    def companions(self) -> dict[str, str]:
        """The packages that are installed with a framework's build (torchvision), mapped to the framework."""
        companions = {text: b.framework for b in self.builds for text in b.companions}
        return {requirement_name(text): framework for text, framework in companions.items()}

    @cached_property
    def stack(self) -> frozenset[str]:
        """The packages that builds require and the plan selects.

        These are the parts of NVIDIA's toolkit, and the pinned requirements of framework builds without their
        companions.
        """
        texts = {text for row in self.toolkits for part in row.parts for text in part.split(" ")[1:]}
        texts |= {text for b in self.builds for text in b.requires}  # many rows share few texts
        return frozenset(map(requirement_name, texts)) | {r.package for r in self.cudnn}

    @cached_property
    def modules(self) -> dict[str, ImportName]:
        """The rows of modules by their names."""
        return {row.module: row for row in self.imports}

    @cached_property
    def wheels(self) -> frozenset[str]:
        """The packages of rows on names, frameworks and companions."""
        packages = [row.package for row in self.imports]
        packages += [row.package for row in self.conda_names if row.package]
        return frozenset(map(normalize_name, [*packages, *FRAMEWORKS, *self.companions]))

    def list_driver_floors(self, *, windows: bool) -> set[str]:
        """Return the oldest drivers for CUDA releases and majors."""
        rows: tuple[CudaMajor | CudaRelease, ...] = (*self.majors, *self.cuda)
        return {text for row in rows if (text := row.windows if windows else row.linux)}

    def find_driver_floor(self, cuda: str, *, windows: bool) -> str | None:
        """Return the oldest driver for a CUDA release.

        It is that of minor-version compatibility if its major has it, otherwise the native one (CUDA
        Compatibility document).
        """
        major = next((row for row in self.majors if row.major == cuda.partition(".")[0]), None)
        row = major or next((row for row in self.cuda if row.cuda == cuda), None)
        return (row.windows if windows else row.linux) if row else None
