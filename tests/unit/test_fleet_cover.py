"""The fewest plans, and the newest among equals: compared with every choice that there is."""

import math
from itertools import combinations

from hypothesis import example, given, strategies as st

from provision.fleet.cover import EXACT_CLASSES, PlanCandidate, bits, find_cover

MOST = 8


@st.composite
def covers(draw):
    count = draw(st.integers(1, MOST))
    masks = draw(st.lists(st.integers(1, 2**count - 1), min_size=1, max_size=9))
    ages = draw(st.lists(st.integers(0, 5), min_size=len(masks), max_size=len(masks)))
    weights = draw(st.lists(st.integers(1, 40), min_size=count, max_size=count))
    return list(map(PlanCandidate, masks, ages)), weights


def served(chosen):
    whole = 0
    for one in chosen:
        whole |= one.mask
    return whole


def by_brute_force(candidates, weights, most):
    """The size of the smallest choice, and the best ages of the classes in the order of their hosts with `most`, and the
    smallest choice that has these ages."""
    sizes = {
        size: [ages_of(c, candidates, weights) for c in combinations(candidates, size) if served(c) == served(candidates)]
        for size in range(len(candidates) + 1)
    }  # fmt: skip
    smallest = min(size for size, choices in sizes.items() if choices)
    allowed = range(max(smallest, most) + 1)
    ages = min(min(sizes[size]) for size in allowed if sizes.get(size))
    return smallest, ages, min(size for size in allowed if ages in sizes.get(size, ()))


def ages_of(chosen, candidates, weights):
    """The age that each group of alike classes gets, the group with the most hosts first."""
    groups = {}
    for place in range(len(weights)):
        key = frozenset(c.mask for c in candidates if c.mask >> place & 1)
        if key:
            groups.setdefault(key, []).append(place)
    ordered = sorted(groups.values(), key=lambda g: (-sum(weights[p] for p in g), g[0]))
    return [min(c.age for c in chosen if c.mask >> group[0] & 1) for group in ordered]


# One where the search meets the best ages with more candidates than they need.
MORE_THAN_NEEDED = [(25, 0), (27, 1), (6, 0), (13, 0), (3, 0), (21, 0)]


@example(([PlanCandidate(*one) for one in MORE_THAN_NEEDED], [1] * 5), 5)
@given(covers(), st.integers(0, 5))
def test_the_cover_is_the_best_of_all_choices(question, most):
    candidates, weights = question
    found = find_cover(candidates, weights, most)
    smallest, ages, size = by_brute_force(candidates, weights, most)
    assert found.exact and found.at_least == smallest and len(found.chosen) == size
    assert served(found.chosen) == served(candidates)
    assert ages_of(found.chosen, candidates, weights) == ages


def test_no_candidates_or_no_use_give_an_empty_cover():
    assert find_cover([], [3, 4]).chosen == ()
    assert find_cover([PlanCandidate(0, 1)], [3]).chosen == ()


def test_above_the_limit_the_greedy_choice_keeps_its_bound():
    """Greedy is led astray: it takes the long masks, and two plans would do."""
    half = 2 ** (EXACT_CLASSES.bit_length())
    top = (1 << half) - 1
    candidates, start, length = [PlanCandidate(top, 9), PlanCandidate(top << half, 9)], 0, half // 2
    while length:
        part = ((1 << length) - 1) << start
        candidates.append(PlanCandidate(part | part << half, 0))
        start, length = start + length, length // 2
    candidates += [PlanCandidate(1 << place, 0) for place in range(2 * half)]
    # Every class has a candidate of its own, so that no two classes are alike.
    found = find_cover(candidates, [1] * (2 * half))
    assert served(found.chosen) == top << half | top
    assert not found.exact and found.at_least <= 2 <= len(found.chosen)
    assert len(found.chosen) <= 2 * (1 + math.log(half))


def test_a_greedy_answer_that_meets_the_lower_bound_is_exact():
    count = EXACT_CLASSES + 5
    found = find_cover([PlanCandidate(1 << place, 0) for place in range(count)], [1] * count)
    assert found.exact and found.at_least == len(found.chosen) == count


def test_a_greedy_answer_has_no_redundant_plan_and_gets_newer_ones_where_more_are_allowed():
    """The longest mask is taken first, and the two that serve the rest serve its classes too."""
    long, left, right = (
        PlanCandidate(0b11111100, 3), PlanCandidate(0b11111, 2), PlanCandidate(0b1111100000, 1)
    )  # fmt: skip
    apart = [PlanCandidate(1 << place, 9) for place in range(EXACT_CLASSES + 10)]
    first, last = PlanCandidate(1, 0), PlanCandidate(1 << 9, 0)
    candidates = [long, left, right, first, last, *apart]
    fewest_plans = {left, right, *apart[10:]}
    weights = [1] * 9 + [9] + [1] * EXACT_CLASSES
    assert {*find_cover(candidates, weights).chosen} == fewest_plans
    assert {*find_cover(candidates, weights, len(fewest_plans) + 1).chosen} - fewest_plans == {last}, (
        "most hosts"
    )


def test_many_alike_classes_count_as_one():
    """100 classes of two kinds: the exact search has two to serve."""
    left, right = (1 << 50) - 1, ((1 << 50) - 1) << 50
    found = find_cover([PlanCandidate(left, 3), PlanCandidate(right, 0), PlanCandidate(left, 1)], [1] * 100)
    assert found.exact and set(found.chosen) == {PlanCandidate(right, 0), PlanCandidate(left, 1)}


def test_forty_classes_without_structure_are_answered_exactly():
    """Each candidate serves three neighbours on a ring: 14 of 40 are needed, and greedy would take more or as many."""
    count = EXACT_CLASSES
    ring = [sum(1 << (place + k) % count for k in range(3)) for place in range(count)]
    found = find_cover([PlanCandidate(mask, place) for place, mask in enumerate(ring)], [1] * count)
    assert found.exact and len(found.chosen) == math.ceil(count / 3)


def test_bits_gives_the_positions_of_the_ones():
    assert bits(0b10110) == [1, 2, 4] and bits(0) == []
