"""Show verdicts, findings and machines as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..model import TO_CHECK
from ..system.redaction import clean
from .terminal import Screen

if TYPE_CHECKING:
    from ..model import (
        Evidence,
        Finding,
        Findings,
        Machine,
        NodeVerdict,
        RunResult,
        StageResult,
        VariantProperties,
        Verdict,
    )

_COLOUR = {"pass": "green", "warn": "yellow", "fail": "red", "skip": "dim"}
_OUTCOME = {
    "works": ("green", "works"),
    "unproven": ("yellow", "unproven: no code from the environment was run"),
    "wrong": ("red", "wrong: computed with wrong results"),
    "fails": ("red", "fails"),
}
_COLUMN = 33  # where what a stage says begins
_SHOWN = 3


def show_verdict(screen: Screen, verdict: Verdict) -> None:
    """Show stages, findings, verdict and hint."""
    for stages in _group_skipped(verdict.stages, whole=screen.verbose):
        if len(stages) > 1:
            _show_skipped(screen, stages)
        else:
            _show_stage(screen, stages[0], verdict.findings)
    for finding in verdict.findings:
        show_finding(screen, finding)
    if screen.verbose:
        _show_libraries(screen, verdict)
    for one in verdict.unhashed:
        screen.wrapped(one, indent="    ", first="  without a hash: ")
    colour, words = (
        ("green", _describe_cpu(verdict)) if verdict.verdict == "cpu" else _OUTCOME[verdict.verdict]
    )
    fits = screen.last_only or len(f"verdict: {words}  ({verdict.env})") <= screen.width()
    screen.line(screen.colour(f"verdict: {words}", colour) + (f"  ({verdict.env})" if fits else ""))
    if not fits:
        screen.line(f"  ({verdict.env})")
    if verdict.hint and verdict.hint not in [finding.fix for finding in verdict.findings]:
        screen.wrapped(verdict.hint, indent="  ")


def show_node(screen: Screen, node: NodeVerdict) -> None:
    """Show one line, for schedulers; with --verbose the stages before it."""
    if screen.verbose and node.verdict:
        for stage in node.verdict.stages:
            _show_stage(screen, stage)
    screen.line(node.text)


def _describe_cpu(verdict: Verdict) -> str:
    """Return what works on the CPU: "jax 0.12.0 works on the CPU (15 checks); no GPU was tested"."""
    names = [f"{f.name} {f.version}" for f in verdict.frameworks if f.version]
    checks = sum(len(device.results) for f in verdict.frameworks for device in f.devices)
    subject = f"{' and '.join(names)} work{'s' if len(names) == 1 else ''}" if names else "works"
    if names and not checks:
        return f"{' and '.join(names)} can be imported on the CPU; nothing was computed"
    return f"{subject} on the CPU{f' ({checks} checks)' if checks else ''}; no GPU was tested"


def _group_skipped(stages: Sequence[StageResult], *, whole: bool) -> list[list[StageResult]]:
    """Return the stages in groups. Neighbours that were skipped for one reason are one group, unless `whole`."""
    groups: list[list[StageResult]] = []
    for stage in stages:
        before = groups[-1][-1] if groups else None
        same = before and before.status == stage.status == "skip" and before.detail == stage.detail
        if same and not whole:
            groups[-1].append(stage)
        else:
            groups.append([stage])
    return groups


def _show_skipped(screen: Screen, stages: Sequence[StageResult]) -> None:
    """Show stages that were skipped for one reason: their names, or where these have no room the first and last."""
    names = list(dict.fromkeys(stage.stage for stage in stages))
    text = f"{', '.join(names)}: {stages[0].detail}"
    if len(text) + 8 > screen.width():
        text = f"{names[0]} to {names[-1]}: {stages[0].detail}"
    first, *rest = screen.fold(text, indent=" " * 8, first=" " * 8)
    screen.line(f"  {screen.colour('skip', _COLOUR['skip'])}  {first.strip()}")
    for row in rest:
        screen.line(row)


def _show_stage(screen: Screen, stage: StageResult, findings: Sequence[Finding] = ()) -> None:
    """Show a stage with its evidence, but for what one of the findings shows too."""
    mark = screen.colour(stage.status.ljust(4), _COLOUR[stage.status])
    about = " ".join(x for x in (stage.stage, stage.framework) if x)
    rows = screen.fold(stage.detail, indent=" " * _COLUMN)
    if len(about) > _COLUMN - 10:  # no room for a gap
        screen.line(f"  {mark}  {about}")
    else:
        screen.line(f"  {mark}  {about.ljust(_COLUMN - 8)}{rows.pop(0).strip()}")
    for row in rows:
        screen.line(row)
    if stage.status in ("fail", "warn") or screen.verbose:
        shown = {item for finding in findings for item in finding.evidence}
        for item in stage.evidence:
            if item in shown:
                continue
            screen.wrapped(item.text + _cite(item), indent=" " * (_COLUMN + 2), first=" " * _COLUMN + "> ")


def show_finding(screen: Screen, finding: Finding) -> None:
    """Show a cause, its evidence, and the fix."""
    head = screen.colour(finding.cause, "bold")
    screen.line(f"  {head} ({finding.confidence})")
    screen.wrapped(finding.title, indent="    ")
    for item in finding.evidence:
        if item.source == TO_CHECK:
            screen.wrapped(item.text, indent="      ", first="    ")
            continue
        text = (item.source or "") if item.text == finding.title else item.text + _cite(item)
        screen.wrapped(text, indent="      ", first="    > ")
    if finding.fix:
        screen.wrapped(f"fix: {finding.fix}", indent="    ")


def _cite(item: Evidence) -> str:
    """Return the source of an evidence: "  [train.log:7]"."""
    line = f":{item.line}" if item.line else ""
    return f"  [{item.source}{line}]" if item.source else ""


def _show_libraries(screen: Screen, verdict: Verdict) -> None:
    for framework in verdict.frameworks:
        for library in framework.libraries:
            place = "inside" if library.inside else "OUTSIDE"
            owner = library.owner or "no package"
            screen.line(f"  {library.soname} {library.version or '?'} {place}, {owner}: {library.path}")


def show_findings(screen: Screen, result: Findings) -> None:
    """Show the causes, the likeliest first. Without any the command has said so."""
    if result.findings:
        _show_causes(screen, result.findings)


def _show_causes(screen: Screen, findings: Sequence[Finding]) -> None:
    """Show the first finding with its evidence. For the others, show the deciding check, or their fix."""
    show_finding(screen, findings[0])
    if len(findings) > 1:
        screen.line("  other possible causes:")
    for finding in findings[1:]:
        title = f"{finding.cause} ({finding.confidence}): {finding.title}"
        screen.wrapped(title, indent="      ", first="    - ")
        decides = next((e.text for e in finding.evidence if e.source == TO_CHECK), None)
        if last := decides or (f"fix: {finding.fix}" if finding.fix else None):
            screen.wrapped(last, indent="        ", first="      ")


def show_run(screen: Screen, ran: RunResult) -> None:
    """Show the likeliest causes of a failure, if there are any."""
    if not ran.findings:
        return
    how = ran.signal or f"exit code {ran.code}"
    sentence = (
        "gpuenv: --require-gpu:"
        if ran.findings[0].cause == "gpu_not_used"
        else f"gpuenv: {ran.command[0]} failed ({how}); gpuenv diagnose says:"
    )
    screen.say(sentence, always=True)
    errors = Screen(environ=screen.environ, out=screen.err, err=screen.err)
    _show_causes(errors, ran.findings[:_SHOWN])


def show_properties(screen: Screen, properties: VariantProperties) -> None:
    """Show each property in one line."""
    for text in properties.properties:
        screen.line(text)


_LONG = 160  # container images carry driver requirements of thousands of letters


def show_machine(screen: Screen, machine: Machine) -> None:
    """Show each fact in one line, then the findings."""
    target, driver = machine.target, machine.driver
    glibc = f", glibc {target.glibc}" if target.glibc else ""
    screen.line(f"platform   {target.platform}{glibc}")
    if driver.problem:
        explained = any(finding.title == driver.problem for finding in machine.findings)
        problem = "no working driver (see below)" if explained else driver.problem
        screen.line("driver     " + screen.colour(problem, "red"))
    elif driver.library:
        speaks = f", supports CUDA {driver.cuda}" if driver.cuda else ""
        screen.line(f"driver     {driver.library}{speaks} (from {driver.source})")
    else:
        screen.line("driver     none")
    for gpu in machine.gpus:
        memory = f", {gpu.memory_mib} MiB" if gpu.memory_mib else ""
        mig = f", {len(gpu.mig)} MIG devices" if gpu.mig else ""
        screen.line(f"GPU {gpu.index}      {gpu.name or 'unknown'}, capability {gpu.capability}{memory}{mig}")
    context = machine.context
    words = [w for w, on in (("WSL", context.wsl), ("Colab", context.colab)) if on]
    words += [f"container ({context.container})"] if context.container else []
    words += [f"Slurm {context.slurm}"] if context.slurm else []
    if words:
        screen.line(f"context    {', '.join(words)}")
    for device in machine.hardware:
        screen.line(f"hardware   {device.vendor} {device.device or ''} at {device.address}")
    for python in machine.pythons:
        screen.line(f"Python     {python.version}  {python.path}")
    for library in machine.libraries:
        screen.line(f"library    {library.soname} {library.version or ''}  {library.path}")
    for name, value in machine.environment.items():
        text = clean(f"variable   {name}={value}")
        screen.line(text if len(text) <= _LONG or screen.verbose else text[:_LONG] + " ...")
    for finding in machine.findings:
        show_finding(screen, finding)
