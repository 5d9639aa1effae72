"""An environment whose project asks for something else now: brought to it in place, or as it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from .. import show
from ..environment import place, state
from ..managers import sync as sync_stage
from ..model import Created, Event, Lock, Machine, Verdict
from ..request import ask, made_with
from ..request.options import Choices
from ..wheels import locks
from . import same_stack
from .creating import Built, How, can_prove, files_watched, lock_of
from .judging import exit_code, machine_for_verdict, made_for
from .locking import accepted
from .proving import prove
from .solving import Emit
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


def of(manager: str) -> Callable[[show.Screen, Path, Choices, How, Lock | None], int]:
    """What brings an environment of a manager to what is asked for now."""
    if manager == "conda":
        from . import conda_sync

        return conda_sync.sync
    return sync


def _names(choices: dict[str, Any]) -> set[str]:
    from packaging.requirements import Requirement

    return {Requirement(f).name for f in choices.get("framework", [])}


def sync(screen: show.Screen, env: Path, choices: Choices, how: How, given: Lock | None) -> int:
    """Solve anew, as near to the environment's lock as can be, and change only what differs. Where the
    result fails its proof the environment is brought back, exit 8."""
    emit = show.emitter(screen)
    recover(env, choices, emit)
    old = locks.read_in(env / place.MARK)
    files: list[str] = []
    if given is None:
        asked = same_stack.judged(choices, old.plan, lambda c: ask.judged(c, emit))
        plan, new = lock_of(asked, choices, emit, old)
        if new is None:
            show.result(screen, Created(machine=asked.machine, plan=plan))
            return 5
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
    return _proved(screen, built, before, machine, choices, how, changed=bool(changed))


def recover(env: Path, choices: Choices, emit: Emit) -> None:
    """Bring an environment back that a killed run left half changed. Raises BuildError."""
    held = sync_stage.recover(env, ask.sources(choices), emit)
    if held is not None:
        Built(env=env, lock=held, remembered=state.read(env, "request.json") or {}).write(env)
        sync_stage.settled(env)


def _proved(
    screen: show.Screen, built: Built, before: Built, machine: Machine | None, choices: Choices, how: How, *,
    changed: bool,
) -> int:  # fmt: skip
    env, emit = built.env, show.emitter(screen)
    made = state.environment(env, changed=changed)
    verdict = None
    if how.verify is not False and can_prove(built.lock, machine, emit):
        under = state.circumstances(env, state.lock_digest(built.lock), machine_for_verdict())
        verdict = None if how.verify else state.standing_verdict(env, under)
        if verdict is None:
            verdict = prove(screen, made, built.lock, choices)
            if changed and exit_code(verdict, built.lock.plan.device) != 0:
                return _went_back(screen, built, before, machine, choices, verdict)
            state.keep_verdict(env, verdict, under)
    value = Created(machine=machine, plan=built.lock.plan, lock=built.lock, environment=made, verdict=verdict)
    return finish(screen, value, env)


def _went_back(
    screen: show.Screen,
    built: Built,
    before: Built,
    machine: Machine | None,
    choices: Choices,
    verdict: Verdict,
) -> int:
    env, emit = built.env, show.emitter(screen)
    sync_stage.change(env, built.lock, before.lock, ask.sources(choices), emit, before.write)
    show.result(screen, Created(machine=machine, plan=built.lock.plan, lock=built.lock, verdict=verdict))
    told = f"with these changes {env} failed; it has the packages that it had before"
    emit(Event(kind="warning", stage="build", text=told))
    return 8
