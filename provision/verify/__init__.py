"""Stage verify: the verdict on an environment, from probes that run inside it.

Stages run in order. The first that fails is the cause, and the later ones are skipped. `driver`, `runtime` and
`cudnn` run in one child without a framework, `libraries` reads files, and `peers` copies between GPUs. `framework`,
`convolution`, `matmul`, `attention` and `loaded` run in one child per framework. If a stage fails, the user's settings
are searched for the culprit. An environment with a lock gets the stage `lock`: its differences from the lock. The
stages `packages` and `checks` are not part of the proof: the commands run them afterwards, and `add_stage` adds them
to the verdict.
"""

from __future__ import annotations

import dataclasses
import re
import resource
import shlex
from collections.abc import Sequence
from pathlib import Path

from ..environment.place import locate_environment
from ..model import (
    CONFIDENCES,
    FRAMEWORKS,
    Emit,
    Event,
    Evidence,
    Finding,
    Lock,
    Outcome,
    StageResult,
    Verdict,
)
from ..system.redaction import clean
from .libraries import read_installed
from .state import (
    Diagnose,
    EarlyProbes,
    Options,
    State,
    check_options,
    device_of,
    run_early_probes,
)

# Imports delay the start of the first child. So the stages are imported later, while the children run.

__all__ = [
    "EarlyProbes",
    "Options",
    "add_stage",
    "check_options",
    "device_of",
    "locate_environment",
    "run_early_probes",
    "verify",
]


def verify(
    early: EarlyProbes,
    options: Options,
    emit: Emit,
    lock: Lock | None,
    *,
    diagnose: Diagnose,
) -> Verdict:
    """Prove the environment of the early probes, or name the layer that is broken.

    `diagnose` finds causes in a text: no stage imports another. Raise UsageError if the environment's Python does not
    start.
    """
    from . import layers

    device, ordinal = device_of(options, lock)
    emit(Event("start", "verify", f"verifying {early.env.path}"))
    paths = early.python_paths.result()
    for problem in paths.problems:
        emit(Event("warning", "verify", problem))
    state = State(
        early=early, env=early.env, options=options, emit=emit, device=device, ordinal=ordinal,
        environ=early.environ, installed=read_installed(paths), diagnose=diagnose, lock=lock,
    )  # fmt: skip
    if options.quick:
        layers.run_layers(state)  # driver, runtime, libraries, cudnn
        if device == "cpu":
            from . import frameworks

            frameworks.import_frameworks(state)
            frameworks.run_frameworks(state)
    else:
        from . import frameworks

        with frameworks.import_early(state):
            layers.run_layers(state)
            layers.run_peers(state)
            frameworks.run_frameworks(state)
            frameworks.show_later_installs(state)
    from .changes import judge_drift, judge_variants

    judge_variants(state)
    judge_drift(state)  # lock
    return make_verdict(state)


# --- the verdict ---------------------------------------------------------------------------------

_PROOFS = ("runtime", "cudnn", "framework", "convolution")
"""The stages that run something of the environment. Without one that passed there is no verdict of success."""


def make_verdict(state: State) -> Verdict:
    """Return the verdict of all stages that ran."""
    lock = state.lock
    outcome: Outcome = "cpu" if state.device == "cpu" else "works"
    if not any(s.stage in _PROOFS and s.status == "pass" for s in state.stages):
        outcome = "unproven"
    if any(_is_bad(s, strict=state.options.strict) for s in state.stages):
        outcome = "wrong" if state.wrong else "fails"
    findings = tuple(_fill_commands(state, f) for f in _merge_causes(_explain_address_limit(state)))
    return Verdict(
        env=state.env.path,
        python=state.env.python,
        verdict=outcome,
        stages=tuple(state.stages),
        frameworks=tuple(state.verdicts),
        findings=findings,
        hint=_make_hint(state, outcome, findings),
        drift=state.drift,
        unhashed=tuple(f"{p.name} {p.version} ({p.url})" for p in lock.packages if p.unhashed)
        if lock
        else (),
        made_for=lock.plan.device if lock else None,
    )


def _is_bad(stage: StageResult, *, strict: bool) -> bool:
    return stage.status == "fail" or (strict and stage.status == "warn")


def add_stage(
    verdict: Verdict, stage: StageResult, findings: Sequence[Finding], emit: Emit, *, strict: bool
) -> Verdict:
    """Return the verdict with one more stage and its findings.

    If the stage failed, the verdict is `fails`, with the fix of that stage. A verdict that was no success does not
    change.
    """
    emit(Event("done", "verify", f"{stage.stage}: {stage.status}: {stage.detail}"))
    whole = dataclasses.replace(verdict, stages=(*verdict.stages, stage))
    if not _is_bad(stage, strict=strict) or verdict.verdict in ("wrong", "fails"):
        return dataclasses.replace(whole, findings=_merge_causes([*verdict.findings, *findings]))
    fix = next((f.fix for f in findings if f.fix), None)
    return dataclasses.replace(
        whole,
        verdict="fails",
        findings=_merge_causes([*findings, *verdict.findings]),
        hint=fix or f"The {stage.stage} stage failed: {stage.detail}.",
    )


