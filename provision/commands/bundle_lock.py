"""Find the lock for a bundle: the named one, the project's own, or a new one."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..bundle import is_whole, locks_of
from ..config import project as inproject, rows
from ..config.grants import read_user_grants
from ..config.options import Choices
from ..config.project import locate_project_file
from ..config.sources import read_sources
from ..config.target import read_target
from ..lock.accept import read_lock, virtual_packages
from ..lock.context import get_locking, judge_request
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
from .existing_lock import solve_or_read_lock

# Options that name neither a target nor a build.
_BESIDE = (
    "profiles", "cache_dir", "find_links", "offline", "manager", "no_build", "only_binary", "exclude_newer",
    "exclude_newer_except",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LockForBundle:
    """A lock with the package sources and options for its bundle.

    `options_digest` identifies the options. `virtual` are the virtual packages that a conda lock was solved
    with. `file` is the name of the lock if it is for one plan of several.
    """

    lock: Lock
    sources: PackageSources
    profiles: Profiles
    choices: Choices
    options_digest: str
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
    by_platform: dict[str, LockForBundle] = {}
    for locked in locks:
        first = by_platform.setdefault(locked.lock.plan.platform, locked)
        if _glibc(locked) < _glibc(first):
            by_platform[locked.lock.plan.platform] = locked
    return list(by_platform.values())


def _glibc(locked: LockForBundle) -> tuple[int, ...]:
    return tuple(int(n) for n in (locked.lock.target.glibc or "999").split("."))


# Six parameters: where the bundle is and was, what the user asked for, and how to report.
def of(
    emit: Emit,
    folder: Path,
    before: Bundle | None,
    choices: Choices,
    lock_file: Path | None,
    *,
    allow_md5: bool,
) -> LockForBundle | Plan:
    """Return the lock for a bundle, or the plan without builds if no build fits.

    The lock is that of `lock_file` if it is named. An interrupted bundle with the same options continues with
    its lock. Raises LockError, UsageError.
    """
    options_digest = digest_options(choices, str(lock_file))
    begun = before if is_begun(folder, before, options_digest) else None
    if lock_file is None and begun is None and _bare(choices):
        lock_file = _here(choices)
    read_user_grants(choices)
    choices = choices if lock_file else inproject.apply_project(choices)
    path = folder / begun.lock if begun else lock_file
    if path is None:
        return _fresh(emit, choices, options_digest, allow_md5=allow_md5)
    words = "continuing with the lock of this unfinished bundle" if begun else f"the lock {path}"
    emit(Event(kind="note", stage="bundle", text=words))
    of_lock = dataclasses.replace(choices, manager=find_lock_manager(path, choices.manager))
    platform = read_target(choices.target).platform if choices.target else None
    lock = read_lock(path, of_lock, platform)
    get_locking(of_lock).check_hashes(lock, str(path), allow_md5=allow_md5)
    data = rows.load_all(choices)
    return LockForBundle(
        lock=lock,
        sources=read_sources(choices),
        profiles=data,
        choices=choices,
        options_digest=options_digest,
    )


def _fresh(emit: Emit, choices: Choices, options_digest: str, *, allow_md5: bool) -> LockForBundle | Plan:
    """Return the project's own lock, or a new one."""
    get_locking(choices).require()
    context = judge_request(choices, emit)
    plan, lock = solve_or_read_lock(context, choices, emit, allow_md5=allow_md5)
    if lock is None:
        return plan
    return LockForBundle(
        lock=dataclasses.replace(lock, plan=plan), sources=context.sources, profiles=context.profiles,
        choices=choices, options_digest=options_digest, virtual=virtual_packages(context),
    )  # fmt: skip


def digest_options(choices: Choices, more: object) -> str:
    """Return a digest of the options of a bundle, and of its lock file or hosts."""
    plain = inproject.as_plain_options(dataclasses.replace(choices, cache_dir=None, offline=False))
    text = json.dumps([plain, more], default=str, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def is_begun(folder: Path, before: Bundle | None, options_digest: str) -> bool:
    """Return whether an interrupted bundle has the same options and complete locks."""
    if before is None or before.complete or before.asked != options_digest:
        return False
    files = {f.path: f for f in before.files}
    return all(name in files and is_whole(folder, files[name]) for name in locks_of(before))


def _bare(choices: Choices) -> bool:
    """Return whether no option names a target or a build."""
    return choices == dataclasses.replace(Choices(), **{name: getattr(choices, name) for name in _BESIDE})


def _here(choices: Choices) -> Path | None:
    """Return the lock in the current folder if there is no project file."""
    path = Path.cwd() / make_lock_name(choices.manager)
    return path if path.exists() and locate_project_file() is None else None
