"""`gpuenv add PKG...`: a package more, under the plan, in the project's file, lock and environment."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from .. import lock, project, show
from ..build import place, state
from ..errors import BuildError, ResolveError, UsageError
from ..model import FRAMEWORKS, Event, Lock
from . import ask, inproject, where
from .creating import How
from .locking import Upgrade, lock_name, locked_like
from .options import Choices
from .solving import Emit


def add(
    screen: show.Screen, packages: Sequence[str], env: Path, base: Choices, *, verify: bool | None
) -> int:
    """Into the project's file and lock, or into what the environment remembers; then into the environment."""
    wanted = [_package(text) for text in packages]
    path, file = where.absolute(env), Path.cwd() / project.CONFIG_NAME
    place.check_place(path)
    with place.held(path):
        made: Lock | None = None
        if file.is_file():
            choices, made = _in_project(screen, base, file, wanted, path)
        else:
            choices = _remembered(base, path, wanted)
        if made is not None and not place.made_by_gpuenv(path):
            told = f"{project.CONFIG_NAME} and the lock have it; there is no environment at {path} yet"
            show.event(screen, Event(kind="note", stage="build", text=told))
            show.result(screen, made, next_step="gpuenv create")
            return 0
        return _into_environment(screen, path, choices, verify=verify)


def _package(text: str) -> str:
    try:
        need = Requirement(text)
    except InvalidRequirement as error:
        raise UsageError(f"{text!r} is no requirement like 'einops>=0.8': {error}") from error
    if canonicalize_name(need.name) in FRAMEWORKS:
        raise UsageError(
            f"{need.name} is a framework: its build is the plan's to choose",
            hint=f"name it under `frameworks:` in {project.CONFIG_NAME}, or gpuenv create --framework {need.name}",
        )
    return text


def _in_project(
    screen: show.Screen, base: Choices, file: Path, wanted: list[str], env: Path
) -> tuple[Choices, Lock]:
    """Solve with the packages first; only what can be solved is written, the lock after the file."""
    emit = show.emitter(screen)
    choices = inproject.laid(base)
    choices = dataclasses.replace(choices, with_=[*_others(choices.with_, wanted), *wanted])
    own = lock.read_in(env / place.MARK) if place.made_by_gpuenv(env) else None
    own = own if own and own.manager == choices.manager else None
    if choices.manager == "conda":
        from . import conda_locking

        asked, write = conda_locking.with_more(choices, own, emit)
    else:
        asked, write = _with_more(choices, own, wanted, emit)
    project.add_packages(file, wanted)
    choices = inproject.laid(base)
    return choices, write(inproject.inputs(choices, inproject.files_of(choices, asked.demands)))


def _with_more(
    choices: Choices, own: Lock | None, wanted: list[str], emit: Emit
) -> tuple[ask.Asked, Callable[[str | None], Lock]]:
    """What is asked for, solved, and what writes the lock with the digest of what is asked."""
    target = Path.cwd() / lock_name(choices)
    asked = ask.judged(choices, emit)
    plan, made = locked_like(asked, choices, emit, lock.read(target) if target.exists() else own, Upgrade())
    if made is None:
        raise ResolveError(f"with {', '.join(wanted)} no build fits", hint=plan.hint)

    def write(digest: str | None) -> Lock:
        digested = dataclasses.replace(made, inputs=digest)
        lock.write(target, digested)
        return digested

    return asked, write


def _others(have: list[str], wanted: list[str]) -> list[str]:
    names = {canonicalize_name(Requirement(w).name) for w in wanted}
    return [h for h in have if canonicalize_name(Requirement(h).name) not in names]


def _remembered(base: Choices, env: Path, wanted: list[str]) -> Choices:
    """What the environment was made for, and the packages. Raises UsageError where there is none."""
    if not place.made_by_gpuenv(env):
        raise UsageError(
            f"there is no {project.CONFIG_NAME} here and no environment of gpuenv at {env}",
            hint="gpuenv init writes one; gpuenv create makes the other",
        )
    try:
        before = inproject.choices_of((state.read(env, "request.json") or {}).get("choices") or {})
    except (ValueError, TypeError) as error:
        raise BuildError(
            f"what {env} was made for cannot be read: {error}", hint="gpuenv create --recreate"
        ) from error
    return dataclasses.replace(
        before, with_=[*_others(before.with_, wanted), *wanted], offline=base.offline, cache_dir=base.cache_dir,
        find_links=[*before.find_links, *base.find_links], no_build=base.no_build,
        only_binary=list(dict.fromkeys([*before.only_binary, *base.only_binary])),
        exclude_newer=base.exclude_newer or before.exclude_newer,
        exclude_newer_except=[*before.exclude_newer_except, *base.exclude_newer_except],
    )  # fmt: skip


def _into_environment(screen: show.Screen, env: Path, choices: Choices, *, verify: bool | None) -> int:
    from . import syncing

    plan = state.plan_of(env)
    place.recover(env)
    manager = plan.manager if plan else choices.manager
    return syncing.of(manager)(screen, env, choices, How(verify=verify), None)
