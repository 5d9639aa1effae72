"""The stages driver, runtime, libraries and cudnn. Then several GPUs together.

One child runs driver, runtime and cudnn. The stage libraries reads files in this process.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..model import Evidence, Finding, Machine, format_cudnn
from ..profiles.wording import make_finding
from ..system.probes import Record
from .causes import (
    describe_call,
    explain_cuda_call,
    explain_cudnn_call,
    explain_memory,
    list_memory,
)
from .disk import explain_unloaded, judge_libraries
from .libraries import is_inside, map_owners, pick_library, read_built_major
from .probe import ProbeReport, run_probe
from .settings import search_settings
from .state import (
    LAYERS,
    Judgement,
    LibraryPaths,
    State,
    ask_gpu,
    fail_with,
    find_low_memory,
)

_PROBED = ("driver", "runtime", "cudnn")


def run_layers(state: State) -> None:
    """Run the four stages, which need a GPU, and the stages of further MIG devices."""
    early = state.early
    if state.device == "cpu":
        early.read_ahead()
        return state.skip(LAYERS, "not needed on the CPU")
    state.announce("progress", "driver, runtime and cuDNN")
    early.libraries.set_result(find_library_paths(state))
    start = time.perf_counter()
    on_disk = judge_libraries(state)  # while the child talks to the driver
    disk_seconds = time.perf_counter() - start
    early.read_ahead()
    state.machine = early.machine.result()
    report = early.gpu_report.result() if early.gpu_report else _ask(state, state.environ)
    state.gpu_report = report
    for number, stage in enumerate(LAYERS, 1):
        if stage == "libraries":
            state.add(stage, on_disk, disk_seconds)
        elif stage == "cudnn" and on_disk.status == "skip":
            return state.skip([stage], on_disk.detail)
        else:
            judged = _judge_layer(state, report, stage)
            if judged.status == "fail" and on_disk.status == "fail" and not judged.finding:
                judged = replace(judged, finding=on_disk.finding)  # the file that it could not load
            state.add(stage, judged, _measure(report, stage))
            state.wrong = state.wrong or (stage == "cudnn" and _is_wrong(report, judged))
        if state.failed:
            if stage != "libraries":
                _search_layers(state, report, stage)
            return state.skip(LAYERS[number:], f"the {stage} stage failed")
    for line in _describe_conditions(report.values("runtime").get("conditions", ())):
        state.announce("note", line.text)
    return _run_mig_devices(state, report)


def find_library_paths(state: State) -> LibraryPaths:
    """Return the libraries that the stages runtime and cudnn load.

    The loader's libcudart and libcudnn are used for a CUDA build in an environment that contains no libcudart.
    """
    files, major = state.installed.files, _find_major(state)
    cudart = pick_library(files, "libcudart", major) or pick_library(files, "libcudart")
    system = any(state.installed.builds.values()) and cudart is None
    sonames = {"13": "libcudart.so.13", "12": "libcudart.so.12", "11": "libcudart.so.11.0"}
    helpers = (pick_library(files, family, major) for family in ("libnvrtc", "libcublasLt", "libcublas"))
    return {
        "libcudart": [cudart] if cudart else [s for m, s in sonames.items() if system and major in (None, m)],
        "libcudnn": pick_library(files, "libcudnn") or ("libcudnn.so.9" if system else None),
        "helpers": [path for path in helpers if path],
    }


def _find_major(state: State) -> str | None:
    """Return the CUDA major version of the environment's cuDNN.

    It comes from the lock, else from the package's name, else from the build of the frameworks.
    """
    if state.lock and state.lock.plan.cuda_major:
        return state.lock.plan.cuda_major
    names = (re.search(r"-cu(\d+)$", p.name) for p in state.installed.packages if p.is_cudnn)
    named = next((match[1] for match in names if match), None)
    return named or read_built_major(state.paths)


def _ask(state: State, environ: Mapping[str, str]) -> ProbeReport:
    """Ask all again, in a child of its own, under other variables."""
    paths = find_library_paths(state)
    return ask_gpu(state.env, environ, state.options, lambda: paths)


def _measure(report: ProbeReport, stage: str) -> float | None:
    """Return the seconds of a stage of the GPU's probe, from the end of the stage before it."""
    ends = {r["stage"]: r["at"] for r in report.all("stage")}
    if stage not in ends:
        return None
    before = {"runtime": "driver", "cudnn": "runtime"}.get(stage, "")
    waited = report.last("paths")  # the time in which the driver's stage waited does not count
    start = waited["at"] if waited and before == "driver" else ends.get(before, 0.0)
    return float(ends[stage] - start)


