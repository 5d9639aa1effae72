"""The fewest plans with packages on made-up catalogues, against brute force by rules that are stated again here."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

from hypothesis import given, settings, strategies as st
from known import KNOWN
from packaging.specifiers import SpecifierSet
from resolve_rules import BUILDS
from test_fleet import feature_of, plans_of, smallest_partition

from provision import fleet
from provision.config.options import Choices
from provision.fleet.classes import group_hosts
from provision.fleet.kinds import HostGroup
from provision.lock.builds import FittingBuilds
from provision.lock.fleet import FleetLocker, SolvedPlan
from provision.model import (
    AvailableWheels,
    FleetHost,
    FrameworkRequest,
    Lock,
    PackageSources,
    Request,
    RequestContext,
    Target,
    TargetGpu,
    drop_event,
)

PYTHON = "3.11"
CAPABILITIES = ["7.0", "7.5", "8.0", "9.0", "10.0"]
RELEASES = st.tuples(
    st.lists(st.sampled_from(CAPABILITIES), unique=True, max_size=3),  # kernels; none run everywhere
    st.sampled_from(["", "", "<2.7", ">=2.11", "!=2.10.*"]),  # of torch
)


MACHINES = st.builds(  # one framework build serves most of them
    lambda gpu, driver: Target(
        platform="linux-x86_64",
        glibc="2.35",
        driver=driver,
        driver_os="linux",
        gpus=(TargetGpu(capability=gpu),),
    ),
    st.sampled_from(CAPABILITIES),
    st.sampled_from(["535.129.03", "580.95.05", "580.95.05"]),
)


@st.composite
def catalogues(draw):
    count = draw(st.integers(1, 2))
    packages = {f"p{i}": draw(st.lists(RELEASES, min_size=2, max_size=3)) for i in range(count)}
    return packages, draw(st.lists(MACHINES, min_size=2, max_size=5, unique=True))


# --- the rules again --------------------------------------------------------------------------------


def runs(kernels, gpu):
    """A kernel runs on a GPU of the same major and an equal or higher minor."""
    major, minor = map(int, gpu.split("."))
    mine = [tuple(map(int, k.split("."))) for k in kernels]
    return any(m == major and n <= minor for m, n in mine)


def serves(kernels, target):
    return not kernels or all(runs(kernels, g.capability) for g in target.gpus)


def goes(packages, torch, targets):
    """Whether each package has a release for a torch and for the GPUs of all targets that any release serves."""
    return all(
        any(
            (not bound or SpecifierSet(bound).contains(torch))
            and all(serves(kernels, t) for t in targets if any(serves(k, t) for k, _ in rows))
            for kernels, bound in rows
        )
        for rows in packages.values()
    )


def has_plan(packages, fitting, targets):
    """Whether one build with the packages serves all targets."""
    shared = {BUILDS["torch"][place]["version"] for place, _ in set.intersection(*fitting)}
    return any(goes(packages, torch, targets) for torch in shared)


# --- the test ----------------------------------------------------------------------------------------


CONTEXT = RequestContext(
    request=Request(frameworks=(FrameworkRequest(name="torch"),), device="cuda", python=PYTHON),
    target=Target(platform="linux-x86_64"), machine=None, available=AvailableWheels(), sources=PackageSources(),
    profiles=KNOWN,
)  # fmt: skip


RELEASES_OF_TORCH = sorted(
    {feature_of(r["version"]) for r in BUILDS["torch"] if r["platform"] == "linux-x86_64"}
)


def newest(packages, fitting, targets):
    """The place of the newest feature release of torch that serves all targets with the packages, or None."""
    shared = {BUILDS["torch"][place]["version"] for place, _ in set.intersection(*fitting)}
    fit = [RELEASES_OF_TORCH.index(feature_of(torch)) for torch in shared if goes(packages, torch, targets)]
    return max(fit, default=None)


def planned(packages, targets, plans="fewest"):
    """The fleet, with the framework builds of the shipped profiles and the packages."""
    request = Request(
        frameworks=(FrameworkRequest(name="torch"),), device="cuda", python=PYTHON, packages=tuple(packages)
    )
    context = dataclasses.replace(CONTEXT, request=request, target=targets[0])
    hosts = [FleetHost(name=f"h{i}", target=t, device="cuda") for i, t in enumerate(targets)]
    says = Made(Choices(), drop_event, packages=packages)
    parts = [HostGroup(context, group_hosts(hosts))]
    return fleet.plan_fleet(parts, says.plan, (), says, plans=plans), request


@dataclasses.dataclass
class Made(FleetLocker):
    """Packages without an index: a lock has the newest build that goes with them."""

    packages: Mapping[str, Sequence[tuple[Sequence[str], str]]] = dataclasses.field(default_factory=dict)

    def _solve(self, context, classes):  # the question of the class above
        for place, version in enumerate(versions(context.target, context.targets)):
            if goes(self.packages, version, context.targets):
                plan = plan_of(context.target, context.targets, place)
                return SolvedPlan(
                    plan, Lock(manager="venv", target=context.target, plan=plan, packages=()), ()
                )
        return f"{min(self.packages)} has no release for all of them"


@functools.cache
def fitting(target, targets):
    """The builds of torch that fit targets."""
    return FittingBuilds(dataclasses.replace(CONTEXT, target=target, targets=targets))


def versions(target, targets):
    return [b.version for b in fitting(target, targets).chains[0] if PYTHON in b.python]


@functools.cache
def plan_of(target, targets, place):
    builds = [b for b in fitting(target, targets).chains[0] if PYTHON in b.python]
    return fitting(target, targets).plan([builds[place]], PYTHON, {})


def test_packages_never_cost_more_plans_than_brute_force_needs():
    separated = []

    @settings(max_examples=15)
    @given(catalogues())
    def holds(drawn):
        packages, targets = drawn
        answer, request = planned(packages, targets)
        found = answer.fleet
        by_id = {c.id: c.target for c in found.classes}
        served = [by_id[i] for p in found.plans for i in p.classes]
        fitting = {t: plans_of(request, t) for t in by_id.values()}
        for one in (by_id[i] for u in found.unserved for i in u.classes):
            assert not has_plan(packages, [fitting[one]], [one])

        def together(group):
            mine = [served[i] for i in group]
            return has_plan(packages, [fitting[t] for t in mine], mine)

        assert found.exact and found.at_least == len(found.plans)
        assert len(found.plans) == smallest_partition(len(served), together)
        for plan in found.plans:
            mine = [by_id[i] for i in plan.classes]
            assert has_plan(packages, [fitting[t] for t in mine], mine)
        by_packages = [a for a in found.apart if "cannot share a lock: " in a.reason]
        assert all(
            a.reason.partition("cannot share a lock: ")[2].startswith(("p0 ", "p1 ")) for a in by_packages
        )
        separated.append(bool(by_packages))

    holds()
    assert any(separated) and not all(separated)


def test_beside_packages_no_class_loses_more_than_one_feature_release():
    more = []

    @settings(max_examples=10)
    @given(catalogues())
    def holds(drawn):
        packages, targets = drawn
        (fewest, request), (answer, _) = (planned(packages, targets, plans) for plans in ("fewest", None))
        found = answer.fleet
        by_id = {c.id: c.target for c in found.classes}
        served = [by_id[i] for p in found.plans for i in p.classes]
        fitting = {t: plans_of(request, t) for t in by_id.values()}

        def together(group):
            mine = [served[i] for i in group]
            shared = newest(packages, [fitting[t] for t in mine], mine)
            return shared is not None and all(newest(packages, [fitting[t]], [t]) - shared <= 1 for t in mine)

        assert found.exact and len(found.plans) == smallest_partition(len(served), together)
        places = {t: i for i, t in enumerate(served)}
        assert all(together([places[by_id[i]] for i in p.classes]) for p in found.plans)
        more.append(len(found.plans) > len(fewest.fleet.plans))

    holds()
    assert any(more) and not all(more)


def test_the_largest_class_keeps_the_newest_framework_that_packages_allow():
    """The A100s can share a plan with either other class. Frameworks alone are as new with both; a package is not."""
    packages = {"p0": [(["8.0", "9.0"], ""), (["7.0", "8.0"], "<2.7")]}
    many, old, new = (
        Target(platform="linux-x86_64", glibc="2.35", driver="535.129.03", driver_os="linux",
               gpus=(TargetGpu(capability=c),))
        for c in ("8.0", "7.0", "9.0")
    )  # fmt: skip
    answer, _ = planned({}, [many, many, old, new])
    assert len(answer.fleet.plans) == 1
    answer, _ = planned(packages, [many, many, many, old, new])
    found = [set(p.classes) for p in answer.fleet.plans]
    assert found == [{"sm80-r535", "sm90-r535"}, {"sm70-r535"}] and answer.fleet.exact
