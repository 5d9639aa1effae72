"""Runs stages 5 to 7: one child per framework."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from ..model import Event, Evidence, Finding, FrameworkVerdict
from ..system import process
from . import (
    begun,
    copies,
    extensions,
    frameworks,
    hardware_claims,
    import_check,
    layers,
    loaded,
    probe,
    proved,
    since,
    startup,
    together,
    unloaded,
)
from .judged import Judged
from .state import Ahead, Run, search, suspects

# Where a package that was installed later can be the reason: builds and libraries, not drivers and memory.
_OF_PACKAGES = re.compile(
    r"cudnn|cuda_(major|lib)|nvidia_lib|cpu_only|arch_|jax_plugin|conflicting|numpy_abi|no_gpu_build|framework_bug|driver_too_old"
)


@contextlib.contextmanager
def ahead(run: Run) -> Iterator[None]:
    """Within the block the first framework is imported already, while the driver is asked. Importing takes
    longer than the stages below and needs no GPU."""
    first = next((n for n in _names(run) if not _aside(run, n)), None)
    if run.device == "cpu" or not _is_there(run, first):
        yield
        return
    turn, pool = Future[Mapping[str, Any] | None](), ThreadPoolExecutor(1)
    told, runs = begun.started(pool, _tell, run, first, run.environ, turn=turn.result)
    try:
        runs.wait()
        run.ahead = Ahead(str(first), turn, told)
        yield
    finally:
        if not turn.done():
            turn.set_result(None)
        if not told.done():
            process.end_children()
        pool.shutdown()


def stages(run: Run) -> None:
    later = _later(run)
    run.findings[:] = blamed(run.findings, later)
    if later:
        told = "; ".join(e.text for e in later)
        run.emit(Event(kind="note", stage="verify", text=f"installed since this runtime was made: {told}"))
    names = _names(run)
    if not names:
        detail = frameworks.none_in(run.env)
        if run.broken:
            return run.skip_rest(("framework", "convolution", "loaded"))
        run.add("framework", Judged(status="fail", detail=detail), None)
        return run.skip_rest(("convolution", "loaded"))
    broken = run.broken
    for name in names:
        if not broken and _aside(run, name):
            text = f"{name} is a build for the CPU only; another framework here uses the GPU"
            run.add("framework", Judged(status="warn", detail=text), None, name)
            for stage in ("convolution", "loaded"):
                run.skip(stage, "a build for the CPU only", name)
        elif broken:
            for stage in ("framework", "convolution", "loaded"):
                run.skip(stage, f"the {broken} stage failed", name)
        else:
            _framework(run, name)
    # On the CPU no library is shared; there the two more processes are worth it only when asked.
    names = tuple(n for n in names if not _aside(run, n))
    if len(names) > 1 and not run.broken and (run.device != "cpu" or run.options.deep):
        _together(run, names)
    return None


def imports(run: Run) -> None:
    """`--quick` on the CPU: import the frameworks, and compute nothing."""
    import_check.stages(run, _names(run))


def _names(run: Run) -> tuple[str, ...]:
    """The frameworks to prove: those that were asked for, else those of the lock and all that are there."""
    there = (f.name for f in run.found.frameworks)
    return run.options.frameworks or tuple(dict.fromkeys([*_planned(run), *there]))


def _is_there(run: Run, name: str | None) -> bool:
    return name in [f.name for f in run.found.frameworks]


def _aside(run: Run, name: str) -> bool:
    """Whether a CPU build stands beside a CUDA build, asked for by no one: JAX users keep a small torch."""
    wanted = {*run.options.frameworks, *_planned(run)}
    gpu = run.device != "cpu" and any(run.builds.values())
    return gpu and name not in wanted and not run.builds.get(name, True)


def _planned(run: Run) -> list[str]:
    return [b.framework for b in run.lock.plan.builds] if run.lock else []


def _together(run: Run, names: Sequence[str]) -> None:
    run.emit(Event(kind="progress", stage="verify", text="in one process: " + ", ".join(names)))
    start = time.perf_counter()
    tried = [
        (
            order,
            together.ask(
                run.env,
                order,
                device=run.device,
                ordinals=() if run.ordinal is None else (run.ordinal,),
                environ=run.environ,
                timeout=run.options.timeout,
            ),
        )
        for order in (tuple(names), tuple(reversed(names)))
    ]
    run.add("framework", together.judge(tried), time.perf_counter() - start, ", ".join(names))


def _tell(run: Run, name: str, environ: Mapping[str, str], **how: Any) -> probe.Told:
    return frameworks.ask(
        run.env,
        name,
        device=run.device,
        ordinals=() if run.ordinal is None else (run.ordinal,),
        deep=run.options.deep,
        environ=environ,
        timeout=run.options.timeout,
        extensions=extensions.beside(name, run.found.sites),
        **how,
    )


def _told(run: Run, name: str, environ: Mapping[str, str]) -> probe.Told:
    """What a framework's child tells; one that is under way already is let go on."""
    early = run.ahead
    if early and early.framework == name and environ == run.environ:
        run.ahead = None
        early.turn.set_result({})
        return early.told.result()
    return _tell(run, name, environ)


