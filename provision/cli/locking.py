"""lock as a command, the lock that create installs, and a given lock held against this machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from packaging.specifiers import SpecifierSet

from .. import detect, lock, resolve, show
from ..errors import LockError, MachineError
from ..model import Event, Lock, Machine, Plan, Request, Wanted
from . import ask
from .options import Choices
from .planning import plan_for

LOCK_NAME = "pylock.toml"
Emit = Callable[[Event], None]


def locked(asked: ask.Asked, choices: Choices, emit: Emit) -> tuple[Plan, Lock | None]:
    """The plan and its lock. With `--index auto`, an index that does not answer is left out and
    the plan made again from those that do. Raises LockError."""
    while True:
        plan = plan_for(asked, choices)
        if not plan.builds:
            return plan, None
        python = ask.interpreter(plan.python or "", asked.machine, None)
        try:
            return plan, lock.lock_venv(plan, asked.sources, emit, python=python)
        except LockError as error:
            silent = error.unreachable
            if silent is None or choices.index != "auto" or silent in asked.supply.unreachable:
                raise
            if silent == "pypi":
                raise  # everything but torch itself comes from the default index
            told = f"{error.message}; resolving again without it"
            emit(Event(kind="warning", stage="lock", text=told))
            without = (*asked.supply.unreachable, silent)
            asked = dataclasses.replace(asked, supply=dataclasses.replace(asked.supply, unreachable=without))


def make_lock(screen: show.Screen, choices: Choices, *, check: bool, output: Path | None) -> int:
    """`gpuenv lock`: write the lock, or say whether the one that is there still holds."""
    if choices.manager == "conda":
        from . import conda

        return conda.make_lock(screen, choices, check=check, output=output)
    output = output or Path(LOCK_NAME)
    emit = show.emitter(screen)
    asked = ask.judged(choices)
    plan, made = locked(asked, choices, emit)
    if made is None:
        show.result(screen, plan)
        return 5
    if check:
        return checked(screen, made, lock.read(output), output)
    lock.write(output, made)
    show.result(screen, made, next_step=f"gpuenv create --locked  # installs exactly {output.name}")
    return 0


def checked(screen: show.Screen, fresh: Lock, held: Lock, path: Path) -> int:
    """Show the lock that is held, or raise LockError with what differs from a fresh one."""
    before = {p.name: p.version for p in held.packages}
    after = {p.name: p.version for p in fresh.packages}
    drift = [f"{n}: {before.get(n, 'not locked')} -> {after.get(n, 'not needed')}"
             for n in sorted(before.keys() | after.keys()) if before.get(n) != after.get(n)]  # fmt: skip
    if drift:
        raise LockError(
            f"{path} no longer is what would be locked now ({len(drift)} packages differ)",
            log="\n".join(drift), hint="gpuenv lock writes it anew",
        )  # fmt: skip
    show.result(screen, held)
    return 0


# --- a lock on this machine ------------------------------------------------------------------


def accepted(given: Lock, choices: Choices) -> Machine:
    """This machine, after holding the lock against it. Raises LockError when it does not fit."""
    parts = {"driver", "gpus", "context", "hardware", "environment", "pythons"}
    machine = detect.detect(parts)
    plan, here = given.plan, machine.target
    if plan.platform != here.platform:
        raise LockError(
            f"the lock is for {plan.platform}; this machine is {here.platform}",
            hint=f"lock for it: gpuenv lock --platform {here.platform}",
        )
    if plan.device == "cuda":
        try:
            detect.judge_device("cuda", machine)
        except MachineError as error:
            raise LockError(f"the lock is for a GPU: {error.message}", hint=error.hint) from error
        _still_fits(plan, machine, choices)
    _covers(plan, choices)
    return machine


def _still_fits(plan: Plan, machine: Machine, choices: Choices) -> None:
    """Hold the locked builds against this machine's driver and GPUs. Raises LockError."""
    for build in plan.builds:
        request = Request(
            frameworks=(Wanted(name=build.framework, specifier=f"=={build.version}"),),
            cuda=build.cuda, device="cuda", python=plan.python, pre=True,
        )  # fmt: skip
        again = resolve.resolve(request, machine.target, ask.known(choices))
        same = [r for r in again.rejected if r.version == build.version and r.cuda == build.cuda]
        if not again.builds and same:
            reasons = "; ".join(x.text for r in same for x in r.reasons)
            raise LockError(
                f"the lock's {build.framework} {build.version} does not fit this machine: {reasons}",
                hint="lock for this machine: gpuenv lock",
            )


def _covers(plan: Plan, choices: Choices) -> None:
    if not choices.framework:
        return
    wanted, _ = ask.frameworks(choices, ask.known(choices))
    held = {b.framework: b.version for b in plan.builds}
    for one in wanted:
        if one.name not in held or not SpecifierSet(one.specifier).contains(held[one.name], prereleases=True):
            have = ", ".join(f"{n} {v}" for n, v in held.items())
            raise LockError(
                f"{one.name}{one.specifier} was asked for; the lock holds {have}",
                hint="lock again: gpuenv lock",
            )
