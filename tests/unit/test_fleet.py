"""The plans of a fleet: as few as there can be, each right on every host, with the reasons that keep them apart."""

import dataclasses
import itertools

from hypothesis import given, settings, strategies as st
from resolve_questions import SHIPPED, question
from resolve_rules import BUILDS, codes, key, usable, wants_package
from rows import rows

from provision import fleet
from provision.fleet.classes import joint_target
from provision.model import (
    AvailableWheels,
    FleetHost,
    FrameworkRequest,
    PackageSources,
    Request,
    RequestContext,
    Target,
    TargetGpu,
    check_forms,
)
from provision.resolve import resolve
from provision.resolve.planner import plan_request

MOST = 8


def planned(request, targets, hosts=None):
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
        profiles=SHIPPED,
        supply=AvailableWheels(),
        sources=PackageSources(),
    )
    return fleet.plan_fleet([fleet.HostGroup(asked, fleet.group(named))], plan_request).fleet


# --- against brute force, by the rules as they are stated again in tests/support ------------------


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


def test_there_are_never_fewer_plans():
    sizes = []

    @settings(max_examples=25)
    @given(fleets())
    def holds(drawn):
        sizes.append(is_minimal(*drawn))

    holds()
    assert max(sizes) > 1


def is_minimal(request, targets):
    """The number of plans, after comparing it with the fewest groups that any partition has."""
    found = planned(request, targets)
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


# --- known fleets ---------------------------------------------------------------------------------

K80 = {"gpus": ["K80"], "driver": "470.256.02"}
A100 = {"gpus": ["A100"], "driver": "535.129.03"}
T4 = {"gpus": ["T4"], "driver": "550.54.15"}
V100 = {"gpus": ["V100"], "driver": "550.54.15"}
H100 = {"gpus": ["H100"], "driver": "580.95.05"}
B200 = {"gpus": ["B200"], "driver": "580.95.05"}


def targets_of(*machines):
    return [question("torch", **m)[1] for m in machines]


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
        alone = resolve(request, target, SHIPPED)
        (plan,) = planned(request, [target, target]).plans
        assert (plan.plan.builds, plan.plan.python, plan.hosts) == (alone.builds, alone.python, 2)


def test_two_plans_are_apart_by_the_objections_of_both_sides():
    request, _ = question("torch")
    found = planned(request, targets_of(K80, B200), [3, 2])
    assert [p.hosts for p in found.plans] == [3, 2]
    (apart,) = found.apart
    assert apart.plans == (0, 1) and apart.classes == ("sm37-r470", "sm100-r580")
    assert (
        "sm37-r470 (3 hosts) cannot use plan 2: torch " in apart.reason
        and "the driver is 470.256.02" in apart.reason
    )
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
    assert (
        apart.would_merge == "driver 470.256.02 on 12 hosts: with driver 525.60.13, one plan fewer is needed"
    )
    merged = planned(request, targets_of({**old, "driver": "525.60.13"}, B200), [12, 5])
    assert len(merged.plans) == 1
    below = planned(request, targets_of({**old, "driver": "525.60.12"}, B200), [12, 5])
    assert len(below.plans) == 2


def test_a_newer_glibc_that_would_save_a_plan_is_named():
    request, _ = question("torch")
    found = planned(request, targets_of({**A100, "glibc": "2.17"}, {**B200, "glibc": "2.35"}))
    assert len(found.plans) == 2
    assert found.apart[0].would_merge == "glibc 2.17 on 1 host: with glibc 2.35, one plan fewer is needed"


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
                again = resolve(dataclasses.replace(request, frameworks=pinned), one.target, SHIPPED)
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
    target = Target(
        platform="linux-x86_64", glibc=glibc, driver=driver, driver_os="linux", gpus=cards, **more
    )
    return FleetHost(name=name, target=target, device=device)


def test_hosts_that_no_plan_tells_apart_are_one_class_in_any_order():
    hosts = [
        host("b", ("9.0", "NVIDIA H200"), ("8.0", "A100")),
        host("a", ("8.0", "A100"), ("9.0", "NVIDIA H100"), ("9.0", "NVIDIA H100")),
        host("c", ("8.0", "A100"), driver="550.54.15"),
    ]
    expected = fleet.group(hosts)
    assert [(c.id, c.hosts) for c in expected] == [("sm80-sm90-r535", ("a", "b")), ("sm80-r550", ("c",))]
    assert [g.name for g in expected[0].target.gpus] == ["A100", "NVIDIA H100"]
    for order in itertools.permutations(hosts):
        assert fleet.group(order) == expected


@rows(
    ("others", "ids"),
    [
        ([{"driver": "535.54.03"}], ["sm80-r535.129.03", "sm80-r535.54.03"]),
        ([{"glibc": "2.28"}], ["sm80-r535.129.03-glibc2.28", "sm80-r535.129.03-glibc2.35"]),
        ([{"driver_cuda": "12.2"}], ["sm80-r535.129.03-glibc2.35-1", "sm80-r535.129.03-glibc2.35-2"]),
        ([{"device": "cpu", "driver": None}], ["cpu", "sm80-r535"]),
    ],
)
def test_classes_have_names_of_their_own(others, ids):
    hosts = [host("a", ("8.0", None)), *(host(f"b{i}", ("8.0", None), **o) for i, o in enumerate(others))]
    assert sorted(c.id for c in fleet.group(hosts)) == ids


def test_an_id_can_be_part_of_a_file_name_whatever_a_document_says():
    boards = [(f"{n}.0", None) for n in range(7, 40)]
    odd = host("odd", *boards, driver="123456.123456.123456.123456.123456")
    again = host("again", *boards, driver="123456.123456.123456.123456.123455")
    elsewhere = dataclasses.replace(odd.target, platform="../../etc/x y", gpus=())
    found = fleet.group([odd, again, FleetHost(name="b", target=elsewhere, device="cpu")])
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
    assert sorted(c.hosts for c in fleet.group(hosts)) == [("a", "b"), ("c",)]


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
