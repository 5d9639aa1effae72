"""Show plans as text: the chosen builds and the objections to newer ones, a lock, and the plans of a fleet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from ..model import format_bytes, name_few
from ..system.redaction import clean
from .terminal import Screen, count, show_table

if TYPE_CHECKING:
    from ..model import (
        Fleet,
        FleetLocks,
        FleetPlan,
        HeldHosts,
        HostClass,
        Lock,
        Plan,
        PlanDifference,
        PlannedBuild,
        PlanPrice,
        RejectedBuild,
    )

_KNOWN = {
    "https://download.pytorch.org/whl": "the PyTorch index",
    "https://conda.anaconda.org/conda-forge": "conda-forge",
}


def show_plan(
    screen: Screen, plan: Plan, *, explain: bool = False, drifted: Mapping[str, str] | None = None
) -> None:
    """Show the builds, the objections to newer ones, notes and the hint.

    `drifted` is framework -> sentence, for frameworks whose installed version is not the plan's.
    """
    for build in plan.builds:
        if drifted and build.framework in drifted:
            head = screen.colour(build.framework, "bold")
            screen.wrapped(f"{head} {drifted[build.framework]}", indent="  ", first="")
            continue
        cuda = f"CUDA {build.cuda}" if build.cuda else "CPU build"
        cudnn = f", cuDNN {build.cudnn}" if build.cudnn else ""
        head = screen.colour(f"{build.framework} {build.version}", "bold")
        screen.line(f"{head}  {cuda}{cudnn}, Python {plan.python}, {plan.platform}")
        if index := _describe_index(build):
            screen.wrapped(f"from {index}", indent="    ", first="  ")
    if not plan.builds:
        screen.line(screen.colour("no build fits", "red") + f"  {plan.target.words}")
    if explain:
        _show_sets(screen, plan)
        _show_table(screen, plan)
    else:
        for sentence in (*list_objections(plan), *_list_held_back(plan)):
            screen.wrapped(sentence, indent="    ", first="  ")
    for note in plan.notes:
        if note in screen.shown:
            continue
        screen.wrapped(f"note: {note}", indent="    ", first="  ")
    if plan.hint:
        screen.wrapped(f"possible fix: {plan.hint}", indent="    ", first="  ")
    show_pip(screen, plan)


def show_pip(screen: Screen, plan: Plan) -> None:
    """Show the commands for pip and uv if the plan has them, each as one line to copy."""
    if not plan.pip:
        return
    screen.line(f"  with pip or uv, in an environment with Python {plan.python}:")
    for command in (*plan.pip, *plan.uv):
        screen.line(f"    {clean(command)}")


def _describe_index(build: PlannedBuild) -> str:
    """Return the names or addresses of a build's index, or "" if they are unknown."""
    if not build.index_urls and build.index != "find-links":
        # Not known for a lock alone, and for a plan of a fleet, whose hosts each ask their own index.
        return "" if build.index in ("pypi", "pytorch") else build.index
    if not any("://" in url for url in build.index_urls):
        return "local wheels"
    *others, last = dict.fromkeys(map(_name_index, build.index_urls))
    return f"{', '.join(others)} or {last}" if others else last


def _name_index(url: str) -> str:
    for known, name in _KNOWN.items():
        if f"{url}/".startswith(f"{known}/"):
            return name
    from ..index.uv import own_index  # imported late, because most values are shown without it

    return "PyPI" if url == own_index() else url


def list_objections(plan: Plan) -> Iterator[str]:
    """Yield one sentence for each run of neighbouring versions with the same objection.

    An example: "not torch 2.15.0 to 2.11.0: CUDA 13 needs driver 580.65.06; the driver is 550.144.03". A
    version has the objection of its build with the fewest, and first that of a build that fits: of packages, or that its
    index does not respond. Versions that were not requested, or are not newer than the chosen one, are skipped.
    """
    if not plan.rejected:
        return
    from packaging.version import Version  # imported late: most values are shown without it

    chosen = {b.framework: Version(b.version) for b in plan.builds}
    for framework, rows in groupby(plan.rejected, key=lambda r: r.framework):
        best: dict[str, RejectedBuild] = {}
        for row in rows:
            previous = best.get(row.version)
            if previous is None or _make_sort_key(row) < _make_sort_key(previous):
                best[row.version] = row
        taken = chosen.get(framework)
        newer = [r for r in best.values() if taken is None or Version(r.version) > taken]
        objections = [r for r in newer if r.reasons[0].code not in ("not_requested", "yanked")]
        if newer and not plan.builds and all(r.reasons[0].code == "requirement_conflict" for r in objections):
            # No release is what was requested: the nearest one, also beside those outside a file's bounds.
            nearest = min(newer, key=lambda r: (r in objections, len(r.reasons), r.reasons[0].text.startswith(framework)))  # fmt: skip
            objections = [r for r in newer if r in objections or r is nearest]
        for _, neighbours in groupby(objections, key=_make_group_key):
            group = list(neighbours)
            first, last = group[0], group[-1]
            span = first.version if len(group) == 1 else f"{first.version} to {last.version}"
            text = first.reasons[0].text
            if last.reasons[0].text != text:
                text = f"{first.version} {text.partition(';')[0]}, {last.version} {last.reasons[0].text}"
            yield f"not {framework} {span}: {text}"


