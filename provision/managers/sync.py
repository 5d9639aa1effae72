"""An environment from one lock to another, in place: what changed is taken out and put in, the rest is
not touched.

That is done in a copy of links, which takes the environment's place by one rename: a run that is killed
leaves the old environment or the new one. Before, it was done in the environment itself, with a marker that
says which lock was left; what such a run left half-done is brought back.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

from ..environment import state, within
from ..environment.clone import working_copy
from ..environment.place import CHANGING, MARK
from ..errors import BuildError
from ..index import uv
from ..model import Event, Lock, Package, Sources, from_plain
from ..wheels.install import install_wheels, python_of

_FETCHED = "fetched"

Emit = Callable[[Event], None]


@dataclasses.dataclass(frozen=True)
class Difference:
    """What a new lock takes out of an environment (names) and puts in."""

    out: tuple[str, ...]
    into: tuple[Package, ...]

    def __bool__(self) -> bool:
        return bool(self.out or self.into)


def difference(old: Lock, new: Lock) -> Difference:
    """What leads from one lock to another. A package that changes is taken out too: wheels of NVIDIA's
    share folders, and a file must go with its old owner before the new one brings it."""
    before, after = {p.name: _identity(p) for p in old.packages}, {p.name: _identity(p) for p in new.packages}
    out = tuple(n for n in before if before[n] != after.get(n))
    return Difference(out=out, into=tuple(p for p in new.packages if after[p.name] != before.get(p.name)))


def _identity(package: Package) -> tuple[str, str, bool]:
    held = package.url if package.unhashed else package.sha256 or package.url
    return package.version, held, package.editable


def change(
    env: Path, old: Lock, new: Lock, sources: Sources, emit: Emit, settle: Callable[[Path], None]
) -> None:
    """Bring an environment that holds `old` to `new`, in a copy that takes its place in the end; `settle`
    writes what the copy says of itself. Raises BuildError, with the environment as it was."""
    step = difference(old, new)
    if not step:
        settle(env)
        return
    with working_copy(env, at_its_path=False) as copy:
        _apply(copy, step, new, sources, emit)
        settle(copy)


def unfinished(env: Path) -> bool:
    """Whether a change was begun here and not ended."""
    return (env / MARK / CHANGING).exists()


def recover(env: Path, sources: Sources, emit: Emit) -> Lock | None:
    """Bring back the packages of the lock that a change was leaving, and return it; None where no change
    was on. What the environment says of itself is the caller's to write. Raises BuildError."""
    left = state.read(env, CHANGING)
    if left is not None:
        within.check(env)
    shutil.rmtree(env / MARK / _FETCHED, ignore_errors=True)
    if left is None:
        return None
    emit(Event(kind="note", stage="build", text="a change was interrupted here: going back to what was"))
    try:
        old, new = from_plain(Lock, left.get("lock")), from_plain(Lock, left.get("new"))
    except ValueError as error:
        raise BuildError(
            f"{env} is half changed, and what it was cannot be read: {error}",
            hint="build it anew: --recreate",
        ) from error
    _apply(env, difference(new, old), old, sources, emit, reinstall=True)
    state.write(env, "request.json", left.get("request") or {})
    return old


def settled(env: Path) -> None:
    """Forget the change: the environment says of itself what it holds."""
    (env / MARK / CHANGING).unlink(missing_ok=True)


def _apply(
    env: Path, step: Difference, lock: Lock, sources: Sources, emit: Emit, *, reinstall: bool = False
) -> None:
    take_out(env, step.out)
    if step.into:
        install_wheels(dataclasses.replace(lock, packages=step.into), env, sources, emit, reinstall=reinstall)


def take_out(env: Path, names: tuple[str, ...]) -> None:
    """Remove wheels and their files. Raises BuildError."""
    if not names:
        return
    settings = uv.Settings(timeout=600)
    done = uv.run_uv(["pip", "uninstall", *names], Sources(), python=python_of(env), settings=settings)
    if not done.ok:
        raise BuildError(f"packages could not be taken out of {env}", log=uv.redacted(done.stderr))


def changed_packages(old: Lock, new: Lock) -> list[str]:
    """What a change does, in words: "numpy 1.26.4 -> 2.1.0"."""
    before, after = {p.name: p.version for p in old.packages}, {p.name: p.version for p in new.packages}
    names = sorted(before.keys() | after.keys())
    return [
        f"{n} {before[n]} -> {after[n]}" if n in before and n in after else
        f"+{n} {after[n]}" if n in after else f"-{n} {before[n]}"
        for n in names if before.get(n) != after.get(n)
    ]  # fmt: skip
