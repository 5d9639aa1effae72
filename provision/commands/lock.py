"""`gpuenv lock`: the exact files of an environment, with hashes."""

from __future__ import annotations

import dataclasses
import shlex
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

from ..errors import LockError, UsageError
from ..managers.protocol import Near, locking
from ..model import Asked, Bound, Emit, Event, Lock, Plan, drop_event
from ..model.option import argument, group, option
from ..request import project_options as inproject, upload_limits
from ..request.options import Choices
from ..request.project_folder import project_folder
from ..system.output_file import is_stdout, is_stream, refuse_to_replace
from ..wheels.locks import is_source
from .accepting import read, virtual_packages
from .added_extras import warn_of_extras
from .asking import judged, locking_of
from .default_env import note_project
from .foreseen import MissingLibraries
from .framework_words import options_for
from .host_compiler import warn_of_host_compiler
from .resolve import by_itself, noted
from .solving import locked


@dataclass(frozen=True, kw_only=True)
class LockOptions:
    """The options of `lock`. `packages` are those that `upgrade` moves; without any it moves all."""

    output: Path | None = option(
        None, "--output", "-o", help="The lock file; pylock.toml, or conda-lock.yml with --manager conda."
    )
    check: bool = option(False, help="Say whether the lock still holds; write nothing.")
    force: bool = option(False, help="Replace files that gpuenv did not write, or that were edited since.")
    upgrade: bool = option(
        False, "--upgrade", "-U", help="Newer versions of all packages, or of those named after it."
    )
    packages: list[str] = argument(list, metavar="[PKG]...", hidden=True)
    choices: Choices = group(Choices)

    @property
    def one_line(self) -> bool:
        """Whether the result is shown in one line."""
        return self.check

    @property
    def takes_stdout(self) -> bool:
        """Whether the lock is written to standard output."""
        return self.output is not None and is_stdout(self.output)


def lock(options: LockOptions, emit: Emit = drop_event) -> Lock | Plan:
    """Write the lock, or say whether it still holds. Return the plan where no build fits."""
    if options.packages and not options.upgrade:
        options_meant = options_for(options.packages)
        hint = "gpuenv lock --upgrade PKG moves that package only"
        hint = f"gpuenv lock {options_meant}" if options_meant else hint
        raise UsageError(f"unexpected {options.packages[0]!r}", hint=hint)
    names = tuple(str(canonicalize_name(n)) for n in options.packages)
    upgrade = Upgrade(all=options.upgrade and not names, names=names)
    choices = inproject.laid(options.choices)
    way = locking_of(choices)
    way.require()
    note_project(emit)
    output = options.output or _project_lock(choices)
    if not options.check:
        refuse_to_replace(output, force=options.force)
    asked = judged(choices, emit)
    if told := by_itself(asked, choices):
        emit(Event(kind="warning", stage="resolve", text=f"this will be for {told}"))
    held = _held(output, choices, asked.target.platform, strict=options.check)
    plan, made = locked_like(asked, choices, emit, held, upgrade)
    if made is None:
        return plan
    files = inproject.files_of(choices, asked.demands)
    made = dataclasses.replace(made, inputs=inproject.inputs(choices, files))
    if options.check and held:
        if inproject.same_inputs(held.inputs, choices, files):
            held = dataclasses.replace(held, inputs=made.inputs)
        return _checked(emit, made, held, output, _next(choices, output))
    way.write_lock(output, made, virtual_packages(asked, choices))
    MissingLibraries(emit, made, choices, asked.sources).warn()
    warn_of_host_compiler(emit, made.plan, choices)
    warn_of_extras(emit, made, choices)
    emit(Event(kind="next", stage="lock", text=_next(choices, output)))
    # The note is on this machine, and not in the file.
    return dataclasses.replace(made, plan=noted(made.plan, asked, choices))


def _project_lock(choices: Choices) -> Path:
    """Return the path of the project's lock file, relative where the project is this folder."""
    folder = project_folder()
    return Path(lock_name(choices)) if folder == Path.cwd() else folder / lock_name(choices)


def lock_name(choices: Choices) -> str:
    """The name of the project's lock file, or of that of the named target."""
    return locking_of(choices).lock_name(choices.target_name)