def _make_group_key(row: RejectedBuild) -> str:
    """Return the key by which neighbouring versions share a sentence, which states the Pythons of the first and the last."""
    reason = row.reasons[0]
    return reason.code if reason.code == "python_unsupported" else reason.text


def _make_sort_key(row: RejectedBuild) -> tuple[bool, int, list[int]]:
    """Return the sort key of a rejected build: it fits, it has few objections, or the least newer driver would do."""
    fits = {r.code for r in row.reasons} <= {"index_unreachable", "requirement_conflict"}
    cuda = row.cuda if row.cuda and row.reasons[0].code == "driver_too_old" else "99"
    return not fits, len(row.reasons), [int(n) for n in cuda.split(".")]


def _list_held_back(plan: Plan) -> Iterator[str]:
    """Yield one sentence for each package that does not get its newest release. Frameworks have their own
    sentences."""
    planned = {b.framework for b in plan.builds}
    for package in plan.held_back:
        if package.package not in planned:
            price = f" ({package.alternative})" if package.alternative else ""
            yield f"{package.package} {package.locked}, not {package.newest}: {package.because}{price}"


def _show_sets(screen: Screen, plan: Plan) -> None:
    """Show the best set for each framework version."""
    for row in plan.sets:
        head = " + ".join((*row.builds, *row.packages))
        late = f"{row.oldest} is {row.behind} days behind its newest release" if row.oldest else ""
        reason = row.reason or f"chosen: {late or 'every package is at its newest release'}"
        screen.wrapped(f"{head}: {reason}", indent="      ", first="  ")


def _show_table(screen: Screen, plan: Plan) -> None:
    """Show all builds, one per row."""
    rows = [(r.framework, r.version, r.cuda or "cpu", r.index, "; ".join(x.text for x in r.reasons))
            for r in plan.rejected]  # fmt: skip
    rows += [(b.framework, b.version, b.cuda or "cpu", b.index, "chosen") for b in plan.builds]
    if rows:
        show_table(screen, ("FRAMEWORK", "VERSION", "CUDA", "INDEX", "RESULT"), rows, indent=2, whole=True)


def show_lock(screen: Screen, lock: Lock) -> None:
    """Show the plan and how many packages there are."""
    show_plan(screen, lock.plan)
    total = sum(p.size or 0 for p in lock.packages)
    known = f", {format_bytes(total)} to download" if total else ""
    screen.line(f"{len(lock.packages)} packages locked{known}")
    if screen.verbose:
        for package in lock.packages:
            screen.line(f"  {package.name} {package.version}")


_MOST_CLASSES = 8
_MOST_HELD = 3
_MOST_PAIRS = 3
_MOST_UNSERVED = 20
_PLAN, _HOSTS = 4, 7


def show_fleet(screen: Screen, fleet: Fleet, *, explain: bool = False) -> None:
    """Show the plans with their classes, the reasons against one plan, and the hosts without a plan."""
    hosts = sum(len(c.hosts) for c in fleet.classes) + sum(1 for u in fleet.unserved if u.host)
    screen.line(
        f"{count(hosts, 'host')}, {count(len(fleet.classes), 'class')}, "
        f"{count(len(fleet.plans), 'plan')}{_describe_proof(fleet)}"
    )
    by_id = {c.id: c for c in fleet.classes}
    for price in sorted(fleet.prices, key=lambda p: not p.chosen):
        name = "" if price.chosen else f"--plans fewest ({count(price.plans, 'plan')}): "
        shown = price.held if screen.verbose else price.held[:_MOST_HELD]
        for held in shown:
            screen.wrapped(
                f"{name}{_describe_held(held, price, by_id, len(fleet.plans))}", indent="    ", first=""
            )
            if held.upgrade:
                screen.wrapped(f"or an upgrade: {held.upgrade}", indent="    ", first="  ")
    if fleet.plans:
        screen.line(f"{'PLAN':<{_PLAN}}  {'HOSTS':>{_HOSTS}}  BUILDS AND HOST CLASSES")
    for number, plan in enumerate(fleet.plans, 1):
        _show_fleet_plan(screen, number, plan, [by_id[i] for i in plan.classes])
        if explain:
            show_plan(screen, plan.plan, explain=True)
        else:
            show_pip(screen, plan.plan)
    for pair in fleet.apart if screen.verbose else _short_list(fleet):
        one, other = (p + 1 for p in pair.plans)
        screen.wrapped(f"plans {one} and {other}: {pair.reason}", indent="    ", first="")
        if pair.would_merge:
            screen.wrapped(f"to merge these plans: {pair.would_merge}", indent="    ", first="  ")
    for note in fleet.notes:
        screen.wrapped(f"note: {note}", indent="    ", first="")
    hints = set[str]()
    shown_hosts = fleet.unserved if screen.verbose else fleet.unserved[:_MOST_UNSERVED]
    for missing in shown_hosts:
        more = (
            f" and {len(missing.classes) - 1} more similar host classes" if len(missing.classes) > 1 else ""
        )
        name = missing.host or f"{missing.classes[0]}{more} ({count(missing.hosts, 'host')})"
        screen.wrapped(
            f"{screen.colour('no plan', 'red')} for {name}: {missing.reason}", indent="    ", first=""
        )
        if missing.hint and missing.hint not in hints:
            hints.add(missing.hint)
            screen.wrapped(f"possible fix: {missing.hint}", indent="    ", first="  ")
    if left := fleet.unserved[len(shown_hosts) :]:
        more = count(sum(u.hosts for u in left), "more host")
        screen.line(f"{screen.colour('no plan', 'red')} for {more} (-v lists them)")


