"""The order of the stages: what create, verify, resolve and lock do with them.

Each function returns an exit code and shows its value through the Screen it is given.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .. import detect, lock, process, resolve, show, verify
from ..build import place, state, venv
from ..errors import BuildError, GpuenvError, LockError, MachineError, UsageError
from ..model import (
    Created,
    Environment,
    Event,
    Lock,
    Machine,
    Plan,
    Profiles,
    Request,
    Sources,
    Verdict,
    Wanted,
    as_plain,
    from_plain,
)
from . import ask
from .options import Choices
from .shell import activate_line

LOCK_NAME = "pylock.toml"
Emit = Callable[[Event], None]


def emitter(screen: show.Screen) -> Emit:
    return lambda told: show.event(screen, told)


# --- resolve ---------------------------------------------------------------------------------


def plan_for(asked: ask.Asked, choices: Choices) -> Plan:
    """The plan; where no Python at hand fits, one that uv could fetch is tried as well."""
    plan = resolve.resolve(asked.request, asked.target, asked.profiles, asked.supply)
    if plan.builds or not asked.pythons_known or choices.python or choices.offline:
        return plan
    anywhere = dataclasses.replace(asked.request, pythons=())
    wider = resolve.resolve(anywhere, asked.target, asked.profiles, asked.supply)
    return wider if wider.builds else plan


def show_plan(screen: show.Screen, choices: Choices, *, explain: bool = False) -> int:
    asked = ask.judged(choices)
    plan = plan_for(asked, choices)
    show.result(screen, plan, explain=explain)
    return 0 if plan.builds else 5


# --- lock ------------------------------------------------------------------------------------


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


def make_lock(screen: show.Screen, choices: Choices, *, check: bool, output: Path) -> int:
    """`gpuenv lock`: write the lock, or say whether the one that is there still holds."""
    emit = emitter(screen)
    asked = ask.judged(choices)
    plan, made = locked(asked, choices, emit)
    if made is None:
        show.result(screen, plan)
        return 5
    if check:
        return _checked(screen, made, output)
    lock.write(output, made)
    show.result(screen, made, next_step=f"gpuenv create --locked  # installs exactly {output.name}")
    return 0


def _checked(screen: show.Screen, fresh: Lock, path: Path) -> int:
    held = lock.read(path)
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


# --- create ----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class How:
    """The options of `create` beside target and choice."""

    locked: bool = False
    lock_file: Path | None = None
    recreate: bool = False
    verify: bool | None = None
    dry_run: bool = False


def create(screen: show.Screen, env: Path, choices: Choices, how: How) -> int:
    """All stages, or the news that everything is in place."""
    env = _absolute(env)
    place.check_place(env)
    if choices.manager == "conda":
        raise UsageError("--manager conda is not there yet", hint="use --manager venv")
    if how.dry_run:
        return show_plan(screen, choices)
    cache = ask.cache_dir(choices)
    with place.held(env, cache):
        place.recover(env)
        if not how.recreate and place.made_by_gpuenv(env):
            return _in_place(screen, env, choices, how)
        return _anew(screen, env, choices, how)


def _absolute(env: Path) -> Path:
    """Absolute, with the parent's links followed and the last part as it was named."""
    env = Path.cwd() / env.expanduser()
    return env.parent.resolve() / env.name


def _remembered(choices: Choices, lock_file: Lock | None) -> dict[str, Any]:
    """What makes two creates the same: the options that choose, and the lock where one was given."""
    plain = dataclasses.asdict(dataclasses.replace(choices, cache_dir=None, offline=False))
    return {"choices": json.loads(json.dumps(plain, default=str)), "lock": state.lock_digest(lock_file)}


def _given_lock(env: Path, how: How) -> Lock | None:
    """The lock that --locked or --lock names: the file, ./pylock.toml, or the environment's own."""
    if how.lock_file:
        return lock.read(how.lock_file)
    if not how.locked:
        return None
    own = env / place.MARK / LOCK_NAME
    here = Path.cwd() / LOCK_NAME
    if not here.exists() and own.exists():
        return lock.read(own)
    return lock.read(here)


