"""Read where a text is from, once before any rule: system, container and its command line, manager, program, and what
the user can change.

Signs, launchers and programs are tables of profiles/failures.yaml. What is found is added to the facts, each with its
line, so that rules and fixes name it in their conditions ("container=podman").
"""

from __future__ import annotations

from collections.abc import Iterable

from ..model import FRAMEWORKS, ContextValue, Evidence, KnownProgram
from .lines import package_of, read_frame
from .rules import Case, compile_pattern, normalize

SHOWN = ("program", "framework", "torch", "tensorflow", "jax", "onnxruntime", "cuda_build", "cuda", "driver_cuda", "driver",
         "gpu", "capability", "system", "distribution", "container", "launch", "gpu_flag", "manager", "owner", "cluster",
         "python")  # fmt: skip
"""The context that --json shows, in this order. The versions of other packages follow."""
_WIDTH = 400  # characters of a launch command


def add_signs(case: Case) -> None:
    """Add what the text says of its program and of its place to the facts."""
    facts = case.facts
    for system in ("wsl", "windows", "macos"):
        if facts.holds(f"os={system}") and not facts.all("system"):
            facts.add("system", system, facts.where("os")[0])
    for row in case.profiles.signs:
        name, _, value = row.sign.partition("=")
        if facts.all(name) or any(map(case.said, row.lacks)):
            continue
        if shown := case.messages.find(row.says):
            facts.add(name, value, shown[0])
            if row.pip and not facts.all("pip"):
                facts.add("pip", row.pip, shown[0])
    _read_launch(case)
    for program in list_programs(case):
        where = case.messages.find(program.says)
        kind = "framework" if program.program in FRAMEWORKS else "program"
        if where and not facts.all(kind):
            facts.add(kind, program.program, where[0])
    for program in list_programs(case):
        if program.uses and not facts.all("framework"):
            facts.add("framework", program.uses, case.messages.find(program.says)[0])
    machine = case.circumstances.machine
    if machine and machine.context.container and not facts.all("container"):
        facts.add("container", machine.context.container, Evidence("a container", "machine"))


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
        text = text[:_WIDTH].strip().rstrip("`")
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
    packages = sorted(case.facts.packages.difference(SHOWN))
    return tuple(
        ContextValue(name=name, value=fact.value, evidence=fact.evidence)
        for name in (*SHOWN, *packages)
        for fact in seen.get(name, ())[:1]
    )
