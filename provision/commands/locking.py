"""lock as a command, the lock that create installs, and a given lock held against this machine."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from .. import detect, resolve
from ..errors import LockError, MachineError, UsageError
from ..model import Bound, Emit, Event, Lock, Machine, Plan, Request, Target, Wanted
from ..request import ask, facts, upload_limits
from ..request import paths as where
from ..request import project_options as inproject
from ..request.options import Choices
from ..system.output_file import is_stream, refuse_to_replace
from ..wheels import locks
from .planning import by_itself, noted
from .solving import locked

LOCK_NAME = "pylock.toml"


def lock_name(choices: Choices, name: str = LOCK_NAME) -> str:
    """The name of the project's lock file: pylock.toml, of a named target pylock.NAME.toml."""
    stem, _, suffix = name.partition(".")
    return f"{stem}.{choices.target_name}.{suffix}" if choices.target_name else name


def make_lock(
    emit: Emit, choices: Choices, *, check: bool, output: Path | None, upgrade: Upgrade, force: bool
) -> Lock | Plan:
    """`gpuenv lock`: write the lock, or say whether the one that is there still holds."""
    choices = inproject.laid(choices)
    if choices.manager == "conda":
        from . import conda_locking

        return conda_locking.make_lock(
            emit, choices, check=check, output=output, upgrade=upgrade, force=force
        )
    output = output or Path(lock_name(choices))
    if not check:
        refuse_to_replace(output, force=force)
    asked = ask.judged(choices, emit)
    if told := by_itself(asked, choices):
        emit(Event(kind="warning", stage="resolve", text=f"this will be for {told}"))
    held = _held(output, strict=check)
    plan, made = locked_like(asked, choices, emit, held, upgrade)
    if made is None:
        return plan
    files = inproject.files_of(choices, asked.demands)
    made = dataclasses.replace(made, inputs=inproject.inputs(choices, files))
    if check and held:
        if inproject.same_inputs(held.inputs, choices, files):
            held = dataclasses.replace(held, inputs=made.inputs)
        return checked(emit, made, held, output, _next(choices, output))
    locks.write(output, made)
    told_of = dataclasses.replace(
        made, plan=noted(made.plan, asked, choices)
    )  # a note on this machine, not in the file
    emit(Event(kind="next", stage="lock", text=_next(choices, output)))
    return told_of


def _next(choices: Choices, output: Path) -> str:
    """What installs the lock: on the machine that it is for, or here for that machine."""
    told = choices.target_name or choices.target
    named = f" --target {shlex.quote(str(told))}" if told else ""
    which = "--locked" if output.name == lock_name(choices) else f"--lock {shlex.quote(str(output))}"
    return f"gpuenv create {which}{named}  # installs exactly {output.name}"


@dataclasses.dataclass(frozen=True)
class Upgrade:
    """Which packages of a lock that is there may move: all, or those named."""

    all: bool = False
    names: tuple[str, ...] = ()


def upgrade_of(wanted: bool, names: list[str]) -> Upgrade:
    """`--upgrade [PKG...]` as a value. Raises UsageError for names without it."""
    if names and not wanted:
        raise UsageError(f"unexpected {names[0]!r}", hint="gpuenv lock --upgrade PKG moves that package only")
    return Upgrade(all=wanted and not names, names=tuple(str(canonicalize_name(n)) for n in names))


def _held(path: Path, *, strict: bool) -> Lock | None:
    """The lock that is there. One that cannot be read is written anew, except where it is checked."""
    if not strict and (not path.exists() or is_stream(path)):
        return None
    try:
        return locks.read(path)
    except LockError:
        if strict:
            raise
        return None


def locked_like(
    asked: ask.Asked, choices: Choices, emit: Emit, held: Lock | None, upgrade: Upgrade
) -> tuple[Plan, Lock | None]:
    """A lock as near to the one that is held as what is asked for allows, under the limit that applies."""
    limit = upload_limits.applying(choices, held, renewed=upgrade.all)
    asked = dataclasses.replace(asked, sources=upload_limits.limited(asked.sources, limit))
    plan, made = _locked_near(asked, choices, emit, held, upgrade)
    return plan, dataclasses.replace(made, exclude_newer=limit) if made else None


