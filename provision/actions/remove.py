"""`gpuenv remove`: remove environments that gpuenv made."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ..config.options import Choices, make_absolute
from ..environment import kernel, place, registry, transaction
from ..errors import GpuenvError, UsageError
from ..model import Emit, Event, Preview, RemovedEnvironment, RemoveResult, drop_event
from ..model.declare import argument, dry_run_option, group
from ..model.values import Value
from ..system import process

_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class RemoveOptions(Value):
    """The options of `remove`. It uses no cache; the option is accepted for scripts."""

    envs: list[Path] = argument(metavar="ENV...", help="Environments to remove.", complete="environments")
    dry_run: bool = dry_run_option()
    choices: Choices = group(Choices, "cache_dir")


def remove(options: RemoveOptions, emit: Emit = drop_event) -> RemoveResult | Preview:
    """Remove environments that gpuenv made. All are checked before the first is removed.

    With `dry_run` return what would be removed.
    """
    paths = list(dict.fromkeys(make_absolute(env) for env in options.envs))
    for env, path in zip(options.envs, map(make_absolute, options.envs), strict=True):
        _refuse_package(env, path)
        _check(path)
    if options.dry_run:
        return _preview(paths)
    removed: list[RemovedEnvironment] = []
    try:
        for path in paths:
            removed += [_remove(emit, path)]
    except GpuenvError:
        for gone in removed:
            emit(Event("log", "remove", f"{gone.path}: removed"))
        raise
    return RemoveResult(removed=tuple(removed))


def _preview(envs: list[Path]) -> Preview:
    """Return the folders to remove, and the bytes that nothing else shares."""
    folders = [folder for env in envs for folder in _list_folders(env)]
    sizes = [size for f in folders if (size := registry.measure(f))]
    kernels = [name for env in envs for name in kernel.list_registered(env)]
    notes = (f"Jupyter kernels would be removed too: {', '.join(kernels)}",) if kernels else ()
    return Preview(
        command="remove", removes=tuple(map(str, folders)), notes=notes,
        freed_bytes=sum(s.bytes - s.shared for s in sizes),
    )  # fmt: skip


def _refuse_package(env: Path, path: Path) -> None:
    """Raise UsageError for the name of a package where nothing of that name is there."""
    if _PACKAGE.fullmatch(str(env)) and not (
        os.path.lexists(path) or [*transaction.list_leftovers(path)] or kernel.list_registered(path)
    ):
        raise UsageError(
            f"{path} does not exist",
            hint=f"to remove the package {env} from the project, run `gpuenv drop {env}`; `gpuenv list` shows the environments",
        )


def _check(env: Path) -> None:
    """Raise UsageError for a path that must not be removed. A deleted environment may still have kernels
    here."""
    if os.path.lexists(env) or not kernel.list_registered(env):
        transaction.check_removal(env)


def _list_folders(env: Path) -> list[Path]:
    """Return what is removed: the environment, what interrupted runs left beside it, and the Pythons for it alone."""
    folders = (env, *transaction.list_leftovers(env), *registry.list_own_pythons(env))
    return [folder for folder in folders if os.path.lexists(folder)]


def _remove(emit: Emit, env: Path) -> RemovedEnvironment:
    from ..conda import activation

    if process.environ().get("VIRTUAL_ENV") == str(env):
        emit(Event("note", "remove", f"{env} is active in this shell; leave it with: deactivate"))
    with place.lock_place(env, emit):
        _check(env)
        sizes = [size for f in _list_folders(env) if (size := registry.measure(f))]
        with transaction.removal(env):
            for forget in (registry.remove_unused_pythons, registry.forget, activation.unregister):
                try:
                    forget(env)
                except GpuenvError as error:  # an entry of a list outside of the environment
                    emit(Event("note", "remove", error.message))
            kernels = kernel.forget(env)
    taken, shared = sum(s.bytes for s in sizes), sum(s.shared for s in sizes)
    return RemovedEnvironment(path=str(env), bytes=taken, freed_bytes=taken - shared, kernels=tuple(kernels))
