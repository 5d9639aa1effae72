"""Runs the stages of each framework, from the import to `loaded`, in a child; then all frameworks in one process.

With `--quick` the frameworks are only imported, and only on the CPU. On a GPU the layers below them are proved in half
a second. The CPU has no such layers, so there the import is the least that runs code of the environment.
"""

from __future__ import annotations

import contextlib
import functools
import json
import mmap
import os
import pkgutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from ..environment.distributions import Distribution, list_distributions
from ..model import FRAMEWORKS, MEMORY_GROWTH, Evidence, FrameworkVerdict
from ..profiles.wording import make_finding
from ..system import process
from ..system.redaction import clean
from .changes import add_later_installs, find_later_installs
from .layers import check_framework_claims
from .libraries import NVIDIA_LIBRARY
from .probe import ProbeReport, run_probe
from .results import (
    Results,
    judge_extensions,
    judge_extras,
    judge_numpy,
)
from .settings import explain_startup_files, search_settings
from .state import (
    FRAMEWORK_STAGES,
    Judgement,
    State,
    fail_with,
    start_in_thread,
)

_PRODUCTS = ("matmul", "matmul_bias", "matmul_large")
_ATTENTIONS = ("causal_64", "masked_128")
_CASES = ("conv1d", "conv2d", "conv3d", "conv2d_grouped", "conv2d_transposed")
"""The first is small, because its calls are logged."""
_DEEP = {
    "torch": ("conv2d_channels_last", "conv2d_autotuned", "conv2d_depthwise"),
    "tensorflow": ("conv2d_depthwise",),
    "jax": ("conv2d_depthwise",),
    "onnxruntime": ("conv2d_depthwise",),
}
_EXTRAS = {
    "torch": ("fft", "solve", "sparse", "rnn", "compile", "fp8"),
    "tensorflow": ("fft", "solve", "sparse"),
    "jax": ("fft", "solve", "sparse", "fp8"),
    "onnxruntime": (),
}
"""What `--deep` runs beside the graded stages, each in a child of its own."""
_TALKATIVE = {"TF_CPP_VMODULE": "dso_loader=1", "TF_CPP_MIN_LOG_LEVEL": "0"}


@contextlib.contextmanager
def import_early(state: State) -> Iterator[None]:
    """Import the first framework already during the block, while the driver is queried.

    The import takes longer than the stages before it, and needs no GPU.
    """
    first = next((n for n in _choose_names(state) if not _is_unrequested(state, n)), "")
    if state.device == "cpu" or first not in state.paths.frameworks:
        yield
        return
    turn, pool = Future[Mapping[str, Any] | None](), ThreadPoolExecutor(1)
    ask = functools.partial(ask_framework, state, first, state.environ, later_input=turn.result)
    report, child = start_in_thread(pool, ask)

    def proceed() -> ProbeReport:
        turn.set_result({})
        return report.result()

    try:
        child.wait()
        state.started[first] = proceed
        yield
    finally:
        if not turn.done():
            turn.set_result(None)
        if not report.done():
            process.end_children()
        pool.shutdown()


def import_frameworks(state: State) -> None:
    """Import the frameworks at the same time, without a computation (`--quick` on the CPU)."""
    present = [n for n in _choose_names(state) if n in state.paths.frameworks]
    if present:
        state.announce("progress", f"importing {', '.join(present)}")
    with ThreadPoolExecutor(max(1, len(present))) as pool:
        started = {name: pool.submit(ask_framework, state, name, state.environ) for name in present}
    state.started.update({name: report.result for name, report in started.items()})


