"""`gpuenv repair`: what was replaced, removed or changed in an environment, put back from its lock."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from pathlib import Path

import typer

from .. import lock, process, show
from ..build import place, state
from ..errors import BuildError, GpuenvError, UsageError
from ..model import Drift, Environment, Event, Lock, Repaired, Verdict
from . import ask
from . import options as o
from .creating import can_prove
from .proving import exit_code, machine_for_verdict, prove
from .shell import activate_line


def repair(
    env: o.Env = Path(".venv"),
    verify: bool = typer.Option(True, "--verify/--no-verify", help="Verify afterwards / not at all."),
    deep: bool = typer.Option(False, "--deep", help="Hash every file, not only those written since."),
    find_links: o.FindLinks = None,
    channel: o.Channels = None,
    offline: o.Offline = False,
    profiles: o.ProfileDirs = None,
    cache_dir: o.CacheDir = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> int:
    """Put back what was replaced, removed or changed in an environment, from its lock."""
    given = locals()
    screen = show.Screen(json=json, quiet=quiet, verbose=verbose, environ=process.environ())
    choices = o.choices(given)
    path = ask.absolute(env).resolve()
    with place.held(path, ask.cache_dir(choices)):
        place.recover(path)
        made = _lock_of(path)
        done = _repaired(screen, path, made, choices, deep=deep)
        if verify and done.environment and done.environment.changed:
            done = dataclasses.replace(done, verdict=_proved(screen, done.environment, made, choices))
    code = exit_code(done.verdict, made) if done.verdict else 0
    step = activate_line(path, process.environ()) if code == 0 and done.verdict else None
    show.result(screen, done, next_step=step)
    return code


def _lock_of(env: Path) -> Lock:
    """The lock inside an environment. Raises UsageError where gpuenv did not make it."""
    if not place.made_by_gpuenv(env):
        told = "is not there" if not env.exists() else "was not made by gpuenv: it has no lock"
        raise UsageError(
            f"{env} {told}", hint="`gpuenv create` makes an environment that can be repaired from its lock"
        )
    return lock.read_in(env / place.MARK)


def _repaired(screen: show.Screen, env: Path, made: Lock, choices: o.Choices, *, deep: bool) -> Repaired:
    from ..build import repair as stage
    from ..verify import drift

    def check(path: Path, fresh: Collection[str]) -> Drift:
        return drift.find(path, made, thorough=True, fresh=fresh, deep=deep)

    emit = show.emitter(screen)
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
    from ..verify import locate

    wanted = made.plan.python
    hint = "build it again: gpuenv create with --recreate"
    try:
        here = locate(env).python_version
    except UsageError as error:
        raise BuildError(f"the environment's Python does not run: {error.message}", hint=hint) from error
    if made.manager != "conda" and wanted and here and here.split(".")[:2] != wanted.split(".")[:2]:
        raise BuildError(f"the environment's Python is {here} now, its lock is for {wanted}", hint=hint)


def _proved(screen: show.Screen, env: Environment, made: Lock, choices: o.Choices) -> Verdict | None:
    """The verdict, kept inside; None where this machine cannot give one."""
    emit = show.emitter(screen)
    if not can_prove(made, None, emit):
        return None
    verdict = prove(screen, env, made, choices)
    try:
        under = state.circumstances(Path(env.path), made, machine_for_verdict())
        state.keep_verdict(Path(env.path), verdict, under)
    except GpuenvError as error:
        emit(Event(kind="note", stage="verify", text=error.message))
    return verdict


def register(app: typer.Typer) -> None:
    """Add the command `repair`."""
    app.command()(repair)
