"""The target that options describe: a machine's file, or a driver, GPUs and a platform."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from .. import detect
from ..errors import ResolveError, UsageError
from ..model import (
    PLATFORMS,
    Device,
    Machine,
    Profiles,
    Target,
    TargetGpu,
    from_plain,
)
from ..resolve.boards import find_gpu
from ..system import trust
from ..system.versions import has_prefix, minor, version
from .options import HOW_TO_DESCRIBE, HOW_TO_LIST, Choices, get_cache_dir
from .rows import load

_DEFAULT_GLIBC = "2.35"
_PARTS_OF_DRIVER = 3
"""The numbers of a whole driver version on Linux ("580.65.06"). The first releases of a branch may have two."""
T = TypeVar("T")


def described_target(c: Choices) -> Target | None:
    """Return the target that the options describe, or None if they mean this machine. Raises UsageError."""
    return read_request_target(c, load(c))[1] if c.elsewhere else None


def read_request_target(c: Choices, data: Profiles) -> tuple[Machine | None, Target]:
    """Return this machine if the options mean it, and the target. Raises UsageError, ResolveError."""
    if c.planned:
        return None, c.planned
    if c.gpus and c.elsewhere:
        raise UsageError(
            "--gpus is for GPUs of this machine; the other options describe another machine",
            hint="leave --gpus out",
        )
    if c.target:
        target = read_target(c.target)
        _check_target(c, target)
        return None, complete(target, data)
    here = detect.detect(()).target
    elsewhere = c.platform is not None and c.platform != here.platform
    if c.driver or c.gpu or elsewhere:
        return None, complete(_make_target(c, data, here), data)
    parts = detect.MACHINE if c.device != "cpu" else {"environment"}
    machine = detect.detect(parts | (set() if c.python else {"pythons"}), cache=get_cache_dir(c))
    _refuse_other_systems(machine)
    target = machine.target
    if c.glibc:
        target = dataclasses.replace(target, glibc=c.glibc)
    if c.gpus:
        target = dataclasses.replace(target, gpus=_pick_gpus(c.gpus, target.gpus))
    return machine, target


def _check_target(c: Choices, target: Target) -> None:
    """Raise UsageError if an option conflicts with the file of --target."""
    for name in ("driver", "driver_os", "platform", "glibc"):
        option_value, described = getattr(c, name), getattr(target, name)
        if option_value is not None and option_value != described:
            raise UsageError(
                f"--{name.replace('_', '-')} {option_value} conflicts with --target {c.target}, which has {described or 'no value for it'}",
                hint="leave one of them out, or change the file",
            )
    if c.gpu:
        raise UsageError(
            f"--gpu {c.gpu[0]}: --target {c.target} already lists the GPUs",
            hint="leave one of them out, or change the file",
        )


def _make_target(c: Choices, data: Profiles, here: Target) -> Target:
    """Return a target from options alone. Drivers and GPUs of this machine are not used."""
    platform = c.platform or here.platform
    if platform not in PLATFORMS:
        raise UsageError(
            f"this machine is {platform}, and no platform of the target is given",
            hint=f"--platform {'|'.join(PLATFORMS)}",
        )
    try:
        gpus = tuple(find_gpu(name, data.gpus) for name in c.gpu)
    except ValueError as error:
        raise UsageError(f"--gpu: {error}", hint="`gpuenv profiles show gpus` lists the names") from error
    system = c.driver_os or ("windows" if platform.startswith("windows") else "linux")
    return Target(platform=platform, glibc=c.glibc, driver=c.driver, driver_os=system, gpus=gpus)


def complete(target: Target, data: Profiles) -> Target:
    """Return the target with what a user leaves out: the glibc of a Linux machine, and the driver's whole version.

    The glibc that is assumed is that of this machine, and another one for another platform. A driver that was given as
    a branch ("580") or cut ("580.65") is the first release of that branch that the profile `drivers` has: the oldest
    one for data center and desktop that supports the branch's CUDA. A branch without a release there stays as it is,
    because no build needs a release within it.
    """
    if target.glibc is None and target.platform.startswith("linux"):
        here = detect.detect(()).target
        glibc = here.glibc if here.platform == target.platform else _DEFAULT_GLIBC
        target = dataclasses.replace(target, glibc=glibc)
    driver = target.driver
    if driver is None or driver.count(".") >= _PARTS_OF_DRIVER - 1:
        return target
    windows = (target.driver_os or target.platform).startswith("windows")
    releases = data.list_driver_floors(windows=windows)
    begun = [release for release in releases if release != driver and has_prefix(release, driver)]
    if driver in releases or not begun:
        return target
    return dataclasses.replace(target, driver=min(begun, key=version), driver_branch=driver)


def _pick_gpus(text: str, gpus: tuple[TargetGpu, ...]) -> tuple[TargetGpu, ...]:
    indexes = [int(i) for i in text.split(",")]
    beyond = [i for i in indexes if i >= len(gpus)]
    if beyond:
        raise UsageError(f"--gpus {text}: this machine has no GPU {beyond[0]} (it has {len(gpus)})")
    return tuple(gpus[i] for i in dict.fromkeys(indexes))


def _refuse_other_systems(machine: Machine) -> None:
    if machine.target.platform not in PLATFORMS:
        title = next((f.title for f in machine.findings if f.cause == "no_gpu_build_for_platform"), None)
        raise ResolveError(
            title or f"no framework build is known for {machine.target.platform}",
            hint="plan for another machine with resolve or lock: --platform, --driver, --gpu or --target",
        )


def read_target(path: Path) -> Target:
    """Return the target in the JSON of `gpuenv detect` or of a target. Raises UsageError."""

    def read(data: Any) -> Target:
        if isinstance(data, dict) and data.get("schema") == Machine.SCHEMA:
            return from_plain(Machine, data).target
        return from_plain(Target, data)

    return read_json("target", path, read)


def read_json(option: str, path: Path, read: Callable[[Any], T]) -> T:
    """Return the value that `read` makes of an option's JSON file. Raises UsageError."""
    try:
        return read(json.loads(trust.read_project(path)))
    except OSError as error:
        raise UsageError(f"--{option} {path}: {error.strerror}", hint=HOW_TO_DESCRIBE) from error
    except json.JSONDecodeError as error:
        raise UsageError(f"--{option} {path} is not JSON (line {error.lineno})", hint=HOW_TO_LIST) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"--{option} {path} is not a valid {option} file: {error}", hint=HOW_TO_DESCRIBE
        ) from error