def _in_place(screen: show.Screen, env: Path, choices: Choices, how: How) -> int:
    given = _given_lock(env, how)
    wanted = _remembered(choices, given)
    if given is not None and not choices.framework:
        matches = (state.read(env, "lock.json") or {}).get("digest") == state.lock_digest(given)
    else:
        ask.frameworks(choices, Profiles()) if not choices.framework else None
        matches = state.read(env, "request.json") == wanted
    if not matches or state.interpreter(env) is None:
        have = state.plan_of(env)
        words = ", ".join(f"{b.framework} {b.version}" for b in have.builds) if have else "unfinished"
        raise UsageError(
            f"{env} is an environment made for something else ({words})",
            hint="--recreate builds it anew and keeps the old one until the new one is proved",
        )
    machine = _machine_for_verdict()
    made = state.environment(env, changed=False)
    built = lock.read(env / place.MARK / LOCK_NAME)
    under = state.circumstances(env, built, machine)
    verdict = None if how.verify else state.standing_verdict(env, under)
    if verdict is None and how.verify is not False:
        verdict = _verify(screen, made, built, choices)
        state.keep_verdict(env, verdict, under)
    plan = state.plan_of(env)
    value = Created(machine=machine, plan=plan, lock=built, environment=made, verdict=verdict)
    return _finish(screen, value, env)


def _machine_for_verdict() -> Machine:
    return detect.detect({"driver", "gpus", "environment"})


def _anew(screen: show.Screen, env: Path, choices: Choices, how: How) -> int:
    emit = emitter(screen)
    given = _given_lock(env, how)
    if given is None:
        asked = ask.judged(choices)
        emit(Event(kind="note", stage="resolve", text=f"{asked.request.device}: {asked.reason}"))
        plan, made_lock = locked(asked, choices, emit)
        if made_lock is None:
            show.result(screen, Created(machine=asked.machine, plan=plan))
            return 5
        machine, sources = asked.machine, asked.sources
    else:
        machine, made_lock, sources = _accepted(given, choices), given, ask.sources(choices)
        plan = given.plan
    python = _python_for(plan, machine, choices, emit)
    built = _Built(env=env, lock=made_lock, remembered=_remembered(choices, given))
    return _built_and_proved(screen, built, python, sources, machine, choices, how)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Built:
    env: Path
    lock: Lock
    remembered: dict[str, Any]

    def write(self, path: Path) -> None:
        """Fill `.gpuenv/` of the environment at `path`."""
        state.remember(path, None, self.lock.plan)
        state.write(path, "request.json", self.remembered)
        state.write(path, "lock.json", {"digest": state.lock_digest(self.lock)})
        lock.write(path / place.MARK / LOCK_NAME, self.lock)


def _built_and_proved(
    screen: show.Screen,
    built: _Built,
    python: str,
    sources: Sources,
    machine: Machine | None,
    choices: Choices,
    how: How,
) -> int:
    env, emit = built.env, emitter(screen)
    replacing = place.made_by_gpuenv(env)
    prove = how.verify is not False and _can_prove(built.lock, machine, emit)
    early: Verdict | None = None
    with place.draft(env) as draft:
        venv.build(built.lock, draft, python, sources, emit, final=env)
        built.write(draft)
        if replacing and prove:
            early = _verify(screen, state.environment(draft, changed=True), built.lock, choices)
            early = _at(early, draft, env)
            if _code(early, built.lock) != 0:
                show.result(
                    screen, Created(machine=machine, plan=built.lock.plan, lock=built.lock, verdict=early)
                )
                told = "the new environment failed; the old one is as it was"
                emit(Event(kind="warning", stage="build", text=told))
                return 8
        place.settle(draft, env)
    venv.settle_scripts(env, python)
    made = state.environment(env, changed=True)
    verdict = early
    if prove:
        verdict = early or _verify(screen, made, built.lock, choices)
        under = state.circumstances(env, built.lock, _machine_for_verdict())
        state.keep_verdict(env, verdict, under)
    value = Created(machine=machine, plan=built.lock.plan, lock=built.lock, environment=made, verdict=verdict)
    return _finish(screen, value, env)


