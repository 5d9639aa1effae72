"""The plans of a fleet: as few as there can be, each right on every host, with the reasons that keep them apart."""

import dataclasses
import functools
import itertools

from hypothesis import given, settings, strategies as st
from known import KNOWN
from packaging.version import Version
from resolve_questions import question
from resolve_rules import BUILDS, codes, key, usable, wants_package
from rows import rows

from provision import fleet
from provision.fleet.classes import group_hosts, joint_target
from provision.fleet.kinds import HostGroup, PlatformBuilds
from provision.model import (
    AvailableWheels,
    FleetHost,
    FrameworkRequest,
    KnownBadRelease,
    PackageSources,
    Request,
    RequestContext,
    Target,
    TargetGpu,
    check_forms,
)
from provision.resolve import plan_request, resolve

MOST = 8


def planned(request, targets, hosts=None, plans="fewest", pythons_known=False):
    """The answer for targets, of which each has as many hosts as `hosts` says."""
    counts = hosts or [1] * len(targets)
    named = [
        FleetHost(name=f"h{i}-{n}", target=target, device=request.device)
        for i, (target, count) in enumerate(zip(targets, counts, strict=True))
        for n in range(count)
    ]
    asked = RequestContext(
        request=request,
        target=targets[0],
        machine=None,
        profiles=KNOWN,
        available=AvailableWheels(),
        sources=PackageSources(),
        pythons_known=pythons_known,
    )
    parts = [HostGroup(asked, group_hosts(named))]
    return fleet.plan_fleet(parts, plan_request, plans=plans).fleet


# --- against brute force, by the rules as they are stated again in tests/support ------------------


@functools.cache
def plans_of(request, target):
    """Every plan that fits a target: a build (by its place in the file) with a cuDNN, None where it brings its own."""
    return {
        (place, cudnn)
        for place, row in enumerate(BUILDS[request.frameworks[0].name])
        if row["platform"] == target.platform and "cuda" in row and not codes(row, request, target)
        for cudnn in ([c["version"] for c in usable(row, target)] if wants_package(row) else [None])
    }


def smallest_partition(count, together):
    """The fewest groups of 0..count-1 in each of which all go together, by trying every partition."""
    best = count
    groups = []

    def place(item):
        nonlocal best
        if len(groups) >= best:
            return
        if item == count:
            best = len(groups)
            return
        for group in groups:
            group.append(item)
            if together(frozenset(group)):
                place(item + 1)
            group.pop()
        groups.append([item])
        place(item + 1)
        groups.pop()

    place(0)
    return best


MACHINES = st.builds(
    lambda gpus, driver, glibc: Target(
        platform="linux-x86_64", glibc=glibc, driver=driver, driver_os="linux",
        gpus=tuple(TargetGpu(capability=c) for c in gpus),
    ),
    st.lists(st.sampled_from(["3.7", "5.2", "6.0", "7.0", "7.5", "8.0", "9.0", "10.0", "12.0"]), min_size=1, max_size=2),
    st.sampled_from(["470.256.02", "525.60.13", "535.129.03", "550.54.15", "570.86.15", "580.95.05"]),
    st.sampled_from(["2.17", "2.28", "2.35", "2.35"]),
)  # fmt: skip


@st.composite
def fleets(draw):
    framework = draw(st.sampled_from(["torch", "tensorflow", "jax"]))
    python = draw(st.sampled_from(["3.10", "3.11", "3.12"]))
    request = Request(frameworks=(FrameworkRequest(name=framework),), device="cuda", python=python)
    return request, draw(st.lists(MACHINES, min_size=2, max_size=MOST))


def is_minimal(request, found):
    """The number of plans, after comparing it with the fewest groups that any partition has."""
    by_id = {c.id: c.target for c in found.classes}
    served = [by_id[i] for p in found.plans for i in p.classes]
    without = [by_id[i] for u in found.unserved for i in u.classes]
    assert len(served) + len(without) == len(found.classes)
    assert not any(plans_of(request, t) for t in without)
    fitting = [plans_of(request, t) for t in served]
    smallest = smallest_partition(len(served), lambda g: bool(set.intersection(*(fitting[i] for i in g))))
    assert all(fitting) and found.exact and found.at_least == len(found.plans) == smallest
    for plan in found.plans:
        plan_is_right(plan, [by_id[i] for i in plan.classes], request)
    return smallest


