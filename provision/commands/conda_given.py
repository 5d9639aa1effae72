"""Locks that are given: gpuenv's own conda-lock.yml and those of others, held against this machine."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from .. import detect
from ..environment import place
from ..errors import LockError, MachineError
from ..managers.conda import foreign_locks as conda_foreign
from ..managers.conda import lock_file as conda_file
from ..managers.conda import question as conda_target
from ..model import Emit, Lock, Machine, Profiles, as_plain
from ..request import ask, facts
from ..request.options import Choices
from ..wheels.locks import read_in
from . import given_lock
from .creating import How


def lock_for(env: Path, choices: Choices, how: How, emit: Emit) -> Lock | None:
    """The lock that --locked, --frozen or --lock names; the environment's own where nothing is named."""
    if not (how.lock_file or how.locked or how.frozen):
        return read_in(env / place.MARK) if given_lock.names_nothing(env, choices) else None
    path = how.lock_file
    if path is None:
        named = f"{choices.target_name}.{conda_file.NAME}" if choices.target_name else conda_file.NAME
        path = Path.cwd() / named
        given_lock.require(path, env / place.MARK / "conda-lock.yml", how)
    platform = detect.detect(()).target.platform
    given = read(path, platform, facts.known(choices), allow_md5=how.allow_md5)
    if how.locked and not how.lock_file:
        given_lock.refuse_stale(path, given, choices, emit, lambda c: _solved(c, given, emit))
    return given


def _solved(choices: Choices, given: Lock, emit: Emit) -> Lock:
    """What would be locked now, for the lock's own target and as near to it as can be. Raises LockError."""
    from ..managers.conda.search import Near
    from . import conda_locking

    at_lock = given_lock.at_lock(choices, given)
    return conda_locking.locked(conda_target.judged(at_lock, emit), at_lock, emit, Near(given))[0]


def read(path: Path, platform: str, known: Profiles, *, allow_md5: bool) -> Lock:
    """Any conda lock as a value. Raises LockError."""
    made = conda_foreign.read(path, platform, known.conda)
    assert_hashed(made, str(path), allow_md5=allow_md5)
    return made


def assert_hashed(made: Lock, where: str, *, allow_md5: bool) -> None:
    """Raise LockError for packages without a sha256; an md5 will do only where the user says so."""
    weak = [p.name for p in made.packages if p.sha256 is None and (p.md5 is None or not allow_md5)]
    if weak:
        named = ", ".join(weak[:3]) + (", ..." if len(weak) > 3 else "")
        raise LockError(
            f"{where} has no sha256 for {len(weak)} of {len(made.packages)} packages ({named})",
            hint="--allow-md5 takes it with md5 alone"
            if all(p.md5 for p in made.packages if p.name in weak)
            else "lock again with hashes",
        )


def plain(lock: Lock) -> dict[str, Any]:
    """A lock as its environment keeps it."""
    return dict(as_plain(dataclasses.replace(lock, plan=dataclasses.replace(lock.plan, rejected=()))))


def accepted(given: Lock, choices: Choices) -> Machine | None:
    """This machine, after holding the lock's `__cuda`, `__glibc` and the like against it; None where the
    options tell of another machine, against which it is held then. Raises LockError when it does not fit."""
    machine = detect.detect({"driver", "gpus", "context", "hardware", "environment"})
    plan, here = given.plan, machine.target
    if plan.platform != here.platform:
        raise LockError(
            f"the lock is for {plan.platform}; this machine is {here.platform}",
            hint=f"lock for it: gpuenv lock --manager conda --platform {here.platform}",
        )
    elsewhere = ask.told(choices)
    asked = ask.Asked(
        request=conda_foreign.request_of(given), target=elsewhere or here, machine=machine, profiles=facts.known(choices),
        supply=ask.supply(ask.sources(choices)), sources=ask.sources(choices), reason="", pythons_known=False,
    )  # fmt: skip
    question, said = conda_target.question(asked, choices)
    if plan.device == "cuda" and elsewhere is None and not any("__cuda " in s for s in said):
        try:
            detect.judge_device("cuda", machine)
        except MachineError as error:
            raise LockError(f"the lock is for a GPU: {error.message}", hint=error.hint) from error
    conda_foreign.held_against(given, question.virtual, question.bounds)
    return None if elsewhere else machine
