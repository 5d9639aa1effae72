"""A built environment, the packages installed into it, its differences from the lock, and lists of environments."""

from typing import Literal

from .values import Value

ChangeKind = Literal["replaced", "removed", "modified", "overwritten", "python", "driver", "gpu"]


class EnvironmentChange(Value):
    """One difference from the lock, as a sentence in `text`.

    It is a package, the Python, or the machine's driver and GPUs. A package has another version, is
    missing, was changed after its installation, or was overwritten by the unlocked package `by`. `paths` are files
    that show it.
    """

    kind: ChangeKind
    name: str
    text: str
    locked: str | None = None
    found: str | None = None
    by: str | None = None
    paths: tuple[str, ...] = ()


class UnlockedPackage(Value):
    """An installed package that the lock does not name.

    `over` are the locked packages that share files with it, with other bytes. `requires` are the names that it
    requires, including those of extras. `conda` is True for a package of a channel.
    """

    name: str
    version: str
    over: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    conda: bool = False


class Drift(Value):
    """All differences between an environment and its lock."""

    changes: tuple[EnvironmentChange, ...] = ()
    strangers: tuple[UnlockedPackage, ...] = ()


class Environment(Value):
    """A built environment: absolute `path`, its `python` executable, and whether it was `changed`.

    `drift` are its differences from the lock. It is empty if they were not compared or if a verdict has them.
    """

    SCHEMA = "gpuenv.environment/1"

    path: str
    manager: str | None
    python: str
    python_version: str | None = None
    made_by_gpuenv: bool = False
    changed: bool = False
    drift: tuple[EnvironmentChange, ...] = ()


class InstalledPackage(Value):
    """A distribution when it was installed: the sha256 of its RECORD, or None without a RECORD."""

    name: str
    version: str
    record: str | None = None


class InstallRecord(Value):
    """The packages that a lock installed, written when the environment was built: `.gpuenv/installed.json`."""

    SCHEMA = "gpuenv.installed/1"

    packages: tuple[InstalledPackage, ...] = ()


class ListedFramework(Value):
    """A framework that an environment was created for."""

    name: str
    version: str
    cuda: str | None = None


class ListedEnvironment(Value):
    """An environment that gpuenv made, as `list` shows it.

    `verdict` is the last one, and `verified` its time (ISO 8601, UTC). `bytes` is its size on disk, or None if the
    measurement would take too long. `shared_bytes` is the part in files that have other names elsewhere.
    """

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


class EnvironmentList(Value):
    """The environments that gpuenv made on this machine."""

    SCHEMA = "gpuenv.list/1"

    environments: tuple[ListedEnvironment, ...] = ()


class RemovedEnvironment(Value):
    """A removed environment: its size, the space that was freed, and its removed Jupyter kernels."""

    path: str
    bytes: int
    freed_bytes: int
    kernels: tuple[str, ...] = ()


class RemoveResult(Value):
    """The result of `remove`."""

    SCHEMA = "gpuenv.remove/1"

    removed: tuple[RemovedEnvironment, ...] = ()
