"""A solve of wheels that keeps the versions of a lock where it can."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from ..errors import LockError
from ..model import Emit, Event, Lock, Plan

Solve = Callable[[Mapping[str, str]], Lock]


@dataclasses.dataclass
class Preferred:
    """The versions of the lock that is there, through the attempts of one search."""

    versions: Mapping[str, str]
    emit: Emit
    tried_without: bool = False

    def solved(self, plan: Plan, solve: Solve) -> Lock:
        """Return the lock of a plan. The first refusal that the versions may have caused is checked by one solve
        without them: another index can have wheels of these versions with other requirements. Raises LockError."""
        try:
            return self._solved(solve)
        except LockError as error:
            error.plan = plan
            raise

    def _solved(self, solve: Solve) -> Lock:
        try:
            return solve(self.versions)
        except LockError as error:
            refused = error.contradiction or error.brought or error.companion
            if not refused or not self.versions or self.tried_without:
                raise
        self.tried_without = True
        text = "not with the versions of the lock that is there: solving once without them"
        self.emit(Event(kind="note", stage="lock", text=text))
        return solve({})
