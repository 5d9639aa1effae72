"""Stage checks: runs the imports and commands that a project or a command line asks for.

Each runs in its own child, after all other stages. The built-in check `compile` is torch.compile of a small function.
It also names what torch.compile misses on the system.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ..model import Check, CheckResult, Emit, Environment, Event, Evidence, Finding, StageResult, Verdict
from ..model.values import Value
from ..system import process
from ..system.process import foreground
from ..system.redaction import clean, clean_line
from ..system.scratch import make_scratch
from . import add_stage
from .compilers import Lack, find_compiler, find_headers
from .probe import run_probe

STAGE = "checks"
_LINES = 8
_SEARCHED = 100  # lines in which the error is searched
_LONGEST = 500  # characters of a line that is shown


class PlacedCheck(Value):
    """A check and its working directory. None means an empty folder."""

    check: Check
    folder: Path | None


class CheckOutcome(Value):
    """How a check ended: its result, its output, and the system tools that it misses.

    `before` is the kernel's count of killed processes at the start of the check.
    """

    result: CheckResult
    placed: PlacedCheck
    before: foreground.OomKills
    finished: process.Finished | None = None
    missing: tuple[Lack, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def text(self) -> str:
        """The output of the check, standard error last."""
        return f"{self.finished.stdout}\n{self.finished.stderr}" if self.finished else ""


def run_checks(
    env: Environment,
    placed: Sequence[PlacedCheck],
    environ: Mapping[str, str],
    emit: Emit,
    *,
    timeout: float,
    device: str,
) -> tuple[CheckOutcome, ...]:
    """Run checks one after another, with the variables `environ`. `timeout` is in seconds, for checks without one.
    `device` is the one that `compile` compiles for."""
    ended = []
    for number, one in enumerate(placed, 1):
        text = f"{STAGE}: {one.check.label} ({number} of {len(placed)})"
        emit(Event("progress", "verify", text))
        ended.append(_run(env, one, environ, one.check.timeout or timeout, device))
    return tuple(ended)


def _run(
    env: Environment, placed: PlacedCheck, environ: Mapping[str, str], timeout: float, device: str
) -> CheckOutcome:
    check, start, before = placed.check, time.perf_counter(), foreground.oom_kills()
    missing: tuple[Lack, ...] = ()
    finished, seconds, detail = None, None, "passed"
    try:
        if check.kind == "compile":
            finished, passed, missing, problem = _run_compile(env, device, environ, timeout)
        else:
            with make_scratch("check") as scratch:
                empty = scratch / "empty"
                empty.mkdir()
                finished = process.run(
                    make_command(env, check), env=environ, cwd=placed.folder or empty, timeout=timeout, leaves_nothing=True,
                )  # fmt: skip
            passed, problem = finished.ok, ""
    except OSError as error:
        passed, detail = False, f"{error.filename}: {error.strerror}" if error.filename else str(error)
    else:
        seconds = round(time.perf_counter() - start, 3)
        detail = detail if passed else problem or _describe_ending(finished, timeout)
    ended = finished if finished and not finished.timed_out else None
    result = CheckResult(
        label=clean_line(check.label, _LONGEST), kind=check.kind, subject=clean(check.subject),
        status="pass" if passed else "fail", detail=detail,
        returncode=ended.returncode if ended else None, signal=ended.signal if ended else None,
        timed_out=bool(finished and finished.timed_out), seconds=seconds,
        output=_list_last_lines(finished) if finished else (),
    )  # fmt: skip
    return CheckOutcome(result=result, placed=placed, before=before, finished=finished, missing=missing)


def make_command(env: Environment, check: Check) -> list[str]:
    """Return the command of a check: of `compile`, of a Python."""
    if check.kind == "import":
        return [env.python, "-c", f"import {check.subject}"]
    return [*check.command] if check.kind == "run" else [env.python]


def _run_compile(
    env: Environment, device: str, environ: Mapping[str, str], timeout: float
) -> tuple[process.Finished, bool, tuple[Lack, ...], str]:
    """Compile a function with the torch of an environment, from empty caches. Return also what is wrong in words, ""
    if only the output says it."""
    report = run_probe(
        env.python, ("report", "torch_compile"), {"device": device}, environ=environ, timeout=timeout
    )
    compiled, needs = report.last("operation"), report.last("needs")
    if compiled and report.finished.ok:
        return report.finished, bool(compiled["ok"]), (), f"the results are off by {compiled['error']:g}"
    missing: tuple[Lack, ...] = ()
    if needs:
        tool, path = "cc" if needs["device"] == "cuda" else "cxx", environ.get("PATH", os.defpath)
        found = find_compiler(tool, path, environ), find_headers(needs["include"], needs["python"])
        missing = tuple(filter(None, found))
    named = " and ".join(m.what for m in missing)
    return report.finished, False, missing, f"torch.compile needs {named}" if named else ""


def _list_last_lines(finished: process.Finished, count: int = _LINES) -> tuple[str, ...]:
    """Return the last lines of standard error, or of standard output if standard error is empty."""
    for text in (finished.stderr, finished.stdout):
        if lines := [line.rstrip()[:_LONGEST] for line in clean(text).splitlines() if line.strip()]:
            return tuple(lines[-count:])
    return ()


def _describe_ending(finished: process.Finished, timeout: float) -> str:
    """Return how a failed check ended, with the error that it printed last."""
    if finished.timed_out:
        how = f"did not finish within {timeout:g} s"
    elif finished.signal:
        how = f"ended by {finished.signal}"
    else:
        how = f"exit {finished.returncode}"
    lines = _list_last_lines(finished, _SEARCHED)
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Exit|Interrupt)\b", line)]
    return ": ".join([how, *(errors or lines)[-1:]])


# --- the stage -----------------------------------------------------------------------------------


def add_checks(verdict: Verdict, ended: Sequence[CheckOutcome], emit: Emit, *, strict: bool) -> Verdict:
    """Return the verdict with the stage `checks` of these."""
    results = tuple(one.result for one in ended)
    failed = [one for one in ended if one.result.status == "fail"]
    if failed:
        named = "; ".join(f"{one.result.label}: {one.result.detail}" for one in failed)
        detail = f"{len(failed)} of {len(results)} failed: {named}"
        evidence = tuple(e for one in failed for e in _list_evidence(one))
    else:
        detail = f"{len(results)} passed: {', '.join(r.label for r in results)}"
        evidence = tuple(Evidence(f"{r.detail}, {r.seconds:g} s", r.label) for r in results)
    stage = StageResult(
        stage=STAGE, status="fail" if failed else "pass", detail=detail, evidence=evidence,
        device=verdict.stages[-1].device if verdict.stages else None,
        seconds=round(sum(r.seconds or 0 for r in results), 3),
    )  # fmt: skip
    findings = [f for one in ended for f in one.findings]
    whole = add_stage(verdict, stage, findings, emit, strict=strict)
    if failed and not any(f.fix for f in findings):
        whole = dataclasses.replace(whole, hint=_make_hint(verdict.env, failed[0].result))
    return dataclasses.replace(whole, checks=results)


def skip_checks(verdict: Verdict, why: str, emit: Emit, *, strict: bool, warn: bool = False) -> Verdict:
    """Return the verdict with a stage `checks` that was not run."""
    stage = StageResult(stage=STAGE, status="warn" if warn else "skip", detail=why)
    return add_stage(verdict, stage, (), emit, strict=strict)


def _list_evidence(failed: CheckOutcome) -> Iterator[Evidence]:
    """Yield the tools that a check misses, or its last lines of output. The first line names the check."""
    yield from (m.evidence for m in failed.missing)
    for i, line in enumerate(() if failed.missing else failed.result.output):
        yield Evidence(line, None if i else failed.result.label)


def _make_hint(env: str, failed: CheckResult) -> str:
    """Return a hint for a check that failed for an unknown cause."""
    if failed.timed_out:
        return f"Give the check {failed.label!r} more time (timeout: in gpuenv.yaml, or --timeout), or correct it."
    if failed.kind == "compile":
        return f"Run the torch.compile check of this environment: gpuenv verify {shlex.quote(env)} --check compile -v"
    command = f"python -c 'import {failed.subject}'" if failed.kind == "import" else failed.subject
    return f"Run the check alone: gpuenv run {shlex.quote(env)} -- {command}"
