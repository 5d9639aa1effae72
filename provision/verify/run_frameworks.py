"""Runs stages 5 to 7: one child per framework."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from ..model import Event, Evidence, Finding, FrameworkVerdict
from ..system import process
from . import (
    compiled_mismatch,
    culprit_setting,
    early_probes,
    explain_unopened_nvidia_libraries,
    import_frameworks_and_judge_together,
    judge_frameworks,
    judge_loaded,
    judge_lowlevel,
    read_libraries,
    run_probe,
)
from .drift import installs_after_image
from .verification_state import (
    EarlyImport,
    FrameworkContext,
    Judgement,
    Verification,
    find_suspects,
    search_settings,
)

# Causes that a later installation can have: those of builds and libraries, not of drivers and memory.
_OF_PACKAGES = re.compile(
    r"cudnn|cuda_(major|lib)|nvidia_lib|cpu_only|arch_|jax_plugin|conflicting|numpy_abi|no_gpu_build|framework_bug|driver_too_old"
)


@contextlib.contextmanager
def import_early(run: Verification) -> Iterator[None]:
    """Import the first framework already during the block, while the driver is queried.

    The import takes longer than the stages before it, and needs no GPU.
    """
    first = next((n for n in _choose_names(run) if not _is_aside(run, n)), None)
    if run.device == "cpu" or not _is_installed(run, first):
        yield
        return
    turn, pool = Future[Mapping[str, Any] | None](), ThreadPoolExecutor(1)
    report, runs = early_probes.start_in_thread(
        pool, lambda on_start: _run_probe(run, str(first), run.environ, turn.result, on_start)
    )
    try:
        runs.wait()
        run.early_import = EarlyImport(str(first), turn, report)
        yield
    finally:
        if not turn.done():
            turn.set_result(None)
        if not report.done():
            process.end_children()
        pool.shutdown()


def run_frameworks(run: Verification) -> None:
    """Run stages 5 to 7 for each framework, then all frameworks in one process."""
    later = _list_later_installs(run)
    run.findings[:] = add_later_installs(run.findings, later)
    if later:
        installs = "; ".join(e.text for e in later)
        run.emit(
            Event(kind="note", stage="verify", text=f"installed after this runtime was created: {installs}")
        )
    names = _choose_names(run)
    if not names:
        detail = judge_frameworks.describe_no_framework(run.env)
        if run.broken:
            return run.skip_rest(("framework", "convolution", "loaded"))
        run.add("framework", Judgement(status="fail", detail=detail), None)
        return run.skip_rest(("convolution", "loaded"))
    broken = run.broken
    for name in names:
        if not broken and _is_aside(run, name):
            text = f"{name} is a build for the CPU only; another framework here uses the GPU"
            run.add("framework", Judgement(status="warn", detail=text), None, name)
            for stage in ("convolution", "loaded"):
                run.skip(stage, "a build for the CPU only", name)
        elif broken:
            for stage in ("framework", "convolution", "loaded"):
                run.skip(stage, f"the {broken} stage failed", name)
        else:
            _run_framework(run, name)
    # On the CPU no library is shared, so these two processes run only with --deep.
    names = tuple(n for n in names if not _is_aside(run, n))
    if len(names) > 1 and not run.broken and (run.device != "cpu" or run.options.deep):
        _run_together(run, names)
    return None


def import_frameworks(run: Verification) -> None:
    """Import the frameworks without a computation (`--quick` on the CPU)."""
    import_frameworks_and_judge_together.run_imports(run, _choose_names(run))


def _choose_names(run: Verification) -> tuple[str, ...]:
    """Return the frameworks to prove: the requested ones, else those of the lock and all installed ones."""
    there = (f.name for f in run.paths.frameworks)
    return run.options.frameworks or tuple(dict.fromkeys([*_list_planned(run), *there]))


def _is_installed(run: Verification, name: str | None) -> bool:
    return name in [f.name for f in run.paths.frameworks]


def _is_aside(run: Verification, name: str) -> bool:
    """Return whether an unrequested CPU build is installed beside a CUDA build. JAX users often keep a small
    torch."""
    wanted = {*run.options.frameworks, *_list_planned(run)}
    gpu = run.device != "cpu" and any(run.installed.builds.values())
    return gpu and name not in wanted and not run.installed.builds.get(name, True)


def _list_planned(run: Verification) -> list[str]:
    return [b.framework for b in run.lock.plan.builds] if run.lock else []


def _run_together(run: Verification, names: Sequence[str]) -> None:
    run.emit(Event(kind="progress", stage="verify", text="in one process: " + ", ".join(names)))
    start = time.perf_counter()
    tried = [
        (
            order,
            import_frameworks_and_judge_together.ask_together(
                run.env,
                order,
                device=run.device,
                ordinals=() if run.ordinal is None else (run.ordinal,),
                child=run_probe.ChildSettings(environ=run.environ, timeout=run.options.timeout),
            ),
        )
        for order in (tuple(names), tuple(reversed(names)))
    ]
    run.add(
        "framework",
        import_frameworks_and_judge_together.judge_together(tried),
        time.perf_counter() - start,
        ", ".join(names),
    )


def _run_probe(
    run: Verification,
    name: str,
    environ: Mapping[str, str],
    later_input: Callable[[], Mapping[str, Any] | None] | None = None,
    on_start: Callable[[], None] | None = None,
) -> run_probe.ProbeReport:
    return import_frameworks_and_judge_together.ask_framework(
        run.env,
        name,
        import_frameworks_and_judge_together.FrameworkProbeRequest(
            device=run.device,
            ordinals=() if run.ordinal is None else (run.ordinal,),
            deep=run.options.deep,
            extensions=compiled_mismatch.find_extensions(name, run.paths.sites),
        ),
        run_probe.ChildSettings(
            environ=environ, timeout=run.options.timeout, later_input=later_input, on_start=on_start
        ),
    )


def _get_report(run: Verification, name: str, environ: Mapping[str, str]) -> run_probe.ProbeReport:
    """Return the report of a framework's probe. Let a probe that was started early continue."""
    early = run.early_import
    if early and early.framework == name and environ == run.environ:
        run.early_import = None
        early.turn.set_result({})
        return early.report.result()
    return _run_probe(run, name, environ)


