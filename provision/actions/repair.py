"""`gpuenv repair`: restore an environment to its lock."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from ..config.env import choose_env_to_change
from ..config.options import BuildOptions, Choices, get_cache_dir, make_absolute
from ..config.project import parse_options
from ..config.recall import read_own_project
from ..config.sources import read_sources
from ..environment import place, record
from ..environment.activate import activate_line
from ..environment.managers import RepairWork, find_work, get_manager, join_work
from ..environment.place import locate_environment
from ..errors import BuildError, UsageError, VerifyError
from ..model import (
    Emit,
    Event,
    Lock,
    PackageChange,
    Preview,
    RepairResult,
    drop_event,
    is_expected,
    normalize_name,
)
from ..model.declare import checks_option, dry_run_option, env_argument, group, option, quick_option
from ..model.values import Value
from ..system import process
from ..system.files import measure_free_space

if TYPE_CHECKING:
    from .build import EnvironmentBuild

_ROUNDS = 3


class RepairOptions(BuildOptions, Value):
    """The options of `repair`."""

    env: Path | None = env_argument()
    verify: bool = option(
        True, "--verify/--no-verify", help="Verify the environment after the repair, or skip verification."
    )
    quick: bool = quick_option()
    checks: bool = checks_option()
    dry_run: bool = dry_run_option()
    deep: bool = option(False, help="Compare the hash of every file, not only of files that changed.")
    choices: Choices = group(
        Choices, "find_links", "channel", "offline", "profiles", "cache_dir", "trust_project"
    )


def repair(options: RepairOptions, emit: Emit = drop_event) -> RepairResult | Preview:
    """Restore what was replaced, removed or changed in an environment from its lock, and prove it.

    With `dry_run` return what would change.
    """
    from ..environment.drift import find_drift  # imported late, for fast shell completion of ENV
    from .build import EnvironmentBuild

    env = make_absolute(choose_env_to_change(emit, options.env)).resolve()
    if options.dry_run:
        record.require_vouched(env)
        lock = _read_lock(env)
        return _preview(env, find_work(lock, find_drift(env, lock, thorough=True, deep=options.deep)))
    with place.lock_place(env, emit, wait=True):
        place.recover(env)
        record.require_vouched(env)
        choices = _recall_choices(env, options.choices)
        lock, sources = _read_lock(env), read_sources(choices)
        own = read_own_project(env, get_cache_dir(choices))
        choices = dataclasses.replace(choices, config=own.file if own and not own.problem else None)
        # A restored environment is kept even if its proof fails: it is closer to the proved one than before.
        build = EnvironmentBuild(
            options=options, env=env, choices=choices, emit=emit, old=lock, keep_failed=True
        )
        build.set_lock(lock, sources)
        emit(Event("start", "repair", f"comparing {env} with its lock"))
        work = find_work(lock, find_drift(env, lock, thorough=True, deep=options.deep))
        _check_python(env, lock)
        if work.packages or work.removed:
            with build.transaction(work.packages) as prefix:
                work = _restore(build, work, prefix, deep=options.deep)
                build.record(prefix)
                build.prove(prefix)
            build.run_later_stages()
        repaired = RepairResult(
            packages=work.restored,
            removed=work.removed,
            left=work.left,
            environment=record.read_environment(env, changed=build.changed),
            verdict=build.verdict,
        )
    if build.verdict is None or is_expected(build.verdict, lock.plan.device):
        emit(Event("next", "repair", activate_line(env, process.environ())))
    return repaired


def _preview(env: Path, work: RepairWork) -> Preview:
    """Return the packages that would be restored and removed."""
    sizes = {normalize_name(p.name): p.size for p in work.packages}
    back = [
        PackageChange(name=t.name, before=t.had, after=t.now, size=sizes.get(t.name)) for t in work.restored
    ]
    gone = [PackageChange(name=r.name, before=r.version) for r in work.removed]
    left = ", ".join(f"{p.name} {p.version}" for p in work.left)
    return Preview(
        command="repair", path=str(env), packages=(*back, *gone),
        download_bytes=sum(size or 0 for size in sizes.values()), free_bytes=measure_free_space(env),
        notes=(f"not in the lock, left unchanged: {left}",) if left else (),
    )  # fmt: skip


def _read_lock(env: Path) -> Lock:
    """Return the lock inside an environment. Raises UsageError if gpuenv did not make it."""
    if not place.made_by_gpuenv(env):
        if not env.exists():
            raise UsageError(f"{env} does not exist", hint="build it: gpuenv create")
        hint = f"if it has a framework, lock and record its packages: gpuenv create {shlex.quote(str(env))} --adopt. Otherwise "
        hint += "build a new environment: gpuenv create NEW --framework torch"
        raise UsageError(f"{env} was not made by gpuenv and has no lock", hint=hint)
    return record.read_lock(env)


def _recall_choices(env: Path, choices: Choices) -> Choices:
    """Return the options with the package sources of `create`, unless others are named."""
    try:
        recorded = parse_options(record.read(env, "request.json").get("choices") or {})
    except ValueError:  # written by a version of gpuenv with other options
        return choices
    links = [f for f in recorded.find_links if "://" in f or Path(f).exists()]
    channels = [
        c for c in recorded.channel if not c.startswith(("/", ".", "~")) or Path(c).expanduser().exists()
    ]
    return dataclasses.replace(
        choices, find_links=choices.find_links or links, channel=choices.channel or channels,
        index=recorded.index, indexes=recorded.indexes,
    )  # fmt: skip


def _restore(build: EnvironmentBuild, work: RepairWork, prefix: Path, *, deep: bool) -> RepairWork:
    """Restore packages until nothing differs, and return all that was done. Raises BuildError.

    Removing a package can remove files of another one. If the cached copy of a package was modified too (it
    shares files with environments), the package is downloaded again.
    """
    from ..environment.drift import find_drift

    lock, todo, fresh = build.lock, work, False
    for _ in range(_ROUNDS):
        get_manager(lock.manager).reinstall(lock, todo, prefix, build.settings, fresh=fresh)
        left = find_work(lock, find_drift(prefix, lock, thorough=True, fresh=work.names, deep=deep))
        if not left.packages and not left.removed:
            return work
        if spoiled := sorted(left.names & todo.names):
            text = f"the cached files of {', '.join(spoiled)} were modified too. Downloading them again"
            build.emit(Event("warning", "build", text))
            fresh = True
        todo, work = left, join_work(work, left)
    differences = "; ".join(t.why for t in left.restored) or ", ".join(r.name for r in left.removed)
    raise BuildError(f"the environment could not be restored to its lock: {differences}",
                     hint="rebuild it: gpuenv create --recreate")  # fmt: skip


def _check_python(env: Path, lock: Lock) -> None:
    """Raise VerifyError if the environment's Python is missing, and BuildError if it has another version. Packages cannot be
    restored then."""
    from ..environment.interpreter import ask_version

    wanted = lock.plan.python
    hint = "rebuild it: gpuenv create --recreate"
    try:
        here = ask_version(locate_environment(env))
    except UsageError as error:
        raise VerifyError(error.message, hint=hint) from error  # exit code 8, as for verify
    locked = any(p.name == "python" for p in lock.packages)  # then it is restored like every other package
    if not locked and wanted and here.split(".")[:2] != wanted.split(".")[:2]:
        raise BuildError(f"the environment's Python is {here}; its lock is for {wanted}", hint=hint)