def _at(verdict: Verdict, draft: Path, env: Path) -> Verdict:
    """A verdict on the draft, told of the place that the environment is moved to."""
    moved = json.loads(
        json.dumps(as_plain(verdict)).replace(json.dumps(str(draft))[1:-1], json.dumps(str(env))[1:-1])
    )
    return from_plain(Verdict, moved)


def _can_prove(made: Lock, machine: Machine | None, emit: Emit) -> bool:
    """Whether this machine can prove the environment: not if it was made for another one with a
    GPU that is not here."""
    if made.plan.device == "cpu" or machine is not None:
        return True
    here = _machine_for_verdict()
    if here.gpus and not here.driver.problem:
        return True
    told = "unproven here: the environment is for another machine's GPU, and this machine has none"
    emit(Event(kind="warning", stage="verify", text=told))
    return False


def _finish(screen: show.Screen, value: Created, env: Path) -> int:
    code = _code(value.verdict, value.lock) if value.verdict else 0
    step = activate_line(env, process.environ()) if code == 0 else None
    show.result(screen, value, next_step=step)
    return code


def _code(verdict: Verdict, made: Lock | None, *, asked_cpu: bool = False) -> int:
    if verdict.verdict == "works":
        return 0
    on_purpose = asked_cpu or (made is not None and made.plan.device == "cpu")
    return 0 if verdict.verdict == "cpu" and on_purpose else 8


# --- a lock on this machine ------------------------------------------------------------------


def _accepted(given: Lock, choices: Choices) -> Machine:
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
        from packaging.specifiers import SpecifierSet

        if one.name not in held or not SpecifierSet(one.specifier).contains(held[one.name], prereleases=True):
            have = ", ".join(f"{n} {v}" for n, v in held.items())
            raise LockError(
                f"{one.name}{one.specifier} was asked for; the lock holds {have}",
                hint="lock again: gpuenv lock",
            )


def _python_for(plan: Plan, machine: Machine | None, choices: Choices, emit: Emit) -> str:
    """The interpreter to build with: one at hand, else one that uv fetches. Raises BuildError."""
    found = ask.interpreter(plan.python or "", machine, choices.python)
    if found:
        return found
    wanted = choices.python or plan.python or ""
    if choices.offline:
        raise BuildError(
            f"Python {wanted} is not on this machine, and --offline forbids fetching it",
            hint="install it, or choose another with --python",
        )
    emit(Event(kind="start", stage="build", text=f"fetching Python {wanted}"))
    return venv.fetch_python(wanted)


# --- verify ----------------------------------------------------------------------------------


def _verify(
    screen: show.Screen, env: Environment, made: Lock | None, choices: Choices, **options: Any
) -> Verdict:
    emit = emitter(screen)
    emit(Event(kind="start", stage="verify", text=f"running convolutions in {env.path}"))
    cache = ask.cache_dir(choices)
    wanted = verify.Options(cache_dir=cache, **options)
    return verify.verify(env, wanted, lock=made, releases=ask.known(choices).cudnn, emit=emit)


def show_verdict(screen: show.Screen, env: Path, choices: Choices, options: dict[str, Any]) -> int:
    """`gpuenv verify`: the verdict on any environment, whoever made it."""
    found = verify.locate(_absolute(env))
    made: Lock | None = None
    path = Path(found.path)
    if found.made_by_gpuenv:
        made = lock.read(path / place.MARK / LOCK_NAME)
    verdict = _verify(screen, found, made, choices, **options)
    if found.made_by_gpuenv and not options.get("quick"):
        _keep(path, made, verdict, screen)
    show.result(screen, verdict)
    return _strictly(verdict, _code(verdict, made, asked_cpu=options.get("device") == "cpu"), options)


def _strictly(verdict: Verdict, code: int, options: dict[str, Any]) -> int:
    warned = any(s.status == "warn" for s in verdict.stages)
    return 8 if options.get("strict") and warned else code


def _keep(path: Path, made: Lock | None, verdict: Verdict, screen: show.Screen) -> None:
    try:
        under = state.circumstances(path, made, _machine_for_verdict())
        state.keep_verdict(path, verdict, under)
    except GpuenvError as error:
        # A read-only environment can be verified; its verdict just cannot be kept inside.
        show.event(screen, Event(kind="note", stage="verify", text=error.message))
