"""What is known beside a text: the machine, the environment and the program of a failure, as far as a text is of them.

The text comes first. Facts of the environment and of the machine complete it, unless it names another version,
another driver, or paths of another environment.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from ..model import (
    ContextValue,
    Device,
    Evidence,
    Finding,
    GpuMemoryHolder,
    Machine,
    Plan,
    Profiles,
    Request,
    Target,
    Verdict,
)
from ..model.values import Value
from .facts import Facts
from .lines import Line

_DECIDING = ("torch", "tensorflow", "jax", "jaxlib", "python", "cuda_build")
_PACKAGES = (*_DECIDING[:4], "torchvision", "torchaudio", "numpy", "onnxruntime", "onnxruntime-gpu", "ctranslate2",
             "triton", "xformers", "flash-attn", "jax-cuda12-plugin", "jax-cuda13-plugin")  # fmt: skip
_RUNTIME = re.compile(r"nvidia-cuda-runtime(?:-cu1\d)?")
_CUDNN = re.compile(r"nvidia-cudnn-cu1\d|cudnn")
_PREFIX = re.compile(r"((?:/[^/\s\"':]{1,100}){1,30}?)/lib(?:64)?/python3\.\d{1,2}/(?:site|dist)-packages")
_SHOWN = 4
_NO_GPU_HERE = ("driver_missing", "driver_module_not_loaded", "container_without_gpu", "wsl_driver_missing")


class Ran(Value):
    """The end of a program that gpuenv ran, and its environment. None means unknown. All sizes are in bytes.

    `signal` is the signal that ended it; 128 + n of a shell counts too. `oom_kills` counts the processes that
    the kernel killed when memory ran out, and `oom_source` names the counter. `address_space` and `open_files`
    are its limits, or None. `memory` is that of the machine or its container.

    `files_of` returns the installed package ("numpy 2.1.0") that lists the files of a module. `own_module`
    returns the path of a module in the project. `has_module` returns whether the environment has a module.
    """

    signal: str | None = None
    oom_kills: int | None = None
    oom_source: str | None = None
    address_space: int | None = None
    open_files: int | None = None
    memory: int | None = None
    made_by_gpuenv: bool = False
    files_of: Callable[[str], str | None] = lambda _: None
    own_module: Callable[[str], str | None] = lambda _: None
    has_module: Callable[[str], bool] = lambda _: False


class Installed(Value):
    """The environment at `path`: the versions of its distributions, its Python, and the device it was made for.

    `made_by_gpuenv` is true if gpuenv made it. `why` says what names the environment.
    """

    path: str
    why: str
    versions: Mapping[str, str] = field(default_factory=dict)
    python: str | None = None
    device: Device | None = None
    made_by_gpuenv: bool = False


class Circumstances(Value):
    """The machine, the environment and the program of a failure, as far as they are known.

    `here` is true if the program ran on `machine` just now, `is_named` if the user named the machine of the texts.
    `device` is that of the environment: with "cpu", no cause requires a GPU. `holders` lists the processes that use
    the memory of the machine's GPUs; it is called only if they matter. `installed` is the environment that the texts
    are probably from.

    `advise` is `resolve`, which makes plans for fixes with versions: no stage imports another.
    """

    advise: Callable[[Request, Target, Profiles], Plan] | None = None
    machine: Machine | None = None
    verdict: Verdict | None = None
    here: bool = False
    is_named: bool = False
    device: Device | None = None
    holders: Callable[[], Sequence[GpuMemoryHolder]] | None = None
    ran: Ran | None = None
    installed: Installed | None = None

    @property
    def is_of_machine(self) -> bool:
        """Whether the texts are of `machine`, so that its facts prove causes."""
        return self.here or self.is_named


class Diagnosis(Value):
    """The findings of a text, the likeliest first, and notes that are no findings.

    `crash` describes a crash without a finding, with the next command. `environment` names the environment that was read,
    or why it was not used. `elsewhere` says that this machine's driver works, against the first finding of a log.
    `context` is what the texts say of their program and place.
    """

    findings: tuple[Finding, ...] = ()
    crash: str | None = None
    environment: str | None = None
    elsewhere: str | None = None
    context: tuple[ContextValue, ...] = ()


# --- the environment ---------------------------------------------------------------------------


def find_environment(
    installed: Installed | None, lines: Sequence[Line], facts: Facts
) -> tuple[Facts, Device | None, str | None]:
    """Return the facts in the files of the environment if the text can be of it, its device, and a note of that or why not.

    The device is returned only if the text has paths of the environment, because "cpu" excludes causes.
    """
    files = _read_files(installed) if installed and lines else Facts()
    if installed is None or not files.seen:
        return Facts(), None, None
    path = Path(installed.path)
    folders = {f"{path.as_posix()}/lib" for path in (path, path.resolve())}  # a path can hold blanks
    is_named = any(folder in x.text for x in lines for folder in folders)
    if reason := _find_contradiction(files, lines, facts, is_named):
        return Facts(), None, f"{installed.path} was not used: {reason}"
    named = dict.fromkeys(f[0].evidence.text for n, f in files.seen.items() if n in (*_DECIDING, "cudnn"))
    note = (
        f"versions missing from the log were read in {installed.path} ({installed.why}): "
        f"{', '.join([*named][:_SHOWN])}; to verify that environment: gpuenv diagnose --env {shlex.quote(installed.path)}"
    )
    return files, installed.device if is_named else None, note


def _read_files(installed: Installed) -> Facts:
    """Return the facts in the files of an environment."""
    facts = Facts()
    # The runtime's package comes last, because the framework's own label says more.
    for name, version in sorted(
        installed.versions.items(), key=lambda item: bool(_RUNTIME.fullmatch(item[0]))
    ):
        where = Evidence(f"{name} {version}", installed.path)
        if name in _PACKAGES:
            public, _, local = version.partition("+")
            facts.add_package(name, public, local, where)
        elif _CUDNN.fullmatch(name):
            facts.add("cudnn", ".".join(version.split(".")[:3]), where)
        elif _RUNTIME.fullmatch(name) and not facts.seen.keys() & {"cuda_build", "cpu_build"}:
            facts.add("cuda_build", ".".join(version.split(".")[:2]), where)
    if installed.python and facts.seen:
        where = Evidence(f"Python {installed.python}", installed.path)
        facts.add("python", installed.python, where)
    if installed.made_by_gpuenv and facts.seen:
        facts.add("made", "gpuenv", Evidence("made by gpuenv", installed.path))
    return facts


def _find_contradiction(files: Facts, lines: Sequence[Line], facts: Facts, is_named: bool) -> str | None:
    """Return why a text is not of an environment."""
    prefixes = (m for x in lines if "-packages" in x.text for m in _PREFIX.finditer(x.text))
    if not is_named and (prefix := next(prefixes, None)):
        return f"the log has paths of {prefix[1]}"
    if other := next((os for os in ("windows", "macos") if os in facts.all("os")), None):
        return f"the log is from {other}"
    for name in _DECIDING:
        stated, has = facts.all(name), files.first(name)
        # a stated version may be shortened: 2.4
        same = any(f"{has or ''}.".startswith(f"{v.partition('+')[0]}.") for v in stated)
        if stated and (has or name in _PACKAGES) and not same:
            there = f"the environment has {has}" if has else "the environment does not have it"
            return f"the log names {name.replace('_', ' ')} {stated[0]}, {there}"
    return None


def add_environment(facts: Facts, files: Facts) -> tuple[Evidence, ...]:
    """Add the environment's facts that the text does not name. Return their evidence."""
    known = set(facts.seen)
    if known & {"cpu_build", "cuda_build", "kernels"}:
        known |= {"cpu_build", "cuda_build"}
    missing = {name: values[0] for name, values in files.seen.items() if name not in known}
    for name, fact in missing.items():
        facts.add(name, fact.value, fact.evidence)
    return tuple(dict.fromkeys(fact.evidence for fact in missing.values()))


