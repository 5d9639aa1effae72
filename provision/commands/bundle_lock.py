"""The lock that a bundle is made of: one that is named, the project's own, or a fresh one."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from .. import detect
from ..index import is_right
from ..model import Bundle, Emit, Event, Lock, Plan, Profiles, Sources
from ..request import ask, facts
from ..request import project_options as inproject
from ..request.options import Choices
from ..wheels import locks


@dataclasses.dataclass(frozen=True, kw_only=True)
class Got:
    """A lock, where packages come from, and what else the making of a bundle asks for. `asked` is a digest
    of the options, `virtual` the virtual packages that a conda lock was solved with."""

    lock: Lock
    sources: Sources
    profiles: Profiles
    choices: Choices
    asked: str
    virtual: tuple[Mapping[str, str], ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Given:
    """The lock file that the user named, if any, whether md5 alone will do for conda packages, and whether files
    that the user edited are replaced."""

    file: Path | None
    allow_md5: bool
    force: bool


def of(emit: Emit, folder: Path, before: Bundle | None, choices: Choices, named: Given) -> Got | Plan:
    """The lock for a bundle, or the plan that no build fits. A bundle that was interrupted
    goes on with the lock that it began with, if the same is asked for. Raises LockError, UsageError."""
    given = named.file
    asked = _digest(choices, given)
    begun = _begun(folder, before, asked)
    bare = _bare(choices)
    if given is None and begun is None and bare:
        given = _here(choices)
    choices = choices if given else inproject.laid(choices)
    name = (
        before.lock if begun and before else "conda-lock.yml" if _is_conda(choices, given) else "pylock.toml"
    )
    data = facts.known(choices)
    if begun or given:
        path = folder / name if begun else given
        assert path
        words = "going on with the lock that this bundle was begun with" if begun else f"the lock {path}"
        emit(Event(kind="note", stage="bundle", text=words))
        made = _read(path, name, choices, data, allow_md5=named.allow_md5)
        return Got(lock=made, sources=ask.sources(choices), profiles=data, choices=choices, asked=asked)
    if choices.manager == "conda":
        return _conda(emit, choices, asked, allow_md5=named.allow_md5)
    from .creating import lock_of

    judged = ask.judged(choices, emit)
    plan, fresh = lock_of(judged, choices, emit)
    if fresh is None:
        return plan
    return Got(lock=fresh, sources=judged.sources, profiles=data, choices=choices, asked=asked)


def _conda(emit: Emit, choices: Choices, asked: str, *, allow_md5: bool) -> Got:
    from ..managers.conda import engine as door
    from ..managers.conda import question as conda_target
    from . import conda_given, conda_locking

    door.require("rattler", "conda_lock")
    judged = conda_target.judged(choices, emit)
    made, notes = conda_locking.locked(judged, choices, emit)
    conda_given.assert_hashed(made, "the channel's index", allow_md5=allow_md5)
    made = dataclasses.replace(made, plan=dataclasses.replace(made.plan, notes=(*made.plan.notes, *notes)))
    virtual = tuple(conda_target.question(judged, choices)[0].virtual)
    return Got(
        lock=made, sources=judged.sources, profiles=judged.profiles, choices=choices, asked=asked,
        virtual=virtual,
    )  # fmt: skip


def _read(path: Path, name: str, choices: Choices, data: Profiles, *, allow_md5: bool) -> Lock:
    if name == "pylock.toml":
        return locks.read(path)
    from . import conda_given

    return conda_given.read(path, _platform(choices), data, allow_md5=allow_md5)


def _platform(choices: Choices) -> str:
    """The platform whose packages of a conda lock are meant."""
    if choices.target:
        return ask.read_target(choices.target).platform
    return choices.platform or detect.detect(()).target.platform


def _digest(choices: Choices, given: Path | None) -> str:
    plain = inproject.plain(dataclasses.replace(choices, cache_dir=None, offline=False))
    text = json.dumps([plain, str(given)], default=str, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _begun(folder: Path, before: Bundle | None, asked: str) -> bool | None:
    """Whether a bundle that was interrupted was asked for in the same words, and its lock is whole."""
    if before is None or before.complete or before.asked != asked:
        return None
    held = next((f for f in before.files if f.path == before.lock), None)
    path = folder / before.lock
    return True if held and path.is_file() and is_right(path, {"sha256": held.sha256 or ""}) else None


def _bare(choices: Choices) -> bool:
    """Whether nothing was said of target or choice."""
    without = dataclasses.replace(
        choices,
        profiles=[],
        cache_dir=None,
        find_links=[],
        offline=False,
        manager="venv",
        no_build=False,
        only_binary=[],
        exclude_newer=None,
        exclude_newer_except=[],
    )
    return without == Choices()


def _here(choices: Choices) -> Path | None:
    """The lock of this folder, where no gpuenv.yaml says what it is for."""
    from ..project.config.kinds import CONFIG_NAME

    path = Path.cwd() / ("conda-lock.yml" if choices.manager == "conda" else "pylock.toml")
    return path if path.exists() and not (Path.cwd() / CONFIG_NAME).exists() else None


def _is_conda(choices: Choices, given: Path | None) -> bool:
    return given.suffix != ".toml" if given else choices.manager == "conda"