def run_frameworks(state: State) -> None:
    """Run the stages of each framework, then all frameworks in one process."""
    names, failed = _choose_names(state), state.failed
    if not names and failed:
        return state.skip(FRAMEWORK_STAGES, f"the {failed.stage} stage failed")
    if not names:
        quick, where = state.options.quick, state.env.path
        what = f"no {', '.join(FRAMEWORKS[:-1])} or {FRAMEWORKS[-1]} in {where}"
        state.add("framework", Judgement("skip" if quick else "fail", what))
        return state.skip(
            FRAMEWORK_STAGES[1:], "not run with --quick" if quick else "the framework stage failed"
        )
    for name in names:
        if failed:
            state.skip(FRAMEWORK_STAGES, f"the {failed.stage} stage failed", name)
        elif _is_unrequested(state, name):
            text = f"{name} is a build for the CPU only; another framework here uses the GPU"
            state.add("framework", Judgement("warn", text), None, name)
            state.skip(FRAMEWORK_STAGES[1:], "a build for the CPU only", name)
        elif name not in state.paths.frameworks:
            state.add("framework", Judgement("fail", f"{name} is not in this environment"), None, name)
            state.skip(FRAMEWORK_STAGES[1:], "the framework stage failed", name)
        else:
            if not state.options.quick:
                state.announce("progress", f"{name}: import, convolutions, matrix products and attention")
            verdicts = []
            for uuid in state.mig_devices or (None,):
                verdicts.append(_run_framework(state, name, uuid))
                if state.failed:
                    break
            devices = tuple(d for v in verdicts for d in v.devices)
            state.verdicts.append(replace(verdicts[0], devices=devices))
    # On the CPU no library is shared, so these two processes run only with --deep.
    names = tuple(n for n in names if not _is_unrequested(state, n))
    if len(names) > 1 and not state.failed and (state.device != "cpu" or state.options.deep):
        _run_together(state, names)
    return None


def show_later_installs(state: State) -> None:
    """Add what was installed into a system-wide Python (as Colab's) after its image was made: it may explain a failure."""
    if state.env.manager is not None:  # in an environment the times of files mean nothing
        return
    later = find_later_installs(state.paths.sites, state.paths.user_site)
    state.findings[:] = add_later_installs(state.findings, later)
    if later:
        for i, one in enumerate(state.stages):
            if one.stage == "framework":
                state.stages[i] = replace(one, evidence=(*one.evidence, *later))
        installs = "; ".join(e.text for e in later)
        state.announce("note", f"installed after this runtime was created: {installs}")


# --- which frameworks ----------------------------------------------------------------------------


def _choose_names(state: State) -> tuple[str, ...]:
    """Return the frameworks to prove: the requested ones, else those of the lock and all installed ones."""
    return state.options.frameworks or tuple(dict.fromkeys([*_list_planned(state), *state.paths.frameworks]))


def _list_planned(state: State) -> list[str]:
    return [b.framework for b in state.lock.plan.builds] if state.lock else []


def _is_unrequested(state: State, name: str) -> bool:
    """Return whether an unrequested CPU build is installed beside a CUDA build. JAX users often keep a small
    torch."""
    builds, wanted = state.installed.builds, {*state.options.frameworks, *_list_planned(state)}
    gpu = state.device != "cpu" and any(builds.values())
    return gpu and name not in wanted and not builds.get(name, True)


# --- one framework -------------------------------------------------------------------------------


def _run_framework(state: State, name: str, uuid: str | None) -> FrameworkVerdict:
    """Run the stages of a framework, on the MIG device `uuid` if there are several."""
    hidden = {"CUDA_VISIBLE_DEVICES": uuid} if uuid else {}
    outcome = _ask_and_judge(state, name, {**state.environ, **hidden})
    report, times = outcome.report, measure_stages(outcome.report)
    for stage, judged in outcome.stages.items():
        state.add(stage, judged, times.get(stage) if judged.status != "skip" else None, name, uuid)
    for refused in filter(None, (judge_extensions(name, report), judge_numpy(name, report))):
        state.add("framework", refused, None, name, uuid)
    if state.options.deep and _EXTRAS[name] and all(j.status != "fail" for j in outcome.stages.values()):
        _run_extras(state, name, uuid, {**state.environ, **hidden})
    state.wrong = state.wrong or outcome.wrong
    causes = [j.finding.cause for j in outcome.stages.values() if j.finding]
    blind = state.device != "cpu" and "visible_devices_invalid" in causes
    if blind and (hides := explain_startup_files(state.env, state.environ, name)):
        state.findings.insert(0, hides)
    elif outcome.is_bad:

        def cured(environ: Mapping[str, str]) -> bool:
            return not _ask_and_judge(state, name, {**environ, **hidden}).is_bad

        search_settings(state, name, cured, [x.path for x in outcome.verdict.libraries])
    if uuid is None:
        return outcome.verdict
    # in its own child each MIG device is device 0
    devices = (replace(d, uuid=uuid) for d in outcome.verdict.devices)
    return replace(outcome.verdict, devices=tuple(devices))


