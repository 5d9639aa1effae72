"""create as a command: the stages in their order, or the news that everything is in place."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from ..environment import installed, place, state
from ..errors import BuildError, UsageError
from ..managers import sync, venv
from ..managers.venv_locks import LOCK_NAME
from ..model import Created, Emit, Event, Lock, Machine, Plan, Sources, Verdict, as_plain, from_plain
from ..request import ask, facts, made_with
from ..request import paths as where
from ..request import project_options as inproject
from ..request.options import Choices
from ..wheels import locks
from . import asking, bundled, given_lock, interrupted, same_stack
from .accepting import accepted
from .create_options import How
from .judging import is_expected, machine_for_verdict, made_for, outgrown
from .planning import show_plan
from .project_lock import files_watched, lock_of
from .proving import prove
from .up_to_date import finish, remembered


def create(emit: Emit, env: Path, choices: Choices, how: How) -> Created | Plan:
    """All stages, or the news that everything is in place."""
    env = where.absolute(env)
    place.check_place(env)
    if how.lock_file is None or choices.target:
        choices = inproject.laid(choices)
    if choices.manager == "conda" or (how.lock_file and how.lock_file.suffix != ".toml"):
        from . import conda

        return conda.create(emit, env, choices, how)
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


def in_place(emit: Emit, env: Path, choices: Choices, how: How, given: Lock | None) -> Created:
    """An environment is there: the news that it is what was asked for, or UsageError."""
    before = state.read(env, "request.json") or {}
    wanted = remembered(choices, given, (before.get("files") or {}).get("names", []))
    if given is not None and not choices.framework:
        matches = (state.read(env, "lock.json") or {}).get("digest") == state.lock_digest(given)
    else:
        ask.named(choices, facts.known(choices))  # a wrong word is told before a wrong environment
        matches = made_with.same(before, wanted)
    if state.interpreter(env) is None or sync.unfinished(env) or not matches:
        from . import syncing

        if state.interpreter(env) is not None and syncing.may(env, choices, before, wanted):
            return syncing.of(choices.manager)(emit, env, choices, how, given)
        raise _made_otherwise(env, before, wanted)
    if given is None and (why := outgrown(state.plan_of(env), choices)):
        raise UsageError(
            f"{env} was made for the CPU where no GPU was to be seen; {why}",
            hint="--recreate builds it anew for the GPU and keeps the old one until the new one is proved",
        )
    if before.get("given") != wanted["given"]:
        state.write(env, "request.json", {**before, "given": wanted["given"]})
    if not venv.scripts_settled(env):
        venv.mend_scripts(env)  # a run was killed just before this
    machine = machine_for_verdict()
    made = state.environment(env, changed=False)
    built = locks.read_in(env / place.MARK)
    under = state.circumstances(env, state.lock_digest(built), machine)
    verdict = None if how.verify else state.standing_verdict(env, under)
    here = None if choices.elsewhere else machine
    if verdict is None and how.verify is not False and can_prove(built, here, emit):
        verdict = prove(emit, made, built, choices)
        state.keep_verdict(env, verdict, under)
    if verdict is None:
        from ..verify import drift

        made = dataclasses.replace(made, drift=drift.find(env, built).changes)
    plan = state.plan_of(env)
    value = Created(machine=machine, plan=plan, lock=built, environment=made, verdict=verdict)
    return finish(emit, value, env)


def _made_otherwise(env: Path, before: dict[str, Any], wanted: dict[str, Any]) -> UsageError:
    """The refusal to make another environment of one that is there, with the options that differ."""
    have = state.plan_of(env)
    words = ", ".join(f"{b.framework} {b.version}" for b in have.builds) if have else "unfinished"
    old, new = before.get("choices") or {}, wanted["choices"]
    differ = [
        f"{name.rstrip('_')}: {old.get(name) or 'none'}, now {new.get(name) or 'none'}"
        for name in sorted(made_with.differing(before, wanted) - {"config"})
    ]
    told = f"{env} ({words}) was made with other options"
    return UsageError(f"{told}: {'; '.join(differ)}" if differ and old else told, hint=same_stack.RECREATE)


def _anew(emit: Emit, env: Path, choices: Choices, how: How, given: Lock | None) -> Created:
    files: list[str] = []
    venv.begin()
    if given is None:
        asked = asking.judged(choices, emit)
        same_stack.refuse_idle_gpu(env, choices, asked)
        by_itself = choices.device == "auto" and asked.request.device == "cpu"
        kind, words = ("warning", "this will be a CPU environment") if by_itself else ("note", "for a GPU")
        if by_itself or asked.request.device == "cuda":
            emit(Event(kind=kind, stage="resolve", text=f"{words}: {asked.reason}"))
        plan, made_lock = lock_of(asked, choices, emit)
        if made_lock is None:
            return Created(machine=asked.machine, plan=plan)
        if by_itself:
            plan = dataclasses.replace(plan, notes=(*plan.notes, f"a CPU environment: {asked.reason}"))
            made_lock = dataclasses.replace(made_lock, plan=plan)
        machine, sources = asked.machine, asked.sources
        files = files_watched(choices, asked)
    else:
        machine, made_lock = accepted(given, how.compared(choices)), given
        sources = ask.locked_sources(choices, given)
        plan = given.plan
    python = _python_for(plan, machine, choices, emit)
    built = Built(env=env, lock=made_lock, remembered=remembered(choices, given, files))
    return _built_and_proved(emit, built, python, sources, machine, choices, how)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Built:
    """What is built: where, from which lock, and the options that `create` compares the next time."""

    env: Path
    lock: Lock
    remembered: dict[str, Any]

    def write(self, path: Path) -> None:
        """Fill `.gpuenv/` of the environment at `path`."""
        state.remember(path, None, self.lock.plan)
        state.write(path, "request.json", self.remembered)
        state.write(path, "lock.json", {"digest": state.lock_digest(self.lock)})
        locks.write(path / place.MARK / LOCK_NAME, self.lock, root=path)
        installed.write(path, self.lock)


def _built_and_proved(
    emit: Emit,
    built: Built,
    python: str,
    sources: Sources,
    machine: Machine | None,
    choices: Choices,
    how: How,
) -> Created:
    env = built.env
    replacing = place.made_by_gpuenv(env)
    proving = how.verify is not False and can_prove(built.lock, machine, emit)
    verdict: Verdict | None = None
    with place.draft(env) as draft:
        bundled.check(choices, emit)
        with made_for(built.lock.plan.device):
            venv.build(bundled.at_hand(built.lock, choices), draft, python, sources, emit, final=env)
        built.write(draft)
        if replacing and proving:
            proved = prove(emit, state.environment(draft, changed=True), built.lock, choices)
            verdict = _at(proved, draft, env)
            if not is_expected(verdict, built.lock.plan.device):
                return _kept_old(emit, built, machine, verdict)
        place.settle(draft, env)
    venv.settle_scripts(env, python)
    made = state.environment(env, changed=True)
    if proving:
        verdict = verdict or prove(emit, made, built.lock, choices)
        under = state.circumstances(env, state.lock_digest(built.lock), machine_for_verdict())
        state.keep_verdict(env, verdict, under)
    value = Created(machine=machine, plan=built.lock.plan, lock=built.lock, environment=made, verdict=verdict)
    return finish(emit, value, env)


def _kept_old(emit: Emit, built: Built, machine: Machine | None, verdict: Verdict) -> Created:
    """The end of a `--recreate` whose environment failed: its verdict, and the old one in place."""
    told = f"the new environment failed; {built.env} is the old one, as it was"
    emit(Event(kind="warning", stage="build", text=told))
    return Created(machine=machine, plan=built.lock.plan, lock=built.lock, verdict=verdict)


def _at(verdict: Verdict, draft: Path, env: Path) -> Verdict:
    """A verdict on the draft, told of the place that the environment is moved to."""
    moved = json.loads(
        json.dumps(as_plain(verdict)).replace(json.dumps(str(draft))[1:-1], json.dumps(str(env))[1:-1])
    )
    return from_plain(Verdict, moved)


def can_prove(made: Lock, machine: Machine | None, emit: Emit) -> bool:
    """Whether this machine can prove the environment: not if it was made for another one with a
    GPU that is not here."""
    if made.plan.device == "cpu" or machine is not None:
        return True
    here = machine_for_verdict()
    if here.gpus and not here.driver.problem:
        return True
    told = "unproven here: the environment is for another machine's GPU, and this machine has none"
    emit(Event(kind="warning", stage="verify", text=told))
    return False


def _python_for(plan: Plan, machine: Machine | None, choices: Choices, emit: Emit) -> str:
    """The interpreter to build with: one at hand, else one that uv fetches. Raises BuildError."""
    found = asking.interpreter(plan.python or "", machine, choices.python, where.cache_dir(choices))
    if found:
        return found
    wanted = choices.python or plan.python or ""
    if packed := bundled.python(choices, emit):
        return packed
    if choices.offline:
        raise BuildError(
            f"Python {wanted} is not on this machine, and --offline forbids fetching it",
            hint="install it, or choose another with --python",
        )
    emit(Event(kind="start", stage="build", text=f"fetching Python {wanted}"))
    return venv.fetch_python(wanted)
