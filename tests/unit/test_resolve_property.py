"""Every answer of resolve, for random machines, held against the rules re-stated in `resolve_rules`:
a plan draws no objection and is the best without one, what was rejected has one that stands, and where
there is no plan no build is without one.
"""

import dataclasses
import itertools

from hypothesis import given, strategies as st
from known import KNOWN
from packaging.requirements import Requirement
from random_machines import questions
from resolve_rules import (
    BUILDS,
    KNOWN_BAD,
    codes,
    key,
    preference,
    together,
    usable,
    version,
    wants_package,
)
from rows import rows

from provision.model import FrameworkRequest
from provision.resolve import resolve

# --- random machines ----------------------------------------------------------------------------


def candidates(request, target):
    framework = request.frameworks[0].name
    return [r for r in BUILDS[framework] if r["platform"] == target.platform and "cuda" in r]


@rows("gpus", [(1, 1), (0, 3)], ids=["one GPU", "several"])
def test_resolve_obeys_every_rule(gpus):
    @given(questions(gpus))
    def holds(question):
        obeys(*question)

    holds()


def obeys(request, target):
    plan = resolve(request, target, KNOWN)
    judged = [(row, codes(row, request, target)) for row in candidates(request, target)]
    fitting = [row for row, objections in judged if not objections]
    best = max(fitting, key=lambda r: preference(r, request, target), default=None)
    chosen = [(b.version, b.cuda, b.index) for b in plan.builds]
    assert chosen == ([key(best)] if best else []), plan.hint
    if best:
        the_pins_are_good(plan, best, target)
    else:
        assert plan.hint
    every_objection_is_real(plan, judged, request, target)


def the_pins_are_good(plan, row, target):
    if wants_package(row):
        taken = [c for c in usable(row, target) if c["version"] == plan.cudnn]
        assert taken, f"cuDNN {plan.cudnn} is not among those that serve"
        pins = [r for r in plan.builds[0].requirements if r.startswith("nvidia-cudnn")]
        assert all(version(plan.cudnn) in Requirement(p).specifier for p in pins)
        assert any("*" not in p and "==" in p for p in pins), "cuDNN is left loose"
        avoided = {c["version"] for c in usable(row, target) if (c["package"], c["version"]) in KNOWN_BAD}
        assert plan.cudnn not in avoided or row["cudnn"].startswith("==")


def every_objection_is_real(plan, judged, request, target):
    """Each rejected build has an objection that stands, and each better build was rejected."""
    mine = {key(row): found for row, found in judged}
    theirs = {(r.version, r.cuda, r.index): {x.code for x in r.reasons} for r in plan.rejected}
    assert all(r.text for x in plan.rejected for r in x.reasons)
    elsewhere = {key(r) for r in BUILDS[request.frameworks[0].name]}
    for build, reasons in theirs.items():
        assert build in elsewhere
        real = mine.get(build, {"platform_unsupported"})
        assert reasons & real, (build, reasons, real)
    if plan.builds:
        best = next(row for row, found in judged if key(row) == _chosen(plan))
        better = {
            key(row)
            for row, _ in judged
            if preference(row, request, target) > preference(best, request, target)
        }
        assert better <= theirs.keys()
    else:
        assert mine.keys() <= theirs.keys()


def _chosen(plan):
    return plan.builds[0].version, plan.builds[0].cuda, plan.builds[0].index


# --- several frameworks ---------------------------------------------------------------------------


@given(questions((0, 2)), st.permutations(sorted(BUILDS)), st.integers(2, 3))
def test_the_first_named_gets_its_newest_for_which_the_others_have_any(asked, order, count):
    request, target = asked
    bounds = request.frameworks[0]
    wanted = tuple(bounds if name == bounds.name else FrameworkRequest(name=name) for name in order[:count])
    request = dataclasses.replace(request, frameworks=wanted)
    plan = resolve(request, target, KNOWN)
    chains = [_fitting(dataclasses.replace(request, frameworks=(w,)), target) for w in wanted]
    first = next((row for row in chains[0] if _completes([row], chains[1:], target)), None)
    assert [(b.version, b.cuda, b.index) for b in plan.builds[:1]] == ([key(first)] if first else [])
    by_key = [next(row for row in chain if key(row) == (b.version, b.cuda, b.index))
              for chain, b in zip(chains, plan.builds, strict=False)]  # fmt: skip
    assert all(together(a, b, target) for a, b in itertools.combinations(by_key, 2))
    assert len({b.cudnn for b in plan.builds}) <= 1


def _fitting(request, target):
    rows = [row for row in candidates(request, target) if not codes(row, request, target)]
    return sorted(rows, key=lambda r: preference(r, request, target), reverse=True)


def _completes(taken, chains, target):
    return not chains or any(
        all(together(row, t, target) for t in taken) and _completes([*taken, row], chains[1:], target)
        for row in chains[0]
    )
