"""The GPUs and the driver that an environment's processes report, compared with those that gpuenv reads.

A process of the environment can report what it likes. gpuenv reads the machine in a process of its own, so a GPU that
only the environment reports is none of this machine.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from ..model import Driver, Evidence, Finding, Machine
from . import layers
from .judged import Judged, failing

CONTRADICTED = "contradicts_machine"
"""The cause where an environment reports hardware that this machine does not have."""
_FIX = (
    "Do not trust this environment: build it again with gpuenv create --recreate. If it is your own, look for a "
    "changed Python or framework, a sitecustomize, or another libcuda on the loader's path."
)


def of_driver(saw: Mapping[str, Any], machine: Machine) -> Judged | None:
    """A failure where stage 1 reports other GPUs or another driver than gpuenv reads; None where they agree."""
    uuids = [d["uuid"] for d in saw.get("devices", ())] + list(saw.get("mig", ()))
    return _unknown("the environment's Python", uuids, machine) or _other_driver(saw, machine.driver)


def of_framework(name: str, saw: Mapping[str, Any], machine: Machine) -> Judged | None:
    """A failure where a framework reports GPUs that gpuenv does not read. JAX and TensorFlow report no UUIDs."""
    return _unknown(name, [d["uuid"] for d in saw.get("devices", ()) if d["uuid"]], machine)


def _unknown(who: str, uuids: Collection[str], machine: Machine) -> Judged | None:
    known = {_digits(u) for g in machine.gpus for u in (g.uuid, *g.mig) if u}
    unread = sum(g.uuid is None for g in machine.gpus)  # GPUs that gpuenv may not ask
    strange = [u for u in dict.fromkeys(uuids) if _digits(u) not in known]
    if len(strange) <= unread:
        return None
    read = ", ".join(str(g.uuid) for g in machine.gpus) or machine.driver.problem or "no GPU"
    return _contradicted(
        f"{who} reports the GPU {strange[0]}, which is not one of this machine", ", ".join(strange), read
    )


def _digits(uuid: str) -> str:
    """The number itself: CUDA and NVML write one prefix or another. A MIG device of drivers before R470 is named by
    its card."""
    found = re.search(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", uuid.lower())
    return found.group(0) if found else uuid


def _other_driver(saw: Mapping[str, Any], driver: Driver) -> Judged | None:
    """A kernel module or libcuda of another version. A cuda-compat libcuda is of another version on purpose."""
    module, library = saw.get("kernel_module"), layers.libcuda_version(saw)
    if (driver.kernel_module or module) and module != (driver.kernel_module or driver.library):
        return _differs(f"the kernel module {module or 'not at all'}", driver)
    compat = any("compat" in (path or "") for path in (saw.get("libcuda"), driver.libcuda))
    if library and driver.library and library not in (driver.library, driver.kernel_module) and not compat:
        return _differs(f"libcuda {library}", driver)
    return None


def _differs(reported: str, driver: Driver) -> Judged:
    read = driver.kernel_module or driver.library or "none"
    return _contradicted(
        f"the environment's Python reports {reported}; this machine's driver is {read}",
        reported,
        f"driver {read}",
    )


def _contradicted(title: str, reported: str, read: str) -> Judged:
    return failing(
        Finding(
            cause=CONTRADICTED,
            title=title[0].upper() + title[1:],
            evidence=(
                Evidence(text=reported, source="reported"),
                Evidence(text=read, source="read by gpuenv"),
            ),
            fix=_FIX,
            confidence="certain",
        )
    )