def _search_layers(state: State, report: ProbeReport, stage: str) -> None:
    """Search for the setting that made a stage of the child fail. The stages before it must pass too."""

    def cured(environ: Mapping[str, str]) -> bool:
        again = _ask(state, environ)
        upto = _PROBED[: _PROBED.index(stage) + 1]
        return all(_judge_layer(state, again, s).status in ("pass", "warn") for s in upto)

    mapped = [p for p, _ in report.values("cudnn").get("mapped", ())]
    libcuda = report.values("driver").get("libcuda")
    search_settings(state, None, cured, [*mapped, libcuda] if libcuda else mapped)


def _run_mig_devices(state: State, report: ProbeReport) -> None:
    """Run the stages for each further MIG device in its own child. CUDA shows a process only one MIG device."""
    uuids = report.values("driver").get("mig", ())
    if state.ordinal is not None or len(uuids) < 2:
        return
    state.mig_devices = tuple(uuids)
    for uuid in uuids[1:]:
        again = _ask(state, {**state.environ, "CUDA_VISIBLE_DEVICES": uuid})
        for stage in _PROBED:
            state.add(stage, _judge_layer(state, again, stage), _measure(again, stage), device=uuid)
            if state.failed:
                return


# --- driver, runtime and cudnn -------------------------------------------------------------------

_UNREACHED = {
    "driver": "the test process reported nothing",
    "cudnn": "cuDNN was not tested, because an earlier step failed",
}


def _judge_layer(state: State, report: ProbeReport, stage: str) -> Judgement:
    record = report.stage_record(stage)
    if record and stage == "driver":
        return _judge_driver(state, record)
    if record and stage == "runtime":
        return _judge_runtime(state, report, record)
    if record:
        return _judge_cudnn(state, report, record)
    if report.death and report.stage == stage:
        return Judgement("fail", report.death, report.words(), _explain_death(report, stage))
    if stage == "runtime" and not report.malformed:
        return Judgement("skip", "the environment contains no CUDA runtime")
    return Judgement("fail", report.death or _UNREACHED[stage], report.words())


def _explain_death(report: ProbeReport, stage: str) -> Finding | None:
    evidence = (Evidence(report.death or "", stage), *report.words(3))
    if stage == "cudnn" and report.finished.signal == "SIGBUS":
        return make_finding("cudnn_file_truncated", evidence)
    if stage in ("driver", "runtime") and report.finished.timed_out:
        return make_finding("driver_does_not_answer", evidence)
    return None


def _judge_driver(state: State, record: Record) -> Judgement:
    """Judge the stage driver."""
    saw, ordinal = record["values"], state.ordinal
    rows = [
        (saw.get("libcuda"), "libcuda.so.1"),
        (saw.get("kernel_module"), "/proc/driver/nvidia/version"),
    ]
    if saw.get("visible") is not None:
        rows.append((f"CUDA_VISIBLE_DEVICES={saw['visible']}", "environment"))
    rows += [(f["problem"], f["path"]) for f in saw.get("files", ())]
    evidence = tuple(Evidence(text, where) for text, where in rows if text)
    if failed := record["failed"]:
        machine = state.machine  # where its driver works for nobody, detect has said why
        broken = machine.findings[0] if machine and machine.driver.problem and not machine.gpus else None
        finding = broken or explain_cuda_call(failed, saw, saw)
        return Judgement("fail", describe_call(failed), evidence, finding)
    devices = saw["devices"]
    if ordinal is not None and ordinal not in [d["index"] for d in devices]:
        many = len(devices)
        return fail_with(
            make_finding(
                "device_not_visible", evidence, device=ordinal, count=many,
                choices=f"one of cuda:0 to cuda:{many - 1}" if many > 1 else "cuda:0",
            )
        )  # fmt: skip
    if state.machine and (claim := check_driver_claims(saw, state.machine)):
        return claim
    library, module = _parse_libcuda_version(saw), saw.get("kernel_module")
    mismatch = None
    # A cuda-compat library differs on purpose.
    if library and module and library != module and "compat" not in (saw.get("libcuda") or ""):
        mismatch = make_finding("libcuda_differs_from_module", evidence, library=library, module=module)
    names = ", ".join(f"{d['name']} ({d['capability']})" for d in devices)
    detail = f"driver {module or library or 'of unknown version'}, CUDA {saw['cuda']}: {names}"
    return Judgement("warn" if mismatch else "pass", detail, evidence, mismatch)