def _ask_and_judge(state: State, name: str, environ: Mapping[str, str]) -> Results:
    """Ask a framework. A probe that was started early continues."""
    early = state.started.pop(name, None) if environ == state.environ else None
    report = early() if early else ask_framework(state, name, environ)
    outcome = Results(state, name, report).judge()
    wrong = (
        check_framework_claims(name, outcome.saw, state.machine) if outcome.saw and state.machine else None
    )
    if wrong and outcome.stages["framework"].status != "fail":
        outcome.stages["framework"] = wrong
    return outcome


def ask_framework(
    state: State,
    name: str,
    environ: Mapping[str, str],
    *,
    later_input: Callable[[], Mapping[str, Any] | None] | None = None,
    on_start: Callable[[], None] | None = None,
) -> ProbeReport:
    """Run one framework's probe in its own child, with the user's settings except preallocation.

    At its end the probe loads the extensions of the environment. With `later_input` it imports
    the framework and waits for that input. It continues after a mapping, and ends after None.
    """
    device, deep, quick = state.device, state.options.deep, state.options.quick
    request = {
        "framework": name,
        "ordinals": _list_ordinals(state),
        "cases": _CASES + (_DEEP[name] if deep else ()),
        "products": _PRODUCTS,
        "attentions": _ATTENTIONS[:1] if device == "cpu" and not deep else _ATTENTIONS,
        "deep": deep,
        "extensions": [] if quick else find_extensions(name, state.paths.sites),
        "waits": later_input is not None,
        "import_only": quick,
        "models": read_models([name]),
    }
    talkative = _TALKATIVE if name == "tensorflow" else {}
    probes = ("devices", f"framework_{name}", "operations", "framework")
    return _run(state, probes, request, {**environ, **talkative}, later_input=later_input, on_start=on_start)


def _run(
    state: State,
    probes: Sequence[str],
    request: Mapping[str, Any],
    environ: Mapping[str, str],
    **more: Any,
) -> ProbeReport:
    """Run probes on the device of a proof. `more` is for `run_probe`.

    The child must not reserve nearly the whole GPU, because cuDNN and the next framework would get no memory. On the CPU
    it must not use GPUs.
    """
    hidden = {"CUDA_VISIBLE_DEVICES": "-1", "JAX_PLATFORMS": "cpu"} if state.device == "cpu" else {}
    # with PYTHONFAULTHANDLER a crash prints its place
    own = {**dict(MEMORY_GROWTH.values()), "PYTHONFAULTHANDLER": "1", **hidden}
    return run_probe(
        state.env.python, ("report", *probes), {"device": state.device, "pattern": NVIDIA_LIBRARY, **request},
        environ={**environ, **own}, timeout=state.options.timeout, **more,
    )  # fmt: skip


def _run_extras(state: State, name: str, uuid: str | None, environ: Mapping[str, str]) -> None:
    """Run the further operations of a framework at the same time, each in its own child, and name those that fail."""
    start = time.perf_counter()
    asked = [x for x in _EXTRAS[name] if not (state.device == "cpu" and x == "fp8")]
    if state.ordinal is not None:
        environ = {**environ, "CUDA_VISIBLE_DEVICES": _visible(environ, state.ordinal)}

    def ask(operation: str) -> ProbeReport:
        probes = ("torch_compile",) if operation == "compile" else ("operations", "extras")
        return _run(state, probes, {"framework": name, "operation": operation}, environ)

    with ThreadPoolExecutor(3) as pool:
        reports = dict(zip(asked, pool.map(ask, asked), strict=True))
    state.add("operations", judge_extras(reports), time.perf_counter() - start, name, uuid)


def _visible(environ: Mapping[str, str], ordinal: int) -> str:
    """Return the value of CUDA_VISIBLE_DEVICES that leaves one of the GPUs that the user sees."""
    seen = [x for x in environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if x]
    return seen[ordinal] if ordinal < len(seen) else str(ordinal)


def _list_ordinals(state: State) -> list[int]:
    """Return the GPU to use, or [] for all."""
    return [] if state.ordinal is None else [state.ordinal]


