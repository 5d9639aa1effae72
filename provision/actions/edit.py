"""Add or drop packages in the project's file, its lock and the environment."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ..config import recall, rows
from ..config.edit import add_packages, drop_packages, merge_packages, parse_package_name, write_files
from ..config.env import choose_env_to_change, locate_project_file
from ..config.file import CONFIG_NAME
from ..config.options import BuildOptions, Choices, make_absolute
from ..config.project import apply_project
from ..environment import place, record
from ..errors import ResolveError, UsageError
from ..lock.formats import NAMES, check_choices, get_format
from ..lock.stack import refuse_cuda_for_cpu
from ..model import CreateResult, Emit, Event, Lock, Preview, make_lock_name, requirement_name
from ..model.declare import BUILD, checks_option, dry_run_option, env_option, group, verify_option
from ..model.values import Value

if TYPE_CHECKING:
    from ..lock.project import SolvedRequest

# Options of `add` and `drop` that replace the recorded ones of the environment.
_OWN = ("profiles", "exclude_newer", "exclude_newer_except")
OPTIONS = (
    "find_links", "offline", "no_build", "only_binary", "exclude_newer", "exclude_newer_except", "profiles",
    "cache_dir", "trust_project",
)  # fmt: skip
"""The options that `add` and `drop` share with `create`."""


class PackageEdit(Value):
    """A change of packages: the requirements to add, or the names of packages to drop."""

    add: Sequence[str] = ()
    drop: Sequence[str] = ()

    @property
    def description(self) -> str:
        """The change in errors."""
        return f"with {', '.join(self.add)}" if self.add else f"without {', '.join(self.drop)}"

    def change(self, have: Sequence[str]) -> list[str]:
        """Return the new requirements for the current ones."""
        kept = [text for text in have if not self.drop or parse_package_name(text) not in self.drop]
        return merge_packages(kept, self.add) if self.add else kept

    def write(self, file: Path) -> None:
        """Change the project's file."""
        if self.add:
            add_packages(file, self.add)
        else:
            drop_packages(file, self.drop)

    def check(self, have: Sequence[str], file: Path | None, emit: Emit) -> None:
        """Note each bound that is replaced by another one. Raise UsageError for a package to drop that is not named: other
        packages or files require it."""
        bounds = {parse_package_name(text): text for text in have if Requirement(text).specifier}
        for text in (text for text in self.add if Requirement(text).specifier):
            old = bounds.get(parse_package_name(text), text)
            if Requirement(old).specifier != Requirement(text).specifier:
                home = f" in {file.name}" if file else ""
                emit(Event("note", "lock", f"{text} replaces {old}{home}"))
        known = [parse_package_name(text) for text in have]
        for name in self.drop:
            if name not in known:
                where = f"packages of {file.name}" if file else "packages that the environment was built with"
                dropped = f"drop one of these: {', '.join(known)}" if known else "there is none to drop"
                hint = f"{dropped}. If a file of the project requires {name}, edit that file, then run gpuenv sync"
                raise UsageError(f"{name} is not among the {where}", hint=hint)


class EditOptions(BuildOptions, Value):
    """The options that `add` and `drop` have in common."""

    env: Path | None = env_option()
    choices: Choices = group(Choices, *OPTIONS)
    dry_run: bool = dry_run_option(panel=BUILD)
    verify: bool | None = verify_option(panel=BUILD)
    checks: bool = checks_option(panel=BUILD)


def apply_edit(edit: PackageEdit, options: EditOptions, emit: Emit) -> CreateResult | Lock | Preview:
    """Make the change. Return the lock if there is no environment. Raises UsageError, LockError,
    ResolveError."""
    path, file = make_absolute(choose_env_to_change(emit, options.env, "--env")), locate_project_file()
    place.check_place(path)
    if options.dry_run:
        return _preview(edit, options, path, file, emit)
    names = [make_lock_name(name, options.choices.target_name) for name in NAMES]
    files = (file, *(file.parent / name for name in names)) if file else ()
    with place.lock_place(path, emit, wait=True):
        place.recover(path)
        place.require_python(path)
        choices = _recall_choices(path, options.choices)
        if file is None:
            return _change(emit, path, _change_recorded(emit, choices, path, edit), options)
        before = {kept: _read(kept) for kept in files}
        try:
            choices, lock = _change_project(emit, choices, file, edit, path)
            result = _change(emit, path, choices, options) if place.made_by_gpuenv(path) else None
        except BaseException:
            _restore(before, emit)
            raise
        if result:
            if result.environment is None:
                _restore(before, emit)
            return result
        note = f"{file.name} and the lock are changed; no environment exists at {path} yet"
        emit(Event("note", "build", note))
        emit(Event("next", "build", "gpuenv create"))
        return lock


def _change(emit: Emit, env: Path, choices: Choices, options: EditOptions) -> CreateResult:
    """Solve again, as similar to the environment's lock as possible, and change only what differs."""
    from .build import EnvironmentBuild  # imported late, for fast shell completion of ENV
    from .create import register

    build = EnvironmentBuild(options=options, env=env, choices=choices, emit=emit, old=record.read_lock(env))
    plan = build.solve(build.make_request())
    if not plan.builds:
        return CreateResult(machine=build.machine, plan=plan)
    if build.find_changes():
        with build.transaction() as prefix:
            build.install(prefix)
            build.record(prefix)
            build.prove(prefix)
        build.run_later_stages()
    else:
        build.record_options()
        build.prove_if_changed()
    result = build.make_result()
    build.update_project_lock(result)
    return register(emit, env, result)


