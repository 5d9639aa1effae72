"""The results of `create`, `repair` and `run`: what the stages gave."""

from typing import ClassVar

from .commands import PackageChange
from .environment import Environment
from .machine import Finding, Machine
from .plan import Lock, Plan
from .values import dataclass
from .verdict import Verdict, is_expected


@dataclass(frozen=True, kw_only=True, slots=True)
class RestoredPackage:
    """A restored package: the version it `had` (None if it was missing), and has `now`."""

    name: str
    had: str | None
    now: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RemovedPackage:
    """A removed package that the lock does not name."""

    name: str
    version: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptPackage:
    """A package that the lock does not name, and that was kept."""

    name: str
    version: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RepairResult:
    """The result of `repair`. `packages` and `removed` are empty if the environment equalled its lock."""

    SCHEMA: ClassVar[str] = "gpuenv.repair/1"

    packages: tuple[RestoredPackage, ...] = ()
    removed: tuple[RemovedPackage, ...] = ()
    left: tuple[KeptPackage, ...] = ()
    environment: Environment | None = None
    verdict: Verdict | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class StepFailure:
    """The failure of a last step, with the name of the error's class ("usage", "build")."""

    name: str
    message: str
    hint: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CreateResult:
    """The result of `create`, with the values of all stages that ran.

    `packages` are those that an update of an environment added, removed or replaced. `kernel` is the name of a requested Jupyter kernel, and `kernel_error` the reason why there is none.
    """

    SCHEMA: ClassVar[str] = "gpuenv.create/1"

    machine: Machine | None = None
    plan: Plan | None = None
    lock: Lock | None = None
    environment: Environment | None = None
    verdict: Verdict | None = None
    packages: tuple[PackageChange, ...] = ()
    kernel: str | None = None
    kernel_error: StepFailure | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunResult:
    """The result of `gpuenv run`: the program's exit code, and the diagnosis of its failure.

    For a program that a signal ended, the exit code is 128 plus the signal's number, and `signal` its name.
    """

    SCHEMA: ClassVar[str] = "gpuenv.run/1"

    env: str
    command: tuple[str, ...]
    code: int
    signal: str | None = None
    findings: tuple[Finding, ...] = ()


def is_good(result: CreateResult) -> bool:
    """Return whether the environment exists and its verdict, if any, matches its device."""
    if result.environment is None:
        return False
    device = result.plan.device if result.plan else None
    return result.verdict is None or is_expected(result.verdict, device)
