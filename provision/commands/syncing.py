"""An environment whose project asks for something else now: brought to it in place, or as it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..environment import place, state
from ..managers import sync as sync_stage
from ..model import Created, Emit, Event, Lock, Machine, Verdict
from ..request import ask, made_with
from ..request.options import Choices
from ..wheels import locks
from . import asking, same_stack
from .accepting import accepted
from .create_options import How
from .creating import Built, can_prove
from .judging import is_expected, machine_for_verdict, made_for
from .project_lock import files_watched, lock_of
from .proving import prove
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


def of(manager: str) -> Callable[[Emit, Path, Choices, How, Lock | None], Created]:
    """What brings an environment of a manager to what is asked for now."""
    if manager == "conda":
        from . import conda_sync

        return conda_sync.sync
    return sync


def _names(choices: dict[str, Any]) -> set[str]:
    from packaging.requirements import Requirement

    return {Requirement(f).name for f in choices.get("framework", [])}


def sync(emit: Emit, env: Path, choices: Choices, how: How, given: Lock | None) -> Created:
    """Solve anew, as near to the environment's lock as can be, and change only what differs. Where the
    result fails its proof the environment is brought back, exit 8."""
    recover(env, choices, emit)
    old = locks.read_in(env / place.MARK)
    files: list[str] = []
    if given is None:
        asked = same_stack.judged(choices, old.plan, lambda c: asking.judged(c, emit))
        plan, new = lock_of(asked, choices, emit, old)
        if new is None:
            return Created(machine=asked.machine, plan=plan)
        machine, sources, files = asked.machine, asked.sources, files_watched(choices, asked)
    else:
        machine, new = accepted(given, how.compared(choices)), given
        sources = ask.locked_sources(choices, given)
    same_stack.refuse_other(env, old.plan, new.plan)
    changed = sync_stage.changed_packages(old, new)
    told = f"in place: {', '.join(changed)}" if changed else "what is asked for has changed; no package does"
    emit(Event(kind="note", stage="build", text=told))
    before = Built(env=env, lock=old, remembered=state.read(env, "request.json") or {})
    built = Built(env=env, lock=new, remembered=remembered(choices, given, files))
    with made_for(new.plan.device):
        sync_stage.change(env, old, new, sources, emit, built.write)
    return _proved(emit, built, before, machine, choices, how, changed=bool(changed))


def recover(env: Path, choices: Choices, emit: Emit) -> None:
    """Bring an environment back that a killed run left half changed. Raises BuildError."""
    held = sync_stage.recover(env, ask.sources(choices), emit)
    if held is not None:
        Built(env=env, lock=held, remembered=state.read(env, "request.json") or {}).write(env)
        sync_stage.settled(env)


def _proved(
    emit: Emit, built: Built, before: Built, machine: Machine | None, choices: Choices, how: How, *,
    changed: bool,
) -> Created:  # fmt: skip
    env = built.env
    made = state.environment(env, changed=changed)
    verdict = None
    if how.verify is not False and can_prove(built.lock, machine, emit):
        under = state.circumstances(env, state.lock_digest(built.lock), machine_for_verdict())
        verdict = None if how.verify else state.standing_verdict(env, under)
        if verdict is None:
            verdict = prove(emit, made, built.lock, choices)
            if changed and not is_expected(verdict, built.lock.plan.device):
                return _went_back(emit, built, before, machine, choices, verdict)
            state.keep_verdict(env, verdict, under)
    value = Created(machine=machine, plan=built.lock.plan, lock=built.lock, environment=made, verdict=verdict)
    return finish(emit, value, env)


def _went_back(
    emit: Emit,
    built: Built,
    before: Built,
    machine: Machine | None,
    choices: Choices,
    verdict: Verdict,
) -> Created:
    env = built.env
    sync_stage.change(env, built.lock, before.lock, ask.sources(choices), emit, before.write)
    told = f"with these changes {env} failed; it has the packages that it had before"
    emit(Event(kind="warning", stage="build", text=told))
    return Created(machine=machine, plan=built.lock.plan, lock=built.lock, verdict=verdict)