def _read(file: Path) -> bytes | None:
    return file.read_bytes() if file.exists() else None


def _restore(before: Mapping[Path, bytes | None], emit: Emit) -> None:
    """Give files the contents from before a change that failed."""
    changed = {file: old for file, old in before.items() if _read(file) != old}
    write_files({file: old for file, old in changed.items() if old is not None})
    for file in (file for file, old in changed.items() if old is None):
        file.unlink()
    if changed:
        text = f"{' and '.join(file.name for file in changed)}: restored, because the change failed"
        emit(Event("note", "build", text))


def _preview(edit: PackageEdit, options: EditOptions, path: Path, file: Path | None, emit: Emit) -> Preview:
    """Solve with the change, and return what it would write. Raises UsageError, LockError, ResolveError."""
    from ..lock import changes

    choices, env_lock = _recall_choices(path, options.choices), record.read_lock_inside(path)
    command = "add" if edit.add else "drop"
    if file is None:
        from .build import EnvironmentBuild

        choices = _change_recorded(emit, choices, path, edit)
        build = EnvironmentBuild(options=options, env=path, choices=choices, emit=emit, old=env_lock)
        plan = build.solve(build.make_request())
        if not plan.builds:
            raise ResolveError("no build fits", hint=plan.hint)
        return changes.preview_lock(command, path, env_lock, build.lock)
    solved = _solve_project(emit, choices, file, edit, env_lock)
    have = apply_project(choices).with_
    same = edit.change(have) == list(have) and not changes.list_changes(solved.project_lock, solved.lock)
    writes = () if same else (file, solved.path)
    return changes.preview_lock(command, path, env_lock or solved.project_lock, solved.lock, writes)


def _recall_choices(env: Path, base: Choices) -> Choices:
    """Return the options that the environment was made with. Folders of wheels that are named now are added."""
    record.require_vouched(env)
    recorded = recall.recall_options(env, base, {name for name in _OWN if getattr(base, name)})
    links = list(dict.fromkeys([*recorded.find_links, *base.find_links]))
    binary = list(dict.fromkeys([*recorded.only_binary, *base.only_binary]))
    more = recall.list_typed(Choices(find_links=links, only_binary=binary))
    return dataclasses.replace(recorded, find_links=links, only_binary=binary, typed=recorded.typed | more)


def _change_project(
    emit: Emit, choices: Choices, file: Path, edit: PackageEdit, env: Path
) -> tuple[Choices, Lock]:
    """Solve the project's lock with the change, then write the file and the lock.

    Return the options for the environment, and the lock.
    """
    solved = _solve_project(emit, choices, file, edit, record.read_lock_inside(env))
    edit.write(file)
    choices = dataclasses.replace(choices, with_=[text for text in choices.with_ if edit.change([text])])
    choices = dataclasses.replace(choices, typed=recall.list_typed(choices))
    return apply_project(choices), solved.write()


def _solve_project(
    emit: Emit, choices: Choices, file: Path, edit: PackageEdit, env_lock: Lock | None
) -> SolvedRequest:
    """Solve the project's lock with the change. Raises UsageError, LockError, ResolveError."""
    from ..lock import project

    edit.check(apply_project(choices).with_, file, emit)
    solved = project.solve_with_packages(choices, env_lock, edit.change, edit.description, emit)
    if near := solved.project_lock or env_lock:
        refuse_cuda_for_cpu(near.plan, solved.lock.plan, edit.description)
    return solved


def _change_recorded(emit: Emit, choices: Choices, env: Path, edit: PackageEdit) -> Choices:
    """Return the recorded options of the environment, with the change. Raises UsageError if there is no
    environment."""
    if not place.made_by_gpuenv(env):
        raise UsageError(
            f"no {CONFIG_NAME} here, and no environment of gpuenv at {env}",
            hint="write one: gpuenv init --framework torch (or tensorflow, jax, onnxruntime); or build an environment without "
            "one: gpuenv create --framework torch",
        )
    if not (choices.framework or choices.requirement or choices.project):
        choices = _request_lock(choices, record.read_lock(env))
    check_choices(choices)
    edit.check(choices.with_, None, emit)
    changed = dataclasses.replace(choices, with_=edit.change(choices.with_))
    return dataclasses.replace(changed, typed=recall.list_typed(changed))


def _request_lock(choices: Choices, lock: Lock) -> Choices:
    """Return the options for an environment that was made from a lock alone.

    They name its frameworks and all other packages that the plan does not include. Raises UsageError for a
    package that only a file can request.
    """
    if not get_format(lock.manager).OF_WHEELS:
        raise UsageError(
            "the environment was built from a conda lock, which does not record the requested packages",
            hint="gpuenv lock --manager conda --with PKG, then gpuenv create --lock conda-lock.yml",
        )
    planned = {Requirement(text).name for b in lock.plan.builds for text in b.requirements}
    planned = {canonicalize_name(n) for n in planned} | rows.load(choices).stack | {"pip"}
    rest = [p for p in lock.packages if canonicalize_name(p.name) not in planned]
    if editable := [p.name for p in rest if p.editable]:
        raise UsageError(
            f"{editable[0]} is an editable package, which cannot be solved again without its requirements file",
            hint="name it in a requirements file: gpuenv lock -r FILE, then gpuenv create --lock pylock.toml",
        )
    rest_names = {p.name for p in rest}
    kept = [text for text in choices.with_ if requirement_name(text) not in rest_names]
    named = [f"{p.name} @ {p.url}" if p.unhashed else p.name for p in rest]
    return dataclasses.replace(
        choices, framework=[b.framework for b in lock.plan.builds], with_=[*kept, *named]
    )
