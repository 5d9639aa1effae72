"""`--quick` on the CPU: each framework is imported in a child of its own, and nothing is computed.

On a GPU the layers below the frameworks prove something of the environment in half a second. The CPU has no such
layers, so the import is the least that runs anything of the environment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from ..model import Environment, Event, Evidence, Finding
from ..profiles.findings import make_finding
from . import judge_frameworks, judge_loaded, missing_libraries, run_probe
from .prefetch import PATTERN
from .verification import Judgement, Verification, fail_with, find_suspects, search_settings

_REST = ("convolution", "loaded")


def run_imports(run: Verification, names: Sequence[str]) -> None:
    """Add the stage `framework` for each name. The frameworks are imported at the same time."""
    there = {f.name for f in run.found.frameworks}
    present = [n for n in names if n in there]
    if present:
        run.emit(Event(kind="progress", stage="verify", text=f"importing {', '.join(present)}"))
    with ThreadPoolExecutor(max(1, len(present))) as pool:
        asked = {n: pool.submit(_ask, run, n, run.environ) for n in present}
        told = {n: future.result() for n, future in asked.items()}
    for name in names:
        if name in told:
            _add(run, name, told[name])
        else:
            run.add(
                "framework", Judgement(status="fail", detail=f"{name} is not in this environment"), None, name
            )
        for stage in _REST:
            run.skip(stage, "not run with --quick", name)
    if not names:
        run.skip("framework", judge_frameworks.describe_no_framework(run.env))
        for stage in _REST:
            run.skip(stage, "not run with --quick")


def _ask(run: Verification, name: str, environ: Mapping[str, str]) -> run_probe.ProbeReport:
    return judge_frameworks.ask_framework(
        run.env,
        name,
        device=run.device,
        ordinals=(),
        deep=False,
        environ=environ,
        timeout=run.options.timeout,
        import_only=True,
    )


def _judge(run: Verification, name: str, told: run_probe.ProbeReport) -> Judgement:
    def missing(words: str) -> Finding | None:
        return missing_libraries.explain_unloaded(name, words, run.env, run.found, run.packages)

    return judge_frameworks.judge_import(name, told, lock=run.lock, roots=run.found.roots, unopened=missing)


def _add(run: Verification, name: str, told: run_probe.ProbeReport) -> None:
    judged = _judge(run, name, told)
    run.add("framework", judged, judge_loaded.measure_stages(told).get("framework"), name)
    run.verdicts.append(judge_loaded.make_framework_verdict(name, told, run.device, (), ()))
    if judged.status != "fail":
        return

    def cured(environ: Mapping[str, str]) -> bool:
        return _judge(run, name, _ask(run, name, environ)).status != "fail"

    search_settings(run, find_suspects(run, name), cured, ())


# Several frameworks in one process, in both import orders: two that work alone may fight over cuDNN.
def ask_together(
    env: Environment,
    order: Sequence[str],
    *,
    device: str,
    ordinals: Sequence[int],
    environ: Mapping[str, str],
    timeout: float,
) -> run_probe.ProbeReport:
    """Import frameworks in an order in one process, then grade one convolution in each."""
    asked = {
        "device": device,
        "ordinals": list(ordinals[:1]) or ([] if device == "cpu" else [0]),
        "cases": ["conv2d"],
        "order": list(order),
        "pattern": PATTERN,
    }
    return run_probe.run_probe(
        env.python,
        ("report", "grade", *(f"framework_{name}" for name in order), "together"),
        asked,
        environ={**environ, **judge_frameworks.make_child_variables(device)},
        timeout=timeout,
    )


def find_loser(told: run_probe.ProbeReport) -> tuple[str, str] | None:
    """Which framework failed beside the others, and how; None where all are right."""
    current = ""
    for r in told.records:
        if r["kind"] == "enter":
            current = r["framework"]
        elif r["kind"] == "failed":
            return current, str(r["text"])[:500]
        elif r["kind"] == "convolution" and not r["ok"]:
            return current, f"{r['case']} {r['dtype']} {r['which']} is wrong"
    return (current, told.death) if told.death else None


def judge_together(tried: Sequence[tuple[Sequence[str], run_probe.ProbeReport]]) -> Judgement:
    """Both orders right: pass. One: a warning that names it. None: they cannot share a process."""
    lost = [(order, bad) for order, told in tried if (bad := find_loser(told))]
    if not lost:
        names = " and ".join(tried[0][0])
        return Judgement(status="pass", detail=f"{names} work in one process, whichever is imported first")
    good = [order for order, told in tried if not find_loser(told)]
    evidence = tuple(
        Evidence(text=f"{name}: {how}", source="imported in the order " + ", ".join(order))
        for order, (name, how) in lost
    )
    order, (name, _) = lost[0]
    first = order[0] if order[0] != name else order[-1]
    finding = make_finding(
        "framework_order_matters" if good else "frameworks_conflict",
        evidence,
        confidence="certain",
        framework=name,
        other=first,
        order=", ".join(order),
        first=good[0][0] if good else None,
    )
    if good:
        return Judgement(status="warn", detail=finding.title, evidence=evidence, findings=(finding,))
    return fail_with(finding)
