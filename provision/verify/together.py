"""Several frameworks in one process, in both import orders: two that work alone may fight over cuDNN."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..model import Environment, Evidence, Finding
from . import frameworks, probe
from .begun import PATTERN
from .judged import Judged, failing


def ask(
    env: Environment,
    order: Sequence[str],
    *,
    device: str,
    ordinals: Sequence[int],
    environ: Mapping[str, str],
    timeout: float,
) -> probe.Told:
    """Import frameworks in an order in one process, then grade one convolution in each."""
    asked = {
        "device": device,
        "ordinals": list(ordinals[:1]) or ([] if device == "cpu" else [0]),
        "cases": ["conv2d"],
        "order": list(order),
        "pattern": PATTERN,
    }
    return probe.run(
        env.python,
        ("report", "grade", *(f"framework_{name}" for name in order), "together"),
        asked,
        environ={**environ, **frameworks.quiet(device)},
        timeout=timeout,
    )


def loser(told: probe.Told) -> tuple[str, str] | None:
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


def judge(tried: Sequence[tuple[Sequence[str], probe.Told]]) -> Judged:
    """Both orders right: pass. One: a warning that names it. None: they cannot share a process."""
    lost = [(order, bad) for order, told in tried if (bad := loser(told))]
    if not lost:
        names = " and ".join(tried[0][0])
        return Judged(status="pass", detail=f"{names} work in one process, whichever is imported first")
    good = [order for order, told in tried if not loser(told)]
    evidence = tuple(
        Evidence(text=f"{name}: {how}", source="imported in the order " + ", ".join(order))
        for order, (name, how) in lost
    )
    order, (name, _) = lost[0]
    first = order[0] if order[0] != name else order[-1]
    finding = Finding(
        cause="conflicting_frameworks_in_one_env",
        title=f"{name} breaks in one process with {first}"
        + (f" when imported in the order {', '.join(order)}" if good else ", in either order"),
        evidence=evidence,
        fix=f"Import {good[0][0]} first." if good else "Use an environment for each.",
        confidence="certain",
    )
    if good:
        return Judged(status="warn", detail=finding.title, evidence=evidence, findings=(finding,))
    return failing(finding)