def show_fleet_locks(screen: Screen, result: FleetLocks) -> None:
    """Show the plans, then the file of each."""
    show_fleet(screen, result.fleet)
    for one in result.locks:
        total = sum(p.size or 0 for p in one.lock.packages)
        known = f", {format_bytes(total)} to download" if total else ""
        screen.line(f"plan {one.plan + 1}: {clean(one.file)}  {len(one.lock.packages)} packages{known}")


def _short_list(fleet: Fleet) -> list[PlanDifference]:
    """Return why each plan is not one with the largest plan before it of its platform and device."""
    if len(fleet.apart) <= _MOST_PAIRS:
        return list(fleet.apart)
    kinds = [(p.plan.platform, p.plan.device) for p in fleet.plans]
    first = {p.plans[1]: p for p in reversed(fleet.apart) if kinds[p.plans[0]] == kinds[p.plans[1]]}
    return [first[number] for number in sorted(first)]


def _describe_held(held: HeldHosts, price: PlanPrice, by_id: Mapping[str, HostClass], chosen: int) -> str:
    """Return because of whom others get which versions, and what more plans than were chosen would give them."""
    names = [host for one in held.by for host in by_id[one].hosts]
    who = f"{count(held.by_hosts, 'host')} ({name_few(names)})"
    have = " and ".join(f"{name} {version}" for name, version in held.versions.items())
    newer = " and ".join(
        version if len(held.newer) == 1 else f"{name} {version}" for name, version in held.newer.items()
    )
    get = f"get{'s' * (held.hosts == 1)}" if price.chosen else "would get"
    sentence = f"because of {who}, {count(held.hosts, 'other host')} {get} {have}"
    plans = price.plans + price.more
    if not price.chosen and plans == chosen:
        return sentence
    return f"{sentence}; --plans {plans} gives {'it' if held.hosts == 1 else 'them'} {newer}"


def _describe_proof(fleet: Fleet) -> str:
    fewest = min((p.plans for p in fleet.prices), default=len(fleet.plans))
    if fewest < len(fleet.plans):
        return f" ({fewest} with --plans fewest)"
    if len(fleet.plans) < 2:
        return ""
    return " (this is the minimum)" if fleet.exact else f" (at least {fleet.at_least} are needed)"


def _show_fleet_plan(screen: Screen, number: int, one: FleetPlan, classes: Sequence[HostClass]) -> None:
    plan = one.plan
    indent = " " * (_PLAN + _HOSTS + 4)
    builds = " + ".join(
        f"{b.framework} {b.version} ({f'CUDA {b.cuda}' if b.cuda else 'CPU'})" for b in plan.builds
    )
    cudnn = f", cuDNN {plan.cudnn}" if plan.cudnn else ""
    head = f"{number:<{_PLAN}}  {one.hosts:>{_HOSTS},}  "
    screen.wrapped(f"{builds}{cudnn}, Python {plan.python}, {plan.platform}", indent=indent, first=head)
    for note in plan.notes:
        screen.wrapped(f"note: {note}", indent=f"{indent}    ", first=indent)
    shown = classes if screen.verbose else classes[:_MOST_CLASSES]
    for row in shown:
        screen.wrapped(
            _describe_class(row),
            indent=f"{indent}    ",
            first=f"{'':<{_PLAN}}  {len(row.hosts):>{_HOSTS},}    ",
        )
    if len(classes) > len(shown):
        left = sum(len(c.hosts) for c in classes[len(shown) :])
        more = count(len(classes) - len(shown), "more host class", "more host classes")
        screen.line(f"{'':<{_PLAN}}  {left:>{_HOSTS},}    in {more} (-v lists them)")


def _describe_class(row: HostClass) -> str:
    target = row.target
    boards = ", ".join((g.name or f"GPU {g.capability}").removeprefix("NVIDIA ") for g in target.gpus)
    name = row.id.replace("_", ".")
    driver = f"driver {target.driver}" if target.driver and target.driver not in name else ""
    if target.gpus and not target.driver:
        driver = "no driver given, any is assumed"
    glibc = f"glibc {target.glibc}" if target.glibc and f"glibc{target.glibc}" not in name else ""
    known = ", ".join(filter(None, (boards, driver, glibc)))
    return f"{row.id}{f': {known}' if known else ''} ({name_few(row.hosts)})"
