"""Group hosts into classes. Hosts of one class are alike for every plan."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable

from ..model import FleetHost, HostClass, Target, TargetGpu
from ..system.versions import version

_MOST_LETTERS = 56
"""Letters of an id, without the number of duplicate ids."""


def group_hosts(hosts: Iterable[FleetHost]) -> tuple[HostClass, ...]:
    """Return the classes, most hosts first. The order of the hosts changes nothing."""
    read: dict[
        tuple[int, str], list[FleetHost]
    ] = {}  # readers return equal targets as one object, and comparing ids is faster
    for host in hosts:
        read.setdefault((id(host.target), host.device), []).append(host)
    by_target: dict[tuple[Target, str], list[FleetHost]] = {}
    for members in read.values():
        by_target.setdefault((_strip_gpu_names(members[0].target), members[0].device), []).extend(members)
    ordered = sorted(by_target.items(), key=lambda item: (-len(item[1]), repr(item[0])))
    ids = _ids([key for key, _ in ordered])
    return tuple(
        HostClass(
            id=name, target=_add_gpu_names(key[0], members), device=members[0].device,
            hosts=tuple(sorted(h.name for h in members)),
        )
        for name, (key, members) in zip(ids, ordered, strict=True)
    )  # fmt: skip


def count_hosts(classes: Iterable[HostClass]) -> int:
    """Return the number of hosts of some classes."""
    return sum(len(c.hosts) for c in classes)


def is_same_class(one: Target, other: Target) -> bool:
    """Return whether no plan can tell two targets apart."""
    return _strip_gpu_names(one) == _strip_gpu_names(other)


def _strip_gpu_names(target: Target) -> Target:
    """Return the target without the number, order and names of its GPUs."""
    gpus = tuple(TargetGpu(capability=c) for c in sorted({g.capability for g in target.gpus}, key=version))
    return dataclasses.replace(target, gpus=gpus, forward_compat=target.allowed_compat)


def _add_gpu_names(target: Target, members: Iterable[FleetHost]) -> Target:
    """Return the target with the alphabetically first board name of each capability."""
    names: dict[str, str] = {}
    for seen in {id(m.target): m.target.gpus for m in members}.values():
        for gpu in seen:
            if gpu.name:
                names[gpu.capability] = min(gpu.name, names.get(gpu.capability, gpu.name))
    gpus = tuple(dataclasses.replace(g, name=names.get(g.capability)) for g in target.gpus)
    return dataclasses.replace(target, gpus=gpus)


def _ids(keys: list[tuple[Target, str]]) -> list[str]:
    """Return a short id for each class, usable in a file name: "sm80-sm90-r535".

    The full driver, glibc and a number are added only to distinguish ids.
    """
    names = [_name(target, device, driver_parts=1) for target, device in keys]
    for parts, with_glibc in ((4, False), (4, True)):
        seen = Counter(names)
        names = [
            name if seen[name] == 1 else _name(target, device, driver_parts=parts, with_glibc=with_glibc)
            for name, (target, device) in zip(names, keys, strict=True)
        ]
    seen, used = Counter(names), Counter[str]()
    for i, name in enumerate(names):
        if seen[name] > 1:
            used[name] += 1
            names[i] = f"{name}-{used[name]}"
    return names


def _name(target: Target, device: str, *, driver_parts: int, with_glibc: bool = False) -> str:
    place = target.platform.removeprefix("linux-").removeprefix("x86_64")
    boards = [f"sm{g.capability.replace('.', '')}" for g in target.gpus][:6]
    words = [place, *(boards if device == "cuda" else ["cpu"])]
    if target.driver and device == "cuda":
        words.append("r" + ".".join(target.driver.split(".")[:driver_parts]))
    if target.driver_os == "windows" and not place:
        words.append("wsl")
    if with_glibc and target.glibc:
        words.append(f"glibc{target.glibc}")
    # PEP 751 allows no dot in the name of a lock, which has the id.
    name = "-".join(re.sub(r"[^a-z0-9_]+", "-", w.lower().replace(".", "_")) for w in words if w)
    return name.strip("-_")[:_MOST_LETTERS] or "any"


def joint_target(targets: Iterable[Target]) -> Target:
    """Return one target for many: the oldest driver and glibc, and all capabilities."""
    every = list(targets)
    gpus = {g.capability: g for t in reversed(every) for g in t.gpus}
    drivers = [t.driver for t in every if t.driver]
    oldest = min(drivers, key=version) if drivers else None
    base = next((t for t in every if t.driver == oldest), every[0])
    glibcs = [t.glibc for t in every if t.glibc]
    return dataclasses.replace(
        base, glibc=min(glibcs, key=version) if glibcs else None,
        gpus=tuple(gpus[c] for c in sorted(gpus, key=version)),
    )  # fmt: skip