def read_models(names: Sequence[str]) -> dict[str, str]:
    """Return the models that ONNX Runtime computes, by name, or nothing for other frameworks."""
    data = pkgutil.get_data("provision", "probes/onnx_models.json") if "onnxruntime" in names else None
    return dict(json.loads(data or b"{}"))


def measure_stages(report: ProbeReport) -> dict[str, float]:
    """Return the seconds of each stage: from its first begin to the next stage's begin, or to the last record.

    The time in which an early import waited for its turn is not counted.
    """
    starts: dict[str, float] = {}
    for r in report.all("begin"):
        starts.setdefault(r["stage"], r["at"])
    if not starts:
        return {}  # it ended before its first stage, for example by a module on PYTHONPATH
    ends = [*list(starts.values())[1:], report.records[-1]["at"]]
    times = {stage: end - start for (stage, start), end in zip(starts.items(), ends, strict=True)}
    if "framework" in times:
        times["framework"] -= sum(r["seconds"] for r in report.all("waited"))
    return times


# --- extensions that are compiled against a framework --------------------------------------------
#
# The extensions of torchvision, flash-attn and others load beside one build of a framework only.

# The framework's own library that its extensions are linked with
_LINKED = {"torch": b"libc10.so", "tensorflow": b"libtensorflow_framework.so"}
_MOST = 60  # more files than any known environment has


def find_extensions(name: str, sites: Sequence[str]) -> list[tuple[str, str]]:
    """Return (package and version, file) for each extension in an environment that is linked with a framework."""
    if name not in _LINKED:
        return []
    extensions = [
        (str(one), path)
        for site in sites
        for one in list_distributions(site)
        if name in one.requires
        for path in list_modules(one)
        if _is_linked(path, _LINKED[name])
    ]
    return extensions[:_MOST]


def list_modules(one: Distribution) -> Iterator[str]:
    """Yield the compiled files of a distribution that lie in its site-packages folder."""
    site = f"{one.root}{os.sep}"
    for row in one.select_rows(".so"):
        if row.path.endswith(".so") and ".libs" not in row.name and row.path.startswith(site):
            yield row.path


def _is_linked(path: str, library: bytes) -> bool:
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return data.find(library) >= 0
    except (OSError, ValueError):  # removed meanwhile, or empty
        return False


# --- several frameworks in one process, in both import orders ------------------------------------


def _run_together(state: State, names: tuple[str, ...]) -> None:
    """Import the frameworks in one process, then grade one convolution in each: pass if both orders work, a warning if
    one works, a failure if none does."""
    state.announce("progress", "in one process: " + ", ".join(names))
    start = time.perf_counter()
    orders = (names, names[::-1])
    with ThreadPoolExecutor(len(orders)) as pool:
        reports = pool.map(lambda order: _ask_together(state, order), orders)
        judged = judge_together(dict(zip(orders, reports, strict=True)))
    state.add("framework", judged, time.perf_counter() - start, ", ".join(names))


def judge_together(reports: Mapping[tuple[str, ...], ProbeReport]) -> Judgement:
    """Judge frameworks in one process by the reports of two orders of their imports."""
    losers = {order: loser for order, report in reports.items() if (loser := _find_loser(report))}
    if not losers:
        names = " and ".join(next(iter(reports)))
        return Judgement("pass", f"{names} work in one process, whichever is imported first")
    order, (name, _) = next(iter(losers.items()))
    good = next((order[0] for order in reports if order not in losers), None)
    finding = make_finding(
        "framework_order_matters" if good else "frameworks_conflict",
        tuple(
            Evidence(f"{name}: {how}", "imported in the order " + ", ".join(order))
            for order, (name, how) in losers.items()
        ),
        framework=name,
        other=order[0] if order[0] != name else order[-1],
        order=", ".join(order),
        first=good,
    )
    return replace(fail_with(finding), status="warn" if good else "fail")


def _ask_together(state: State, order: Sequence[str]) -> ProbeReport:
    request = {
        "ordinals": _list_ordinals(state) or ([] if state.device == "cpu" else [0]),
        "cases": ["conv2d"],
        "one_type": True,
        "order": list(order),
        "models": read_models(order),
    }
    probes = ("devices", *(f"framework_{name}" for name in order), "operations", "framework")
    return _run(state, probes, request, state.environ)


def _find_loser(report: ProbeReport) -> tuple[str, str] | None:
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
