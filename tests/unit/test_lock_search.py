"""Steps of the search for a lock, by what is known before and after them."""

import dataclasses
import re
from types import SimpleNamespace

import export_locks as el
import pytest
from known import KNOWN
from rows import rows

from provision.errors import LockError
from provision.lock import attempt, pythons, reasons, retry, search
from provision.lock.attempt import _make_query, first_candidate
from provision.lock.builds import FittingBuilds
from provision.lock.compile import Answer
from provision.lock.fleet import FleetLocker
from provision.lock.named import NamedPackage
from provision.lock.pinned import TwoBuildsError
from provision.lock.search_state import Refusal, Solution, State
from provision.lock.source_builds import source_rules
from provision.model import (
    AvailableWheels,
    FrameworkRequest,
    PackageSources,
    Request,
    RequestContext,
    Target,
    TargetGpu,
    VersionBound,
    drop_event,
)

TARGET = Target(
    platform="linux-x86_64", glibc="2.35", driver="580.95.05", driver_os="linux", gpus=(TargetGpu(capability="8.0"),)
)  # fmt: skip
SOURCES = PackageSources(default="http://127.0.0.1:9/simple", offline=True)


def state(*frameworks, emit=drop_event, **request):
    names = (f.partition("=")[0] for f in frameworks)
    wanted = tuple(
        FrameworkRequest(name=n, specifier=f.removeprefix(n)) for n, f in zip(names, frameworks, strict=True)
    )
    asked = Request(frameworks=wanted, **{"device": "cuda", "python": "3.12", "index": "pypi", **request})
    context = RequestContext(
        request=asked,
        target=TARGET,
        machine=None,
        profiles=KNOWN,
        available=AvailableWheels(),
        sources=SOURCES,
    )
    return State(FittingBuilds(context), source_rules(SOURCES, emit))


def frameworks(context):
    return tuple(w.name for w in context.request.frameworks)


def solved(asked, **versions):
    packages = tuple(el.wheel(name, version) for name, version in versions.items())
    return Solution(
        asked=asked, plan=asked.plan, builds=asked.builds, answer=Answer(packages=packages), conflicts=(),
        compiles=(), behind={},
    )  # fmt: skip


# --- the candidates -----------------------------------------------------------------------------------


def test_an_index_that_ends_while_solutions_are_compared_keeps_the_first_one(monkeypatch):
    """Its candidates are refused, and none is asked again."""
    here, asked = state("torch", index="auto"), []
    first = first_candidate(here)
    best = dataclasses.replace(solved(first, vllm="0.1"), behind={"vllm": 9})
    here.newest = Answer(packages=(el.wheel("vllm", "0.2"),))
    here.asked.add((first, first.plan.python))
    monkeypatch.setattr(here, "read_bounds", lambda _: {})
    monkeypatch.setattr(search.pythons, "attempt_each_cuda", lambda *_: best)

    def refuse(state, candidate):
        state.asked.add((candidate, candidate.plan.python))
        asked.append(candidate)
        assert len(asked) < 9, "the same candidates are asked forever"
        return Refusal(candidate, LockError("no answer", unreachable="pytorch"))

    monkeypatch.setattr(search, "attempt_or_refuse", refuse)
    assert search._solve(here) is best
    assert 1 <= len(asked) == len(set(asked)) <= search.MOST_MORE
    assert here.fitting.plan(best.builds, "3.12").builds == first.plan.builds


def test_a_lock_keeps_its_python_where_its_versions_cannot_all_stay(monkeypatch):
    here, asked = state("torch", python=None), []
    assert here.fitting.newest.python != "3.11"
    here.locked = {"numpy": el.wheel("numpy", "1.26.4")}
    near = el.of(here.locked.values())
    builds = here.fitting.rows(here.fitting.newest)
    near = dataclasses.replace(near, plan=here.fitting.plan(builds, "3.11"))

    def refuse(_, candidate):
        asked.append(candidate)
        return Refusal(candidate, LockError("too old", contradiction=True))

    def answer(_, candidate):
        asked.append(candidate)
        return solved(candidate, numpy="2.1.0")

    monkeypatch.setattr(search, "attempt_or_refuse", refuse)
    monkeypatch.setattr(search, "attempt", answer)
    search._solve_again(here, near, frozenset())
    assert [(c.plan.python, c.limits, c.prefer) for c in asked] == [
        ("3.11", ("numpy==1.26.4",), {}), ("3.11", (), {"numpy": "1.26.4"}),
    ]  # fmt: skip