def plan_is_right(plan, targets, request):
    """The build draws no objection on any target, its cuDNN serves each, and no newer build serves all."""
    (build,) = plan.plan.builds
    rows = [r for r in BUILDS[build.framework] if r["platform"] == targets[0].platform and "cuda" in r]
    (row,) = [r for r in rows if key(r) == (build.version, build.cuda, build.index)]
    assert not any(codes(row, request, target) for target in targets)
    if wants_package(row):
        for target in targets:
            assert plan.plan.cudnn in {c["version"] for c in usable(row, target)}


def feature_of(version):
    return tuple(map(int, version.split(".")[:2]))


def lost_by_each(request, fitting):
    """The feature releases that each class loses where all share a plan, or None without one, by the builds that fit
    each."""
    rows = BUILDS[request.frameworks[0].name]
    shared = set.intersection(*fitting)
    if not shared:
        return None
    releases = sorted({feature_of(r["version"]) for r in rows if r["platform"] == "linux-x86_64"})

    def newest(plans):
        return max((feature_of(rows[place]["version"]) for place, _ in plans))

    return [releases.index(newest(own)) - releases.index(newest(shared)) for own in fitting]


def test_no_class_loses_more_than_one_feature_release_and_there_are_never_fewer_plans():
    sizes = []

    @settings(max_examples=25)
    @given(fleets())
    def holds(drawn):
        request, targets = drawn
        fewest, found, best = (planned(request, targets, plans=p) for p in ("fewest", None, "best"))
        by_id = {c.id: c.target for c in found.classes}
        fitting = {i: plans_of(request, t) for i, t in by_id.items()}
        served = [i for p in found.plans for i in p.classes]

        def is_near(group, most=1):
            lost = lost_by_each(request, [fitting[served[i]] for i in group])
            return lost is not None and max(lost) <= most

        assert found.exact and len(found.plans) == smallest_partition(len(served), is_near)
        for plan in found.plans:
            assert max(lost_by_each(request, [fitting[i] for i in plan.classes])) <= 1
            plan_is_right(plan, [by_id[i] for i in plan.classes], request)
        for plan in best.plans:
            assert max(lost_by_each(request, [fitting[i] for i in plan.classes])) == 0
        counts = [len(f.plans) for f in (fewest, found, best)]
        assert counts == sorted(counts)
        rows = [(p.plans, p.chosen) for p in found.prices]
        assert rows == sorted({(n, n == counts[1]) for n in counts})
        for price in found.prices:
            assert sum(v.hosts for v in price.versions) == sum(p.hosts for p in found.plans)
        assert is_minimal(request, fewest) == counts[0]
        sizes.append(counts)

    holds()
    assert any(one < two for one, two, _ in sizes) and max(sizes)[0] > 1


def test_more_plans_go_to_the_largest_classes():
    """Against every partition: with N plans the largest class is as new as can be, then the next."""

    @settings(max_examples=10)
    @given(fleets(), st.integers(1, 4))
    def holds(drawn, most):
        request, targets = drawn
        fewest = planned(request, targets)
        if not fewest.plans:
            return
        most = max(most, len(fewest.plans))
        targets = list(dict.fromkeys(t for c in fewest.classes for t in [c.target]))
        counts = [2 ** (len(targets) - i) for i in range(len(targets))]
        found = planned(request, targets, counts, plans=str(most))
        by_id = {c.id: c for c in found.classes}
        order = {t: i for i, t in enumerate(targets)}
        served = sorted((i for p in found.plans for i in p.classes), key=lambda i: order[by_id[i].target])
        fitting = [plans_of(request, by_id[i].target) for i in served]
        rows = BUILDS[request.frameworks[0].name]
        versions = sorted(
            {rows[place]["version"] for own in fitting for place, _ in own}, key=Version, reverse=True
        )

        def age(plans):
            return min((versions.index(rows[place]["version"]) for place, _ in plans), default=None)

        got = {i: versions.index(p.plan.builds[0].version) for p in found.plans for i in p.classes}
        best = min(
            ages_of_all_partitions(
                len(served), most, lambda g: age(set.intersection(*(fitting[i] for i in g)))
            )
        )
        assert len(found.plans) <= most and [got[i] for i in served] == best

    holds()


