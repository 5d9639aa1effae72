"""The lock of a project with packages more: for the machine that it is for already, or for that of the environment
that they are added to."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from .. import detect
from ..errors import LockError, ResolveError
from ..model import Emit, Lock
from ..request import ask, facts, made_with
from ..request import project_options as inproject
from ..request.given_requirements import others
from ..request.options import Choices
from ..wheels import locks
from . import given_lock, same_stack
from .locking import Upgrade, lock_name, locked_like

Write = Callable[[Lock], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Solved:
    """A solved lock that is not written yet: the project's file has to have the packages first."""

    made: Lock
    choices: Choices
    asked: ask.Asked
    put: Write

    def write(self) -> Lock:
        """Write the lock with the digest of what the project asks for now, and return it."""
        now = inproject.laid(self.choices)
        digest = inproject.inputs(now, inproject.files_of(now, self.asked.demands))
        digested = dataclasses.replace(self.made, inputs=digest)
        self.put(digested)
        return digested


def with_more(mine: Choices, own: Lock | None, wanted: list[str], emit: Emit) -> Solved:
    """The project's lock with packages more, near to the one that is there, else to the environment's `own`.
    `mine` are the options of the environment. Raises LockError, ResolveError."""
    of_env = inproject.laid(mine)
    conda = of_env.manager == "conda"
    held = _conda_held(of_env) if conda else _held(of_env)
    own = own if own and own.manager == of_env.manager else None
    before = _for_all(mine, held)
    now = inproject.laid(before)
    now = dataclasses.replace(now, with_=[*others(now.with_, wanted), *wanted])
    if conda:
        return _conda(before, now, held, own, emit)
    asked = _judged(now, held, own, lambda c: ask.judged(c, emit))
    plan, made = locked_like(asked, now, emit, held or own, Upgrade())
    if made is None:
        raise ResolveError(f"with {', '.join(wanted)} no build fits", hint=plan.hint)
    path = Path.cwd() / lock_name(now)
    return Solved(made=made, choices=before, asked=asked, put=lambda made: locks.write(path, made))


def _held(choices: Choices) -> Lock | None:
    path = Path.cwd() / lock_name(choices)
    return locks.read(path) if path.exists() else None


def _conda_held(choices: Choices) -> Lock | None:
    from . import conda_given, conda_locking

    path = Path.cwd() / conda_locking.lock_name(choices)
    platform = choices.platform or detect.detect(()).target.platform
    try:
        return (
            conda_given.read(path, platform, facts.known(choices), allow_md5=True) if path.exists() else None
        )
    except LockError:
        return None  # it holds nothing for this platform, and is written anew


def _for_all(mine: Choices, held: Lock | None) -> Choices:
    """The options that the project's lock is solved with. What only this environment has (its machine, a kernel,
    packages of command lines) is left out, unless the lock was made with the very same."""
    if held is None:
        return made_with.without_own_packages(mine)
    plain = made_with.without_machine(mine)
    now = inproject.laid(plain)
    demands = inproject.demanded(now, facts.known(now), held.plan.target)
    same = inproject.same_inputs(held.inputs, now, inproject.files_of(now, demands))
    return plain if same else made_with.without_own_packages(plain)


def _judged(now: Choices, held: Lock | None, own: Lock | None, judge: same_stack.Judge) -> ask.Asked:
    """What the lock is solved for: its own target, else that of the environment, else as options say."""
    if held and not now.target_name:
        return judge(given_lock.at_lock(now, held))
    near = held or own
    return same_stack.judged(now, near.plan, judge) if near else judge(now)


def _conda(before: Choices, now: Choices, held: Lock | None, own: Lock | None, emit: Emit) -> Solved:
    from ..managers.conda import question as conda_target
    from . import conda_locking

    asked = _judged(now, held, own, lambda c: conda_target.judged(c, emit))
    made, put = conda_locking.with_more(asked, now, held or own, emit)
    return Solved(made=made, choices=before, asked=asked, put=put)