def _ask_framework(
    run: Verification, name: str, environ: Mapping[str, str]
) -> tuple[run_probe.ProbeReport, judge_frameworks.FrameworkOutcome]:
    report = _get_report(run, name, environ)
    devices: Sequence[Mapping[str, Any]] = (
        judge_lowlevel.read_stage(run.lowlevel, "driver").get("devices", ()) if run.lowlevel else ()
    )
    outcome = judge_frameworks.judge_framework(
        name,
        report,
        FrameworkContext(
            device=run.device,
            roots=run.paths.roots,
            owners=read_libraries.map_owners(run.installed.packages),
            own_families=judge_loaded.list_families(run.installed.files),
            devices=devices,
            lock=run.lock,
            low_memory=judge_lowlevel.find_low_memory(run.lowlevel) if run.lowlevel else None,
            explain_unloaded=lambda words: explain_unopened_nvidia_libraries.explain_unloaded(
                name, words, run.env, run.installed
            ),
        ),
    )
    saw = report.last("framework")
    wrong = judge_lowlevel.check_framework_claims(name, saw, run.machine) if saw and run.machine else None
    if wrong and outcome.stages[0][1].status != "fail":
        outcome = dataclasses.replace(outcome, stages=(("framework", wrong), *outcome.stages[1:]))
    return report, outcome


def _run_framework(run: Verification, name: str) -> None:
    if not _is_installed(run, name):
        run.add(
            "framework", Judgement(status="fail", detail=f"{name} is not in this environment"), None, name
        )
        for stage in ("convolution", "loaded"):
            run.skip(stage, "the framework stage failed", name)
        return
    run.emit(Event(kind="progress", stage="verify", text=f"{name}: import and convolutions"))
    verdicts = []
    for uuid in run.slices or (None,):
        verdict = _run_on_device(run, name, uuid)
        if uuid:  # in its own child each MIG device is device 0
            devices = tuple(dataclasses.replace(d, uuid=uuid) for d in verdict.devices)
            verdict = dataclasses.replace(verdict, devices=devices)
        verdicts.append(verdict)
        if run.broken:
            break
    together_ = tuple(d for v in verdicts for d in v.devices)
    run.verdicts.append(dataclasses.replace(verdicts[0], devices=together_))


def _list_later_installs(run: Verification) -> tuple[Evidence, ...]:
    """Return what was installed into a system-wide Python (as Colab's) after its image was made.

    For a venv or a conda environment that means nothing.
    """
    if run.env.manager is not None:
        return ()
    return installs_after_image.list_evidence(
        installs_after_image.find_later_installs(run.paths.sites, run.paths.user_site)
    )


def add_later_installs(findings: Sequence[Finding], later: tuple[Evidence, ...]) -> list[Finding]:
    """Return the findings, with later installs as evidence of those about builds and libraries."""
    return [
        dataclasses.replace(f, evidence=(*f.evidence, *later)) if _OF_PACKAGES.match(f.cause) else f
        for f in findings
    ]


def _run_on_device(run: Verification, name: str, uuid: str | None) -> FrameworkVerdict:
    """Run the three stages of a framework, on the MIG device `uuid` if there are several."""
    hidden = {"CUDA_VISIBLE_DEVICES": uuid} if uuid else {}
    report, outcome = _ask_framework(run, name, {**run.environ, **hidden})
    times = import_frameworks_and_judge_together.measure_stages(report)
    later = _list_later_installs(run)
    for stage, as_judged in outcome.stages:
        judged = dataclasses.replace(as_judged, findings=tuple(add_later_installs(as_judged.findings, later)))
        if stage == "framework":
            judged = dataclasses.replace(judged, evidence=(*judged.evidence, *later))
        run.add(stage, judged, times.get(stage) if judged.status != "skip" else None, name, uuid)
    if ill := compiled_mismatch.judge_extensions(name, report):
        run.add("framework", ill, None, name, uuid)
    run.wrong = run.wrong or outcome.wrong
    blind = run.device != "cpu" and any(f.cause == "visible_devices_invalid" for f in outcome.findings)
    if blind and (hides := culprit_setting.explain_startup_files(run.env, run.environ, name)):
        run.findings.insert(0, hides)
        return outcome.verdict
    if outcome.failed or outcome.foreign:

        def cured(environ: Mapping[str, str]) -> bool:
            _, again = _ask_framework(run, name, {**environ, **hidden})
            return not again.failed and not again.foreign

        search_settings(run, find_suspects(run, name), cured, [x.path for x in outcome.verdict.libraries])
    return outcome.verdict