class Silent:
    """A query that finds nothing, and counts how often the newest releases are looked up."""

    asked = 0

    def __init__(self, **_):
        pass

    def newest(self):
        Silent.asked += 1
        return Answer(packages=())

    def answer(self):
        raise LockError("no", contradiction=True)


def test_newest_releases_that_are_not_found_are_looked_up_once_for_a_python(monkeypatch):
    here = state("torch")
    here.named = (NamedPackage(name="nothere"),)
    monkeypatch.setattr(attempt, "Query", Silent)
    monkeypatch.setattr(attempt, "_make_query", lambda *_: Silent())
    monkeypatch.setattr(Silent, "asked", 0)
    first = first_candidate(here)
    other = dataclasses.replace(first, plan=dataclasses.replace(first.plan, python="3.11"))
    for candidate, count in ((first, 1), (first, 1), (other, 2)):
        assert isinstance(attempt.attempt(here, candidate), Refusal) and Silent.asked == count


def test_a_candidate_that_is_asked_again_with_fixed_builds_counts_as_asked(monkeypatch):
    """Otherwise it is compared with its own answer."""
    here = state("torch", index="auto")
    first = first_candidate(here)
    assert not first.fixed
    builds = here.fitting.chains[0][1:2]
    answer = SimpleNamespace(versions={"torch": builds[0].version}, archives={}, by_name={}, packages=())
    monkeypatch.setattr(attempt, "_make_query", lambda *_: SimpleNamespace(answer=lambda: answer))
    monkeypatch.setattr(attempt, "find_exceeded", lambda *_: ["too new"])
    monkeypatch.setattr(attempt, "find_difference", lambda *_: None)
    monkeypatch.setattr(attempt, "Query", Silent)
    monkeypatch.setattr(type(here.compatibility), "conflicts", lambda *_: ())
    found = attempt.attempt(here, first)
    assert found.asked.fixed and found.asked != first
    assert {(c, c.plan.python) for c in (first, found.asked)} <= here.asked


# --- the request that follows --------------------------------------------------------------------------


def test_the_second_framework_moves_to_the_cpu_with_its_bounds_if_the_first_has_builds():
    bound = VersionBound(name="jax", specifier="<0.5", origin="a.txt line 1", pythons=("3.11", "3.12"))
    moved = retry.move_to_cpu(state("torch", "jax", bounds=(bound,)), "why")
    assert frameworks(moved) == ("torch",)
    assert moved.request.packages[-1] == "jax<0.5 ; python_version == '3.11' or python_version == '3.12'"
    assert retry.move_to_cpu(state("torch==99", "jax"), "why") is None


def test_a_cpu_build_that_packages_require_takes_the_place_of_the_planned_one():
    error, said = TwoBuildsError("both install the same files"), []
    assert frameworks(retry.next_request(state("torch", "tensorflow", emit=said.append), error)) == ("torch",)
    assert said[0].kind == "warning" and "not planned for the GPU" in said[0].text
    assert retry.next_request(state("tensorflow"), error) is None


def test_a_framework_that_packages_bring_is_planned_where_the_first_stays_as_new():
    for locked, brought in (({"jax": "0.12"}, ("torch", "jax")), ({"six": "1"}, None)):
        solution = SimpleNamespace(plan=SimpleNamespace(packages=()), answer=SimpleNamespace(versions=locked))
        more = retry.add_frameworks(state("torch"), solution)
        assert (frameworks(more) if more else None) == brought


