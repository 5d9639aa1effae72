"""`gpuenv repair`: an environment put back to its lock."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..environment import place, repair as repairs, state
from ..errors import BuildError, UsageError
from ..managers.protocol import manager
from ..model import Drift, Emit, Event, Lock, PackageChange, Preview, RepairResult, drop_event, normalize_name
from ..model.command_options import argument, group, option
from ..request import environment_paths as where, project_options as inproject, read_options
from ..request.options import Choices
from ..system import process
from ..wheels import pylock
from .activate_command import activate_line
from .default_env import choose_env_to_change
from .preview_changes import measure_free_space
from .verdict_inputs import is_expected

if TYPE_CHECKING:
    from .build_transaction import BuildJob

_ROUNDS = 3
Check = Callable[[Path, Collection[str]], Drift]
"""Compares an environment with its lock; the names are of packages that were put back a moment ago."""


@dataclass(frozen=True, kw_only=True)
class RepairOptions:
    """The options of `repair`."""

    env: Path | None = argument(
        None, help="Path of the environment.  [default: .venv]", complete="environments"
    )
    verify: bool = option(
        True, "--verify/--no-verify", help="Verify the environment after the repair, or skip verification."
    )
    checks: bool = option(True, "--checks/--no-checks", help="Run the checks of gpuenv.yaml, or not.")
    dry_run: bool = option(False, help="Show what would be done, without changes.")
    deep: bool = option(False, help="Compare the hash of every file, not only of files that changed.")
    choices: Choices = group(Choices, "find_links", "channel", "offline", "profiles", "cache_dir")


def repair(options: RepairOptions, emit: Emit = drop_event) -> RepairResult | Preview:
    """Put back what was replaced, removed or changed in an environment, from its lock, and prove it then. With
    `dry_run` return what would change."""
    from ..verify.drift import compare_wheels  # a shell that completes ENV does not wait for it
    from .build_transaction import BuildJob

    path = where.make_absolute(choose_env_to_change(emit, options.env)).resolve()
    if options.dry_run:
        place.refuse_half_changed(path)
        made = _lock_of(path)
        return _preview(
            path, repairs.work(made, compare_wheels.find_drift(path, made, thorough=True, deep=options.deep))
        )
    with place.held(path, emit):
        place.recover(path)
        choices = _as_created(path, options.choices)
        place.refuse_half_changed(path)
        made = _lock_of(path)
        job = BuildJob(
            env=path, lock=made, choices=choices, sources=read_options.read_sources(choices), emit=emit,
            verify=None if options.verify else False, checks=options.checks,
        )  # fmt: skip
        done = _repaired(
            job,
            lambda prefix, fresh: compare_wheels.find_drift(
                prefix, made, thorough=True, fresh=fresh, deep=options.deep
            ),
        )
    if done.verdict is None or is_expected(done.verdict, made.plan.device):
        emit(Event(kind="next", stage="repair", text=activate_line(path, process.environ())))
    return done


def _preview(env: Path, work: repairs.Work) -> Preview:
    """Return the packages that would be put back and removed."""
    sizes = {normalize_name(p.name): p.size for p in work.packages}
    back = [PackageChange(name=t.name, before=t.had, after=t.now, size=sizes.get(t.name)) for t in work.told]
    gone = [PackageChange(name=r.name, before=r.version) for r in work.removed]
    left = ", ".join(f"{p.name} {p.version}" for p in work.left)
    return Preview(
        command="repair", path=str(env), packages=(*back, *gone),
        download_bytes=sum(size or 0 for size in sizes.values()), free_bytes=measure_free_space(env),
        notes=(f"not in the lock, left unchanged: {left}",) if left else (),
    )  # fmt: skip


def _lock_of(env: Path) -> Lock:
    """The lock inside an environment. Raises UsageError where gpuenv did not make it."""
    if not place.made_by_gpuenv(env):
        told = "does not exist" if not env.exists() else "was not made by gpuenv and has no lock"
        raise UsageError(f"{env} {told}", hint="build one with a lock: gpuenv create")
    return pylock.read_in(env / place.MARK)


def _as_created(env: Path, choices: Choices) -> Choices:
    """The places that `create` was told to take packages from, where none are named now."""
    try:
        held = inproject.parse_options((state.read(env, "request.json") or {}).get("choices") or {})
    except ValueError:  # another version of gpuenv had other options
        return choices
    links = [f for f in held.find_links if "://" in f or Path(f).exists()]
    channels = [c for c in held.channel if not c.startswith(("/", ".", "~")) or Path(c).expanduser().exists()]
    return dataclasses.replace(
        choices, find_links=choices.find_links or links, channel=choices.channel or channels,
        index=held.index, indexes=held.indexes,
    )  # fmt: skip


def _repaired(job: BuildJob, check: Check) -> RepairResult:
    from .build_transaction import BuildStep, build_environment

    job.emit(Event(kind="start", stage="repair", text=f"comparing {job.env} with its lock"))
    done, verdict = repairs.work(job.lock, check(job.env, ())), None
    changed = bool(done.packages or done.removed)
    if changed:
        _check_python(job.env, job.lock)
        rounds = _Rounds(job, check, done)
        # An environment that is its lock again is nearer to what was proved once than what was there.
        verdict = build_environment(
            job, BuildStep(do=rounds.run, copied=True, packages=done.packages, stays=True)
        )
        done = rounds.done
    return RepairResult(
        packages=done.told,
        removed=done.removed,
        left=done.left,
        environment=state.environment(job.env, changed=changed),
        verdict=verdict,
    )


@dataclasses.dataclass
class _Rounds:
    """Putting back, and looking again. Taking a package out can take files of another one with it, and where the
    cache's own copy of a package is changed (its files are those of environments), it is fetched anew."""

    job: BuildJob
    check: Check
    done: repairs.Work

    def run(self, prefix: Path) -> None:
        """Put packages back until nothing differs. Raises BuildError."""
        lock, todo, fresh = self.job.lock, self.done, False
        for _ in range(_ROUNDS):
            manager(lock.manager).put_back(lock, todo, prefix, self.job.how, fresh=fresh)
            left = repairs.work(lock, self.check(prefix, self.done.names))
            if not left.packages and not left.removed:
                return
            spoiled = sorted(left.names & todo.names)
            if spoiled:
                text = f"the cached files of {', '.join(spoiled)} were modified too. Downloading them again"
                self.job.emit(Event(kind="warning", stage="build", text=text))
                fresh = True
            todo, self.done = left, repairs.both(self.done, left)
        told = "; ".join(t.why for t in left.told) or ", ".join(r.name for r in left.removed)
        raise BuildError(f"the environment could not be restored to its lock: {told}",
                         hint="rebuild it: gpuenv create --recreate")  # fmt: skip


def _check_python(env: Path, lock: Lock) -> None:
    """Raise BuildError where the environment's Python is gone or another one: packages cannot be put
    back into that."""
    from ..verify import locate

    wanted = lock.plan.python
    hint = "rebuild it: gpuenv create --recreate"
    try:
        here = locate(env).python_version
    except UsageError as error:
        raise BuildError(f"the environment's Python does not run: {error.message}", hint=hint) from error
    locked = any(p.name == "python" for p in lock.packages)  # then it is put back like all others
    if not locked and wanted and here and here.split(".")[:2] != wanted.split(".")[:2]:
        raise BuildError(f"the environment's Python is {here}; its lock is for {wanted}", hint=hint)