def _parse_libcuda_version(saw: Mapping[str, Any]) -> str | None:
    """Return the driver's version in the file name of libcuda."""
    match = re.search(r"libcuda\.so\.(\d+\.\d+(\.\d+)?)$", os.path.realpath(saw.get("libcuda") or ""))
    return match[1] if match else None


def _judge_runtime(state: State, report: ProbeReport, record: Record) -> Judgement:
    """Judge the stage runtime."""
    saw, failed = record["values"], record["failed"]
    memory = list_memory(saw)
    if failed:
        words = describe_call(failed)
        finding = explain_cuda_call(failed, saw, report.values("driver"))
        if finding is None and failed.get("code") is None:
            finding = explain_unloaded(state, state.installed.cuda_framework, words) or state.explain(words)
        return Judgement("fail", words, memory, finding)
    free = ", ".join(f"{m['free_mib']} of {m['total_mib']} MiB free" for m in saw["memory"])
    detail = f"CUDA runtime {saw['version']}: {free}"
    conditions = _describe_conditions(saw["conditions"])
    evidence = (Evidence(saw["libcudart"], "libcudart"), *memory, *conditions)
    if find_low_memory(report) is None:
        return Judgement("pass", detail, evidence)
    finding = explain_memory(f"Little GPU memory is free: {free}", saw, memory, "possible")
    return Judgement("warn", detail, evidence, finding)


def _describe_conditions(conditions: Sequence[Mapping[str, Any]]) -> tuple[Evidence, ...]:
    """Return one line for all GPUs in the same condition: "GPU 0, 1: ECC on, PCIe x16". None of it is a failure."""
    lines: dict[str, list[str]] = {}
    for one in conditions:
        words = [] if one["ecc"] is None else [f"ECC {'on' if one['ecc'] else 'off'}"]
        if one["lanes"]:
            full = one["lanes"] >= one["most_lanes"]
            words.append(f"PCIe x{one['lanes']}{'' if full else ' of x' + str(one['most_lanes'])}")
        if one["slowed"]:
            words.append(f"slowed down by {' and '.join(one['slowed'])}")
        if one["remap"]:
            words.append("rows of its memory wait for a reset to be remapped")
        if words:
            lines.setdefault(", ".join(words), []).append(str(one["index"]))
    return tuple(Evidence(f"GPU {', '.join(indexes)}: {words}", "NVML") for words, indexes in lines.items())


def _judge_cudnn(state: State, report: ProbeReport, record: Record) -> Judgement:
    """Judge the stage cudnn. uv can link the environment's libraries from its cache."""
    saw, failed, owned = record["values"], record["failed"], map_owners(state.installed.packages)
    files = [p for p, _ in saw["mapped"]]
    evidence = tuple(Evidence(p, "mapped") for p in files if "libcudnn" in p)
    foreign: tuple[str, ...] = ()
    if pick_library(state.installed.files, "libcudnn"):
        copies = (p for p in files if os.path.basename(p).startswith("libcudnn"))
        outside = (p for p in copies if not is_inside(p, state.paths.roots))
        foreign = tuple(p for p in outside if os.path.realpath(p) not in owned)
    if failed:
        finding = explain_cudnn_call(failed, report.complaints(), find_low_memory(report))
        finding = finding or state.explain(describe_call(failed))
        return Judgement("fail", describe_call(failed), report.complaints() + evidence, finding, foreign)
    if foreign:
        return fail_with(make_finding("cudnn_from_outside", evidence, library=foreign[0]), foreign)
    version = format_cudnn(saw["number"])
    return Judgement(
        "pass", f"cuDNN {version}: a convolution through ctypes gives the correct result", evidence
    )


def _is_wrong(report: ProbeReport, judged: Judgement) -> bool:
    """Return whether the stage cudnn computed wrong numbers, or used another cuDNN than the environment's."""
    record = report.stage_record("cudnn")
    if record is None or record["failed"] is None:
        return record is not None and bool(judged.foreign)
    return bool(record["failed"]["call"] == "cudnnConvolutionForward" and not record["failed"]["code"])


# --- hardware that only the environment reports --------------------------------------------------