def choose_device(c: Choices, machine: Machine | None, target: Target) -> tuple[Device, str]:
    """Return the device ("cuda" or "cpu") and the reason in one sentence. Raises MachineError."""
    if machine is not None:
        return detect.judge_device(cast("Device", c.device), machine)
    described = None
    if c.target and c.device == "auto" and not c.planned:
        described = read_json("target", c.target, lambda d: d if d.get("schema") == Machine.SCHEMA else None)
    return choose_described_device(c.device, target, described)


def choose_described_device(
    wanted: str, target: Target, machine: dict[str, Any] | None
) -> tuple[Device, str]:
    """Return the device of a target and the reason. `machine` is its document where that is a machine's.

    A broken NVIDIA driver never gets the CPU. Raises MachineError, and ValueError for an invalid document.
    """
    if wanted != "auto":
        return "cpu" if wanted == "cpu" else "cuda", f"--device {wanted} was asked for"
    driver = machine and machine.get("driver")
    is_broken = isinstance(driver, dict) and driver.get("problem")
    if machine and (is_broken or not (target.driver and target.gpus)):
        return detect.judge_device("auto", from_plain(Machine, machine))
    if target.driver or target.gpus:
        return "cuda", "the target has a driver or GPUs"
    return "cpu", "The target names no driver and no GPU"


# --- Pythons ---------------------------------------------------------------------------------


def get_minor_version(python: str | None) -> str | None:
    """Return the minor version of a Python ("3.11", free-threaded "3.14t"), or None for None."""
    if not python:
        return None
    return minor(python.rstrip("t")) + "t" * python.endswith("t")


def list_pythons(c: Choices, machine: Machine | None, target: Target) -> tuple[str, ...]:
    """Return the installed minor versions of Python: gpuenv's own first, then the newest.

    They also count for another machine of this platform: a login node builds for its compute nodes on a
    shared disk.
    """
    if c.python:
        return ()
    if machine is None and target.platform != detect.detect(()).target.platform:
        return ()
    pythons = machine.pythons if machine else detect.list_pythons(get_cache_dir(c))
    running = f"{sys.version_info[0]}.{sys.version_info[1]}"
    minors = {get_minor_version(p.version) or "" for p in pythons}
    return tuple(sorted(minors, key=lambda m: (m != running, -int(m.split(".")[1]))))
