"""How the locks of each manager are read, written and judged: pylock.toml of venv, conda-lock.yml and others of conda."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from pathlib import Path

from ..config import rows
from ..config.options import Choices, check_values
from ..config.sources import check_limits
from ..errors import LockError, OtherPlatformError, UsageError
from ..model import (
    PLATFORMS,
    AvailableWheels,
    FrameworkRequest,
    Lock,
    Request,
    RequestContext,
)
from ..system import trust


class LockFormat:
    """The lock format of venv. That of conda overrides what differs."""

    OPTION = ""
    """The option for this manager after a space, or an empty text for the default manager."""
    OF_WHEELS = True
    """Whether environments are made of wheels: builds are planned before packages are solved, and uploads can be limited.
    Otherwise the solver of the channels chooses the builds, and a lock does not state the request."""
    BRINGS_PYTHON = False
    """Whether Python is a package of the lock."""
    EXTRAS: tuple[str, ...] = ()
    """The extras of gpuenv that the manager requires."""

    def require(self) -> None:
        """Raise UsageError for a missing library that locking needs."""

    def read_lock(self, path: Path, platform: str, choices: Choices) -> Lock:  # noqa: ARG002
        """Read a lock file. Raises LockError, OtherPlatformError."""
        from ..wheels import pylock

        return pylock.read(path)

    def read_locks(self, path: Path, choices: Choices) -> list[Lock]:
        """Return the locks of all platforms in a file. Raises LockError."""
        return [self.read_lock(path, "", choices)]

    def write_lock(self, path: Path, lock: Lock, *, alone: bool = False) -> None:  # noqa: ARG002
        """Write a lock file, and keep its other platforms unless `alone`. Raises LockError."""
        from ..wheels import pylock

        pylock.write(path, lock)

    def check_hashes(self, lock: Lock, origin: str, *, allow_md5: bool) -> None:
        """Raise LockError for packages without a sha256, which reading a pylock.toml rejects."""

    def assumed_gpu(self) -> str | None:
        """Return the setting that makes the manager assume a GPU, or None."""
        return None

    def check(self, lock: Lock, context: RequestContext) -> None:
        """Raise LockError for a lock that does not fit the target's driver and GPUs."""
        from ..resolve import plan_request

        plan = lock.plan
        for build in plan.builds if plan.device == "cuda" else ():
            request = Request(
                frameworks=(FrameworkRequest(name=build.framework, specifier=f"=={build.version}"),),
                cuda=build.cuda, device="cuda", python=plan.python, pre=True,
            )  # fmt: skip
            again = plan_request(
                dataclasses.replace(
                    context, request=request, available=AvailableWheels(), pythons_known=False
                )
            )
            same = [r for r in again.rejected if r.version == build.version and r.cuda == build.cuda]
            if not again.builds and same:
                reasons = "; ".join(x.text for r in same for x in r.reasons)
                raise LockError(
                    f"the lock's {build.framework} {build.version} does not fit this machine: {reasons}",
                    hint="lock for this machine: gpuenv lock",
                )


class CondaFormat(LockFormat):
    """The lock formats of conda."""

    OPTION = " --manager conda"
    OF_WHEELS = False
    BRINGS_PYTHON = True
    EXTRAS = ("conda",)

    def require(self) -> None:
        from ..conda import engine

        engine.require("rattler", "conda_lock")

    def read_lock(self, path: Path, platform: str, choices: Choices) -> Lock:
        from ..conda import locks

        return locks.read(path, platform, rows.load(choices).conda)

    def read_locks(self, path: Path, choices: Choices) -> list[Lock]:
        self.require()
        found = []
        for platform in PLATFORMS:
            with contextlib.suppress(OtherPlatformError):
                found.append(self.read_lock(path, platform, choices))
        return found

    def write_lock(self, path: Path, lock: Lock, *, alone: bool = False) -> None:
        from ..conda import locks

        locks.write(path, lock, alone=alone)

    def check_hashes(self, lock: Lock, origin: str, *, allow_md5: bool) -> None:
        """Raise LockError for packages without a sha256. With `allow_md5` an md5 is enough."""
        weak = [p for p in lock.packages if p.sha256 is None and (p.md5 is None or not allow_md5)]
        if weak:
            named = ", ".join(p.name for p in weak[:3]) + (", ..." if len(weak) > 3 else "")
            raise LockError(
                f"{origin} has no sha256 for {len(weak)} of {len(lock.packages)} packages ({named})",
                hint="accept md5 with --allow-md5" if all(p.md5 for p in weak) else "lock again with hashes",
            )

    def assumed_gpu(self) -> str | None:
        from ..conda import solver

        return solver.assumed_gpu()

    def check(self, lock: Lock, context: RequestContext) -> None:
        from ..conda import locks, solver

        asked, _ = solver.make_query(dataclasses.replace(context, request=locks.make_request(lock)))
        locks.check_target(lock, asked.virtual, asked.bounds)


_FORMATS = {"venv": LockFormat(), "conda": CondaFormat()}
NAMES = tuple(_FORMATS)
"""The names of all managers."""


def get_format(manager: str) -> LockFormat:
    """Return the lock format of a manager."""
    return _FORMATS[manager]


def find_lock_manager(lock_file: Path | None, chosen: str) -> str:
    """Return conda for a file of YAML and for a lock or list of conda by its content, and `chosen` for all others."""
    if lock_file is None or lock_file.suffix == ".toml":
        return chosen
    text = ""
    with contextlib.suppress(OSError, UnicodeDecodeError):  # reading the lock says why
        text = trust.read_project(lock_file).decode()
    of_conda = re.search(r"^(@EXPLICIT\s*$|environments:|metadata:)", text, re.MULTILINE)
    return "conda" if of_conda or lock_file.suffix in (".yml", ".yaml") else chosen


def check_choices(choices: Choices) -> None:
    """Raise UsageError for invalid options, and for those that the chosen manager does not have."""
    check_values(choices)
    chosen = get_format(choices.manager)
    check_limits(choices, kept=chosen.OF_WHEELS)
    if (python := choices.python or "").endswith("t") and not chosen.OF_WHEELS:
        raise UsageError(
            f"--python {python}: gpuenv plans no {choices.manager} environment with a free-threaded Python",
            hint=f"use --python {python.rstrip('t')}",
        )