def check_driver_claims(saw: Mapping[str, Any], machine: Machine) -> Judgement | None:
    """Return a failure if the stage driver reports other GPUs or another driver than gpuenv reads, else None.

    A cuda-compat libcuda has another version than the kernel module on purpose.
    """
    uuids = [d["uuid"] for d in saw.get("devices", ())] + list(saw.get("mig", ()))
    if judged := _check_uuids("the environment's Python", uuids, machine):
        return judged
    driver, module, library = machine.driver, saw.get("kernel_module"), _parse_libcuda_version(saw)
    compat = any("compat" in (path or "") for path in (saw.get("libcuda"), driver.libcuda))
    if (driver.kernel_module or module) and module != (driver.kernel_module or driver.library):
        reported = f"the kernel module {module}" if module else "no kernel module"
    elif library and driver.library and not compat and library not in (driver.library, driver.kernel_module):
        reported = f"libcuda {library}"
    else:
        return None
    read = driver.kernel_module or driver.library or "none"
    title = f"The environment's Python reports {reported}; this machine's driver is {read}"
    return _judge_contradiction(title, reported, f"driver {read}")


def check_framework_claims(name: str, saw: Mapping[str, Any], machine: Machine) -> Judgement | None:
    """Return a failure if a framework reports GPUs that gpuenv does not read, else None.

    JAX and TensorFlow report no UUIDs.
    """
    return _check_uuids(name, [d["uuid"] for d in saw.get("devices", ()) if d["uuid"]], machine)


def _check_uuids(who: str, uuids: Collection[str], machine: Machine) -> Judgement | None:
    known = {_strip_uuid(u) for g in machine.gpus for u in (g.uuid, *g.mig) if u}
    unread = sum(g.uuid is None for g in machine.gpus)  # GPUs that gpuenv may not read
    strange = [u for u in dict.fromkeys(uuids) if _strip_uuid(u) not in known]
    if len(strange) <= unread:
        return None
    read = ", ".join(str(g.uuid) for g in machine.gpus) or machine.driver.problem or "no GPU"
    title = f"{who[0].upper()}{who[1:]} reports the GPU {strange[0]}, which this machine does not have"
    return _judge_contradiction(title, ", ".join(strange), read)