def ages_of_all_partitions(count, most, age_of):
    """The age of each item in every partition of 0..count-1 into at most `most` groups that have an age."""
    found = []

    def place(item, groups):
        if any(age_of(g) is None for g in groups):
            return
        if item == count:
            ages = {i: age_of(g) for g in groups for i in g}
            found.append([ages[i] for i in range(count)])
            return
        for place_of, group in enumerate(groups):
            place(item + 1, [*groups[:place_of], [*group, item], *groups[place_of + 1 :]])
        if len(groups) < most:
            place(item + 1, [*groups, [item]])

    place(0, [])
    return found


# --- known fleets ---------------------------------------------------------------------------------

K80 = {"gpus": ["K80"], "driver": "470.256.02"}
A100 = {"gpus": ["A100"], "driver": "535.129.03"}
T4 = {"gpus": ["T4"], "driver": "550.54.15"}
V100 = {"gpus": ["V100"], "driver": "550.54.15"}
H100 = {"gpus": ["H100"], "driver": "580.95.05"}
B200 = {"gpus": ["B200"], "driver": "580.95.05"}


def targets_of(*machines):
    return [question("torch", **m)[1] for m in machines]


def test_another_python_is_planned_where_no_installed_one_has_a_build():
    request = Request(frameworks=(FrameworkRequest(name="torch"),), device="cuda", pythons=("3.8",))
    (plan,) = planned(request, targets_of(B200), pythons_known=True).plans
    assert plan.plan.python != "3.8"
    assert planned(request, targets_of(B200)).unserved, "3.8 is asked for"


def test_one_plan_serves_what_goes_together():
    request, _ = question("torch")
    found = planned(request, targets_of(A100, T4, H100))
    (plan,) = found.plans
    assert plan.hosts == 3 and len(plan.classes) == 3 and found.apart == ()
    assert plan.plan.target == joint_target(targets_of(A100, T4, H100))
    assert plan.plan.target.driver == "535.129.03"
    assert [g.capability for g in plan.plan.target.gpus] == ["7.5", "8.0", "9.0"]


def test_a_fleet_of_one_class_has_the_plan_of_its_target():
    for machine in (K80, A100, T4, V100, H100, B200):
        request, target = question("torch", **machine)
        alone = resolve(request, target, KNOWN)
        (plan,) = planned(request, [target, target]).plans
        assert (plan.plan.builds, plan.plan.python, plan.hosts) == (alone.builds, alone.python, 2)


def test_boards_and_drivers_differ_where_a_release_is_bad_on_one():
    request, _ = question("torch")
    newest = resolve(request, targets_of(H100)[0], KNOWN).builds[0].version
    bad = {"package": "torch", "version": newest, "effect": "refuse", "why": "", "source": ""}
    boards = [{"gpus": [name], "driver": "580.95.05"} for name in ("RTX 5090", "RTX PRO 6000 Blackwell")]
    drivers = [{"gpus": ["H100"], "driver": driver} for driver in ("580.95.05", "580.95.06")]
    for pair, where in ((boards, {"board": "RTX 50"}), (drivers, {"driver": "<580.95.06"})):
        profiles = dataclasses.replace(KNOWN, known_bad=(KnownBadRelease(**bad, **where),))
        for order in (pair, pair[::-1]):
            fitting = PlatformBuilds(request, profiles, AvailableWheels(), "linux-x86_64")
            served = [fitting.list_serving(target, 0) for target in targets_of(*order)]
            rows = fitting.builds[0]
            has_newest = [any(rows[i].version == newest for i in serving) for serving in served]
            assert has_newest == [machine is pair[1] for machine in order]