def test_the_package_of_a_module_is_named_where_the_module_is_no_package():
    asked = state("torch")
    error = LockError("not found", absent="cv2")
    hint = retry.explain_refusal(asked, Refusal(first_candidate(asked), error)).hint
    assert re.search("cv2 is in .*opencv-python", hint)


# --- near to a lock ------------------------------------------------------------------------------------


def test_the_builds_of_a_lock_stay_where_it_has_all_and_none_may_move():
    asked = state("torch", "jax")
    builds = asked.fitting.newest.builds
    lock = dataclasses.replace(el.of(), plan=asked.fitting.newest)
    assert [b.framework for b in search._builds_of(asked, lock, frozenset())] == ["torch", "jax"]
    assert search._builds_of(asked, lock, frozenset({"jax"})) is None
    alone = dataclasses.replace(lock, plan=dataclasses.replace(lock.plan, builds=builds[:1]))
    assert search._builds_of(asked, alone, frozenset()) is None


def test_an_index_that_does_not_answer_ends_a_solve_near_to_a_lock(monkeypatch):
    asked = state("torch")
    lock = dataclasses.replace(el.of(), plan=asked.fitting.newest)
    closed = LockError("no answer", unreachable="pypi")
    monkeypatch.setattr(search, "attempt_or_refuse", lambda _, candidate: Refusal(candidate, closed))
    monkeypatch.setattr(search, "attempt", None)  # it would be called
    with pytest.raises(LockError) as raised:
        search._solve_again(asked, lock, frozenset())
    assert raised.value is closed
    with pytest.raises(LockError, match="no answer; it has builds that fit") as raised:
        search._without_builds(asked, closed)
    assert raised.value.unreachable == "pypi"
    assert search._without_builds(asked, None) == (asked.fitting.newest, None)


# --- questions -----------------------------------------------------------------------------------------


def test_pip_is_left_out_where_no_folder_has_it_and_no_index_is_asked():
    asked = state("torch")
    assert "pip" not in _make_query(asked, first_candidate(asked)).roots
    online = dataclasses.replace(SOURCES, offline=False)
    asked.set_fitting(FittingBuilds(dataclasses.replace(asked.context, sources=online)))
    assert "pip" in _make_query(asked, first_candidate(asked)).roots


def test_a_build_has_others_beside_it_or_none():
    fitting = state("torch", "jax").fitting
    torch, jax = fitting.chains
    other = torch[0]._replace(cuda="99.0")
    assert fitting.replace_build(other, [torch[0], jax[0]]) is None
    assert fitting.replace_build(torch[0], [torch[0], jax[0]]) == (torch[0], jax[0])
    assert isinstance(fitting, FittingBuilds)


def test_an_index_that_does_not_answer_has_no_newest_release(monkeypatch):
    def fail(*_):
        raise LockError("no answer")

    archives = SimpleNamespace(releases=fail)
    named = SimpleNamespace(name="six", specifier="")
    assert (
        pythons._newest_usable(SimpleNamespace(rules=SimpleNamespace(archives=archives)), named, None) is None
    )


def test_a_newer_wheel_for_a_build_of_an_index_that_does_not_answer_is_named(monkeypatch):
    asked = state("torch", index="auto", packages=("flash-attn",))
    available = AvailableWheels(unreachable=("pytorch",))
    online = dataclasses.replace(SOURCES, offline=False)
    context = dataclasses.replace(asked.context, sources=online, available=available)
    asked.set_fitting(FittingBuilds(context))
    plan, locked = asked.fitting.newest, el.wheel("flash-attn", "2.8.0")
    found = SimpleNamespace(
        package="flash-attn",
        version="2.8.3",
        url="https://host/flash_attn-2.8.3-cp312-cp312-linux_x86_64.whl",
    )
    monkeypatch.setattr(asked.pages, "choose", lambda *_: found)
    (note,) = asked.pages.notes([locked], plan)
    assert note.startswith("flash-attn 2.8.3 for torch ") and "index of this torch responds" in note
    assert list(asked.pages.notes([], plan)) == [], "no such package"
    assert list(asked.pages.notes([dataclasses.replace(locked, version="2.8.3")], plan)) == []
    asked.pages.locked = {"flash-attn": dataclasses.replace(locked, url="https://host/", index=None)}
    assert asked.pages._find_locked("flash-attn", plan.builds, "3.12") is None, "an address without a file"


