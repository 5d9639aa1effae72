"""A conda environment whose project asks for something else now: brought to it, or left as it was."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from ..environment import place, state
from ..environment.clone import working_copy
from ..managers import sync as sync_stage
from ..managers.conda import change as conda_change
from ..model import Created, Emit, Event, Lock, Machine, Verdict
from ..request import ask
from ..request.options import Choices
from ..wheels import locks
from . import asking, bundled, same_stack
from .accepting import accepted
from .conda import WorseError, refuse_worse, write
from .create_options import How
from .creating import Built, can_prove
from .judging import machine_for_verdict
from .project_lock import files_watched, lock_of
from .proving import prove
from .up_to_date import finish, remembered


def sync(emit: Emit, env: Path, choices: Choices, how: How, given: Lock | None) -> Created:
    """Solve anew, as near to the environment's lock as can be, and change only what differs, in a copy
    that takes the environment's place once it is proved. Where it fails, all is as it was, exit 8."""
    old = locks.read_in(env / place.MARK)
    files: list[str] = []
    if given is None:
        asked = same_stack.judged(choices, old.plan, lambda c: asking.judged(c, emit))
        plan, fresh = lock_of(asked, choices, emit, old, allow_md5=how.allow_md5)
        if fresh is None:
            return Created(machine=asked.machine, plan=plan)
        new = dataclasses.replace(fresh, plan=plan)
        machine, sources, files = asked.machine, asked.sources, files_watched(choices, asked)
    else:
        machine, new = accepted(given, how.compared(choices)), given
        sources = ask.locked_sources(choices, given)
    same_stack.refuse_other(env, old.plan, new.plan)
    changed = sync_stage.changed_packages(old, new)
    told = f"in place: {', '.join(changed)}" if changed else "what is asked for has changed; no package does"
    emit(Event(kind="note", stage="build", text=told))
    built = Built(env=env, lock=new, remembered=remembered(choices, given, files))
    verdict: Verdict | None = None
    try:
        if sync_stage.difference(old, new):
            how_to = conda_change.How(sources=sources, emit=emit, channels=tuple(choices.channel))
            bundled.check(choices, emit)
            at_hand = bundled.at_hand(new, choices)
            conda_change.fetch(old, at_hand, env, how_to)
            with working_copy(env, at_its_path=True):
                conda_change.change(old, at_hand, env, how_to)
                bundled.name_origins(env, new, choices)
                write(built)
                verdict = _proved(emit, built, machine, choices, how)
                if verdict is not None:
                    refuse_worse(verdict, new)
        else:
            write(built)
            verdict = _proved(emit, built, machine, choices, how)
    except WorseError as error:
        told = f"with these changes {env} failed; it has the packages that it had before"
        emit(Event(kind="warning", stage="build", text=told))
        return Created(machine=machine, plan=new.plan, lock=new, verdict=error.verdict)
    made = state.environment(env, changed=bool(changed))
    return finish(
        emit, Created(machine=machine, plan=new.plan, lock=new, environment=made, verdict=verdict), env
    )


def _proved(emit: Emit, built: Built, machine: Machine | None, choices: Choices, how: How) -> Verdict | None:
    """The verdict, kept inside; one that stands is not asked again."""
    env = built.env
    if how.verify is False or not can_prove(built.lock, machine, emit):
        return None
    under = state.circumstances(env, state.lock_digest(built.lock), machine_for_verdict())
    verdict = None if how.verify else state.standing_verdict(env, under)
    if verdict is None:
        verdict = prove(emit, state.environment(env, changed=True), built.lock, choices)
        state.keep_verdict(env, verdict, under)
    return verdict
