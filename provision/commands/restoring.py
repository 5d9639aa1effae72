"""repair as a command: an environment compared with its lock, put back, and proved again."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from pathlib import Path

from ..environment import place, state
from ..errors import BuildError, GpuenvError, UsageError
from ..managers import repair as stage
from ..managers import sync
from ..model import Drift, Emit, Environment, Event, Lock, Repaired, Verdict
from ..request import ask
from ..request import paths as where
from ..request import project_options as inproject
from ..request.options import Choices
from ..system import process
from ..verify import drift, locate
from ..wheels import locks
from .creating import can_prove
from .judging import is_expected, machine_for_verdict
from .proving import prove
from .shell import activate_line


def restore(emit: Emit, env: Path, choices: Choices, *, proving: bool, deep: bool) -> Repaired:
    """Put an environment back to its lock, and prove it where something was put back."""
    path = where.absolute(env).resolve()
    with place.held(path):
        place.recover(path)
        choices = _as_created(path, choices)
        _finish_change(emit, path, choices)
        made = _lock_of(path)
        done = _repaired(emit, path, made, choices, deep=deep)
        if proving and done.environment and done.environment.changed:
            done = dataclasses.replace(done, verdict=_proved(emit, done.environment, made, choices))
    if done.verdict is None or is_expected(done.verdict, made.plan.device):
        emit(Event(kind="next", stage="repair", text=activate_line(path, process.environ())))
    return done


def _finish_change(emit: Emit, env: Path, choices: Choices) -> None:
    """Bring an environment back to the lock that a killed `create` was leaving."""
    if sync.unfinished(env):
        from . import syncing

        syncing.recover(env, choices, emit)


def _lock_of(env: Path) -> Lock:
    """The lock inside an environment. Raises UsageError where gpuenv did not make it."""
    if not place.made_by_gpuenv(env):
        told = "is not there" if not env.exists() else "was not made by gpuenv: it has no lock"
        raise UsageError(
            f"{env} {told}", hint="`gpuenv create` makes an environment that can be repaired from its lock"
        )
    return locks.read_in(env / place.MARK)


def _as_created(env: Path, choices: Choices) -> Choices:
    """The places that `create` was told to take packages from, where none are named now."""
    try:
        held = inproject.choices_of((state.read(env, "request.json") or {}).get("choices") or {})
    except ValueError:  # another version of gpuenv had other options
        return choices
    links = [f for f in held.find_links if "://" in f or Path(f).exists()]
    channels = [c for c in held.channel if not c.startswith(("/", ".", "~")) or Path(c).expanduser().exists()]
    return dataclasses.replace(
        choices, find_links=choices.find_links or links, channel=choices.channel or channels,
        index=held.index, indexes=held.indexes,
    )  # fmt: skip


def _repaired(emit: Emit, env: Path, made: Lock, choices: Choices, *, deep: bool) -> Repaired:
    def check(path: Path, fresh: Collection[str]) -> Drift:
        return drift.find(path, made, thorough=True, fresh=fresh, deep=deep)

    emit(Event(kind="start", stage="repair", text=f"comparing {env} with its lock"))
    planned = stage.work(made, check(env, ()))
    changed = bool(planned.packages or planned.removed)
    if changed:
        _check_python(env, made)
        how = stage.How(sources=ask.sources(choices), check=check, emit=emit, channels=tuple(choices.channel))
        planned = stage.repair(env, made, planned, how)
    return Repaired(
        packages=planned.told,
        removed=planned.removed,
        left=planned.left,
        environment=state.environment(env, changed=changed),
    )


def _check_python(env: Path, made: Lock) -> None:
    """Raise BuildError where the environment's Python is gone or another one: packages cannot be put
    back into that."""
    wanted = made.plan.python
    hint = "build it again: gpuenv create with --recreate"
    try:
        here = locate(env).python_version
    except UsageError as error:
        raise BuildError(f"the environment's Python does not run: {error.message}", hint=hint) from error
    if made.manager != "conda" and wanted and here and here.split(".")[:2] != wanted.split(".")[:2]:
        raise BuildError(f"the environment's Python is {here} now, its lock is for {wanted}", hint=hint)


def _proved(emit: Emit, env: Environment, made: Lock, choices: Choices) -> Verdict | None:
    """The verdict, kept inside; None where this machine cannot give one."""
    if not can_prove(made, None, emit):
        return None
    verdict = prove(emit, env, made, choices)
    try:
        under = state.circumstances(Path(env.path), state.lock_digest(made), machine_for_verdict())
        state.keep_verdict(Path(env.path), verdict, under)
    except GpuenvError as error:
        emit(Event(kind="note", stage="verify", text=error.message))
    return verdict
