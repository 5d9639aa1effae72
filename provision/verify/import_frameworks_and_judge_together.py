"""Runs the probes that import frameworks, and judges several frameworks in one process.

On a GPU, `--quick` proves the layers below the frameworks in half a second. The CPU has no such layers. So
there the import is the least that runs code of the environment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ..model import Environment, Event, Evidence, Finding
from ..profiles.findings import make_finding
from ..system.redaction import clean
from . import explain_unopened_nvidia_libraries, judge_frameworks, judge_loaded, run_probe
from .early_probes import PATTERN
from .verification_state import (
    FrameworkContext,
    Judgement,
    Verification,
    fail_with,
    find_suspects,
    search_settings,
)

_REST = ("convolution", "loaded")


def run_imports(run: Verification, names: Sequence[str]) -> None:
    """Add the stage `framework` for each name. The frameworks are imported at the same time."""
    there = {f.name for f in run.paths.frameworks}
    present = [n for n in names if n in there]
    if present:
        run.emit(Event(kind="progress", stage="verify", text=f"importing {', '.join(present)}"))
    with ThreadPoolExecutor(max(1, len(present))) as pool:
        futures = {n: pool.submit(_ask, run, n, run.environ) for n in present}
        reports = {n: future.result() for n, future in futures.items()}
    for name in names:
        if name in reports:
            _add_stage(run, name, reports[name])
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
    return ask_framework(
        run.env,
        name,
        FrameworkProbeRequest(device=run.device, import_only=True),
        run_probe.ChildSettings(environ=environ, timeout=run.options.timeout),
    )


def _judge(run: Verification, name: str, report: run_probe.ProbeReport) -> Judgement:
    def missing(words: str) -> Finding | None:
        return explain_unopened_nvidia_libraries.explain_unloaded(name, words, run.env, run.installed)

    context = FrameworkContext(device="cpu", roots=run.paths.roots, lock=run.lock, explain_unloaded=missing)
    return judge_frameworks.judge_import(name, report, context)


def _add_stage(run: Verification, name: str, report: run_probe.ProbeReport) -> None:
    judged = _judge(run, name, report)
    run.add("framework", judged, measure_stages(report).get("framework"), name)
    run.verdicts.append(judge_loaded.make_framework_verdict(name, report, run.device, (), ()))
    if judged.status != "fail":
        return

    def cured(environ: Mapping[str, str]) -> bool:
        return _judge(run, name, _ask(run, name, environ)).status != "fail"

    search_settings(run, find_suspects(run, name), cured, ())


def measure_stages(report: run_probe.ProbeReport) -> dict[str, float]:
    """Return the seconds of each stage: from its first begin to the next stage's begin, or to the last record.

    The time in which an early import waited for its turn is not counted.
    """
    starts: dict[str, float] = {}
    for r in report.all("begin"):
        starts.setdefault(r["stage"], r["at"])
    if not starts:
        return {}  # it ended before its first stage, for example by a module on PYTHONPATH
    ends = [*list(starts.values())[1:], report.records[-1]["at"] if report.records else 0.0]
    waited = sum(r["seconds"] for r in report.all("waited"))
    return {
        stage: end - start - (waited if stage == "framework" else 0.0)
        for (stage, start), end in zip(starts.items(), ends, strict=True)
    }


# --- several frameworks in one process, in both import orders ---


def ask_together(
    env: Environment,
    order: Sequence[str],
    *,
    device: str,
    ordinals: Sequence[int],
    child: run_probe.ChildSettings,
) -> run_probe.ProbeReport:
    """Import frameworks in an order in one process, then grade one convolution in each."""
    request = {
        "device": device,
        "ordinals": list(ordinals[:1]) or ([] if device == "cpu" else [0]),
        "cases": ["conv2d"],
        "order": list(order),
        "pattern": PATTERN,
    }
    return run_probe.run_probe(
        env.python,
        (
            "report",
            "grade",
            "stages_of_every_framework",
            *(part for name in order for part in run_probe.name_framework_probes(name)),
            "together",
        ),
        request,
        child.with_variables(make_child_variables(device)),
    )


def find_loser(report: run_probe.ProbeReport) -> tuple[str, str] | None:
    """Return the framework that failed beside the others, and how; None if all are right."""
    current = ""
    for r in report.records:
        if r["kind"] == "enter":
            current = r["framework"]
        elif r["kind"] == "failed":
            return current, clean(str(r["text"]), 500)
        elif r["kind"] == "convolution" and not r["ok"]:
            return current, f"{r['case']} {r['dtype']} {r['which']} is wrong"
    return (current, report.death) if report.death else None


def judge_together(tried: Sequence[tuple[Sequence[str], run_probe.ProbeReport]]) -> Judgement:
    """Judge both import orders: pass if both work, a warning if one works, a failure if none does."""
    lost = [(order, bad) for order, report in tried if (bad := find_loser(report))]
    if not lost:
        names = " and ".join(tried[0][0])
        return Judgement(status="pass", detail=f"{names} work in one process, whichever is imported first")
    good = [order for order, report in tried if not find_loser(report)]
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


# --- the probe of one framework ---

CASES = ("conv2d", "conv1d", "conv3d", "conv2d_grouped", "conv2d_transposed")

DEEP = {
    "torch": ("conv2d_channels_last", "conv2d_autotuned", "conv2d_depthwise"),
    "tensorflow": ("conv2d_depthwise",),
    "jax": ("conv2d_depthwise",),
    "onnxruntime": ("conv2d_depthwise",),
}


def make_child_variables(device: str) -> dict[str, str]:
    """Return the variables of a framework's child beyond the user's settings.

    It must not reserve nearly the whole GPU, because cuDNN and the next framework would get no memory. On the
    CPU it must not use GPUs.
    """
    hidden = {"CUDA_VISIBLE_DEVICES": "-1", "JAX_PLATFORMS": "cpu"} if device == "cpu" else {}
    grown = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    return {**grown, "PYTHONFAULTHANDLER": "1", **hidden}  # a crash then prints its place


_TALKATIVE = {"TF_CPP_VMODULE": "dso_loader=1", "TF_CPP_MIN_LOG_LEVEL": "0"}


@dataclass(frozen=True, kw_only=True, slots=True)
class FrameworkProbeRequest:
    """The work of one framework's probe. At its end it loads `extensions` (package, file).

    `ordinals` are GPUs of the device "cuda"; empty means all. With `import_only` the probe ends after the
    import.
    """

    device: str
    ordinals: Sequence[int] = ()
    deep: bool = False
    extensions: Sequence[tuple[str, str]] = ()
    import_only: bool = False


def ask_framework(
    env: Environment, name: str, request: FrameworkProbeRequest, child: run_probe.ChildSettings
) -> run_probe.ProbeReport:
    """Run one framework's probe in its own child, with the user's settings except preallocation.

    If `child` has a later input, the probe imports the framework and waits for it. It continues after a
    mapping, and ends after None.
    """
    document = {
        "framework": name,
        "device": request.device,
        "ordinals": list(request.ordinals),
        "cases": CASES + (DEEP[name] if request.deep else ()),
        "deep": request.deep,
        "pattern": PATTERN,
        "extensions": list(request.extensions),
        "waits": child.later_input is not None,
        "import_only": request.import_only,
    }
    return run_probe.run_probe(
        env.python,
        ("report", "grade", "stages_of_every_framework", *run_probe.name_framework_probes(name), "alone"),
        document,
        child.with_variables(
            {**make_child_variables(request.device), **(_TALKATIVE if name == "tensorflow" else {})}
        ),
    )