def _locked_near(
    asked: ask.Asked, choices: Choices, emit: Emit, held: Lock | None, upgrade: Upgrade
) -> tuple[Plan, Lock | None]:
    if held is None or upgrade.all or held.plan.platform != asked.target.platform:
        return locked(asked, choices, emit)
    unknown = [n for n in upgrade.names if n not in {p.name for p in held.packages}]
    if unknown:
        raise UsageError(f"--upgrade {unknown[0]}: the lock has no such package")
    prefer = {p.name: p.version for p in held.packages if p.name not in upgrade.names and not p.unhashed}
    same = tuple(
        Bound(name=b.framework, specifier=f"=={b.version}", origin="the lock that is there")
        for b in held.plan.builds if b.framework not in upgrade.names
    )  # fmt: skip
    request = asked.request
    nearest = dataclasses.replace(
        request, bounds=(*request.bounds, *same), python=request.python or held.plan.python
    )
    built = [p.name for p in held.packages if locks.is_source(p)]
    try:
        near = dataclasses.replace(asked, request=nearest)
        plan, made = locked(near, choices, emit, prefer=prefer, from_source=built)
    except LockError as error:
        if error.unreachable:
            raise
        emit(Event(kind="note", stage="lock", text=f"not with the frameworks as locked: {error.message}"))
        made = None
    return (plan, made) if made else locked(asked, choices, emit, prefer=prefer)


def checked(emit: Emit, fresh: Lock, held: Lock, path: Path, step: str) -> Lock:
    """Show the lock that is held and what installs it, or raise LockError with what differs from a fresh one."""
    if drift := differences(held, fresh):
        raise LockError(
            f"{path} no longer is what would be locked now ({len(drift)} packages differ)",
            log="\n".join(drift), hint="gpuenv lock writes it anew",
        )  # fmt: skip
    if held.exclude_newer != fresh.exclude_newer:
        raise LockError(
            f"{path} was made with another --exclude-newer, though the packages are the same",
            hint="gpuenv lock writes it anew",
        )
    if held.inputs and fresh.inputs and held.inputs != fresh.inputs:
        raise LockError(
            f"{path} was made for other requirements than the project has now, though the packages are the same",
            hint="gpuenv lock writes it anew",
        )
    emit(Event(kind="next", stage="lock", text=step))
    return held


def differences(held: Lock, fresh: Lock) -> list[str]:
    """The packages that two locks differ in: "numpy: 1.26.4 -> 2.1.0"."""
    before = {p.name: p.version for p in held.packages}
    after = {p.name: p.version for p in fresh.packages}
    return [f"{n}: {before.get(n, 'not locked')} -> {after.get(n, 'not needed')}"
            for n in sorted(before.keys() | after.keys()) if before.get(n) != after.get(n)]  # fmt: skip


# --- a lock on this machine ------------------------------------------------------------------


def accepted(given: Lock, choices: Choices) -> Machine | None:
    """This machine, after holding the lock against it; None where the options tell of another machine,
    against which it is held then: an image is built where no GPU is. Raises LockError when it does not fit."""
    parts = {"driver", "gpus", "context", "hardware", "environment", "pythons"}
    machine = detect.detect(parts, cache=where.cache_dir(choices))
    plan, here = given.plan, machine.target
    if plan.platform != here.platform:
        raise LockError(
            f"the lock is for {plan.platform}; this machine is {here.platform}",
            hint=f"lock for it: gpuenv lock --platform {here.platform}",
        )
    elsewhere = ask.told(choices) if plan.device == "cuda" else None
    if plan.device == "cuda" and elsewhere is None:
        try:
            detect.judge_device("cuda", machine)
        except MachineError as error:
            raise LockError(f"the lock is for a GPU: {error.message}", hint=error.hint) from error
    if plan.device == "cuda":
        still_fits(plan, elsewhere or here, choices)
    _covers(plan, choices)
    return None if elsewhere else machine


def still_fits(plan: Plan, target: Target, choices: Choices) -> None:
    """Hold the locked builds against a machine's driver and GPUs. Raises LockError."""
    for build in plan.builds:
        request = Request(
            frameworks=(Wanted(name=build.framework, specifier=f"=={build.version}"),),
            cuda=build.cuda, device="cuda", python=plan.python, pre=True,
        )  # fmt: skip
        again = resolve.resolve(request, target, facts.known(choices))
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
    wanted, _ = ask.named(choices, facts.known(choices))
    held = {b.framework: b.version for b in plan.builds}
    for one in wanted:
        if one.name not in held or not SpecifierSet(one.specifier).contains(held[one.name], prereleases=True):
            have = ", ".join(f"{n} {v}" for n, v in held.items())
            raise LockError(
                f"{one.name}{one.specifier} was asked for; the lock holds {have}",
                hint="lock again: gpuenv lock",
            )
