"""Writes the text of an issue: gpuenv, the machine and an environment, without personal data.

It reads no files. The text is Markdown with fenced sections, so that no content is interpreted as markup."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from ..model import (
    Evidence,
    Finding,
    IssueReport,
    Lock,
    Machine,
    Plan,
    RejectedBuild,
    StageResult,
    Verdict,
    is_stack_package,
    normalize_name,
)
from ..model.values import dataclass
from ..system.redaction import clean
from .anonymize import PersonalData, anonymize_text

__all__ = ["PersonalData", "ReportFacts", "write_report"]

# In addition to the stack: conda packages with parts of it, and numeric libraries of frameworks
_LIBRARIES = re.compile(
    r"pytorch.*|triton.*|tensorflow.*|tf-.*|jax.*|libtorch|numpy|"
    r"cuda-.*|cudnn|libcu.*|libnv.*|nccl|ml-dtypes|mkl|libblas"
)
_LINES, _LONG = 12, 400


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportFacts:
    """The facts of a report. `sources` are the package sources, `problems` the unreadable files.

    What checks printed is part of the report only with `include_checks`.
    """

    gpuenv: str
    python: str
    machine: Machine
    when: str
    env: str | None = None
    ours: bool = True
    plan: Plan | None = None
    lock: Lock | None = None
    verdict: Verdict | None = None
    verified: str | None = None
    sources: tuple[str, ...] = ()
    include_checks: bool = False
    problems: tuple[str, ...] = ()


def write_report(facts: ReportFacts, personal: PersonalData) -> IssueReport:
    """Return the anonymized report, with a count of hidden items by kind."""
    text, counts = anonymize_text(_render(facts), personal)
    return IssueReport(gpuenv=facts.gpuenv, text=text, hidden=counts)


def _render(facts: ReportFacts) -> str:
    """Return the text before anonymization."""
    parts = [("Machine", list(_format_machine(facts.machine)))]
    variables = [f"{k}={v}" for k, v in facts.machine.environment.items()]
    parts += [("Variables", variables), ("Where packages come from", list(facts.sources))]
    parts += [("Environment", list(_format_environment(facts)))]
    if facts.lock:
        parts.append(("Locked packages", list(_format_packages(facts.lock))))
    if facts.verdict:
        verdict = facts.verdict if facts.include_checks else _omit_check_output(facts.verdict)
        when = f" ({facts.verified})" if facts.verified else ""
        said = "works on the CPU" if verdict.verdict == "cpu" else verdict.verdict
        parts.append((f"Last verdict{when}: {said}", list(_format_verdict(verdict))))
    if facts.problems:
        parts.append(("Could not be read", list(facts.problems)))
    head = f"gpuenv {facts.gpuenv}, Python {facts.python}, {facts.when}"
    return "\n".join([head, "", *(_format_section(title, rows) for title, rows in parts if rows)])


def _format_section(title: str, rows: list[str]) -> str:
    body = "\n".join(_format_line(row) for row in rows)
    return f"### {title}\n\n```text\n{body}\n```\n"


def _format_line(text: str) -> str:
    """Return one line of limited length that cannot end the fence."""
    text = clean(text).replace("\n", " ").replace("```", "'''")
    return text if len(text) <= _LONG else text[:_LONG] + " ..."


def _format_machine(machine: Machine) -> Iterator[str]:
    target, driver, context = machine.target, machine.driver, machine.context
    yield f"platform  {target.platform}, glibc {target.glibc or 'unknown'}"
    if driver.library or driver.kernel_module:
        yield (
            f"driver    {driver.library or 'unknown'}, kernel module {driver.kernel_module or 'unknown'}, supports CUDA "
            f"{driver.cuda or 'unknown'}, read from {driver.source}"
        )
    elif not driver.problem:
        yield "driver    none"
    if driver.libcuda:
        yield f"libcuda   {driver.libcuda}"
    if driver.problem:
        yield f"problem   {driver.problem}"
    for gpu in machine.gpus:
        mig = f", MIG {' '.join(gpu.mig)}" if gpu.mig else ""
        yield f"GPU {gpu.index}     {gpu.name}, capability {gpu.capability}, {gpu.memory_mib} MiB, {gpu.uuid}{mig}"
    contexts = [context.container, "WSL" if context.wsl else None, "Colab" if context.colab else None]
    contexts += [f"Slurm {context.slurm}" if context.slurm else None]
    if any(contexts):
        yield f"context   {', '.join(x for x in contexts if x)}"
    for device in machine.hardware:
        yield f"hardware  {device.vendor} {device.device or ''} at {device.address}"
    for python in machine.pythons:
        yield f"Python    {python.version} ({python.source}) {python.path}"
    for library in machine.libraries:
        yield f"library   {library.soname} {library.version or ''} {library.path}"
    for finding in machine.findings:
        yield from _format_finding(finding)


def _format_environment(facts: ReportFacts) -> Iterator[str]:
    if facts.env is None:
        yield "no environment: .venv is missing"
        return
    yield f"path      {facts.env}" + ("" if facts.ours else " (not made by gpuenv)")
    plan = facts.plan
    if plan is None:
        return
    request = f"{plan.manager}, device {plan.device}, Python {plan.python}, {plan.platform}"
    yield f"made with {request}"
    for build in plan.builds:
        of = f"CUDA {build.cuda}, cuDNN {build.cudnn or 'none'}" if build.cuda else "CPU build"
        yield f"build     {build.framework} {build.version}, {of}, from {build.index}"
    target = plan.target
    gpus = ", ".join(f"{g.name or 'GPU'} ({g.capability})" for g in target.gpus) or "any GPU"
    if plan.device == "cuda":
        yield f"made for  driver {target.driver or 'any'}, {gpus}"
    for note in plan.notes:
        yield f"note      {note}"
    newest: dict[str, RejectedBuild] = {}
    for row in plan.rejected:
        if row.reasons and row.reasons[0].code != "not_requested":
            newest.setdefault(row.framework, row)
    for row in newest.values():
        yield f"not       {row.framework} {row.version} ({row.index}): {row.reasons[0].text}"


def _is_relevant(name: str) -> bool:
    return is_stack_package(name) or _LIBRARIES.fullmatch(name) is not None


def _format_packages(lock: Lock) -> Iterator[str]:
    main = sorted((p.name, p.version) for p in lock.packages if _is_relevant(normalize_name(p.name)))
    yield from (f"{name} {version}" for name, version in main)
    yield f"and {len(lock.packages) - len(main)} more"


def _format_verdict(verdict: Verdict) -> Iterator[str]:
    for stage in verdict.stages:
        yield from _format_stage(stage)
    for framework in verdict.frameworks:
        if framework.cuda:
            built, loaded = framework.cudnn_built or "none", framework.cudnn_loaded or "none"
            yield f"{framework.name} {framework.version}: CUDA {framework.cuda}, built for cuDNN {built}, loaded cuDNN {loaded}"
        for library in framework.libraries:
            if library.inside is False:
                yield f"  from outside the environment: {library.soname} {library.version or ''} {library.path}"
    for finding in verdict.findings:
        yield from _format_finding(finding)


def _omit_check_output(verdict: Verdict) -> Verdict:
    """Return a verdict without what checks printed: their programs may print anything."""
    labels = [check.label for check in verdict.checks]
    failed = ", ".join(check.label for check in verdict.checks if check.status == "fail")
    stages = [
        replace(s, evidence=(), detail=f"failed: {failed}; --include-checks adds the output" if s.status == "fail" else s.detail)
        if s.stage == "checks" else s
        for s in verdict.stages
    ]  # fmt: skip
    findings = [
        replace(f, evidence=tuple(e for e in f.evidence if e.source not in labels)) for f in verdict.findings
    ]
    return replace(verdict, stages=tuple(stages), findings=tuple(findings))


def _format_stage(stage: StageResult) -> Iterator[str]:
    name = " ".join(x for x in (stage.stage, stage.framework, stage.device) if x)
    yield f"{stage.status.ljust(4)}  {name.ljust(28)}  {stage.detail}"
    if stage.status in ("fail", "warn"):
        yield from _format_evidence(stage.evidence)


def _format_finding(finding: Finding) -> Iterator[str]:
    yield f"finding   {finding.cause} ({finding.confidence}): {finding.title}"
    yield from _format_evidence(finding.evidence)


def _format_evidence(evidence: tuple[Evidence, ...]) -> Iterator[str]:
    for item in evidence[:_LINES]:
        where = f"  [{item.source}{':' + str(item.line) if item.line else ''}]" if item.source else ""
        yield f"      > {item.text}{where}"
    if len(evidence) > _LINES:
        yield f"      > and {len(evidence) - _LINES} more"
