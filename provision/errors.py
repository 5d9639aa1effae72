"""Every way gpuenv can fail: one class for each kind of failure, with a name.

An error is a message (what happened, with the evidence), a hint (what to do), and the log of the
program that failed where there was one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # every start would pay for it
    from .model import Device, Finding, Plan


class GpuenvError(Exception):
    """Base of what gpuenv tells its user; never raised itself.

    `value` is a value that was reached before the failure and is still worth printing. `device` is what the
    environment was to be made for, where that is known: it decides which messages of the log count.
    """

    name = "error"

    def __init__(self, message: str, *, hint: str | None = None, log: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.log = log
        self.findings: tuple[Finding, ...] = ()
        self.device: Device | None = None


class UsageError(GpuenvError):
    """The command line asks for something that is not there."""

    name = "usage"


class MissingVariableError(UsageError):
    """A file names an environment variable that is not set."""

    def __init__(self, variable: str, origin: str, *, is_empty: bool = False) -> None:
        state = "is empty" if is_empty else "is not set"
        super().__init__(
            f"{origin}: a URL uses ${{{variable}}}, but the environment variable {variable} {state}",
            hint=f"set it: export {variable}=VALUE",
        )
        self.variable = variable


class DataError(GpuenvError):
    """A profile or project file is invalid. `problems` are all of them at once."""

    name = "data"

    def __init__(self, message: str, *, problems: tuple[str, ...] = (), **kwargs: str | None) -> None:
        super().__init__(message, **kwargs)
        self.problems = problems


class MachineError(GpuenvError):
    """The machine cannot be read, or its driver is broken."""

    name = "machine"


class ResolveError(GpuenvError):
    """No build fits."""

    name = "resolve"


class LockError(GpuenvError):
    """A lock cannot be made, read or used. `unreachable` is the index that did not
    answer, where that is why; `contradiction` says that no versions of the packages go together,
    `no_wheel` names the package that has no wheel for this Python and platform, `brought` the frameworks
    that came along though the plan does not hold them, `unbuilt` the package that would have to be built for its
    metadata ("" where it has no name), `companion` a package that is to be had only for another build of the
    planned framework, `absent` a package that no index has. `plan` is the plan whose packages were refused, where another plan may do."""

    name = "lock"

    def __init__(
        self,
        message: str,
        *,
        unreachable: str | None = None,
        contradiction: bool = False,
        no_wheel: str | None = None,
        brought: tuple[str, ...] = (),
        unbuilt: str | None = None,
        companion: str | None = None,
        absent: str | None = None,
        **kwargs: str | None,
    ) -> None:
        super().__init__(message, **kwargs)
        self.absent = absent
        self.unreachable = unreachable
        self.contradiction = contradiction
        self.no_wheel = no_wheel
        self.brought = brought
        self.unbuilt = unbuilt
        self.companion = companion
        self.plan: Plan | None = None


class OtherPlatformError(LockError):
    """A lock has no packages for the platform (exit 6)."""


class BuildError(GpuenvError):
    """The environment could not be built; nothing half-made stays. `folder` is the folder of a source whose own
    build failed."""

    name = "build"
    folder: str | None = None


class VerifyError(GpuenvError):
    """Verification could not give a verdict, or gave a bad one."""

    name = "verify"
