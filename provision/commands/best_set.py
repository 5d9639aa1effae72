"""Hold the set that was chosen with its search, and the releases that a plan with it holds back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..model import HeldBackPackage, Plan
from ..resolve.chosen_and_refused_sets import Chosen
from ..resolve.search_builds_and_packages import JointSearch

UNKNOWN = "the other packages conflict with it"


@dataclass(frozen=True)
class BestSet:
    """A chosen set with its search, and the packages whose release the solver chooses, with the reason."""

    search: JointSearch
    chosen: Chosen
    loose: Mapping[str, str]

    def list_held_back(self, plan: Plan, versions: Mapping[str, str]) -> tuple[HeldBackPackage, ...]:
        """Return what a plan holds back, with the packages for which a lock has other releases than the newest."""
        known = {h.package: h for h in plan.held_back}
        for package in self.search.packages:
            newest = self.search.fit.newest(package.name, plan.python or "")
            locked = versions.get(package.name)
            if newest is None or locked is None or newest.version in (locked, locked.partition("+")[0]):
                continue
            earlier = known.get(package.name)
            because = self.loose.get(package.name) or (earlier.because if earlier else UNKNOWN)
            refused = (
                r.because for r in self.search.refused if r.versions.get(package.name) == newest.version
            )
            known[package.name] = HeldBackPackage(
                package=package.name, locked=locked, newest=newest.version,
                because=next(refused, because),
                alternative=earlier.alternative if earlier else None,
            )  # fmt: skip
        return tuple(known.values())
