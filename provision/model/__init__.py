"""Frozen values that the stages pass to each other.

Read this package first. Nothing here does I/O. Field names are the names in the JSON documents (`as_document`). An
unknown value is None. A list is a tuple, and never None. Versions are strings in their maker's form ("580.159.04",
"9.10.2.21"), and the reader compares them.

Import a value with `from provision.model import Plan`. This loads only the module that defines it, because the
creation of all classes takes longer than `verify --quick` may take.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # type checkers need all names
    from .catalog import *
    from .environment import *
    from .fleet import *
    from .machine import *
    from .plan import *
    from .request import *
    from .results import *
    from .serialize import *
    from .verdict import *
    from .words import *

_MODULES = {
    "words": "Device Manager Status Confidence CONFIDENCES Outcome CheckKind FRAMEWORKS PROJECT_FRAMEWORKS MANAGERS PLATFORMS CONDA_SUBDIRS ASSUMED_GLIBC NVIDIA_LIBRARY_FAMILIES Event Emit drop_event name_few format_bytes format_cuda format_label format_cudnn CPU_PACKAGES is_cpu_build FRAMEWORK_ALIASES WHEEL_NAMES TORCH_COMPANIONS PYTORCH_INDEX_PACKAGES normalize_name requirement_name is_stack_package is_build_package VENV_LOCK CONDA_LOCK LOCK_NAMES VENV_LOCKS VENV_CLASS_LOCKS UV_LOCK_FORMAT make_lock_name find_lock_target is_venv_lock",
    "machine": "MEMORY_GROWTH TargetGpu Target Gpu Driver HostContext HardwareDevice PythonInstallation LibraryFile TO_CHECK Evidence Finding Machine VariantProperties GpuMemoryHolder",
    "catalog": "Build CondaBuild CudnnRelease ToolkitRelease CudaCompiler RuntimeCompiler GpuModel CudaRelease CudaMajor DriverBranch KnownBadRelease CompanionLimit BaseImage IndexAddress Profiles PythonRelease CatalogueMessage FailureCause FailureFix FailureMessage FailureRule Sign Launcher KnownProgram ImportName RemovedNames CondaName SystemLibrary DlopenedLibrary OptionalLibraries Replacement FindingText Satellite PackageTrap ListedWheels WheelPage CxxAbi WheelGlibc BuiltFor PrebuiltWheel",
    "request": "FrameworkRequest VersionBound RequirementLine PROJECT_FOLDER CpuOnlyFramework Check ProjectRequirements ProjectTarget ProjectConfig Request AvailableWheel AvailableWheels PackageSources RequestContext",
    "plan": "HeldBackPackage PackageSet RejectionReason RejectedBuild PlannedBuild Plan LockedPackage ExcludeNewer Lock FleetHost HostClass",
    "fleet": "FleetPlan PlanDifference UnservedHosts VersionCount HeldHosts PlanPrice Fleet FleetLock FleetLocks HostVerdict HostResult PastResult FleetResults BundleFile BundlePython BundlePlan Bundle",
    "environment": "Environment InstalledPackage InstallRecord ChangeKind EnvironmentChange UnlockedPackage Drift ListedFramework ListedEnvironment EnvironmentList RemovedEnvironment RemoveResult",
    "verdict": "CheckResult StageResult GradedResult DeviceVerdict FrameworkVerdict Verdict NodeVerdict ContextValue Findings is_expected",
    "results": "PackageChange Preview CacheUsage IssueReport ExportResult WrittenFile InitDecision InitResult ProfileTable ProfileTables RestoredPackage RemovedPackage KeptPackage RepairResult StepFailure CreateResult RunResult is_good",
    "serialize": "as_plain as_document check_forms from_plain",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}
__all__ = tuple(_MODULE_OF)  # the names above


def __dir__() -> list[str]:
    """Return all names, including those of modules that are not loaded yet."""
    return sorted({*globals(), *_MODULE_OF})


def __getattr__(name: str) -> Any:
    """Return a value from the module that defines it. Raises AttributeError for an unknown name."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
