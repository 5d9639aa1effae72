"""Find versions for a fix: the build that resolve chooses for the driver and GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..model import FRAMEWORKS, FrameworkRequest, Machine, Plan, Request, Target, TargetGpu
from .candidates import Case, CauseCandidate
from .judge_machine import cuda_built, floor_of

_HELPS = frozenset(
    (
        "driver_too_old_for_runtime", "forward_compat_unsupported_hw", "cpu_only_build", "no_gpu_build_for_platform",
        "arch_not_in_wheel_too_new", "arch_dropped_too_old", "framework_bug_upgrade", "cuda_major_mismatch",
        "nvidia_libs_not_installed", "cudnn_not_found", "cudnn_major_mismatch", "cudnn_older_than_compiled",
    )
)  # fmt: skip


def advice(
    leading: Sequence[CauseCandidate],
    case: Case,
    advise: Callable[[Request, Target], Plan] | None,
    machine: Machine | None,
) -> dict[str, str]:
    """Return values for the leading finding's fix.

    `floor` is the oldest driver for the build's CUDA, `advice` a command with versions. The others are
    `cudnn_package`, `cudnn_upgrade` and `release`.
    """
    values: dict[str, str] = {}
    built = cuda_built(case)
    if built and (floor := floor_of(case, built)):
        values["floor"] = floor
    if built:
        values["cudnn_package"] = f"cu{built.split('.')[0]}"
    wanted = case.facts.first("cudnn_built")
    if wanted:
        package = f"nvidia-cudnn-{values.get('cudnn_package', 'cu12')}"
        which = "" if built else " (-cu11 for a build for CUDA 11)"
        above = int(wanted.split(".", maxsplit=1)[0]) + 1
        values["cudnn_upgrade"] = f"`pip install -U '{package}>={wanted},<{above}'`{which}"
    framework = next((n for n in FRAMEWORKS if case.facts.first(n)), None)
    if framework:
        values["release"] = f"{framework} {case.facts.first(framework)}"
    if advise and leading and leading[0].cause in _HELPS:
        target = target_of(case, machine)
        words = (
            _make_command_advice(framework or _find_spoken_framework(case), target, advise)
            if target.driver or target.gpus
            else None
        )
        if words:
            values["advice"] = words
    return values


def target_of(case: Case, machine: Machine | None) -> Target:
    """Return the target of the text: its driver and GPUs, otherwise those of this machine."""
    facts = case.facts
    driver = facts.first("driver")
    capability = facts.first("capability") or facts.first("board_capability")
    known = {g.capability for g in case.profiles.gpus}
    gpus = (
        (TargetGpu(capability=capability, name=facts.first("gpu")),)
        if capability in known and capability
        else ()
    )
    same = not gpus or (machine and {capability} == {g.capability for g in machine.target.gpus})
    if machine and (driver is None or machine.target.driver == driver) and same:
        return machine.target
    windows = facts.holds("os=windows") or facts.holds("os=wsl")
    native = facts.holds("os=windows") and not facts.holds("os=wsl")
    return Target(
        platform="windows-x86_64" if native else "linux-x86_64",
        glibc=None if native else facts.first("glibc") or "2.35",
        driver=driver,
        driver_os="windows" if windows else "linux",
        gpus=gpus,
    )


def _find_spoken_framework(case: Case) -> str:
    """Return the framework that the text names most, otherwise the one that prints its messages."""
    lines = [line.text.lower() for line in case.said.lines]
    named = {name: sum(name in line for line in lines) for name in FRAMEWORKS}
    most = max(named, key=lambda name: named[name])
    if named[most]:
        return most
    messages = (
        ("tensorflow", "imports_tensorflow"),
        ("tensorflow", "dnn_handle"),
        ("tensorflow", "loaded_older"),
    )
    return next((name for name, words in messages if case.said.group(words)), "torch")


def _make_command_advice(
    framework: str, target: Target, advise: Callable[[Request, Target], Plan]
) -> str | None:
    """Return advice such as "Driver 535.129.03 supports torch 2.10.0 for CUDA 12.8: `gpuenv create --framework 'torch==2.10.*'`."""
    plan = advise(Request(frameworks=(FrameworkRequest(name=framework),), device="cuda"), target)
    if not plan.builds:
        return (
            f"No GPU build of {framework} supports this machine (`gpuenv resolve`: {plan.hint})."
            if plan.hint
            else None
        )
    build = plan.builds[0]
    minor = ".".join(build.version.split(".")[:2])
    whose = [f"driver {target.driver}"] if target.driver else []
    whose += [f"a {g.name or 'GPU'} ({g.capability})" for g in target.gpus[:1]]
    subject = " with ".join(whose)
    return (
        f"{subject[:1].upper() + subject[1:]} supports {framework} {build.version} for CUDA {build.cuda}. "
        f"To install it: `gpuenv create --framework '{framework}=={minor}.*'`."
    )