def test_two_plans_are_apart_by_the_objections_of_both_sides():
    request, _ = question("torch")
    found = planned(request, targets_of(K80, B200), [3, 2])
    assert [p.hosts for p in found.plans] == [3, 2]
    (apart,) = found.apart
    assert apart.plans == (0, 1) and apart.classes == ("sm37-r470", "sm100-r580")
    assert "sm37-r470 (3 hosts) cannot use plan 2: torch " in apart.reason
    assert "the driver is 470.256.02" in apart.reason
    assert "sm100-r580 (2 hosts) cannot use plan 1: torch " in apart.reason
    assert "no kernels for B200 (10.0)" in apart.reason
    assert apart.would_merge is None  # no driver serves both boards


def test_a_newer_driver_that_would_save_a_plan_is_named_and_does():
    """A B200 needs CUDA 12.8 or newer; hosts with driver 470 run no CUDA 12."""
    old = {"gpus": ["A100"], "driver": "470.256.02"}
    request, _ = question("torch")
    found = planned(request, targets_of(old, B200), [12, 5])
    assert len(found.plans) == 2
    (apart,) = found.apart
    hosts = "driver 525.60.13 on 12 hosts (h0-0, h0-1, h0-10 and 9 more; now 470.256.02): one plan fewer"
    assert apart.would_merge.startswith(hosts)
    merged = planned(request, targets_of({**old, "driver": "525.60.13"}, B200), [12, 5])
    assert len(merged.plans) == 1
    below = planned(request, targets_of({**old, "driver": "525.60.12"}, B200), [12, 5])
    assert len(below.plans) == 2


def test_one_old_host_does_not_hold_the_others_back():
    request, _ = question("torch")
    machines = targets_of(
        {"gpus": ["A100"], "driver": "580.65.06"}, {"gpus": ["V100"], "driver": "470.256.02"}
    )
    found = planned(request, machines, [999, 1], plans=None)
    new, old = (p.plan.builds[0].version for p in found.plans)
    assert [p.hosts for p in found.plans] == [999, 1] and Version(old) < Version(new)
    one, two = found.prices
    assert (one.plans, one.chosen, two.plans, two.chosen) == (1, False, 2, True)
    (held,) = one.held
    assert (held.by, held.by_hosts, held.hosts) == (("sm70-r470",), 1, 999)
    assert (held.versions, held.newer) == ({"torch": old}, {"torch": new}) and two.held == ()
    assert "cannot use plan 1" in found.apart[0].reason
    assert found.apart[0].reason.endswith(f"one plan for both has torch {old}")
    asked = planned(request, machines, [999, 1], plans="1")
    assert asked.plans == planned(request, machines, [999, 1]).plans and len(asked.plans) == 1


def test_the_upgrade_that_frees_held_hosts_is_named():
    request, _ = question("torch")
    a100 = {"gpus": ["A100"], "driver": "580.65.06"}
    found = planned(request, targets_of(a100, {**a100, "glibc": "2.17"}), [999, 8])
    (held,) = found.prices[0].held
    assert held.hosts == 999 and held.upgrade == (
        f"glibc 2.35 on 8 hosts (h1-0, h1-1, h1-2 and 5 more; now 2.17): torch {held.newer['torch']} for all of them"
    )


def test_a_newer_glibc_that_would_save_a_plan_is_named():
    request, _ = question("torch")
    found = planned(request, targets_of({**A100, "glibc": "2.17"}, {**B200, "glibc": "2.35"}))
    assert len(found.plans) == 2
    assert found.apart[0].would_merge.startswith("glibc 2.35 on 1 host (h0-0; now 2.17): one plan fewer")


def test_several_frameworks_share_each_plan():
    request, _ = question("torch", "jax")
    machines = targets_of(A100, H100, B200)
    found = planned(request, machines)
    for plan in found.plans:
        assert [b.framework for b in plan.plan.builds] == ["torch", "jax"]
        for one in found.classes:
            if one.id in plan.classes:
                pinned = tuple(
                    FrameworkRequest(name=b.framework, specifier=f"=={b.version}") for b in plan.plan.builds
                )
                again = resolve(dataclasses.replace(request, frameworks=pinned), one.target, KNOWN)
                assert again.builds


