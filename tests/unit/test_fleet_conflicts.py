"""The fewest plans where packages separate hosts: against brute force, and with a bound on questions."""

import pytest
from hypothesis import given, strategies as st

from provision.fleet import cover
from provision.fleet.cover import PlanCandidate, bits, cover_with_packages, split_conflicts

KINDS = 6


@st.composite
def made_up(draw):
    """Builds with the kinds that they serve, and releases of packages with the kinds that they serve: a set of kinds has
    a lock if each package has a release for all of it."""
    masks = st.integers(min_value=1, max_value=(1 << KINDS) - 1)
    builds = draw(st.lists(masks, min_size=1, max_size=5))
    packages = draw(st.lists(st.lists(masks, min_size=1, max_size=4), min_size=0, max_size=3))
    weights = draw(st.lists(st.integers(1, 9), min_size=KINDS, max_size=KINDS))
    return builds, packages, weights


def candidates_of(builds):
    """Each intersection of builds, and each kind alone, as `candidate_plans` has them."""
    served = 0
    family = set(builds)
    for build in builds:
        served |= build
        family |= {build & other for other in family}
    family |= {1 << place for place in bits(served)}
    return [
        PlanCandidate(mask, min(age for age, build in enumerate(builds) if build & mask == mask))
        for mask in family - {0}
    ]


def has_lock(mask, packages):
    return all(any(mask & release == mask for release in releases) for releases in packages)


def fewest_by_force(kinds, good):
    """The fewest sets that partition the kinds, by trying every partition."""
    best = [len(kinds)]

    def place(at, groups):
        if len(groups) >= best[0] and at < len(kinds):
            return
        if at == len(kinds):
            best[0] = min(best[0], len(groups))
            return
        bit = 1 << kinds[at]
        for i, group in enumerate(groups):
            if good(group | bit):
                place(at + 1, [*groups[:i], group | bit, *groups[i + 1 :]])
        place(at + 1, [*groups, bit])

    place(0, [])
    return best[0]


def test_there_are_never_fewer_plans_than_brute_force_finds(monkeypatch):
    monkeypatch.setattr(cover, "MOST_QUESTIONS", 1000)
    separated = []

    @given(made_up())
    def holds(drawn):
        builds, packages, weights = drawn
        candidates = candidates_of(builds)
        seen, refused = [], []

        def cheap(mask):
            return None if has_lock(mask, packages[:1]) else "no release of the first"

        def object_to(mask):
            assert cheap(mask) is None, "a set is solved only where the search has no objection"
            assert not any(mask & bad == bad for bad in refused), "a known conflict answers"
            seen.append(mask)
            if has_lock(mask, packages):
                return None
            refused.append(mask)
            return "no release"

        found = cover_with_packages(candidates, weights, [cheap, object_to])
        plain = cover_with_packages(candidates, weights, [])
        kinds = [p for p in range(KINDS) if any(b >> p & 1 for b in builds) and has_lock(1 << p, packages)]

        def good(mask):
            return any(mask & b == mask for b in builds) and has_lock(mask, packages)

        assert sorted(p for g in found.groups for p in bits(g)) == kinds, (
            "each kind once, none without a lock"
        )
        assert all(good(group) for group in found.groups)
        assert found.exact and found.at_least == len(found.groups) == fewest_by_force(kinds, good)
        assert len(seen) == len(set(seen)), "no set is asked for twice"
        for conflict, why in found.conflicts.items():
            said = packages[:1] if "first" in why else packages
            assert not has_lock(conflict, said)
            assert all(has_lock(conflict & ~(1 << p), said) for p in bits(conflict)), "the smallest"
        separated.append(len(found.groups) > len(plain.groups))

    holds()
    assert any(separated) and not all(separated)


def test_each_pair_of_plans_has_a_reason():
    """What keeps two plans apart is a build that serves only one of them, or a known conflict."""
    everything = [PlanCandidate(0b111111, 0)]
    releases = [0b000011, 0b001100, 0b110000]
    found = cover_with_packages(everything, [1] * 6, [lambda m: None if has_lock(m, [releases]) else "x"])
    assert sorted(found.groups) == releases and found.exact
    for one in found.groups:
        for other in found.groups:
            assert one == other or any((one | other) & c == c for c in found.conflicts)


def test_the_questions_are_bounded_and_the_rest_is_split(monkeypatch):
    monkeypatch.setattr(cover, "MOST_QUESTIONS", 3)
    everything = [PlanCandidate(0b111111, 0)]
    asked = []

    def object_to(mask):
        asked.append(mask)
        return None if has_lock(mask, [[0b010101, 0b101010]]) else "x"

    found = cover_with_packages(everything, [1] * 6, [object_to])
    assert len(asked) == 3
    assert not found.exact and found.at_least <= 2 <= len(found.groups)
    assert all(has_lock(group, [[0b010101, 0b101010]]) for group in found.groups)
    assert sorted(p for g in found.groups for p in bits(g)) == list(range(6))


def test_one_question_for_each_plan_where_nothing_separates_hosts():
    candidates = [PlanCandidate(0b0011, 0), PlanCandidate(0b1100, 1)]
    asked = []
    found = cover_with_packages(candidates, [1] * 4, [asked.append])
    assert len(asked) == 2 and found.groups == (0b0011, 0b1100) and not found.conflicts


def test_candidates_lose_one_kind_of_each_conflict():
    left = split_conflicts([PlanCandidate(0b111, 3)], [0b011, 0b110])
    assert {c.mask for c in left} >= {0b101, 0b010} and all(c.age == 3 for c in left)
    assert not any(c.mask & m == m for c in left for m in (0b011, 0b110))
    pairs = [0b11 << place for place in range(0, 26, 2)]  # each doubles the candidates
    with pytest.raises(cover._TooManyQuestionsError):
        split_conflicts([PlanCandidate((1 << 26) - 1, 0)], pairs)
