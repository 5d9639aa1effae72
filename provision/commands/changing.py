"""An environment whose project asks for something else now: its packages are changed, or it stays as it was."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from ..environment import place, state
from ..environment.difference import changed_packages, difference
from ..managers.protocol import manager
from ..model import Created, Emit, Event, Lock
from ..request import ask, made_with
from ..request.options import Choices
from ..wheels import locks
from . import asking, same_stack
from .accepting import accepted
from .building import Job, Work, replaced, standing_verdict
from .create_options import How
from .judging import machine_for_verdict
from .project_lock import files_watched, lock_of
from .up_to_date import finish, remembered

# What a project may ask for anew without a new environment: packages, and bounds of the same frameworks.
_MOVES = {
    "with_", "requirement", "project", "extra", "group", "config", "find_links", "indexes", "index", "only_binary",
    "python_bounds",
}  # fmt: skip


def may(env: Path, choices: Choices, before: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Whether the difference to what the environment was made for can be made up in place: the same
    frameworks on the same Python, device and manager."""
    if not before.get("choices"):
        return False
    old, new, plan = before["choices"], wanted["choices"], state.plan_of(env)
    differs = made_with.differing(before, wanted)
    differs -= {k for k in ("device", "cuda", "python") if same_stack.keeps(plan, k, new.get(k))}
    if choices.config and _names(old) == _names(new):
        differs.discard("framework")
    return differs <= _MOVES


def _names(choices: dict[str, Any]) -> set[str]:
    from packaging.requirements import Requirement

    return {Requirement(f).name for f in choices.get("framework", [])}


def change(emit: Emit, env: Path, choices: Choices, how: How, given: Lock | None) -> Created:
    """Solve anew, as near to the environment's lock as can be, and change only what differs."""
    place.refuse_half_changed(env)
    old = locks.read_in(env / place.MARK)
    files: list[str] = []
    if given is None:
        asked = same_stack.judged(choices, old.plan, lambda c: asking.judged(c, emit))
        plan, new = lock_of(asked, choices, emit, old, allow_md5=how.allow_md5)
        if new is None:
            return Created(machine=asked.machine, plan=plan)
        new = dataclasses.replace(new, plan=plan)
        machine, sources, files = asked.machine, asked.sources, files_watched(choices, asked)
    else:
        machine, new = accepted(given, how.compared(choices)), given
        sources = ask.locked_sources(choices, given)
    same_stack.refuse_other(env, old.plan, new.plan)
    job = Job(
        env=env, lock=new, choices=choices, sources=sources, emit=emit, machine=machine, verify=how.verify,
        remembered=remembered(choices, given, files),
    )  # fmt: skip
    changed = changed_packages(old, new)
    told = f"in place: {', '.join(changed)}" if changed else "what is asked for has changed; no package does"
    emit(Event(kind="note", stage="build", text=told))
    return _changed(job, old) if difference(old, new) else _recorded(job)


def _changed(job: Job, old: Lock) -> Created:
    """Bring the environment to its new lock; the old packages stay where the proof fails."""
    way, new = manager(job.lock.manager), job.local_lock
    work = Work(
        do=lambda prefix: way.change(old, new, prefix, job.how),
        copied=True,
        packages=difference(old, new).into,
    )
    told = f"with these changes {job.env} failed; it has the packages that it had before"
    return replaced(job, work, rolled_back=told)


def _recorded(job: Job) -> Created:
    """Write down what is asked for now: the packages are the same."""
    job.record(job.env)
    verdict = standing_verdict(job, machine_for_verdict())
    return finish(job.emit, job.created(verdict, changed=False), job.env)
