"""Exceptions of gpuenv: one class for each kind of failure.

An error has a message (what failed, with the evidence) and a hint (what to do). The log of a failed program is
attached if one exists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # only for types, as importing it costs time at every start
    from .model import Device, Finding


class GpuenvError(Exception):
    """Base class of gpuenv's errors, never raised itself.

    `findings` are the causes that were diagnosed. `device` is the device of the environment, if known. It decides
    which messages of the log count.
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
    """A command line that asks for something impossible or unknown."""

    name = "usage"


class MissingVariableError(UsageError):
    """A file that names an unset environment variable."""

    def __init__(self, variable: str, origin: str, *, is_empty: bool = False) -> None:
        state = "is empty" if is_empty else "is not set"
        super().__init__(
            f"{origin}: a URL uses ${{{variable}}}, but the environment variable {variable} {state}",
            hint=f"set it: export {variable}=VALUE",
        )
        self.variable = variable


class MissingPathError(UsageError):
    """A file that requires a folder or an archive which is not there."""


class GrantError(UsageError):
    """A file or a lock that names a variable for a server that the user did not grant it to."""


class DataError(GpuenvError):
    """An invalid profile or project file. `problems` are all of its mistakes."""

    name = "data"

    def __init__(self, message: str, *, problems: tuple[str, ...] = (), **kwargs: str | None) -> None:
        super().__init__(message, **kwargs)
        self.problems = problems


class MachineError(GpuenvError):
    """A machine that cannot be read, or that has a broken driver."""

    name = "machine"


class ResolveError(GpuenvError):
    """A request that no build fits."""

    name = "resolve"


class LockError(GpuenvError):
    """A lock that cannot be made, read or used.

    `unreachable` is the index or page that did not answer. `contradiction` is True if the requirements conflict, and
    `named` are the requested packages that the reasons name. `pythons` are bounds on Python in these reasons.
    `no_wheel` is the package without a wheel for this Python and platform. `unbuilt` is a package whose metadata only a
    build can state, or "" if its name is unknown. `failed` is a package whose metadata could not be built. `absent` is
    a package that no index has.
    """

    name = "lock"

    # Each parameter is one reason that callers handle in another way. Raisers give few of them.
    def __init__(
        self,
        message: str,
        *,
        unreachable: str | None = None,
        contradiction: bool = False,
        named: tuple[str, ...] = (),
        pythons: tuple[str, ...] = (),
        no_wheel: str | None = None,
        unbuilt: str | None = None,
        absent: str | None = None,
        **kwargs: str | None,
    ) -> None:
        super().__init__(message, **kwargs)
        self.absent = absent
        self.unreachable = unreachable
        self.contradiction = contradiction
        self.named = named
        self.pythons = pythons
        self.no_wheel = no_wheel
        self.unbuilt = unbuilt
        self.failed: str | None = None


class OtherPlatformError(LockError):
    """A lock without packages for the platform (exit 6)."""


class VerifyError(GpuenvError):
    """An environment of gpuenv that cannot be verified, because its Python is gone."""

    name = "verify"


class BuildError(GpuenvError):
    """An environment that could not be built; no partial environment remains.

    `folder` is the folder of a source whose own build failed.
    """

    name = "build"
    folder: str | None = None