def _ask_framework(run: Run, name: str, environ: Mapping[str, str]) -> tuple[probe.Told, frameworks.Outcome]:
    told = _told(run, name, environ)
    devices: Sequence[Mapping[str, Any]] = (
        layers.seen(run.told, "driver").get("devices", ()) if run.told else ()
    )
    outcome = frameworks.judge(
        name,
        told,
        device=run.device,
        roots=run.found.roots,
        owners=copies.owners_of(run.packages),
        own_families=loaded.families(run.files),
        devices=devices,
        lock=run.lock,
        low=layers.low_memory(run.told) if run.told else None,
        unopened=lambda words: unloaded.finding(name, words, run.env, run.found, run.packages),
    )
    saw = told.last("framework")
    wrong = hardware_claims.of_framework(name, saw, run.machine) if saw and run.machine else None
    if wrong and outcome.stages[0][1].status != "fail":
        outcome = dataclasses.replace(outcome, stages=(("framework", wrong), *outcome.stages[1:]))
    return told, outcome


def _framework(run: Run, name: str) -> None:
    if not _is_there(run, name):
        run.add("framework", Judged(status="fail", detail=f"{name} is not in this environment"), None, name)
        for stage in ("convolution", "loaded"):
            run.skip(stage, "the framework stage failed", name)
        return
    run.emit(Event(kind="progress", stage="verify", text=f"{name}: import and convolutions"))
    verdicts = []
    for uuid in run.slices or (None,):
        verdict = _on(run, name, uuid)
        if uuid:  # in its own child each MIG device is device 0
            devices = tuple(dataclasses.replace(d, uuid=uuid) for d in verdict.devices)
            verdict = dataclasses.replace(verdict, devices=devices)
        verdicts.append(verdict)
        if run.broken:
            break
    together_ = tuple(d for v in verdicts for d in v.devices)
    run.verdicts.append(dataclasses.replace(verdicts[0], devices=together_))


def _later(run: Run) -> tuple[Evidence, ...]:
    """What a system-wide Python, as Colab's, got after its image was made. Of a venv or a conda
    environment that is nobody's change."""
    if run.env.manager is not None:
        return ()
    return since.evidence(since.changes(run.found.sites, run.found.user_site))


def blamed(findings: Sequence[Finding], later: tuple[Evidence, ...]) -> list[Finding]:
    """Findings of builds and libraries, with what was installed later as evidence."""
    return [
        dataclasses.replace(f, evidence=(*f.evidence, *later)) if _OF_PACKAGES.match(f.cause) else f
        for f in findings
    ]


def _on(run: Run, name: str, uuid: str | None) -> FrameworkVerdict:
    """A framework's three stages, on one MIG device where there are several."""
    hidden = {"CUDA_VISIBLE_DEVICES": uuid} if uuid else {}
    told, outcome = _ask_framework(run, name, {**run.environ, **hidden})
    times = proved.times(told)
    later = _later(run)
    for stage, as_judged in outcome.stages:
        judged = dataclasses.replace(as_judged, findings=tuple(blamed(as_judged.findings, later)))
        if stage == "framework":
            judged = dataclasses.replace(judged, evidence=(*judged.evidence, *later))
        run.add(stage, judged, times.get(stage) if judged.status != "skip" else None, name, uuid)
    if ill := extensions.judge(name, told):
        run.add("framework", ill, None, name, uuid)
    run.wrong = run.wrong or outcome.wrong
    blind = run.device != "cpu" and any(f.cause == "visible_devices_invalid" for f in outcome.findings)
    if blind and (hides := startup.finding(run.env, run.environ, name)):
        run.findings.insert(0, hides)
        return outcome.verdict
    if outcome.failed or outcome.foreign:

        def cured(environ: Mapping[str, str]) -> bool:
            _, again = _ask_framework(run, name, {**environ, **hidden})
            return not again.failed and not again.foreign

        search(run, suspects(run, name), cured, [x.path for x in outcome.verdict.libraries])
    return outcome.verdict
