"""Runs stages 1 to 4: one child for driver, runtime and cuDNN; the files on disk are read here."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from ..model import Event
from . import (
    check_gpus,
    judge_cudnn_files,
    judge_lowlevel,
    missing_libraries,
    prefetch,
    read_libraries,
    run_probe,
)
from .verification import Judgement, Verification, find_suspects, search_settings

_BEFORE = {"driver": None, "runtime": "driver", "cudnn": "runtime"}


def _major(run: Verification) -> str | None:
    """The CUDA major that the environment's cuDNN is for: by the lock, else by the package's name, else
    the one that its frameworks were built with."""
    if run.lock and run.lock.plan.cuda_major:
        return run.lock.plan.cuda_major
    for package in run.packages:
        match = re.search(r"-cu(\d+)$", package.name) if package.is_cudnn else None
        if match:
            return match.group(1)
    return read_libraries.read_built_major(run.found)


def _paths(run: Verification) -> prefetch.LibraryPaths:
    system = any(run.builds.values()) and not read_libraries.pick_library(run.files, "libcudart")
    return judge_lowlevel.choose_libraries(run.files, major=_major(run), system=system)


def _ask(run: Verification, environ: Mapping[str, str]) -> run_probe.ProbeReport:
    """Ask all again, in a child of its own, under other variables."""
    paths = _paths(run)
    seconds = min(run.options.timeout, prefetch.SECONDS)
    return prefetch.ask_driver(run.env, lambda: paths, ordinal=run.ordinal, environ=environ, timeout=seconds)


def run_lowlevel(run: Verification) -> None:
    run.emit(
        Event(
            kind="progress", stage="verify", text="driver, runtime and cuDNN", done=0, total=7, unit="stages"
        )
    )
    with ThreadPoolExecutor(1) as pool:  # the files are read while the child talks to the driver
        if run.begun.told is None:
            asked = pool.submit(_ask, run, run.environ)
        else:
            run.begun.paths.set_result(_paths(run))
            asked = run.begun.told
        on_disk, seconds = _libraries(run)
        run.read_ahead()
        run.machine = run.read_machine() if run.read_machine else None
        told = run.told = asked.result()
    run.add("driver", _judge_layer(run, told, "driver"), _seconds(told, None, "driver"))
    if run.broken:
        _search_layers(run, "driver")
        return run.skip_rest(("runtime", "libraries", "cudnn"))
    run.add("runtime", _runtime(run, told), _seconds(told, "driver", "runtime"))
    if run.broken:
        _search_layers(run, "runtime")
        return run.skip_rest(("libraries", "cudnn"))
    run.add("libraries", on_disk, seconds)
    if run.broken:
        return run.skip_rest(("cudnn",))
    judged = _judge_layer(run, told, "cudnn")
    run.add("cudnn", judged, _seconds(told, "runtime", "cudnn"))
    if judged.status == "fail":
        run.wrong = run.wrong or judge_lowlevel.is_wrong(told, judged)
        _search_layers(run, "cudnn")
    return _slices(run)


def _slices(run: Verification) -> None:
    """CUDA shows a process one MIG device only, so each of the others gets a child of its own."""
    assert run.told is not None
    uuids = judge_lowlevel.read_stage(run.told, "driver").get("mig", ())
    if run.broken or run.ordinal is not None or len(uuids) < 2:
        return
    run.slices = tuple(uuids)
    for uuid in uuids[1:]:
        told = _ask(run, {**run.environ, "CUDA_VISIBLE_DEVICES": uuid})
        for stage in ("driver", "runtime", "cudnn"):
            judged = _judge_layer(run, told, stage)
            run.add(stage, judged, _seconds(told, _BEFORE[stage], stage), device=uuid)
            if judged.status == "fail":
                return


def _libraries(run: Verification) -> tuple[Judgement, float]:
    """Stage 3, and its seconds."""
    start = time.perf_counter()
    judged = judge_cudnn_files.judge_libraries(
        run.env,
        run.found,
        run.packages,
        run.files,
        run.builds,
        hashes=not run.options.quick,
        deep=run.options.deep,
        lock=run.lock,
        releases=run.releases,
        environ=run.environ,
    )
    return judged, time.perf_counter() - start


def _seconds(report: run_probe.ProbeReport, before: str | None, stage: str) -> float | None:
    """How long a stage of the low-level probe took: from the end of the one before it."""
    ends = {r["stage"]: r["at"] for r in report.all("stage")}
    if stage not in ends:
        return None
    waited = report.last("paths")  # what the driver's stage waited for is nobody's time
    start = waited["at"] if waited and before == "driver" else ends.get(before or "", 0.0)
    return float(ends[stage] - start)


def _judge_layer(run: Verification, report: run_probe.ProbeReport, stage: str) -> Judgement:
    if stage == "driver":
        judged = judge_lowlevel.judge_driver(report, run.ordinal)
        if judged.status == "fail" or run.machine is None:
            return judged
        return (
            check_gpus.check_driver_claims(judge_lowlevel.read_stage(report, "driver"), run.machine) or judged
        )
    if stage == "runtime":
        return _runtime(run, report)
    owned = read_libraries.map_owners(run.packages)
    return judge_lowlevel.judge_cudnn(
        report, run.found.roots, owned, read_libraries.pick_library(run.files, "libcudnn")
    )


def _runtime(run: Verification, report: run_probe.ProbeReport) -> Judgement:
    framework = next((f for f, cuda in run.builds.items() if cuda), "")
    return judge_lowlevel.judge_runtime(
        report,
        lambda words: missing_libraries.explain_unloaded(framework, words, run.env, run.found, run.packages),
    )


def _search_layers(run: Verification, stage: str) -> None:
    """The culprit behind a failing stage 1, 2 or 4: the stages below it must pass too."""

    def cured(environ: Mapping[str, str]) -> bool:
        again = _ask(run, environ)
        upto = ("driver", "runtime", "cudnn")[: ("driver", "runtime", "cudnn").index(stage) + 1]
        return all(_judge_layer(run, again, s).status in ("pass", "warn") for s in upto)

    assert run.told is not None
    saw = [p for p, _ in judge_lowlevel.read_stage(run.told, "cudnn").get("mapped", ())]
    saw += [p for p in [judge_lowlevel.read_stage(run.told, "driver").get("libcuda")] if p]
    search_settings(
        run, [s for s in find_suspects(run) if s.variable not in ("PYTHONPATH", "user site")], cured, saw
    )
