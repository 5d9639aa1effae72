"""Choose one compatible release of each package, the oldest as new as possible. Pure: no I/O.

Packages that require nothing of each other are decided separately. Within such a group, releases that are
compatible with no release of a neighbour are removed before and after each choice (arc consistency). So few
choices have to be undone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..model import PackageRelease
from .versions import meets

Options = Mapping[str, Sequence[PackageRelease]]
"""The releases that may be taken of each package, newest first."""
Needs = Callable[[str, PackageRelease], Mapping[str, Sequence[str]]]
"""What a release of a package requires of others: their bounds by name."""
Pairs = dict[tuple[str, str, str, str], bool]
"""Whether two releases go together, by name and version of both."""
_MOST_STEPS = 5_000


@dataclass
class Assignments:
    """The assignments for one Python. Equal questions are answered once.

    `refused` are versions of packages that are incompatible, whatever they require.
    """

    needs: Needs
    age: Callable[[str, PackageRelease], int]
    refused: Sequence[Mapping[str, str]] = ()
    pairs: Pairs = field(default_factory=dict)
    _groups: dict[tuple[tuple[str, tuple[str, ...]], ...], dict[str, PackageRelease] | None] = field(
        default_factory=dict
    )

    def best(self, options: Options) -> dict[str, PackageRelease] | None:
        """Return a release of each package, the oldest as new as possible, or None if none are compatible."""
        releases: dict[str, PackageRelease] = {}
        for group in self._apart(options):
            group_options = {name: options[name] for name in group}
            key = tuple((name, tuple(r.version for r in group_options[name])) for name in group)
            if key not in self._groups:
                self._groups[key] = self._best_of(group_options)
            if (part := self._groups[key]) is None:
                return None
            releases |= part
        return {name: releases[name] for name in options}

    def _apart(self, options: Options) -> list[list[str]]:
        """Return the names in groups that require nothing of each other."""
        near = self._neighbours(options)
        groups, seen = [], set[str]()
        for name in options:
            if name in seen:
                continue
            group, left = {name}, [name]
            while left:
                more = near[left.pop()] - group
                group |= more
                left += more
            seen |= group
            groups.append([n for n in options if n in group])
        return groups

    def _neighbours(self, options: Options) -> dict[str, set[str]]:
        near: dict[str, set[str]] = {name: set() for name in options}
        for name, releases in options.items():
            for release in releases:
                for other in self.needs(name, release):
                    if other in options and other != name:
                        near[name].add(other)
                        near[other].add(name)
        for versions in self.refused:
            for name in versions.keys() & near.keys():
                near[name] |= versions.keys() & near.keys() - {name}
        return near

    def _best_of(self, options: Options) -> dict[str, PackageRelease] | None:
        near = self._neighbours(options)
        fitting = {n: [r for r in rs if self._fits(n, r, n, r)] for n, rs in options.items()}
        possible = self._consistent(fitting, list(options), near)
        if possible is None:
            return None
        ages = sorted({self.age(n, r) for n, rs in possible.items() for r in rs})
        # Each set has a release of at least this age. Mostly no older one is needed.
        low = ages.index(max(min(self.age(n, r) for r in rs) for n, rs in possible.items()))
        middle, high, best = low, len(ages) - 1, None
        while low <= high:  # find the smallest age limit with a valid assignment
            within = {n: [r for r in rs if self.age(n, r) <= ages[middle]] for n, rs in possible.items()}
            assignment = self._first(within, near)
            best, low, high = (assignment, low, middle - 1) if assignment else (best, middle + 1, high)
            middle = (low + high) // 2
        return best

    def _first(self, options: Options, near: Mapping[str, set[str]]) -> dict[str, PackageRelease] | None:
        """Return the first valid assignment in the order of the names and of their releases.

        Return None if there is none, or if finding it takes too many steps.
        """
        left: list[tuple[Options, Sequence[str]]] = [(options, list(options))]
        for _ in range(_MOST_STEPS):
            if not left:
                return None
            current = self._consistent(*left.pop(), near)
            if current is None:
                continue
            name = next((n for n, rs in current.items() if len(rs) > 1), None)
            if self._has_refused(current):
                continue
            if name is None:
                return {n: rs[0] for n, rs in current.items()}
            newest, *others = current[name]
            left += [({**current, name: others}, [name]), ({**current, name: [newest]}, [name])]
        return None

    def _has_refused(self, options: Options) -> bool:
        """Return whether only incompatible versions are left."""
        left = {n: rs[0].version for n, rs in options.items() if len(rs) == 1}
        return any(versions.items() <= left.items() for versions in self.refused)

    def _consistent(
        self, options: Options, changed: Sequence[str], near: Mapping[str, set[str]]
    ) -> dict[str, Sequence[PackageRelease]] | None:
        """Return the options without releases that are compatible with no release of a neighbour.

        Return None if a package has none left.
        """
        left = dict(options)
        queue = list(changed)
        if not all(left.values()):
            return None
        while queue:
            name = queue.pop()
            for other in near[name]:
                kept = self._supported(other, left[other], name, left[name])
                if not kept:
                    return None
                if len(kept) < len(left[other]):
                    left[other] = kept
                    if other not in queue:
                        queue.append(other)
        return left

    def _supported(
        self, name: str, releases: Sequence[PackageRelease], other: str, theirs: Sequence[PackageRelease]
    ) -> list[PackageRelease]:
        """Return the releases that are compatible with one of another package's.

        Neighbouring releases mostly go with neighbouring ones, so each search begins where the last one ended.
        """
        kept, last = [], 0
        for release in releases:
            for place in (*range(last, len(theirs)), *range(last)):
                if self._fits(name, release, other, theirs[place]):
                    kept.append(release)
                    last = place
                    break
        return kept

    def _fits(self, name: str, release: PackageRelease, other: str, theirs: PackageRelease) -> bool:
        """Return whether two releases meet each other's requirements."""
        key = (name, release.version, other, theirs.version)
        fits = self.pairs.get(key)
        if fits is None:
            fits = all(_meets(theirs, s) for s in self.needs(name, release).get(other, ())) and all(
                _meets(release, s) for s in self.needs(other, theirs).get(name, ())
            )
            self.pairs[key] = self.pairs[other, theirs.version, name, release.version] = fits
        return fits


def _meets(release: PackageRelease, bound: str) -> bool:
    """Return whether a release is within bounds. One without a version represents others, some of which may
    be."""
    return not release.version or meets(release.version, bound)
