"""One build: what is installed where, with which settings."""

from __future__ import annotations

import functools
from pathlib import Path
from types import ModuleType
from typing import Any

from .. import detect
from ..config.options import Choices, get_cache_dir
from ..environment import state, venv
from ..environment.managers import Building, manager
from ..errors import BuildError
from ..lock.needs import WheelNeeds
from ..model import (
    CreateResult,
    Emit,
    Event,
    Lock,
    Machine,
    PackageSources,
    RequestContext,
    Verdict,
    as_document,
)
from ..model.values import dataclass


@dataclass(frozen=True, kw_only=True)
class BuildJob:
    """An environment, the lock to install in it, and the settings of the build.

    `machine` is None if this machine is not the target. `remembered` are the options that the next `create`
    compares; None keeps the recorded ones. `verify` is the option; None proves only what is not proved yet.
    With `quick` the proof leaves out the frameworks, and is not kept.
    `checks` allows the project's checks to run. With `distrust` the files of the cache are compared with their hashes.
    `context` is the request that was solved for this build, or None for a lock that was named.
    """

    env: Path
    lock: Lock
    choices: Choices
    sources: PackageSources
    emit: Emit
    machine: Machine | None = None
    remembered: dict[str, Any] | None = None
    verify: bool | None = None
    quick: bool = False
    checks: bool = True
    distrust: bool = False
    context: RequestContext | None = None

    @functools.cached_property
    def bundle(self) -> ModuleType | None:
        """What installs from a bundle, or None without one: it brings the HTTP client and the fleets."""
        if self.choices.bundle is None:
            return None
        from ..bundle import install

        return install

    @functools.cached_property
    def local_lock(self) -> Lock:
        """The lock, with the package files of a bundle if one is used."""
        return self.bundle.use_bundle_files(self.lock, self.choices) if self.bundle else self.lock

    @functools.cached_property
    def needs(self) -> WheelNeeds:
        """What the wheels of the lock need, each read once."""
        return WheelNeeds(self.emit, self.local_lock, self.choices, self.sources)

    @property
    def how(self) -> Building:
        """The settings that the manager builds with."""
        return Building(
            env=self.env, sources=self.sources, emit=self.emit, channels=tuple(self.choices.channel),
            python=self.find_python, distrust=self.distrust, fetched=self.needs.read_installed,
        )  # fmt: skip

    def find_python(self) -> str:
        """Return the interpreter to build with: an installed one, the bundle's, or one that uv downloads. Raises
        BuildError."""
        plan, choices = self.lock.plan, self.choices
        installed = detect.find_python(
            plan.python or "", self.machine, get_cache_dir(choices), exact=choices.python
        )
        if not installed and self.bundle:
            installed = self.bundle.unpack_python(choices, plan, self.env, self.emit)
        if installed:
            return installed
        wanted = choices.python or plan.python or ""
        if choices.offline:
            raise BuildError(
                f"Python {wanted} is not on this machine, and --offline forbids downloading it",
                hint="install it, or choose another version with --python",
            )
        self.emit(Event(kind="start", stage="build", text=f"downloading Python {wanted}"))
        return venv.fetch_python(wanted)

    def record(self, prefix: Path) -> None:
        """Write plan, lock, options and the installed packages into the environment at `prefix`."""
        state.note_installed(prefix, self.lock)
        self.write_record(prefix)

    def write_record(self, prefix: Path) -> None:
        """Write plan, lock and options. The options are last, because the next `create` relies on them."""
        if self.remembered is not None:
            state.write(prefix, "plan.json", as_document(self.lock.plan))
            manager(self.lock.manager).record(self.lock, prefix)
            state.write(prefix, "request.json", self.remembered)

    def created(self, verdict: Verdict | None, *, changed: bool) -> CreateResult:
        """Return the environment in its final place as the command's result."""
        return CreateResult(
            machine=self.machine,
            plan=self.lock.plan,
            lock=self.lock,
            environment=state.read_environment(self.env, changed=changed),
            verdict=verdict,
        )