def _next(choices: Choices, output: Path) -> str:
    """What installs the lock: on the machine that it is for, or here for that machine."""
    told = choices.target_name or choices.target
    named = f" --target {shlex.quote(str(told))}" if told else ""
    manager = "" if choices.config else locking_of(choices).OPTION
    own = output.name == lock_name(choices)
    which = f"--locked{manager}" if own else f"--lock {shlex.quote(str(output))}"
    return f"gpuenv create {which}{named}  # installs exactly {output.name}"


@dataclasses.dataclass(frozen=True)
class Upgrade:
    """Which packages of a lock that is there may move: all, or those named."""

    all: bool = False
    names: tuple[str, ...] = ()


def _held(path: Path, choices: Choices, platform: str, *, strict: bool) -> Lock | None:
    """The lock that is there. One that cannot be read is written anew, except where it is checked."""
    if not strict and (not path.exists() or is_stream(path)):
        return None
    try:
        return read(path, choices, platform)
    except LockError:
        if strict:
            raise
        return None


def locked_like(
    asked: Asked, choices: Choices, emit: Emit, held: Lock | None, upgrade: Upgrade
) -> tuple[Plan, Lock | None]:
    """A lock as near to the one that is held as what is asked for allows, under the limit that applies."""
    limit = upload_limits.applying(choices, held, renewed=upgrade.all)
    asked = dataclasses.replace(asked, sources=upload_limits.limited(asked.sources, limit))
    plan, made = _locked_near(asked, choices, emit, held, upgrade)
    return plan, dataclasses.replace(made, exclude_newer=limit) if made else None


def _locked_near(
    asked: Asked, choices: Choices, emit: Emit, held: Lock | None, upgrade: Upgrade
) -> tuple[Plan, Lock | None]:
    if held is None or upgrade.all or held.plan.platform != asked.target.platform:
        return locked(asked, choices, emit)
    unknown = [n for n in upgrade.names if n not in {p.name for p in held.packages}]
    if unknown:
        raise UsageError(f"--upgrade {unknown[0]}: the lock has no such package")
    near = Near(lock=held, moving=frozenset(upgrade.names))
    if locking(asked.request.manager).PLANS_FIRST:
        built = [p.name for p in held.packages if is_source(p)]
        try:
            plan, made = locked(_with_builds_of(near, asked), choices, emit, near, built)
            if made:
                return plan, made
        except LockError as error:
            if error.unreachable:
                raise
            emit(Event(kind="note", stage="lock", text=f"not with the frameworks as locked: {error.message}"))
    return locked(asked, choices, emit, near)


def _with_builds_of(near: Near, asked: Asked) -> Asked:
    """What is asked for, with the frameworks and the Python of a lock: its builds are planned again."""
    assert near.lock
    plan, request = near.lock.plan, asked.request
    same = tuple(
        Bound(name=b.framework, specifier=f"=={b.version}", origin="the lock that is there")
        for b in plan.builds if b.framework not in near.moving
    )  # fmt: skip
    bounds, python = (*request.bounds, *same), request.python or plan.python
    return dataclasses.replace(asked, request=dataclasses.replace(request, bounds=bounds, python=python))


def _checked(emit: Emit, fresh: Lock, held: Lock, path: Path, step: str) -> Lock:
    """Show the lock that is held and what installs it, or raise LockError with what differs from a fresh one."""
    if drift := differences(held, fresh):
        raise LockError(
            f"{path} no longer is what would be locked now ({len(drift)} packages differ)",
            log="\n".join(drift), hint="gpuenv lock writes it anew",
        )  # fmt: skip
    if held.exclude_newer != fresh.exclude_newer:
        raise LockError(
            f"{path} was made with another --exclude-newer, though the packages are the same",
            hint="gpuenv lock writes it anew",
        )
    if held.inputs and fresh.inputs and held.inputs != fresh.inputs:
        raise LockError(
            f"{path} was made for other requirements than the project has now, though the packages are the same",
            hint="gpuenv lock writes it anew",
        )
    emit(Event(kind="next", stage="lock", text=step))
    return held


def differences(held: Lock, fresh: Lock) -> list[str]:
    """The packages that two locks differ in: "numpy: 1.26.4 -> 2.1.0"."""
    before = {p.name: p.version for p in held.packages}
    after = {p.name: p.version for p in fresh.packages}
    return [f"{n}: {before.get(n, 'not locked')} -> {after.get(n, 'not needed')}"
            for n in sorted(before.keys() | after.keys()) if before.get(n) != after.get(n)]  # fmt: skip
