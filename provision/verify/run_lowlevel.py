"""Runs stages 1 to 4: driver, runtime, libraries and cuDNN.

One child runs stages 1, 2 and 4. Stage 3 reads files in this process.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..model import Event, Machine
from . import (
    early_probes,
    explain_unopened_nvidia_libraries,
    judge_cudnn_files,
    judge_lowlevel,
    read_libraries,
    run_probe,
)
from .verification_state import Judgement, Verification, find_suspects, search_settings

_BEFORE = {"driver": None, "runtime": "driver", "cudnn": "runtime"}


def _find_major(run: Verification) -> str | None:
    """Return the CUDA major version of the environment's cuDNN.

    It comes from the lock, else from the package's name, else from the build of the frameworks.
    """
    if run.lock and run.lock.plan.cuda_major:
        return run.lock.plan.cuda_major
    for package in run.installed.packages:
        match = re.search(r"-cu(\d+)$", package.name) if package.is_cudnn else None
        if match:
            return match.group(1)
    return read_libraries.read_built_major(run.paths)


def choose_libraries(files: Sequence[str], *, major: str | None, system: bool) -> dict[str, Any]:
    """Return the libraries that stages 2 and 4 load. `major` is the CUDA major version of the environment.

    `system` allows the loader's libcudart and libcudnn if the environment contains none.
    """
    cudnn = read_libraries.pick_library(files, "libcudnn")
    cudart = read_libraries.pick_library(files, "libcudart", major) or read_libraries.pick_library(
        files, "libcudart"
    )
    sonames = {"13": "libcudart.so.13", "12": "libcudart.so.12", "11": "libcudart.so.11.0"}
    fallback = [s for m, s in sonames.items() if system and major in (None, m)]
    return {
        "libcudart": [cudart] if cudart else fallback,
        "libcudnn": cudnn or ("libcudnn.so.9" if system else None),
        "helpers": [
            p
            for f in ("libnvrtc", "libcublasLt", "libcublas")
            if (p := read_libraries.pick_library(files, f, major))
        ],
    }


def _find_library_paths(run: Verification) -> early_probes.LibraryPaths:
    system = any(run.installed.builds.values()) and not read_libraries.pick_library(
        run.installed.files, "libcudart"
    )
    return choose_libraries(run.installed.files, major=_find_major(run), system=system)


def _ask(run: Verification, environ: Mapping[str, str]) -> run_probe.ProbeReport:
    """Ask all again, in a child of its own, under other variables."""
    paths = _find_library_paths(run)
    seconds = min(run.options.timeout, early_probes.SECONDS)
    child = run_probe.ChildSettings(environ=environ, timeout=seconds, later_input=lambda: paths)
    return early_probes.ask_driver(run.env, run.ordinal, child)


def run_lowlevel(run: Verification) -> None:
    """Run stages 1 to 4, and the stages of further MIG devices."""
    run.emit(
        Event(
            kind="progress", stage="verify", text="driver, runtime and cuDNN", done=0, total=7, unit="stages"
        )
    )
    with ThreadPoolExecutor(1) as pool:  # the files are read while the child talks to the driver
        if run.early_probes.driver_report is None:
            pending = pool.submit(_ask, run, run.environ)
        else:
            run.early_probes.paths.set_result(_find_library_paths(run))
            pending = run.early_probes.driver_report
        on_disk, seconds = _judge_libraries_stage(run)
        run.read_ahead()
        run.machine = _read_machine(run)
        report = run.lowlevel = pending.result()
    run.add("driver", _judge_layer(run, report, "driver"), _measure_stage(report, None, "driver"))
    if run.broken:
        _search_layers(run, "driver")
        return run.skip_rest(("runtime", "libraries", "cudnn"))
    run.add("runtime", _judge_runtime_stage(run, report), _measure_stage(report, "driver", "runtime"))
    if run.broken:
        _search_layers(run, "runtime")
        return run.skip_rest(("libraries", "cudnn"))
    run.add("libraries", on_disk, seconds)
    if run.broken:
        return run.skip_rest(("cudnn",))
    if on_disk.status == "skip":
        return run.skip("cudnn", on_disk.detail)
    judged = _judge_layer(run, report, "cudnn")
    run.add("cudnn", judged, _measure_stage(report, "runtime", "cudnn"))
    if judged.status == "fail":
        run.wrong = run.wrong or judge_lowlevel.is_wrong(report, judged)
        _search_layers(run, "cudnn")
    return _run_slices(run)


def _read_machine(run: Verification) -> Machine | None:
    if run.early_probes.machine:
        return run.early_probes.machine.result()
    return run.baseline.read_machine() if run.baseline.read_machine else None


def _run_slices(run: Verification) -> None:
    """Run the stages for each further MIG device in its own child. CUDA shows a process only one MIG device."""
    assert run.lowlevel is not None
    uuids = judge_lowlevel.read_stage(run.lowlevel, "driver").get("mig", ())
    if run.broken or run.ordinal is not None or len(uuids) < 2:
        return
    run.slices = tuple(uuids)
    for uuid in uuids[1:]:
        report = _ask(run, {**run.environ, "CUDA_VISIBLE_DEVICES": uuid})
        for stage in ("driver", "runtime", "cudnn"):
            judged = _judge_layer(run, report, stage)
            run.add(stage, judged, _measure_stage(report, _BEFORE[stage], stage), device=uuid)
            if judged.status == "fail":
                return


def _judge_libraries_stage(run: Verification) -> tuple[Judgement, float]:
    """Return the judgement of stage 3, and its seconds."""
    start = time.perf_counter()
    judged = judge_cudnn_files.judge_libraries(run.env, run.installed, run.options, run.baseline, run.environ)
    return judged, time.perf_counter() - start


def _measure_stage(report: run_probe.ProbeReport, before: str | None, stage: str) -> float | None:
    """Return the seconds of a stage of the low-level probe, from the end of the stage before it."""
    ends = {r["stage"]: r["at"] for r in report.all("stage")}
    if stage not in ends:
        return None
    waited = report.last("paths")  # the time in which the driver's stage waited does not count
    start = waited["at"] if waited and before == "driver" else ends.get(before or "", 0.0)
    return float(ends[stage] - start)


def _judge_layer(run: Verification, report: run_probe.ProbeReport, stage: str) -> Judgement:
    if stage == "driver":
        judged = judge_lowlevel.judge_driver(report, run.ordinal)
        if judged.status == "fail" or run.machine is None:
            return judged
        return (
            judge_lowlevel.check_driver_claims(judge_lowlevel.read_stage(report, "driver"), run.machine)
            or judged
        )
    if stage == "runtime":
        return _judge_runtime_stage(run, report)
    owned = read_libraries.map_owners(run.installed.packages)
    return judge_lowlevel.judge_cudnn(
        report, run.paths.roots, owned, read_libraries.pick_library(run.installed.files, "libcudnn")
    )


def _judge_runtime_stage(run: Verification, report: run_probe.ProbeReport) -> Judgement:
    framework = run.installed.cuda_framework
    return judge_lowlevel.judge_runtime(
        report,
        lambda words: explain_unopened_nvidia_libraries.explain_unloaded(
            framework, words, run.env, run.installed
        ),
    )


def _search_layers(run: Verification, stage: str) -> None:
    """Search for the setting that made stage 1, 2 or 4 fail. The stages below it must pass too."""

    def cured(environ: Mapping[str, str]) -> bool:
        again = _ask(run, environ)
        upto = ("driver", "runtime", "cudnn")[: ("driver", "runtime", "cudnn").index(stage) + 1]
        return all(_judge_layer(run, again, s).status in ("pass", "warn") for s in upto)

    assert run.lowlevel is not None
    saw = [p for p, _ in judge_lowlevel.read_stage(run.lowlevel, "cudnn").get("mapped", ())]
    saw += [p for p in [judge_lowlevel.read_stage(run.lowlevel, "driver").get("libcuda")] if p]
    search_settings(
        run, [s for s in find_suspects(run) if s.variable not in ("PYTHONPATH", "user site")], cured, saw
    )
