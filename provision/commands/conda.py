"""create with --manager conda."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from ..environment import conda_place, installed, place, state
from ..errors import BuildError
from ..managers.conda import engine as door
from ..managers.conda import install as builder
from ..managers.conda import scripts as conda_scripts
from ..model import Created, Emit, Event, Lock, Machine, Plan, Sources, Verdict, as_plain
from ..request import ask
from ..request.options import Choices
from . import asking, bundled, given_lock, interrupted, same_stack
from .accepting import accepted
from .create_options import How
from .creating import Built, can_prove, in_place
from .judging import is_expected, machine_for_verdict, made_for
from .planning import show_plan
from .project_lock import files_watched, lock_of
from .proving import prove
from .up_to_date import finish, remembered


def create(emit: Emit, env: Path, choices: Choices, how: How) -> Created | Plan:
    """All stages into a conda prefix, or the news that everything is in place."""
    door.require("rattler")
    choices = dataclasses.replace(choices, manager="conda")
    if how.dry_run:
        given = given_lock.lock_for(env, choices, how, emit)
        return show_plan(emit, choices) if given is None else given.plan
    with place.held(env):
        place.recover(env)
        with interrupted.told_by(interrupted.before(env).look):
            given = given_lock.lock_for(env, choices, how, emit)
            if not how.recreate and place.made_by_gpuenv(env):
                return in_place(emit, env, choices, how, given)
            return _anew(emit, env, choices, how, given)


def _anew(emit: Emit, env: Path, choices: Choices, how: How, given: Lock | None) -> Created:
    if given is None:
        asked = asking.judged(choices, emit)
        same_stack.refuse_idle_gpu(env, choices, asked)
        by_itself = choices.device == "auto" and asked.request.device == "cpu"
        words = "this will be a CPU environment" if by_itself else f"for {asked.request.device}"
        emit(Event(kind="warning" if by_itself else "note", stage="resolve", text=f"{words}: {asked.reason}"))
        plan, made_lock = lock_of(asked, choices, emit, allow_md5=how.allow_md5)
        if made_lock is None:
            return Created(machine=asked.machine, plan=plan)
        if by_itself:
            plan = dataclasses.replace(plan, notes=(*plan.notes, f"a CPU environment: {asked.reason}"))
        made = dataclasses.replace(made_lock, plan=plan)
        machine, sources, files = asked.machine, asked.sources, files_watched(choices, asked)
    else:
        files = []
        machine, made, sources = (
            accepted(given, how.compared(choices)),
            given,
            ask.locked_sources(choices, given),
        )
    built = Built(env=env, lock=made, remembered=remembered(choices, given, files))
    return _built_and_proved(emit, built, sources, machine, choices, how)


def _built_and_proved(
    emit: Emit, built: Built, sources: Sources, machine: Machine | None, choices: Choices, how: How
) -> Created:
    env = built.env
    replacing = place.made_by_gpuenv(env)
    proving = how.verify is not False and can_prove(built.lock, machine, emit)
    verdict: Verdict | None = None
    try:
        bundled.check(choices, emit)
        with made_for(built.lock.plan.device), conda_place.building(env):
            builder.build(
                bundled.at_hand(built.lock, choices), env, sources, emit,
                channels=choices.channel, distrust=how.recreate,
            )  # fmt: skip
            bundled.name_origins(env, built.lock, choices)
            write(built)
            made = state.environment(env, changed=True)
            if proving:
                verdict = prove(emit, made, built.lock, choices)
                if replacing:
                    refuse_worse(verdict, built.lock)
    except WorseError:
        told = "the new environment failed; the old one is as it was"
        emit(Event(kind="warning", stage="build", text=told))
        return Created(machine=machine, plan=built.lock.plan, lock=built.lock, verdict=verdict)
    try:
        conda_scripts.register(env)
    except BuildError as error:
        # The environment works; only conda's, VS Code's and Jupyter's lists do not know it.
        emit(Event(kind="note", stage="build", text=error.message))
    if verdict is not None:
        under = state.circumstances(env, state.lock_digest(built.lock), machine_for_verdict())
        state.keep_verdict(env, verdict, under)
    value = Created(machine=machine, plan=built.lock.plan, lock=built.lock, environment=made, verdict=verdict)
    return finish(emit, value, env)


class WorseError(Exception):
    """The environment does not hold what the one before did: the way out of the block that builds it, so
    that the old one returns."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.verdict)
        self.verdict = verdict


def refuse_worse(verdict: Verdict, made: Lock) -> None:
    """Raise WorseError for a verdict that is not what the lock is for."""
    if not is_expected(verdict, made.plan.device):
        raise WorseError(verdict)


def write(built: Built) -> None:
    """Fill `.gpuenv/`. The lock is kept as the value that it is: reading it needs no conda-lock."""
    env, lock = built.env, built.lock
    state.remember(env, None, lock.plan)
    state.write(env, "request.json", built.remembered)
    state.write(env, "lock.json", {"digest": state.lock_digest(lock), "lock": _plain(lock)})
    installed.write(env, lock)


def _plain(lock: Lock) -> dict[str, Any]:
    """A lock as its environment keeps it."""
    return dict(as_plain(dataclasses.replace(lock, plan=dataclasses.replace(lock.plan, rejected=()))))
