"""Frozen values that the stages pass to each other.

Read this package first. Nothing here does I/O. Field names are the names in the JSON documents (`as_document`). An
unknown value is None. A list is a tuple, and never None. Versions are strings in their maker's form ("580.159.04",
"9.10.2.21"), and the reader compares them.

Import a value with `from provision.model import Plan`. This loads only the module that defines it, because the
creation of all classes takes longer than `verify --quick` may take.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # type checkers need all names
    from provision.model.bundle import *
    from provision.model.catalog import *
    from provision.model.cpu_build_packages import *
    from provision.model.drift import *
    from provision.model.environment import *
    from provision.model.failure_catalog import *
    from provision.model.finding_text_rows import *
    from provision.model.fleet_classes import *
    from provision.model.fleet_plans_and_locks import *
    from provision.model.fleet_results import *
    from provision.model.joint_search_values import *
    from provision.model.lock_names import *
    from provision.model.machine import *
    from provision.model.package_names_and_build_packages import *
    from provision.model.plan_and_lock import *
    from provision.model.prebuilt_wheels import *
    from provision.model.profile_package_rows import *
    from provision.model.project_checks import *
    from provision.model.request_target_and_sources import *
    from provision.model.requests import *
    from provision.model.results import *
    from provision.model.satellites import *
    from provision.model.serialize import *
    from provision.model.shared_words import *
    from provision.model.verdict import *

_MODULES = {
    "shared_words": "Device Manager Status Confidence Outcome FRAMEWORKS PROJECT_FRAMEWORKS MANAGERS PLATFORMS NVIDIA_LIBRARY_FAMILIES Event Emit drop_event",
    "machine": "TargetGpu Target Gpu Driver HostContext HardwareDevice PythonInstallation LibraryFile Evidence Finding Machine GpuMemoryHolder",
    "catalog": "Build CondaBuild CudnnRelease ToolkitRelease CudaCompiler GpuModel CudaRelease CudaMajor DriverBranch KnownBadRelease BaseImage IndexAddress Profiles ProfileTable ProfileTables PythonRelease",
    "failure_catalog": "CatalogueMessage FailureCause FailureMessage FailureRule",
    "profile_package_rows": "ImportName CondaName SystemLibrary DlopenedLibrary OptionalLibraries Replacement",
    "finding_text_rows": "FindingText",
    "satellites": "Satellite PackageTrap",
    "prebuilt_wheels": "WheelPage CxxAbi WheelGlibc BuiltFor PrebuiltWheel",
    "cpu_build_packages": "CPU_PACKAGES is_cpu_build",
    "package_names_and_build_packages": "FRAMEWORK_ALIASES WHEEL_NAMES TORCH_COMPANIONS PYTORCH_INDEX_PACKAGES normalize_name is_stack_package is_build_package",
    "requests": "FrameworkRequest VersionBound RequirementLine PROJECT_FOLDER CpuOnlyFramework ProjectRequirements ProjectTarget ProjectConfig Request AvailableWheel AvailableWheels PackageSources",
    "joint_search_values": "PassedOverBuild HeldBackPackage PackageSet",
    "request_target_and_sources": "TransitiveFrameworks RequestContext",
    "plan_and_lock": "RejectionReason RejectedBuild PlannedBuild Plan LockedPackage ExcludeNewer Lock",
    "lock_names": "VENV_LOCK CONDA_LOCK LOCK_NAMES VENV_LOCKS VENV_CLASS_LOCKS UV_LOCK_FORMAT make_lock_name find_lock_target find_lock_manager is_venv_lock",
    "fleet_classes": "FleetHost HostClass",
    "fleet_plans_and_locks": "FleetPlan PlanDifference UnservedHosts Fleet FleetLock FleetLocks",
    "fleet_results": "HostVerdict HostResult FleetResults",
    "bundle": "BundleFile BundlePython BundlePlan Bundle",
    "environment": "Environment InstalledPackage InstallRecord",
    "project_checks": "Check CheckKind CheckResult",
    "drift": "ChangeKind EnvironmentChange UnlockedPackage Drift",
    "verdict": "StageResult ConvolutionResult DeviceVerdict FrameworkVerdict Verdict NodeVerdict Findings",
    "results": "RestoredPackage RemovedPackage KeptPackage RepairResult StepFailure CreateResult ListedFramework ListedEnvironment EnvironmentList RemovedEnvironment RemoveResult PackageChange Preview CacheUsage IssueReport ExportResult RunResult WrittenFile InitResult",
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
