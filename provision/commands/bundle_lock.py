"""The lock that a bundle is made of: one that is named, the project's own, or a fresh one."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..bundle import is_whole, locks_of
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
from ..request import load_profiles, package_sources, project_options as inproject
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
    of the options, `virtual` the virtual packages that a conda lock was solved with. `file` is the name of the lock
    of one plan of several."""

    lock: Lock
    sources: PackageSources
    profiles: Profiles
    choices: Choices
    asked: str
    virtual: tuple[Mapping[str, str], ...] = ()
    file: str | None = None

    @property
    def file_name(self) -> str:
        """The name of the lock in the bundle."""
        return self.file or make_lock_name(self.lock.manager)

    @property
    def of_fleet(self) -> bool:
        """Whether the lock is of one plan of several machines."""
        return self.file is not None


def one_of_each_platform(locks: Iterable[LockForBundle]) -> list[LockForBundle]:
    """Return the lock with the oldest glibc for each platform: its wheels serve all machines of the platform."""
    found: dict[str, LockForBundle] = {}
    for got in locks:
        first = found.setdefault(got.lock.plan.platform, got)
        if _glibc(got) < _glibc(first):
            found[got.lock.plan.platform] = got
    return list(found.values())


def _glibc(got: LockForBundle) -> tuple[int, ...]:
    return tuple(int(n) for n in (got.lock.target.glibc or "999").split("."))


def of(
    emit: Emit, folder: Path, before: Bundle | None, choices: Choices, given: Path | None, *, allow_md5: bool
) -> LockForBundle | Plan:
    """The lock for a bundle (that of the file `given`, if any), or the plan that no build fits. A bundle that was
    interrupted goes on with the lock that it began with, if the same is asked for. Raises LockError, UsageError."""
    asked = digest_options(choices, str(given))
    begun = before if is_begun(folder, before, asked) else None
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
        lock=made, sources=package_sources.read_sources(choices), profiles=data, choices=choices, asked=asked
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


def digest_options(choices: Choices, more: object) -> str:
    """Return a digest of the options, and of a lock or hosts, that a bundle is made for."""
    plain = inproject.as_plain_options(dataclasses.replace(choices, cache_dir=None, offline=False))
    text = json.dumps([plain, more], default=str, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def is_begun(folder: Path, before: Bundle | None, asked: str) -> bool:
    """Return whether a bundle was interrupted that the same options ask for, and its locks are complete."""
    if before is None or before.complete or before.asked != asked:
        return False
    files = {f.path: f for f in before.files}
    return all(name in files and is_whole(folder, files[name]) for name in locks_of(before))


def _bare(choices: Choices) -> bool:
    """Whether nothing was said of target or choice."""
    return choices == dataclasses.replace(Choices(), **{name: getattr(choices, name) for name in _BESIDE})


def _here(choices: Choices) -> Path | None:
    """The lock of this folder, where no project's file says what it is for."""
    path = Path.cwd() / make_lock_name(choices.manager)
    return path if path.exists() and locate_project_file() is None else None
