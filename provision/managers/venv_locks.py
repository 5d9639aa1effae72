"""Locks of the manager `venv`: pylock.toml with wheels that uv solves for a plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

from ..errors import LockError
from ..index import pytorch_index
from ..index.prebuilt_names import label_of
from ..model import (
    AvailableWheels,
    Event,
    FrameworkRequest,
    Lock,
    PackageSources,
    Plan,
    PlannedBuild,
    PrebuiltWheel,
    Profiles,
    Request,
    RequestContext,
    RequirementLine,
)
from ..system.redaction import redact
from .protocol import Preferred, Stages, Task

if TYPE_CHECKING:
    from ..wheels.prebuilt_choice import PrebuiltChoice

OPTION = ""
PLANS_FIRST = True
BRINGS_PYTHON = False
KEEPS_UPLOAD_LIMITS = True
EXTRAS: tuple[str, ...] = ()


def require() -> None:
    """Do nothing: uv is a dependency of gpuenv."""


def read_lock(path: Path, _platform: str, _known: Callable[[], Profiles]) -> Lock:
    """Read a pylock.toml. Raises LockError."""
    from ..wheels import pylock

    return pylock.read(path)


def write_lock(
    path: Path,
    lock: Lock,
    _virtual: tuple[Mapping[str, str], ...],
    *,
    alone: bool = False,  # noqa: ARG001  # part of the protocol
) -> None:
    """Write a pylock.toml for one platform. Raises LockError."""
    from ..wheels import pylock

    pylock.write(path, lock)


def check_hashes(lock: Lock, origin: str, *, allow_md5: bool) -> None:
    """Do nothing: reading rejects a pylock.toml without a sha256."""


def assumed_gpu() -> str | None:
    """Return None: uv and pip have no setting for GPUs."""
    return None


def virtual_packages(_asked: RequestContext, _stages: Stages) -> tuple[Mapping[str, str], ...]:
    """Return nothing: wheels have no virtual packages."""
    return ()


def check(lock: Lock, context: RequestContext, stages: Stages) -> None:
    """Raise LockError for a locked build that does not fit the target's driver and GPUs."""
    plan = lock.plan
    for build in plan.builds if plan.device == "cuda" else ():
        request = Request(
            frameworks=(FrameworkRequest(name=build.framework, specifier=f"=={build.version}"),),
            cuda=build.cuda, device="cuda", python=plan.python, pre=True,
        )  # fmt: skip
        again = stages.plan(
            dataclasses.replace(context, request=request, supply=AvailableWheels(), pythons_known=False)
        )
        same = [r for r in again.rejected if r.version == build.version and r.cuda == build.cuda]
        if not again.builds and same:
            reasons = "; ".join(x.text for r in same for x in r.reasons)
            raise LockError(
                f"the lock's {build.framework} {build.version} does not fit this machine: {reasons}",
                hint="lock for this machine: gpuenv lock",
            )


def search(task: Task) -> VenvSearch:
    """Return a new search for a lock."""
    packages = task.near.lock.packages if task.near.lock else ()
    versions = {p.name: p.version for p in packages if p.name not in task.near.moving and not p.unhashed}
    return VenvSearch(task, Preferred(versions, task.emit))


