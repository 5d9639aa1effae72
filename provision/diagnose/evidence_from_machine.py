"""Use the machine to complete, contradict or prove what a text shows."""

from __future__ import annotations

import re

from ..model import Evidence, Machine
from .candidates import Case, CauseCandidate
from .facts import Facts

_NO_GPU = ("no_cuda_gpus", "no_device", "sees_no_gpu", "bad_ordinal")


def machine_facts(facts: Facts, machine: Machine | None) -> tuple[Evidence, ...]:
    """Add the machine's driver and GPU if the text names none. Return their evidence.

    Different GPUs add nothing, nor does a machine with another driver or GPU than the text's.
    """
    driver = facts.first("driver")
    if machine is None or (driver and driver != machine.target.driver):
        return ()
    named = any(map(facts.first, ("capability", "board_capability", "gpu")))
    shown = []
    if machine.target.driver and not driver and not named and not facts.first("driver_cuda"):
        shown.append(Evidence(text=f"driver {machine.target.driver}", source="machine"))
        facts.add("driver", machine.target.driver, shown[0])
    gpus = machine.target.gpus
    if len({g.capability for g in gpus}) == 1 and not named:
        gpu = gpus[0]
        shown.append(Evidence(text=f"{gpu.name or 'GPU'} ({gpu.capability})", source="machine"))
        facts.add("capability", gpu.capability, shown[-1])
        if gpu.name:
            facts.add("gpu", gpu.name, shown[-1])
    return tuple(shown)


_NO_GPU_HERE = frozenset(
    ("driver_missing", "driver_module_not_loaded", "container_without_gpu", "wsl_driver_missing")
)


def contradicted(facts: Facts, machine: Machine | None) -> set[str]:
    """Return causes that this machine contradicts, because its driver lists GPUs."""
    works = machine and machine.target.driver and machine.gpus and not machine.findings
    another = machine and facts.first("driver") not in (None, machine.target.driver)
    return set(_NO_GPU_HERE) if works and not another else set()


def say_that_driver_works(cause: str, facts: Facts, machine: Machine | None) -> str | None:
    """Return a note if the driver of this machine works, so that a log with this cause is not of its current state."""
    if machine is None or cause not in contradicted(facts, machine):
        return None
    names = ", ".join(dict.fromkeys(gpu.name or "a GPU" for gpu in machine.gpus))
    return (
        f"on this machine driver {machine.target.driver} works, with {names}. So the log is from another machine or "
        "container, or from before a change here"
    )


def hidden_gpus(case: Case, machine: Machine | None) -> list[CauseCandidate]:
    """Find a CUDA_VISIBLE_DEVICES that names no GPU of this machine, and a program without a GPU."""
    visible = machine.environment.get("CUDA_VISIBLE_DEVICES") if machine else None
    shows = next((found for name in _NO_GPU if (found := case.said.group(name))), ())
    if machine is None or visible is None or not shows or not machine.gpus or _is_named(visible, machine):
        return []
    where = Evidence(text=f"CUDA_VISIBLE_DEVICES={visible}", source="environment")
    return [
        CauseCandidate(
            cause="visible_devices_invalid", weight=96, confidence="certain", evidence=(*shows[:1], where),
            title=f"CUDA_VISIBLE_DEVICES={visible!r} names none of the {len(machine.gpus)} GPUs of this machine",
            fix="`unset CUDA_VISIBLE_DEVICES`, or name GPUs that `nvidia-smi -L` lists, such as `0` or `0,1`.",
        )
    ]  # fmt: skip


def _is_named(visible: str, machine: Machine) -> bool:
    """Return whether the first entry, which decides, is a GPU here. A UUID may be a MIG device's."""
    first = visible.split(",", maxsplit=1)[0].strip()
    if re.fullmatch(r"\d{1,9}", first):
        return int(first) < len(machine.gpus)
    return first.startswith(("GPU-", "MIG-"))