# --- reasons -------------------------------------------------------------------------------------------


def solution(*packages, wanted=None, behind=None):
    asked = state("torch")
    candidate = dataclasses.replace(first_candidate(asked), wanted=wanted)
    return Solution(
        asked=candidate, plan=asked.fitting.newest, builds=candidate.builds, answer=Answer(packages=packages),
        conflicts=(), compiles=(), behind=behind or {},
    )  # fmt: skip


def test_a_release_that_a_solution_has_is_not_without_one():
    old, new = solution(el.wheel("a", "1"), wanted=("a", "2")), solution(el.wheel("a", "2"))
    assert reasons._explain_missing(SimpleNamespace(tried=[old]), "a", "2").endswith("the solver takes a 1")
    assert reasons._explain_missing(SimpleNamespace(tried=[old, new]), "a", "2") is None


def test_a_release_that_would_hold_another_package_back_says_so():
    chosen = solution(el.wheel("a", "1"), el.wheel("b", "2"))
    other = solution(el.wheel("a", "2"), el.wheel("b", "1"), wanted=("a", "2"), behind={"b": 30})
    unasked = dataclasses.replace(other, asked=chosen.asked)
    found = [
        reasons._explain_failure(SimpleNamespace(tried=[chosen, o]), chosen, "a", "2")
        for o in (other, unasked)
    ]
    assert found == ["it would limit b to 1", None]


@rows(
    ("newer", "said"),
    [(None, "another requirement excludes it"), ("2025-01-01", "--exclude-newer 2025-01-01")],
)
def test_a_limit_may_be_what_excludes_a_release(newer, said):
    known = SimpleNamespace(locked={}, context=SimpleNamespace(sources=SimpleNamespace(exclude_newer=newer)))
    assert said in reasons._explain_older(known, "a", "1")


def test_the_line_of_a_closed_repository_is_named_once():
    parts = [
        SimpleNamespace(text=f"{n} @ git+https://x/a", index=None, origin=f"{n}.txt line 1") for n in "ab"
    ]
    here = SimpleNamespace(context=SimpleNamespace(requirements=SimpleNamespace(lines=parts, files=())))
    for error in (LockError("no answer"), LockError("git cannot fetch it (a.txt line 1)")):
        retry._name_line(here, error, "https://x/a")
        assert error.message.count("a.txt line 1") == 1 and error.message.endswith("line 1)")


# --- fleets --------------------------------------------------------------------------------------------


def test_a_plan_of_a_fleet_without_builds_is_refused_and_a_silent_index_ends_it(monkeypatch):
    plan = dataclasses.replace(el.of().plan, hint="use another")
    closed, absent = LockError("no answer", unreachable="pypi"), LockError("not found", absent="x")
    answers = iter([(plan, None), (plan, None), closed, absent])

    def solve_near(*_, **__):
        answer = next(answers)
        if isinstance(answer, LockError):
            raise answer
        return answer

    monkeypatch.setattr("provision.lock.fleet.solve_near", solve_near)
    fleet = SimpleNamespace(
        emit=drop_event, refusals=[], solved={}, _read_near=lambda *_: None, _key=lambda *_: None, choices=None,
        upgrade=None,
    )  # fmt: skip
    context = state("torch").context
    assert FleetLocker._solve(fleet, context, ()).endswith(": use another")
    with pytest.raises(LockError, match="a: no build is compatible") as refused:
        FleetLocker.lock(fleet, context, (SimpleNamespace(id="a"),))
    assert refused.value.hint == "use another"
    with pytest.raises(LockError) as raised:
        FleetLocker._solve(fleet, context, ())
    assert raised.value is closed and fleet.refusals == []
    assert isinstance(FleetLocker._solve(fleet, context, ()), str) and fleet.refusals == [absent]
