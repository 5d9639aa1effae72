"""Describe what an interrupted run left, and roll it back.

A command registers a function with `describe_by`. The function is called after the rollback, so that its
sentence is true when it is shown.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import BuildError
from ..model import Emit, Event
from ..system.files import hash_readable
from . import place

_AGAIN = "run the same command again"


@dataclass(frozen=True, kw_only=True)
class RunRemains:
    """What an interrupted run left, and the next step."""

    text: str
    hint: str = _AGAIN


_LOOKS: list[Callable[[], RunRemains]] = []


@contextlib.contextmanager
def describe_by(look: Callable[[], RunRemains]) -> Iterator[None]:
    """Register `look` as the description of what remains if the block is interrupted."""
    _LOOKS.append(look)
    try:
        yield
    except Exception:  # not an interrupt, which is described later
        _LOOKS.remove(look)
        raise
    _LOOKS.remove(look)


def describe_remains() -> RunRemains:
    """Return what the interrupted run left."""
    return _LOOKS[-1]() if _LOOKS else RunRemains(text="nothing was changed")


@dataclass(frozen=True)
class StateBefore:
    """The state of an environment and of the project's files before the run."""

    env: Path
    files: tuple[Path, ...]
    seen: tuple[str | None, ...]

    def look(self) -> RunRemains:
        """Compare with the current state."""
        now = _seen(self.env, self.files)
        names = [str(self.env), *(file.name for file in self.files)]
        changed = [n for n, old, new in zip(names, self.seen, now, strict=True) if old != new]
        text = self._environment(changed=now[0] != self.seen[0])
        if rest := [name for name in names[1:] if name in changed]:
            text = f"{' and '.join(rest)} {'were' if len(rest) > 1 else 'was'} changed; {text}"
        elif not changed and self.seen[0] is not None:
            text = f"nothing was changed: {text}"
        hint = (
            f"gpuenv verify {shlex.quote(str(self.env))}"
            if self.env.exists() and names[0] in changed
            else _AGAIN
        )
        return RunRemains(text=text, hint=hint)

    def _environment(self, *, changed: bool) -> str:
        if not place.is_undisturbed(self.env):
            return f"{self.env} is unfinished; the next command rolls it back"
        if not place.made_by_gpuenv(self.env):
            return f"there is no environment at {self.env}"
        if not changed:
            return f"{self.env} was not changed"
        return f"{self.env} is {'new' if self.seen[0] is None else 'changed'} and was not verified"


def remember_state(env: Path, files: Sequence[Path] = ()) -> StateBefore:
    """Record the state of an environment and of files before a run changes them."""
    return StateBefore(env, tuple(files), _seen(env, files))


def _seen(env: Path, files: Sequence[Path]) -> tuple[str | None, ...]:
    return (_environment(env), *(hash_readable(file) for file in files))


def _environment(env: Path) -> str | None:
    """Return a text that differs between an environment and its replacement, or None if there is none."""
    if not place.made_by_gpuenv(env):
        return None
    return f"{env.stat().st_ino} {hash_readable(env / place.MARK / 'lock.json')}"


def roll_back_interrupted(emit: Emit, env: Path) -> None:
    """Restore the environment as it was before an interrupted run.

    If another run uses it, or nothing can be written, emit a note and change nothing.
    """
    if place.is_undisturbed(env):
        return
    try:
        with place.lock_place(env, emit):
            place.recover(env)
    except BuildError as error:
        emit(Event(kind="note", stage="build", text=error.message))
        return
    if place.is_undisturbed(env):
        outcome = "the environment is restored" if place.made_by_gpuenv(env) else "its files are removed"
        emit(Event(kind="note", stage="build", text=f"{env}: an earlier run was interrupted; {outcome}"))
