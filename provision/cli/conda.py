"""create, lock and resolve with --manager conda."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from .. import show
from ..build import conda as builder
from ..build import conda_place, conda_scripts, installed, place, state
from ..errors import BuildError, GpuenvError, ResolveError
from ..index import conda as door
from ..lock import conda as solver
from ..lock import conda_file
from ..model import Created, Event, Lock, Machine, Plan, Sources, Verdict
from . import ask, bundled, conda_given, conda_target, conda_wheels, inproject, where
from .creating import Built, How, can_prove, in_place
from .locking import checked
from .options import Choices
from .proving import prove
from .solving import Emit
from .standing import exit_code, finish, machine_for_verdict, remembered


def create(screen: show.Screen, env: Path, choices: Choices, how: How) -> int:
    """All stages into a conda prefix, or the news that everything is in place."""
    door.require("rattler")
    if how.dry_run:
        return show_plan(screen, choices, explain=False)
    choices = dataclasses.replace(choices, manager="conda")
    with place.held(env, where.cache_dir(choices)):
        place.recover(env)
        given = conda_given.lock_for(env, choices, how)
        if not how.recreate and place.made_by_gpuenv(env):
            return in_place(screen, env, choices, how, given)
        return _anew(screen, env, choices, how, given)


def _anew(screen: show.Screen, env: Path, choices: Choices, how: How, given: Lock | None) -> int:
    emit = show.emitter(screen)
    if given is None:
        asked = conda_target.judged(choices)
        by_itself = choices.device == "auto" and asked.request.device == "cpu"
        words = "this will be a CPU environment" if by_itself else f"for {asked.request.device}"
        emit(Event(kind="warning" if by_itself else "note", stage="resolve", text=f"{words}: {asked.reason}"))
        made, notes = locked(asked, choices, emit)
        conda_given.assert_hashed(made, "the channel's index", allow_md5=how.allow_md5)
        plan = dataclasses.replace(made.plan, notes=(*made.plan.notes, *notes))
        if by_itself:
            plan = dataclasses.replace(plan, notes=(*plan.notes, f"a CPU environment: {asked.reason}"))
        made = dataclasses.replace(made, plan=plan)
        machine, sources, files = asked.machine, asked.sources, inproject.files_of(choices, asked.demands)
    else:
        files = []
        machine, made, sources = conda_given.accepted(given, choices), given, ask.sources(choices)
    built = Built(env=env, lock=made, remembered=remembered(choices, given, files))
    return _built_and_proved(screen, built, sources, machine, choices, how)


def _built_and_proved(
    screen: show.Screen, built: Built, sources: Sources, machine: Machine | None, choices: Choices, how: How
) -> int:
    env, emit = built.env, show.emitter(screen)
    replacing = place.made_by_gpuenv(env)
    proving = how.verify is not False and can_prove(built.lock, machine, emit)
    verdict: Verdict | None = None
    try:
        bundled.check(choices, emit)
        with conda_place.building(env):
            builder.build(
                bundled.at_hand(built.lock, choices), env, sources, emit,
                channels=choices.channel, distrust=how.recreate,
            )  # fmt: skip
            bundled.name_origins(env, built.lock, choices)
            _write(built)
            made = state.environment(env, changed=True)
            if proving:
                verdict = prove(screen, made, built.lock, choices)
                _refuse_worse(replacing, verdict, built.lock)
    except _WorseError:
        show.result(screen, Created(machine=machine, plan=built.lock.plan, lock=built.lock, verdict=verdict))
        told = "the new environment failed; the old one is as it was"
        emit(Event(kind="warning", stage="build", text=told))
        return 8
    try:
        conda_scripts.register(env)
    except BuildError as error:
        # The environment works; only conda's, VS Code's and Jupyter's lists do not know it.
        emit(Event(kind="note", stage="build", text=error.message))
    if verdict is not None:
        under = state.circumstances(env, state.lock_digest(built.lock), machine_for_verdict())
        state.keep_verdict(env, verdict, under)
    value = Created(machine=machine, plan=built.lock.plan, lock=built.lock, environment=made, verdict=verdict)
    return finish(screen, value, env)


class _WorseError(Exception):
    """The new environment does not hold what the old one did: the way out of the block that builds it,
    so that the old one returns."""


def _refuse_worse(replacing: bool, verdict: Verdict, made: Lock) -> None:
    if replacing and exit_code(verdict, made.plan.device) != 0:
        raise _WorseError


def _write(built: Built) -> None:
    """Fill `.gpuenv/`. The lock is kept as the value that it is: reading it needs no conda-lock."""
    env, lock = built.env, built.lock
    state.remember(env, None, lock.plan)
    state.write(env, "request.json", built.remembered)
    state.write(env, "lock.json", {"digest": state.lock_digest(lock), "lock": conda_given.plain(lock)})
    installed.write(env, lock)


# --- lock and resolve --------------------------------------------------------------------------


def locked(asked: ask.Asked, choices: Choices, emit: Emit) -> tuple[Lock, tuple[str, ...]]:
    """The lock, and what the environment variables overrode. Raises LockError, ResolveError."""
    question, said = conda_target.question(asked, choices)
    for words in said:
        emit(Event(kind="note", stage="resolve", text=words))
    made = _solved(asked, question, emit)
    for build in made.plan.builds:
        if build.cuda and build.cudnn and asked.target.gpus:
            bounds = conda_target.cudnn_bounds(question, asked.profiles, build.cuda, build.cudnn)
            if bounds:
                told = f"cuDNN {build.cudnn} has no kernels for a GPU of the target; solving with cudnn {bounds[0]}"
                emit(Event(kind="note", stage="resolve", text=told))
                again = dataclasses.replace(
                    question, bounds=dataclasses.replace(question.bounds, cudnn=bounds)
                )
                return _solved(asked, again, emit), said
    return made, said


def _solved(asked: ask.Asked, question: solver.Question, emit: Emit) -> Lock:
    others = conda_target.alternatives(question, asked.profiles)
    solution = solver.solve(question, emit, others)
    made = solver.lock(question, solution)
    if not (solution.lacking or solution.wheels or asked.demands.needs):
        return made
    plan = conda_wheels.plan_for(asked, solution, made)
    if plan.python != made.plan.python:  # the wheels want another Python than the solver would take
        request = dataclasses.replace(question.request, python=plan.python)
        question = dataclasses.replace(question, request=request)
        made = solver.lock(question, solver.solve(question, emit, others))
    return conda_wheels.on_top(asked, plan, made, emit)


def show_plan(screen: show.Screen, choices: Choices, *, explain: bool) -> int:
    """`gpuenv resolve --manager conda`: what the solver would take."""
    asked = conda_target.judged(choices)
    try:
        made, notes = locked(asked, choices, show.emitter(screen))
    except ResolveError as error:
        show.result(screen, _no_plan(asked, error), explain=explain)
        if error.log and explain:
            screen.say(error.log, always=True)
        return 5
    show.result(screen, dataclasses.replace(made.plan, notes=(*made.plan.notes, *notes)), explain=explain)
    return 0


def _no_plan(asked: ask.Asked, error: GpuenvError) -> Plan:
    return Plan(
        builds=(), python=asked.request.python, platform=asked.target.platform, manager="conda",
        device=asked.request.device, target=asked.target, notes=(error.message,), hint=error.hint,
    )  # fmt: skip


def make_lock(screen: show.Screen, choices: Choices, *, check: bool, output: Path | None) -> int:
    """`gpuenv lock --manager conda`: write conda-lock.yml, or say whether it still holds."""
    door.require("rattler", "conda_lock")
    output = output or Path(conda_file.NAME)
    asked = conda_target.judged(choices)
    made, _ = locked(asked, choices, show.emitter(screen))
    virtual = conda_target.question(asked, choices)[0].virtual
    if check:
        held = conda_given.read(output, asked.target.platform, asked.profiles, allow_md5=True)
        return checked(screen, made, held, output)
    conda_file.write(output, made, virtual)
    show.result(screen, made, next_step=f"gpuenv create --lock {output}  # installs exactly {output.name}")
    return 0
