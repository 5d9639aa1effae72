"""Find the fewest plans that serve the hosts of all `--target`, for `resolve`, `lock` and `bundle`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from .. import fleet
from ..config import rows
from ..config.hosts import FleetHosts, read_hosts
from ..config.options import Choices
from ..errors import UsageError
from ..index.places import name_configured
from ..model import Device, Emit, Event, HostClass
from .host_classes_not_served_together import FleetPackages
from .read_request import LOOKING, get_locking, judge_request


def plan_targets(
    targets: Sequence[Path], choices: Choices, emit: Emit, *, reading: bool, packages: FleetPackages
) -> fleet.FleetAnswer:
    """Return the fewest plans for the hosts of all targets. With `reading` no source code runs.

    Raises UsageError, MachineError, DataError, LockError.
    """
    get_locking(choices)
    groups, left_out = read_hosts(targets, choices, rows.load_all(choices), LOOKING)
    for group in groups:
        if not get_locking(group.choices).PLANS_FIRST:
            raise UsageError(
                f"--manager {group.choices.manager}: several targets are supported only with --manager venv",
                hint="give one --target, or --manager venv",
            )
    classes = _classes(groups)
    if len(targets) and sum(len(c.hosts) for _, members in classes for c in members) > 1:
        count = sum(len(members) for _, members in classes)
        words = "all hosts are alike" if count == 1 else f"the hosts are of {count} kinds"
        emit(Event(kind="note", stage="resolve", text=f"{words} (platform, glibc, driver and GPUs)"))
    parts = [part for group, members in classes for part in _parts(group, members, emit, reading=reading)]
    named = any(part.request.request.packages or part.request.demands.needs for part in parts)
    answer = fleet.plan_fleet(parts, packages.plan, left_out, packages if named else None)
    if named:
        count = sum(answer.question_counts)
        text = f"packages: {count} sets of hosts solved, at most {fleet.MOST_QUESTIONS} for a platform and device"
        emit(Event(kind="done", stage="resolve", text=text))
    plans = tuple(
        dataclasses.replace(p, plan=name_configured(p.plan, r.sources, r.demands.needs))
        for p, r in zip(answer.fleet.plans, answer.requests, strict=True)
    )
    return dataclasses.replace(answer, fleet=dataclasses.replace(answer.fleet, plans=plans))


def _classes(groups: Sequence[FleetHosts]) -> list[tuple[Choices, tuple[HostClass, ...]]]:
    """Return the classes of each group of options. Their ids are unique in all groups."""
    grouped = [(group.choices, fleet.group(group.hosts)) for group in groups]
    if len(grouped) < 2:
        return grouped
    return [
        (choices, tuple(dataclasses.replace(c, id=f"{c.id}-{number}") for c in classes))
        for number, (choices, classes) in enumerate(grouped, 1)
    ]


def _parts(
    choices: Choices, classes: Sequence[HostClass], emit: Emit, *, reading: bool
) -> list[fleet.HostGroup]:
    """Group the classes by platform and device, each group with its request."""
    kinds: dict[tuple[str, Device], list[HostClass]] = {}
    for one in classes:
        kinds.setdefault((one.target.platform, one.device), []).append(one)
    parts = []
    for (_, device), members in kinds.items():
        group_choices = dataclasses.replace(choices, planned=members[0].target, target=None, device=device)
        context = judge_request(group_choices, emit, reading=reading)
        parts.append(fleet.HostGroup(context, tuple(members)))
    return parts
