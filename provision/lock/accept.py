"""Read a lock file, and check whether this machine may and can install it: its target, its hosts and the user's grants."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from pathlib import Path

from .. import detect
from ..config import rows
from ..config.grants import read_user_grants
from ..config.options import Choices, get_cache_dir
from ..config.target import described_target
from ..errors import LockError, MachineError, MissingVariableError, OtherPlatformError
from ..model import (
    AvailableWheels,
    Emit,
    Event,
    Lock,
    Machine,
    PackageSources,
    Plan,
    Request,
    RequestContext,
    Target,
)
from ..system import grants, process, untrusted
from ..system.files import is_stream
from ..system.versions import meets
from .formats import get_format
from .request import read_named


def accept_lock(lock: Lock, choices: Choices) -> Machine | None:
    """Return this machine after checking a lock against it.

    Return None if the options describe another machine with a GPU; the lock is then checked against that. An
    image can be built where no GPU is. Raises LockError.
    """
    cache = get_cache_dir(choices)
    machine = detect.detect(detect.MACHINE | {"pythons"}, cache=cache)
    plan, lock_format = lock.plan, get_format(lock.manager)
    if plan.platform != machine.target.platform:
        raise LockError(
            f"the lock is for {plan.platform}; this machine is {machine.target.platform}",
            hint=f"create a lock for this platform: gpuenv lock{lock_format.OPTION} --platform {machine.target.platform}",
        )
    elsewhere = described_target(choices)
    if plan.device == "cuda" and elsewhere is None and not lock_format.assumed_gpu():
        try:
            detect.judge_device("cuda", machine)
        except MachineError as error:
            raise LockError(f"the lock is for a GPU: {error.message}", hint=error.hint) from error
    check_lock(lock, choices, elsewhere or machine.target, machine)
    _check_frameworks(plan, choices)
    return None if elsewhere and plan.device == "cuda" else machine


def check_lock(lock: Lock, choices: Choices, target: Target, machine: Machine | None) -> None:
    """Raise LockError if a lock does not fit a target. `machine` is this one if the lock is installed here."""
    lock_format = get_format(lock.manager)
    if lock_format.OF_WHEELS and lock.plan.device == "cpu":
        return  # wheels for the CPU fit every machine of their platform
    context = RequestContext(
        request=Request(frameworks=()), target=target, machine=machine, profiles=rows.load(choices),
        available=AvailableWheels(), sources=PackageSources(), channels=tuple(choices.channel),
    )  # fmt: skip
    lock_format.check(lock, context)


def read_lock(path: Path, choices: Choices, platform: str | None = None) -> Lock:
    """Return the lock of a file of the chosen manager, for the named platform or this one.

    Raises LockError, and GrantError for an address with a variable that the user did not grant.
    """
    platform = platform or choices.platform or detect.detect(()).target.platform
    lock = get_format(choices.manager).read_lock(path, platform, choices)
    if not choices.bundle:  # its packages come from its folder
        check_grants(lock, path, choices)
    return lock


_ADDRESS = re.compile(r"[a-z]+://[^\s\"']+")


def check_grants(lock: Lock, path: Path, choices: Choices) -> None:
    """Raise GrantError for the first address of a lock with a variable that the user did not grant to its server."""
    addresses = [p.url for p in lock.packages if grants.list_variables(p.url)]
    if not addresses:
        return
    read_user_grants(choices)
    lines = untrusted.read_text(path).splitlines()
    for address in addresses:
        bare = address.removeprefix("git+")  # the file has a commit on another line
        number = next(
            (n for n, line in enumerate(lines, 1) if any(map(bare.startswith, _ADDRESS.findall(line)))), None
        )
        with contextlib.suppress(MissingVariableError):  # nothing is sent; the installation names it
            grants.expand(address, f"{path.name} line {number}" if number else path.name, process.environ())


def name_hosts(lock: Lock, choices: Choices, emit: Emit) -> Lock:
    """Emit the servers of a lock's packages that are neither a configured index nor one of the profiles.

    Return the lock with this note in its plan. Packages of indexes come from the configured ones, by hash.
    """
    known = {grants.origin(row.url) for row in rows.load(choices).indexes}
    direct = [p for p in lock.packages if p.index is None and not p.is_conda]
    servers: dict[str, list[str]] = {}
    for package in direct:
        to = grants.origin(re.sub(grants.REFERENCE, "x", package.url))
        if to and to not in known and not grants.is_own_origin(package.url):
            servers.setdefault(to, []).append(package.name)
    if not servers:
        return lock
    text = "; ".join(f"{to} ({', '.join(names)})" for to, names in servers.items())
    note = f"the lock names servers that are no configured index: {text}"
    emit(Event("warning", "lock", note))
    notes = tuple(dict.fromkeys([*lock.plan.notes, note]))
    return dataclasses.replace(lock, plan=dataclasses.replace(lock.plan, notes=notes))


def _check_frameworks(plan: Plan, choices: Choices) -> None:
    """Raise LockError if a requested framework is not in the lock's plan."""
    if not choices.framework:
        return
    wanted, _ = read_named(choices, rows.load(choices))
    locked = {b.framework: b.version for b in plan.builds}
    for one in wanted:
        if one.name not in locked or not meets(locked[one.name], one.specifier):
            have = ", ".join(f"{n} {v}" for n, v in locked.items())
            raise LockError(
                f"{one.name}{one.specifier} is required; the lock has {have}",
                hint="lock again: gpuenv lock",
            )


def read_old_lock(path: Path, choices: Choices, platform: str, emit: Emit) -> Lock | None:
    """Return the lock that a new one replaces, or None if there is none for the platform, or a damaged one, which is named."""
    if not path.exists() or is_stream(path):
        return None
    try:
        return read_lock(path, choices, platform)
    except OtherPlatformError:
        return None
    except LockError as error:
        emit(Event("warning", "lock", f"{error.message}; its versions are not kept"))
        return None