def test_a_class_that_nothing_fits_is_named_with_what_would_help():
    request, _ = question("torch>=2.8")
    found = planned(request, targets_of(K80, H100), [2, 1])
    assert [p.classes for p in found.plans] == [("sm90-r580",)]
    (missing,) = found.unserved
    assert missing.classes == ("sm37-r470",) and missing.hosts == 2 and missing.hint
    assert missing.reason.startswith("torch 2.")


# --- classes ----------------------------------------------------------------------------------------


def host(name, *gpus, driver="535.129.03", glibc="2.35", device="cuda", **more):
    cards = tuple(TargetGpu(capability=c, name=n) for c, n in gpus)
    place = {"platform": "linux-x86_64", "driver_os": "linux", **more}
    target = Target(glibc=glibc, driver=driver, gpus=cards, **place)
    return FleetHost(name=name, target=target, device=device)


def test_hosts_that_no_plan_tells_apart_are_one_class_in_any_order():
    hosts = [
        host("b", ("9.0", "NVIDIA H200"), ("8.0", "A100")),
        host("a", ("8.0", "A100"), ("9.0", "NVIDIA H100"), ("9.0", "NVIDIA H100")),
        host("c", ("8.0", "A100"), driver="550.54.15"),
    ]
    expected = group_hosts(hosts)
    assert [(c.id, c.hosts) for c in expected] == [("sm80-sm90-r535", ("a", "b")), ("sm80-r550", ("c",))]
    assert [g.name for g in expected[0].target.gpus] == ["A100", "NVIDIA H100"]
    for order in itertools.permutations(hosts):
        assert group_hosts(order) == expected


@rows(
    ("others", "ids"),
    [
        ([{"driver": "535.54.03"}], ["sm80-r535_129_03", "sm80-r535_54_03"]),
        ([{"glibc": "2.28"}], ["sm80-r535_129_03-glibc2_28", "sm80-r535_129_03-glibc2_35"]),
        ([{"driver_cuda": "12.2"}], ["sm80-r535_129_03-glibc2_35-1", "sm80-r535_129_03-glibc2_35-2"]),
        ([{"device": "cpu", "driver": None}], ["cpu", "sm80-r535"]),
        ([{"driver_os": "windows"}, {"driver_os": "windows", "platform": "windows-x86_64"}],
         ["sm80-r535", "sm80-r535-wsl", "windows-x86_64-sm80-r535"]),
    ],
)  # fmt: skip
def test_classes_have_names_of_their_own(others, ids):
    hosts = [host("a", ("8.0", None)), *(host(f"b{i}", ("8.0", None), **o) for i, o in enumerate(others))]
    assert sorted(c.id for c in group_hosts(hosts)) == ids


def test_an_id_can_be_part_of_a_file_name_whatever_a_document_says():
    boards = [(f"{n}.0", None) for n in range(7, 40)]
    odd = host("odd", *boards, driver="123456.123456.123456.123456.123456")
    again = host("again", *boards, driver="123456.123456.123456.123456.123455")
    elsewhere = dataclasses.replace(odd.target, platform="../../etc/x y", gpus=())
    found = group_hosts([odd, again, FleetHost(name="b", target=elsewhere, device="cpu")])
    assert len({c.id for c in found}) == 3
    for one in found:
        check_forms(one)


def test_forward_compatibility_counts_only_where_the_board_takes_it():
    centre, desktop = ("8.6", "NVIDIA A40"), ("8.6", "NVIDIA GeForce RTX 3090")
    hosts = [
        host("a", desktop),
        host("b", desktop, forward_compat="12.4"),
        host("c", centre, forward_compat="12.4"),
    ]
    assert sorted(c.hosts for c in group_hosts(hosts)) == [("a", "b"), ("c",)]


def test_the_answer_does_not_depend_on_the_order_of_hosts():
    request = Request(frameworks=(FrameworkRequest(name="torch"),), device="cuda", python="3.12")
    machines = targets_of(K80, A100, T4, V100, H100, B200)
    counts = [4, 9, 2, 7, 5, 3]
    first = planned(request, machines, counts)
    turned = planned(request, machines[::-1], counts[::-1])
    assert [(p.plan, p.classes, p.hosts) for p in first.plans] == [
        (p.plan, p.classes, p.hosts) for p in turned.plans
    ]
    assert first.apart == turned.apart
