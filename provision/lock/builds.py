"""The builds that fit a request, and the requirements with which uv chooses among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from ..model import Build, FrameworkRequest, Plan, RequestContext
from ..model.values import Value
from ..resolve import plan_request
from ..resolve.choice import SolvedBuilds, candidates, find_objection, is_planned
from ..resolve.objections import fits
from ..resolve.pip import EXTRAS
from ..resolve.question import Question, make_joint_question
from ..system.versions import major, public, version


class FittingBuilds(Value, kw_only=False):
    """The builds of each requested framework that fit every target, best first: for one `python`, or for all."""

    context: RequestContext
    python: str | None = None

    @cached_property
    def _asked(self) -> RequestContext:
        return self.context.with_request(pythons=(self.python,)) if self.python else self.context

    @cached_property
    def question(self) -> Question:
        """The request on all its targets."""
        return make_joint_question(self._asked)

    @cached_property
    def chains(self) -> tuple[list[Build], ...]:
        """The fitting builds of each framework, in the order of `resolve`."""
        question = self.question
        return tuple(
            [b for b in candidates(question, w) if fits(question, w, b)] for w in question.request.frameworks
        )

    @cached_property
    def newest(self) -> Plan:
        """The plan with the newest builds."""
        return plan_request(self._asked)

    def rows(self, plan: Plan) -> tuple[Build, ...]:
        """Return the rows of a plan's builds."""
        every = [b for chain in self.chains for b in chain]
        return tuple(next(b for b in every if is_planned(b, p)) for p in plan.builds)

    def group(self, builds: Sequence[Build], python: str) -> tuple[list[Build], ...]:
        """Return for each framework the builds among which uv may choose beside the given ones.

        They are on the same index, and each goes with some build of every other framework.
        """
        groups = [
            [b for b in chain if _is_alike(b, first) and python in self.question.pythons(b)]
            for chain, first in zip(self.chains, builds, strict=True)
        ]
        for place, group in enumerate(groups):
            others = groups[:place] + groups[place + 1 :]
            groups[place] = [
                b for b in group
                if all(any(not find_objection(self.question, [b], o) for o in other) for other in others)
            ]  # fmt: skip
        return tuple(groups)

    def find_builds(
        self, groups: Sequence[Sequence[Build]], versions: Mapping[str, str]
    ) -> tuple[Build, ...] | None:
        """Return the builds of an answer's versions, or None if one is not among the fitting ones."""
        chosen = [
            next((b for b in group if b.version == public(versions.get(b.package_name, ""))), None)
            for group in groups
        ]
        return tuple(b for b in chosen if b) if all(chosen) else None

    def plan(
        self,
        builds: Sequence[Build],
        python: str,
        pins: Sequence[str] = (),
        passed: Sequence[tuple[Build, str]] = (),
    ) -> Plan:
        """Return the plan of these builds, with the releases of named packages. `passed` says why others were passed over."""
        solved = SolvedBuilds(tuple(builds), tuple(pins), tuple(passed))
        return plan_request(self.context.with_request(pythons=(python,)), solved)

    def replace_build(self, build: Build, builds: Sequence[Build]) -> tuple[Build, ...] | None:
        """Return a set with one build replaced, and the others as new as they can be beside it, or None."""
        chosen: list[Build] = []
        for chain, old in zip(self.chains, builds, strict=True):
            if old.framework == build.framework:
                chosen.append(build)
                continue
            fit = next(
                (b for b in (old, *chain) if not find_objection(self.question, [build, *chosen], b)), None
            )
            if fit is None:
                return None
            chosen.append(fit)
        return tuple(chosen)

    def bounds(self, wanted: FrameworkRequest, python: str | None) -> str:
        """Return the bounds of the user and the project on a framework, for a Python."""
        bounds = self.context.request.bounds
        theirs = (b.specifier for b in bounds if b.name == wanted.name and b.holds_for(python))
        return ",".join(filter(None, (wanted.specifier, *theirs)))

    def root(self, build: Build, python: str | None) -> str:
        """Return the requirement of a framework that leaves its version open."""
        wanted = next(w for w in self.context.request.frameworks if w.name == build.framework)
        extras = ""
        if build.cuda and self.context.request.device == "cuda" and build.package_name in EXTRAS:
            extras = f"[{EXTRAS[build.package_name].format(major=major(build.cuda))}]"
        return f"{build.package_name}{extras}{self.bounds(wanted, python)}"

    def limit(self, group: Sequence[Build]) -> str:
        """Return the constraint that allows exactly the versions of a group.

        A bound without a local label allows all labels. `<=2.13.0` would forbid 2.13.0+cu126.
        """
        name = group[0].package_name
        allowed = {version(b.version) for b in group}
        known = {
            version(b.version) for b in self.context.profiles.builds
            if b.package_name == name and _is_alike(b, group[0]) and b.platform == group[0].platform
        }  # fmt: skip
        newest, oldest = max(allowed), min(allowed)
        release = (*newest.release[:-1], newest.release[-1] + 1)
        between = sorted(v for v in known - allowed if oldest < v < newest)
        parts = [f">={oldest}", f"<{'.'.join(map(str, release))}", *(f"!={v}" for v in between)]
        return name + ",".join(parts)


def chosen_pins(plan: Plan, builds: Sequence[Build]) -> list[str]:
    """Return the pins that the plan adds to what its wheels require: cuDNN and the toolkit for these GPUs."""
    rows = {b.framework: b for b in builds}
    return [pin for b in plan.builds for pin in b.requirements[1:] if pin not in rows[b.framework].requires]


def name_builds(builds: Sequence[Build]) -> str:
    """Return the releases of builds for a message: "torch 2.15.0 and jax 0.7.0"."""
    return " and ".join(f"{b.framework} {b.version}" for b in builds)


def pins(plan: Plan) -> list[str]:
    """Return the pins of a plan's builds."""
    return list(dict.fromkeys(r for b in plan.builds for r in b.requirements))


def _is_alike(one: Build, other: Build) -> bool:
    """Return whether one query can choose between two builds: they differ in their version only."""
    same = (one.index, one.local, one.package_name) == (other.index, other.local, other.package_name)
    needs_extra = one.package_name in EXTRAS
    return same and (not needs_extra or (one.cuda and major(one.cuda)) == (other.cuda and major(other.cuda)))