@dataclasses.dataclass
class VenvSearch:
    """A search that makes a plan before each attempt."""

    task: Task
    preferred: Preferred

    def solve(self, context: RequestContext) -> tuple[Plan, Lock | None]:
        """Plan, then solve the plan's wheels. Raises LockError."""
        plan = self.task.stages.plan(context)
        if not plan.builds:
            return plan, None
        try:
            lock = self.preferred.solved(plan, lambda versions: self._check_and_lock(context, plan, versions))
        except LockError as error:
            if (kept := self._lock_from_cache(context, plan, error)) is None:
                raise
            return plan, kept
        self._warn_of_cuda_wheels(context, plan, lock)
        return plan, lock

    def _check_and_lock(self, context: RequestContext, plan: Plan, versions: Mapping[str, str]) -> Lock:
        _check_index(context.sources, plan)
        return self._lock(context, plan, self._add_pages(context, plan), versions)

    def _lock(
        self, context: RequestContext, plan: Plan, sources: PackageSources, versions: Mapping[str, str]
    ) -> Lock:
        from ..wheels import solve_wheels

        pins = {canonicalize_name(Requirement(pin).name): pin for pin in context.request.pins}
        prebuilt = self._prebuilt_choice(context, plan, sources)
        pinned = dataclasses.replace(
            plan, packages=tuple(prebuilt.require(_pin_to(p, pins)) for p in plan.packages)
        )
        needs = prebuilt.require_lines(
            dataclasses.replace(n, text=_pin_to(n.text, pins)) if _is_of_index(n) else n
            for n in context.demands.needs
        )
        options = solve_wheels.SolveOptions(
            python=self.task.stages.interpreter(plan.python or "", context.machine),
            needs=(*needs, *_make_limits(context)), prefer=versions, builds=self.task.builds,
        )  # fmt: skip
        lock = solve_wheels.lock(pinned, sources, self.task.emit, options)
        return dataclasses.replace(lock, plan=plan)

    def _prebuilt_choice(
        self, context: RequestContext, plan: Plan, sources: PackageSources
    ) -> PrebuiltChoice:
        from ..wheels.prebuilt_choice import PrebuiltChoice

        near = self.task.near
        locked = {p.name: p for p in near.lock.packages if p.name not in near.moving} if near.lock else {}
        searched: dict[str, PrebuiltWheel | None] = {
            str(canonicalize_name(Requirement(pin).name)): None for pin in context.request.pins
        }
        searched |= {w.package: w for w in context.joint.prebuilt} if context.joint else {}
        return PrebuiltChoice(
            plan, context.profiles, sources, locked, searched, lambda text: self._tell(text, "warning")
        )

    def _add_pages(self, context: RequestContext, plan: Plan) -> PackageSources:
        """Return the sources with the pages whose file names have no rule, if their packages are required."""
        sources = context.sources
        wanted = {n.name for n in context.demands.needs}
        wanted |= {str(canonicalize_name(Requirement(p).name)) for p in context.request.packages}
        pages = [
            page.url.format(version=build.version, label=label_of(build.cuda))
            for build in plan.builds
            for page in context.profiles.pages
            if page.framework == build.framework and not page.local and wanted & set(page.packages)
        ]
        if not pages or sources.offline or sources.no_index:
            return sources
        self._tell(f"searching for wheels compiled against the plan's build at {', '.join(pages)}")
        return dataclasses.replace(sources, find_links=(*sources.find_links, *pages))

    def _lock_from_cache(self, context: RequestContext, plan: Plan, error: LockError) -> Lock | None:
        """Return the lock of a CPU build from the installer's cache if its index does not answer.

        Returns None if the cache lacks the wheel or a dependency.
        """
        from ..wheels.cache_and_disk import is_cached

        if error.unreachable != "pytorch" or context.request.device != "cpu":
            return None
        if not all(is_cached(context.sources, b.package_name, _format_pin(b)) for b in plan.builds):
            return None
        cached = dataclasses.replace(context.sources, offline=True, find_links=())
        try:
            lock = self._lock(context, plan, cached, self.preferred.versions)
        except LockError:
            return None
        self._tell(f"{error.message}; using wheels from the cache")
        return lock

    def _warn_of_cuda_wheels(self, context: RequestContext, plan: Plan, lock: Lock) -> None:
        """Emit a warning about the download of a CUDA build for a CPU, with the reason and the alternative."""
        from ..wheels.cache_and_disk import size

        builds = [b for b in plan.builds if b.cuda]
        if context.request.device != "cpu" or not builds or not context.supply.unreachable:
            return
        names = {b.package_name for b in builds} | {
            canonicalize_name(Requirement(r).name) for b in builds for r in b.requirements
        }
        total = sum(p.size or 0 for p in lock.packages if p.name in names or p.name.startswith("nvidia-"))
        builds_text = " and ".join(f"{b.framework} {b.version}" for b in builds)
        self._tell(
            f"the PyTorch index does not respond, so the wheels of {builds_text} include CUDA ({size(total)}). To avoid this "
            "download, use --find-links FOLDER with a CPU wheel. Or set GPUENV_INDEX_PYTORCH to a mirror",
            "warning",
        )

    def _tell(self, text: str, kind: str = "note") -> None:
        self.task.emit(Event(kind=kind, stage="lock", text=text))


def _is_of_index(need: RequirementLine) -> bool:
    """Return whether a requirement is for a release of an index."""
    return bool(need.name) and not (need.local or need.vcs or need.constraint)


def _pin_to(text: str, pins: Mapping[NormalizedName, str]) -> str:
    """Return a requirement with the release of the newest set as its bounds.

    As a separate constraint, the release would hide the other reasons in the solver's explanation.
    """
    need = Requirement(text)
    pin = pins.get(canonicalize_name(need.name))
    if pin is None or need.url:
        return text
    need.specifier = Requirement(pin).specifier
    return str(need)


def _make_limits(context: RequestContext) -> list[RequirementLine]:
    """Return limits on possible dependencies, some releases of which conflict with the plan's builds."""
    return [
        RequirementLine(
            text=text,
            origin="library requirements measured from the wheels",
            name=canonicalize_name(Requirement(text).name),
            constraint=True,
        )
        for text in (context.joint.limits if context.joint else ())
    ]


def _check_index(sources: PackageSources, plan: Plan) -> None:
    """Raise LockError if the plan needs the PyTorch index and a connection fails.

    The solver would retry it several times, for some seconds each.
    """
    if sources.offline or sources.no_index or not pytorch_index.list_index_packages(plan):
        return
    from ..index.http_refusals import NETWORK_HINT
    from ..index.resolve_and_connect import find_connection_error

    address = pytorch_index.address(sources.pytorch, plan)
    if why := find_connection_error(address, sources.proxy):
        raise LockError(
            f"the package index {redact(address)} {why}", hint=NETWORK_HINT, unreachable="pytorch"
        )


def _format_pin(build: PlannedBuild) -> str:
    """Return the version of a build with its label: "2.13.0+cpu"."""
    pins = (Requirement(text) for text in build.requirements)
    exact = (
        s.version
        for pin in pins
        if pin.name == build.package_name
        for s in pin.specifier
        if s.operator == "==="
    )
    return next(exact, build.version)
