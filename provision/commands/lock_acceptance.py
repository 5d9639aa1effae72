"""Check whether a lock can be installed on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from packaging.specifiers import SpecifierSet

from .. import detect
from ..errors import LockError, MachineError
from ..managers.protocol import locking
from ..model import AvailableWheels, Lock, Machine, PackageSources, Plan, Request, RequestContext, Target
from ..request import load_profiles, options_to_request, paths_of_environment_and_cache as where
from ..request.shared_options import Choices
from .functions_for_managers import get_stages
from .read_request import described_target, get_locking

_PARTS = ("driver", "gpus", "context", "hardware", "environment", "pythons")


def accept_lock(lock: Lock, choices: Choices) -> Machine | None:
    """Return this machine after checking a lock against it.

    Return None if the options describe another machine with a GPU; the lock is then checked against that. An
    image can be built where no GPU is. Raises LockError.
    """
    cache = where.get_cache_dir(choices)
    machine = detect.detect(_PARTS, cache=cache)
    plan, way = lock.plan, locking(lock.manager)
    if plan.platform != machine.target.platform:
        raise LockError(
            f"the lock is for {plan.platform}; this machine is {machine.target.platform}",
            hint=f"create a lock for this platform: gpuenv lock{way.OPTION} --platform {machine.target.platform}",
        )
    elsewhere = described_target(choices)
    if plan.device == "cuda" and elsewhere is None and not way.assumed_gpu():
        try:
            detect.judge_device("cuda", machine)
        except MachineError as error:
            raise LockError(f"the lock is for a GPU: {error.message}", hint=error.hint) from error
    check_lock(lock, choices, elsewhere or machine.target, machine)
    _check_frameworks(plan, choices)
    return None if elsewhere and plan.device == "cuda" else machine


def check_lock(lock: Lock, choices: Choices, target: Target, machine: Machine | None) -> None:
    """Raise LockError if a lock does not fit a target. `machine` is this one if the lock is installed here."""
    context = RequestContext(
        request=Request(frameworks=()), target=target, machine=machine, profiles=load_profiles.load_all(choices),
        supply=AvailableWheels(), sources=PackageSources(), channels=tuple(choices.channel),
    )  # fmt: skip
    locking(lock.manager).check(lock, context, get_stages(where.get_cache_dir(choices)))


def virtual_packages(context: RequestContext, choices: Choices) -> tuple[Mapping[str, str], ...]:
    """Return the packages that represent properties of the target, as the manager's lock stores them."""
    return locking(context.request.manager).virtual_packages(
        context, get_stages(where.get_cache_dir(choices))
    )


def read_lock(path: Path, choices: Choices, platform: str | None = None) -> Lock:
    """Return the lock of a file of the chosen manager, for the named platform or this one. Raises LockError."""
    platform = platform or choices.platform or detect.detect(()).target.platform
    return get_locking(choices).read_lock(path, platform, lambda: load_profiles.load_all(choices))


def _check_frameworks(plan: Plan, choices: Choices) -> None:
    """Raise LockError if a requested framework is not in the lock's plan."""
    if not choices.framework:
        return
    wanted, _ = options_to_request.read_named(choices, load_profiles.load_all(choices))
    locked = {b.framework: b.version for b in plan.builds}
    for one in wanted:
        if one.name not in locked or not SpecifierSet(one.specifier).contains(
            locked[one.name], prereleases=True
        ):
            have = ", ".join(f"{n} {v}" for n, v in locked.items())
            raise LockError(
                f"{one.name}{one.specifier} is required; the lock has {have}",
                hint="lock again: gpuenv lock",
            )