def _merge_causes(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return one finding per cause, the surest first, with the evidence of all."""
    causes: dict[str, Finding] = {}
    for finding in sorted(findings, key=lambda f: CONFIDENCES.index(f.confidence)):
        first = causes.setdefault(finding.cause, finding)
        evidence = tuple(dict.fromkeys(first.evidence + finding.evidence))
        causes[finding.cause] = dataclasses.replace(first, evidence=evidence)
    return tuple(causes.values())


def _fill_commands(state: State, finding: Finding) -> Finding:
    """Fill the slots of a fix that make this environment again: `recreate` alone, `create` with its frameworks.

    If gpuenv did not make the environment, they make a new one.
    """
    if "create}" not in (fix := finding.fix or ""):
        return finding
    from ..environment.record import is_of_project

    path, lock = state.env.path, state.lock
    alone = (
        f"gpuenv create {shlex.quote(path)} --recreate" if state.env.made_by_gpuenv else "gpuenv create NEW"
    )
    verified = dict.fromkeys(s.framework for s in state.stages if s.framework in FRAMEWORKS)
    names = [b.framework for b in lock.plan.builds] if lock else verified or ["|".join(FRAMEWORKS)]
    if lock and is_of_project(Path(path)):
        names = []  # its gpuenv.yaml has them, and more
    whole = " ".join((alone, *(f"--framework {name}" for name in names)))
    return dataclasses.replace(finding, fix=fix.replace("{recreate}", alone).replace("{create}", whole))


def _make_hint(state: State, outcome: Outcome, findings: Sequence[Finding]) -> str | None:
    """Return one sentence that says what to do."""
    if outcome in ("works", "cpu"):
        return None
    if findings and findings[0].fix:
        return findings[0].fix
    first = state.failed
    if not state.paths.frameworks and (first.stage == "framework" if first else outcome == "unproven"):
        # Where another tool made the environment, create would refuse its path.
        env = shlex.quote(state.env.path) if state.env.made_by_gpuenv else "NEW"
        if not state.env.made_by_gpuenv and any(Path(state.env.path).glob("lib/python3*/EXTERNALLY-MANAGED")):
            return f"This Python belongs to the system, and pip does not install into it. Create an environment: gpuenv create {env} --framework torch."
        return f"Install a framework in this environment, or create one with a framework: gpuenv create {env} --framework torch."
    if first:
        env = shlex.quote(state.env.path)
        return f"The {first.stage} stage failed: {first.detail}. Run gpuenv diagnose --env {env}."
    if outcome == "unproven":
        return "No code from the environment was run. To test its framework, verify without --quick."
    return "There are only warnings. To accept warnings, verify without --strict."


# --- limits of address space ---------------------------------------------------------------------

_MEMORY_CAUSES = ("gpu_memory_exhausted", "preallocation_leaves_no_memory")
_REFUSED = re.compile(
    r"out of memory|OUT_OF_MEMORY|RESOURCE_EXHAUSTED|MemoryAllocation|MemoryError|bad_alloc|[Cc]annot allocate memory"
    r"(?! in static TLS)|failed to map segment|not enough memory|can't start new thread|[Rr]esource temporarily unavailable|Memory allocation still failed"
)
_ENDED = re.compile(r"ended by SIG(ABRT|SEGV|BUS|KILL|TRAP)")


def _explain_address_limit(state: State) -> list[Finding]:
    """Return the findings. The limit (`ulimit -v`) comes first where a stage failed for lack of memory under it.

    CUDA reserves tens of GiB of addresses that take no memory. Under such a limit a GPU refuses a context although
    all its memory is free, so the limit is the cause. With little free memory of the GPU it is not the only one.
    """
    allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
    failed = state.failed
    if allowed == resource.RLIM_INFINITY or failed is None or state.low_memory is not None:
        return state.findings
    texts = [failed.detail, *(e.text for e in failed.evidence)]
    shown = next((t for t in texts if _REFUSED.search(t)), None)
    ended = next((t for t in texts if _ENDED.search(t)), None)
    if shown is None and (ended is None or state.findings):
        return state.findings
    from ..profiles.wording import make_finding

    finding = make_finding(
        "address_space_limited",
        (
            Evidence(clean(shown or ended or "", 300), failed.stage),
            Evidence(f"RLIMIT_AS is {allowed} bytes", "getrlimit"),
        ),
        confidence="likely" if shown else "possible",
        size=allowed >> 20,
    )
    return [finding, *(f for f in state.findings if f.cause not in _MEMORY_CAUSES)]