def add_circumstances(facts: Facts, circumstances: Circumstances) -> None:
    """Add whose the environment is, and what the kernel counted while the program ran."""
    ran, environment = circumstances.ran, Evidence("the environment", "gpuenv")
    if ran and ran.oom_kills is not None:
        text = f"the kernel's out-of-memory counter (oom_kill) rose by {ran.oom_kills}"
        facts.add("oom_kills", str(ran.oom_kills), Evidence(text, ran.oom_source))
    if ran or circumstances.verdict or circumstances.device:
        facts.add("owner", "environment", environment)
    if ran and ran.made_by_gpuenv:
        facts.add("made", "gpuenv", environment)


# --- the machine -------------------------------------------------------------------------------


def add_machine(facts: Facts, machine: Machine | None) -> tuple[Evidence, ...]:
    """Add the machine's driver and GPU if the text names none. Return their evidence.

    Different GPUs add nothing, nor does a machine with another driver or GPU than the text's.
    """
    driver = facts.first("driver")
    if machine is None or (driver and driver != machine.target.driver):
        return ()
    named = any(map(facts.first, ("capability", "board_capability", "gpu")))
    shown = []
    if machine.target.driver and not driver and not named and not facts.first("driver_cuda"):
        shown.append(Evidence(f"driver {machine.target.driver}", "machine"))
        facts.add("driver", machine.target.driver, shown[0])
    gpus = machine.target.gpus
    if len({g.capability for g in gpus}) == 1 and not named:
        gpu = gpus[0]
        shown.append(Evidence(f"{gpu.name or 'GPU'} ({gpu.capability})", "machine"))
        facts.add("capability", gpu.capability, shown[-1])
        if gpu.name:
            facts.add("gpu", gpu.name, shown[-1])
    return tuple(shown)


def find_contradicted(facts: Facts, machine: Machine | None) -> set[str]:
    """Return causes that this machine contradicts, because its driver lists GPUs."""
    works = machine and machine.target.driver and machine.gpus and not machine.findings
    another = machine and facts.first("driver") not in (None, machine.target.driver)
    return set(_NO_GPU_HERE) if works and not another else set()


def say_that_driver_works(cause: str, facts: Facts, machine: Machine | None) -> str | None:
    """Return a note if the driver of this machine works, so that a log with this cause is not of its current state."""
    if machine is None or cause not in find_contradicted(facts, machine):
        return None
    names = ", ".join(dict.fromkeys(gpu.name or "a GPU" for gpu in machine.gpus))
    return (
        f"on this machine driver {machine.target.driver} works, with {names}. So the log is from another machine or "
        "container, or from before a change here"
    )