def _strip_uuid(uuid: str) -> str:
    """Return the digits of a UUID: CUDA and NVML write different prefixes.

    Drivers before R470 name a MIG device by its card.
    """
    match = re.search(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", uuid.lower())
    return match[0] if match else uuid


def _judge_contradiction(title: str, reported: str, read: str) -> Judgement:
    evidence = (Evidence(reported, "reported"), Evidence(read, "read by gpuenv"))
    return fail_with(make_finding("hardware_not_of_machine", evidence, difference=title))


# --- several GPUs together: copies between them, and NCCL -----------------------------------------

_SECONDS = 90.0
_ARM_SECONDS = 20.0
"""The deadline of each run of NCCL. Eight healthy GPUs take some three seconds."""
# NVLink multicast allocates in the switch, which other machines share. NCCL's warnings name the call that failed.
_NCCL = {"NCCL_NVLS_ENABLE": "0", "NCCL_DEBUG": "WARN", "NCCL_DEBUG_FILE": "/dev/stderr"}
_SHARED = "/dev/shm"  # noqa: S108 - the folder of shared memory itself, in which nothing is written
_DIRECT = 3.0
"""A copy goes directly if it is this much faster than through the host. A staged one is at most 1.5 times as fast."""


def run_peers(state: State) -> None:
    """Add the stage where several GPUs are to be verified and the stages below it passed."""
    if state.gpu_report is None or state.failed or state.ordinal is not None:
        return
    ordinals = [d["index"] for d in state.gpu_report.values("driver").get("devices", ())]
    cudart = state.gpu_report.values("runtime").get("libcudart")
    if len(ordinals) < 2 or not cudart:
        return
    folders = (
        *(f"{site}/nvidia/nccl" for site in state.paths.sites),
        state.paths.prefix,
    )  # the prefix of conda
    nccl = filter(os.path.isfile, (f"{folder}/lib/libnccl.so.2" for folder in folders))
    start = time.perf_counter()
    report = run_probe(
        state.env.python,
        ("report", "peers"),
        {
            "libcudart": cudart,
            "libnccl": next(nccl, None),
            "ordinals": ordinals,
            "seconds": _ARM_SECONDS,
            "variables": _list_variables(state.environ),
        },
        environ={**_NCCL, **state.environ},
        timeout=min(state.options.timeout, _SECONDS),
        options=("-I", "-S", "-B"),
    )
    state.add("peers", judge_peers(state, report, len(ordinals)), time.perf_counter() - start)


def judge_peers(state: State, report: ProbeReport, many: int) -> Judgement:
    """Pass where every copy, transfer and sum is right; else a warning that names the way that does not work."""
    copies, environ = report.all("copy"), state.environ
    evidence = tuple(
        Evidence(
            f"device {r['source']} to device {r['target']}, {_describe_route(r)}: {'right' if r['ok'] else 'wrong'}",
            "cudaMemcpyPeer",
        )
        for r in copies
    )
    wrong = [f"device {r['source']} to device {r['target']}" for r in copies if not r["ok"]]
    arms = _list_arms(report)
    if wrong:
        detail = f"wrong copies: {', '.join(wrong)}; single GPUs work"
        judged = _warn_of_peers(state, detail, evidence, report)
        return replace(judged, finding=make_finding("peer_copies_fail", evidence, confidence="certain"))
    if report.death or len(copies) < many * (many - 1):
        failed = report.last("failed")
        what = report.death or (describe_call(failed) if failed else "the copies did not end")
        return _warn_of_peers(state, f"{what}; single GPUs work", evidence, report)
    if arms and (problem := arms[0][1]):
        working = next((variables for variables, failure in arms if failure is None), None)
        if working is None:
            detail = f"NCCL does not work between these GPUs: {problem}"
            return _warn_of_peers(state, detail, evidence, report)
        if working:
            detail = f"NCCL works only with {' '.join(f'{name}=1' for name in working)}: {problem}"
            row = "peer_copies_fail" if working == ["NCCL_P2P_DISABLE"] else None
            return _warn_of_peers(state, detail, evidence, report, row)
        names = _list_variables(environ)
        return _warn_of_peers(
            state, f"NCCL works only without {' '.join(names)}: {problem}", evidence, report,
            "setting_breaks_environment", settings=" ".join(f"{name}={environ[name]}" for name in names),
            it="it" if len(names) == 1 else "them", steps=f"Run `unset {' '.join(names)}`.",
        )  # fmt: skip
    direct = sum(r["access"] and r["speed"] >= _DIRECT * r["host_speed"] for r in copies)
    transfers = f"{len(copies)} copies between them are correct, {direct} of them direct"
    summed = (
        "NCCL gives correct results between each pair and over all"
        if arms
        else "the environment does not contain NCCL"
    )
    return Judgement("pass", f"{many} GPUs: {transfers}; {summed}", evidence)


def _list_variables(environ: Mapping[str, str]) -> list[str]:
    """Return the user's own variables of NCCL. NCCL_VERSION is a label of NVIDIA's images."""
    return sorted(n for n in environ if n.startswith("NCCL_") and n not in (*_NCCL, "NCCL_VERSION"))


def _describe_route(copy: Record) -> str:
    speeds = f"{copy['speed']:g} GB/s, through the host {copy['host_speed']:g}"
    if not copy["access"]:
        return f"without peer access: {speeds}"
    return f"{'direct' if copy['speed'] >= _DIRECT * copy['host_speed'] else 'with peer access'}: {speeds}"


def _list_arms(report: ProbeReport) -> list[tuple[list[str], str | None]]:
    """Return (variables that were set, what went wrong) for each run of NCCL."""
    arms: list[tuple[list[str], str | None]] = []
    failed: str | None = None
    for r in report.records:
        if r["kind"] == "arm":
            arms.append((r["variables"], "it did not end"))
            failed = None
        elif not arms:
            continue
        elif r["kind"] == "failed":
            failed = failed or describe_call(r)
        elif r["kind"] in ("sent", "all_reduce") and not r["ok"]:
            failed = failed or "NCCL's numbers are wrong"
        elif r["kind"] == "arm_end":
            arms[-1] = (arms[-1][0], failed or next(iter(r["failures"]), None))
    return arms


def _warn_of_peers(
    state: State, detail: str, evidence: tuple[Evidence, ...], report: ProbeReport,
    row: str | None = None, **slots: Any,
) -> Judgement:  # fmt: skip
    """Return the warning, with what on this machine decides how GPUs reach each other.

    Its finding is the cause that NCCL's words name, else that of `row`.
    """
    environ = state.environ
    shown = [Evidence(f"{n}={environ[n]}", "variable") for n in sorted(environ) if n.startswith("NCCL_")]
    if units := glob.glob("/sys/class/iommu/*"):
        text = f"the IOMMU is on ({len(units)} units), which can stop copies between GPUs"
        shown.append(Evidence(text, "/sys/class/iommu"))
    with contextlib.suppress(OSError):
        shared = os.statvfs(_SHARED)
        shown.append(Evidence(f"{shared.f_blocks * shared.f_frsize >> 20} MiB", _SHARED))
    words = report.words(6)
    finding = state.explain("\n".join(e.text for e in words))
    if row and not finding:
        finding = make_finding(row, (*shown, *words), **slots)
    return Judgement("warn", detail, (*evidence, *shown, *words), finding)
