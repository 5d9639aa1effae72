"""The lock that a bundle is made of: one that is named, the project's own, or a fresh one."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from ..index.download_files import is_right
from ..model import (
    Bundle,
    Emit,
    Event,
    Lock,
    PackageSources,
    Plan,
    Profiles,
    find_lock_manager,
    make_lock_name,
)
from ..request import load_profiles, project_options as inproject, read_options
from ..request.options import Choices
from ..request.project_folder import locate_project_file
from ..request.target import read_target
from .existing_lock import solve_or_read_lock
from .lock_acceptance import read_lock, virtual_packages
from .read_request import get_locking, judge_request

# Options that say nothing of target and choice.
_BESIDE = (
    "profiles", "cache_dir", "find_links", "offline", "manager", "no_build", "only_binary", "exclude_newer",
    "exclude_newer_except",
)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class LockForBundle:
    """A lock, where packages come from, and what else the making of a bundle asks for. `asked` is a digest
    of the options, `virtual` the virtual packages that a conda lock was solved with."""

    lock: Lock
    sources: PackageSources
    profiles: Profiles
    choices: Choices
    asked: str
    virtual: tuple[Mapping[str, str], ...] = ()


def of(
    emit: Emit, folder: Path, before: Bundle | None, choices: Choices, given: Path | None, *, allow_md5: bool
) -> LockForBundle | Plan:
    """The lock for a bundle (that of the file `given`, if any), or the plan that no build fits. A bundle that was
    interrupted goes on with the lock that it began with, if the same is asked for. Raises LockError, UsageError."""
    asked = _digest(choices, given)
    begun = before if _begun(folder, before, asked) else None
    if given is None and begun is None and _bare(choices):
        given = _here(choices)
    choices = choices if given else inproject.apply_project(choices)
    path = folder / begun.lock if begun else given
    if path is None:
        return _fresh(emit, choices, asked, allow_md5=allow_md5)
    words = "continuing with the lock of this unfinished bundle" if begun else f"the lock {path}"
    emit(Event(kind="note", stage="bundle", text=words))
    of_lock = dataclasses.replace(choices, manager=find_lock_manager(path, choices.manager))
    platform = read_target(choices.target).platform if choices.target else None
    made = read_lock(path, of_lock, platform)
    get_locking(of_lock).check_hashes(made, str(path), allow_md5=allow_md5)
    data = load_profiles.load_all(choices)
    return LockForBundle(
        lock=made, sources=read_options.read_sources(choices), profiles=data, choices=choices, asked=asked
    )


def _fresh(emit: Emit, choices: Choices, asked: str, *, allow_md5: bool) -> LockForBundle | Plan:
    """The project's own lock, or one that is solved now."""
    get_locking(choices).require()
    found = judge_request(choices, emit)
    plan, made = solve_or_read_lock(found, choices, emit, allow_md5=allow_md5)
    if made is None:
        return plan
    return LockForBundle(
        lock=dataclasses.replace(made, plan=plan), sources=found.sources, profiles=found.profiles,
        choices=choices, asked=asked, virtual=virtual_packages(found, choices),
    )  # fmt: skip


def _digest(choices: Choices, path: Path | None) -> str:
    plain = inproject.as_plain_options(dataclasses.replace(choices, cache_dir=None, offline=False))
    text = json.dumps([plain, str(path)], default=str, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _begun(folder: Path, before: Bundle | None, asked: str) -> bool:
    """Whether a bundle that was interrupted was asked for in the same words, and its lock is whole."""
    if before is None or before.complete or before.asked != asked:
        return False
    held = next((f for f in before.files if f.path == before.lock), None)
    path = folder / before.lock
    return bool(held and path.is_file() and is_right(path, {"sha256": held.sha256 or ""}))


def _bare(choices: Choices) -> bool:
    """Whether nothing was said of target or choice."""
    return choices == dataclasses.replace(Choices(), **{name: getattr(choices, name) for name in _BESIDE})


def _here(choices: Choices) -> Path | None:
    """The lock of this folder, where no project's file says what it is for."""
    path = Path.cwd() / make_lock_name(choices.manager)
    return path if path.exists() and locate_project_file() is None else None
