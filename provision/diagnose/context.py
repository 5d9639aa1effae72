"""Complete the facts of a text: where it is from, and what the environment and the machine know beside it.

The text comes first. Signs, launchers and programs are tables of profiles/failures.yaml; what they find is a fact with its
line, so that rules and fixes name it in their conditions ("container=podman"). Facts of the environment and of the machine
are added unless the text names another version, another driver, or paths of another environment.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from ..model import FRAMEWORKS, ContextValue, Device, Evidence, KnownProgram, Profiles
from ..system.versions import minor
from .case import Case, Circumstances, Installed
from .facts import Facts, read_facts
from .lines import Line, package_of, read_frame
from .messages import compile_pattern, drop_messages, normalize


def read_case(
    lines: Sequence[Line], profiles: Profiles, circumstances: Circumstances
) -> tuple[Case, str | None]:
    """Return the case of some lines with all its facts, and a note on the environment that was read."""
    facts = read_facts(lines, profiles.gpus)
    files, device, note = _find_environment(circumstances.installed, lines, facts)
    machine, device = circumstances.machine, circumstances.device or device
    if device == "cpu":
        lines = drop_messages(lines, profiles, "notices_without_gpu")
        facts = read_facts(lines, profiles.gpus)
        machine = machine and replace(machine, gpus=(), target=replace(machine.target, gpus=()))
    circumstances = replace(circumstances, machine=machine, device=device)
    case = Case(lines=lines, facts=facts, profiles=profiles, circumstances=circumstances)
    _add_owner(facts, circumstances)
    add_signs(case)
    case.added.update((*_add_machine(case), *_add_environment(facts, files)))
    return case, note


# --- the program and the place of a text -----------------------------------------------------------

_CONTEXT = ("program", "framework", "torch", "tensorflow", "jax", "onnxruntime", "cuda_build", "cuda", "driver_cuda", "driver",
         "gpu", "capability", "system", "distribution", "container", "launch", "gpu_flag", "manager", "owner", "cluster",
         "python")  # fmt: skip
"""The context that --json shows, in this order. The versions of other packages follow."""
_LAUNCH = 400  # characters of a command that starts a program elsewhere


def add_signs(case: Case) -> None:
    """Add what the text says of its program and of its place to the facts."""
    facts = case.facts
    for system in ("wsl", "windows", "macos"):
        if facts.holds(f"os={system}") and not facts.all("system"):
            facts.add("system", system, facts.find_lines("os")[0])
    for row in case.profiles.signs:
        name, _, value = row.sign.partition("=")
        if facts.all(name) or any(map(case.find_message, row.lacks)):
            continue
        if shown := case.messages.find(row.says):
            facts.add(name, value, shown[0])
            if row.pip and not facts.all("pip"):
                facts.add("pip", row.pip, shown[0])
    _read_launch(case)
    programs = [
        (known, lines[0]) for known in list_programs(case) if (lines := case.messages.find(known.says))
    ]
    for program, where in programs:
        kind = "framework" if program.program in FRAMEWORKS else "program"
        if not facts.all(kind):
            facts.add(kind, program.program, where)
    for program, where in programs:
        if program.uses and not facts.all("framework"):
            facts.add("framework", program.uses, where)


def _read_launch(case: Case) -> None:
    """Add the first command that starts a program elsewhere, and whether it gives the GPU."""
    for i, line in enumerate(case.lines):
        low = line.text.lower()
        row = next((r for r in case.profiles.launchers if f"{r.command} " in low), None)
        if row is None:
            continue
        text = line.text[low.index(row.command) :]
        if "nvidia-docker" in low:
            text = f"nvidia-{text}"
        for following in case.lines[i + 1 : i + 12]:
            if not text.rstrip().endswith("\\"):
                break
            text = f"{text.rstrip()[:-1].rstrip()} {following.text.strip()}"
        text = text[:_LAUNCH].strip().rstrip("`")
        given = any(flag.lower() in text.lower() for flag in row.flags)
        case.facts.add("launch", text, line.evidence)
        case.facts.add("gpu_flag", "yes" if given else "no", line.evidence)
        if not given:
            case.facts.add("launch_fixed", f"{row.command} {row.gives} ...", line.evidence)
        return


def list_programs(case: Case, evidence: Iterable[Evidence] = ()) -> list[KnownProgram]:
    """Return the programs of a text: those that the evidence names, those of the last traceback, then the others."""
    rows = case.profiles.programs
    lines = [normalize(e.text) for e in evidence]
    named = [r for r in rows if any(compile_pattern(p).found(low) for p in r.says for low in lines)]
    frames = [read_frame(line.text) for line in reversed(case.lines) if "File" in line.text]
    modules = [m for frame in frames if frame and (m := package_of(frame[0]))]
    traced = [r for m in dict.fromkeys(modules) for r in rows if m in r.modules]
    others = [r for r in rows if case.messages.find(r.says)]
    return [*{r.program: r for r in (*named, *traced, *others)}.values()]


def list_context(case: Case) -> tuple[ContextValue, ...]:
    """Return the context as values with their lines."""
    seen = case.facts.seen
    packages = sorted(case.facts.packages.difference(_CONTEXT))
    return tuple(
        ContextValue(name=name, value=fact.value, evidence=fact.evidence)
        for name in (*_CONTEXT, *packages)
        for fact in seen.get(name, ())[:1]
    )


# --- the environment ---------------------------------------------------------------------------


_DECIDING = ("torch", "tensorflow", "jax", "jaxlib", "python", "cuda_build")
_PACKAGES = (*_DECIDING[:4], "torchvision", "torchaudio", "numpy", "onnxruntime", "onnxruntime-gpu", "ctranslate2",
             "triton", "xformers", "flash-attn", "jax-cuda12-plugin", "jax-cuda13-plugin")  # fmt: skip
_RUNTIME = re.compile(r"nvidia-cuda-runtime(?:-cu1\d)?")
_CUDNN = re.compile(r"nvidia-cudnn-cu1\d|cudnn")
_PREFIX = re.compile(r"((?:/[^/\s\"':]{1,100}){1,30}?)/lib(?:64)?/python3\.\d{1,2}/(?:site|dist)-packages")
_SHOWN = 4
_NO_GPU_HERE = ("driver_missing", "driver_module_not_loaded", "container_without_gpu", "wsl_driver_missing")


def _find_environment(
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
            facts.add("cuda_build", minor(version), where)
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


def _add_environment(facts: Facts, files: Facts) -> tuple[Evidence, ...]:
    """Add the environment's facts that the text does not name. Return their evidence."""
    known = set(facts.seen)
    if known & {"cpu_build", "cuda_build", "kernels"}:
        known |= {"cpu_build", "cuda_build"}
    missing = {name: values[0] for name, values in files.seen.items() if name not in known}
    for name, fact in missing.items():
        facts.add(name, fact.value, fact.evidence)
    return tuple(dict.fromkeys(fact.evidence for fact in missing.values()))


