"""Shows the plans of a fleet as text: a table of 80 columns, and why there is not one plan."""

from __future__ import annotations

from collections.abc import Sequence

from ..model import Fleet, FleetLocks, FleetPlan, HostClass, format_bytes
from ..system.redaction import clean
from .plan import show_pip, show_plan
from .terminal_output import Screen

_MOST_CLASSES = 8
_PLAN, _HOSTS = 4, 7


def show_fleet(screen: Screen, fleet: Fleet, *, explain: bool = False) -> None:
    """Show the plans with their classes, the reasons against one plan, and the hosts without a plan."""
    hosts = sum(len(c.hosts) for c in fleet.classes) + sum(1 for u in fleet.unserved if u.host)
    screen.line(
        f"{_count(hosts, 'host')}, {_count(len(fleet.classes), 'class')}, "
        f"{_count(len(fleet.plans), 'plan')}{_describe_proof(fleet)}"
    )
    by_id = {c.id: c for c in fleet.classes}
    if fleet.plans:
        screen.line(f"{'PLAN':<{_PLAN}}  {'HOSTS':>{_HOSTS}}  BUILDS AND HOST CLASSES")
    for number, plan in enumerate(fleet.plans, 1):
        _show_plan(screen, number, plan, [by_id[i] for i in plan.classes])
        if explain:
            show_plan(screen, plan.plan, explain=True)
        else:
            show_pip(screen, plan.plan)
    for pair in fleet.apart:
        one, other = (p + 1 for p in pair.plans)
        screen.wrapped(f"plans {one} and {other}: {pair.reason}", indent="    ", first="")
        if pair.would_merge:
            screen.wrapped(f"to merge these plans: {pair.would_merge}", indent="    ", first="  ")
    for missing in fleet.unserved:
        more = (
            f" and {len(missing.classes) - 1} more similar host classes" if len(missing.classes) > 1 else ""
        )
        name = missing.host or f"{missing.classes[0]}{more} ({_count(missing.hosts, 'host')})"
        screen.wrapped(
            f"{screen.colour('no plan', 'red')} for {name}: {missing.reason}", indent="    ", first=""
        )
        if missing.hint:
            screen.wrapped(f"possible fix: {missing.hint}", indent="    ", first="  ")


def show_fleet_locks(screen: Screen, result: FleetLocks) -> None:
    """Show the plans, then the file of each."""
    show_fleet(screen, result.fleet)
    for one in result.locks:
        total = sum(p.size or 0 for p in one.lock.packages)
        known = f", {format_bytes(total)} to download" if total else ""
        screen.line(f"plan {one.plan + 1}: {clean(one.file)}  {len(one.lock.packages)} packages{known}")


def _describe_proof(fleet: Fleet) -> str:
    if len(fleet.plans) < 2:
        return ""
    return " (this is the minimum)" if fleet.exact else f" (at least {fleet.at_least} are needed)"


def _show_plan(screen: Screen, number: int, one: FleetPlan, classes: Sequence[HostClass]) -> None:
    plan = one.plan
    indent = " " * (_PLAN + _HOSTS + 4)
    builds = " + ".join(
        f"{b.framework} {b.version} ({f'CUDA {b.cuda}' if b.cuda else 'CPU'})" for b in plan.builds
    )
    cudnn = f", cuDNN {plan.cudnn}" if plan.cudnn else ""
    head = f"{number:<{_PLAN}}  {one.hosts:>{_HOSTS},}  "
    screen.wrapped(f"{builds}{cudnn}, Python {plan.python}, {plan.platform}", indent=indent, first=head)
    shown = classes if screen.verbose else classes[:_MOST_CLASSES]
    for row in shown:
        screen.wrapped(
            _format_words(row),
            indent=f"{indent}    ",
            first=f"{'':<{_PLAN}}  {len(row.hosts):>{_HOSTS},}    ",
        )
    if len(classes) > len(shown):
        left = sum(len(c.hosts) for c in classes[len(shown) :])
        more = _count(len(classes) - len(shown), "more host class", "more host classes")
        screen.line(f"{'':<{_PLAN}}  {left:>{_HOSTS},}    in {more} (-v lists them)")


def _format_words(row: HostClass) -> str:
    target = row.target
    boards = ", ".join((g.name or f"GPU {g.capability}").removeprefix("NVIDIA ") for g in target.gpus)
    driver = f"driver {target.driver}" if target.driver and target.driver not in row.id else ""
    glibc = f"glibc {target.glibc}" if target.glibc and f"glibc{target.glibc}" not in row.id else ""
    known = ", ".join(filter(None, (boards, driver, glibc)))
    return f"{row.id}: {known}" if known else row.id


def _count(number: int, word: str, several: str = "") -> str:
    plural = several or f"{word}{'es' if word.endswith('s') else 's'}"
    return f"{number:,} {word if number == 1 else plural}"