def _add_owner(facts: Facts, circumstances: Circumstances) -> None:
    """Add whose the environment is, and what the kernel counted while the program ran."""
    ran, environment = circumstances.ran, Evidence("the environment", "gpuenv")
    if ran and ran.oom_kills is not None:
        text = f"the kernel's out-of-memory counter (oom_kill) rose by {ran.oom_kills} while the program ran"
        facts.add("oom_kills", str(ran.oom_kills), Evidence(text, ran.oom_source))
    if ran or circumstances.verdict or circumstances.device:
        facts.add("owner", "environment", environment)
    if ran and ran.made_by_gpuenv:
        facts.add("made", "gpuenv", environment)


# --- the machine -------------------------------------------------------------------------------


def _add_machine(case: Case) -> list[Evidence]:
    """Add the machine's container, driver and GPU if the text names none. Return their evidence.

    Different GPUs add nothing, nor does a machine with another driver or GPU than the text's.
    """
    facts, machine, shown = case.facts, case.circumstances.machine, list[Evidence]()
    if machine is None or case.names_other_driver():
        return shown
    if machine.context.container and facts.first("container") in (None, "other"):
        shown.append(Evidence("a container", "machine"))
        kind = machine.context.container.replace(
            "apptainer", "singularity"
        )  # its older name is that of the rows
        facts.add("container", kind, shown[0])
    if not case.lines:
        return shown
    driver = facts.first("driver")
    named = case.capability or facts.first("gpu")
    if machine.target.driver and not driver and not named and not facts.first("driver_cuda"):
        shown.append(Evidence(f"driver {machine.target.driver}", "machine"))
        facts.add("driver", machine.target.driver, shown[-1])
    gpus = machine.target.gpus
    if len({g.capability for g in gpus}) == 1 and not named:
        gpu = gpus[0]
        shown.append(Evidence(f"{gpu.name or 'GPU'} ({gpu.capability})", "machine"))
        facts.add("capability", gpu.capability, shown[-1])
        if gpu.name:
            facts.add("gpu", gpu.name, shown[-1])
    return shown


def find_contradicted(case: Case) -> Collection[str]:
    """Return causes that this machine contradicts, because its driver lists GPUs."""
    machine = case.circumstances.machine
    works = machine and machine.target.driver and machine.gpus and not machine.findings
    return _NO_GPU_HERE if works and not case.names_other_driver() else ()


def describe_elsewhere(cause: str, case: Case) -> str | None:
    """Return a note if the environment or the driver works here, although the text shows a failure with this cause."""
    machine, verdict = case.circumstances.machine, case.circumstances.verdict
    if not case.lines:
        return None
    if verdict and verdict.verdict == "works":
        return (
            f"{verdict.env} works here now. So the log is from another environment or machine, from before a change, or "
            "from a program that changes something itself"
        )
    if machine is None or case.circumstances.is_of_machine or cause not in find_contradicted(case):
        return None
    names = ", ".join(dict.fromkeys(gpu.name or "a GPU" for gpu in machine.gpus))
    return (
        f"on this machine driver {machine.target.driver} works, with {names}. So the log is from another machine or "
        "container, or from before a change here"
    )
