"""Reads the driver and the GPUs, from NVML, libcuda, nvidia-smi and kernel files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ..model import Driver, Evidence, Finding, Gpu
from ..model.values import Value
from .causes import (
    NVML_GPU_LOST,
    NVML_NO_PERMISSION,
    DriverState,
    explain,
    explain_cuda,
    make_finding,
    read_uvm,
)
from .files import (
    DRIVER_FOLDERS,
    exists,
    find_files,
    join_root,
    list_device_files,
    parse_library_version,
    read_kernel_module,
)
from .host import read_context, read_hardware
from .query import NOT_THERE, DriverAnswer, Trouble, ask_libcuda, ask_nvml, ask_smi


class DriverReading(Value):
    """The driver, its GPUs, the CUDA version of a cuda-compat libcuda in use, and the findings."""

    driver: Driver
    gpus: tuple[Gpu, ...] = ()
    forward_compat: str | None = None
    findings: tuple[Finding, ...] = ()


def read_driver(
    root: Path, environ: Mapping[str, str], machine: str, seconds: float, *, start_cuda: bool = False
) -> DriverReading:
    """Read the driver from NVML. If that gives no GPU, use libcuda in a child, /proc, /sys and nvidia-smi, and say why.

    `machine` is the processor as in platform strings, `seconds` the deadline of a child. With `start_cuda` a
    child starts CUDA even if NVML gives GPUs, because cuInit can fail there.
    """
    nvml = ask_nvml()
    module, source = read_kernel_module(root)
    files = find_files(("libcuda.so.1", "libnvidia-ml.so.1"), root, environ, machine)
    state = DriverState(
        nvml=nvml,
        kernel_module=module,
        kernel_source=source,
        libcuda=files.get("libcuda.so.1"),
        library=parse_library_version(files.get("libnvidia-ml.so.1")),
        nodes=list_device_files(root),
    )
    works = nvml.ok and bool(nvml.gpus)
    if works and not start_cuda:
        return _read_working(nvml, module, state.libcuda)
    has_traces = nvml.code is not None or module or state.libcuda or state.nodes
    cuda = ask_libcuda(environ, seconds) if has_traces else NOT_THERE
    if cuda.ok and cuda.gpus and not works:
        return _read_working(cuda, module, cuda.path or state.libcuda, nvml.error)
    state = replace(
        state,
        cuda=cuda,
        library=cuda.driver or state.library,
        context=read_context(root, environ),
        uvm=read_uvm(root),
    )
    if works:
        reading, finding = _read_working(nvml, module, state.libcuda), explain_cuda(state)
        if finding is None:
            return reading
        others = (f for f in reading.findings if f.cause != finding.cause)
        driver = replace(reading.driver, problem=finding.title)
        return replace(reading, driver=driver, findings=(finding, *others))
    smi = ask_smi(root, environ, seconds)
    state = replace(
        state,
        smi=smi,
        hardware=read_hardware(root),
        nouveau=exists(join_root(root, "/sys/module/nouveau")),
        unsearched=next((f for f in DRIVER_FOLDERS if exists(join_root(root, f"{f}/libcuda.so.1"))), None),
    )
    problem, findings = explain(state)
    # The file name of libcuda shows its version. Without a loaded module that is not the version of a driver.
    answers = (nvml, cuda if module else None, smi)
    first = next((answer for answer in answers if answer and answer.driver), None)
    driver = Driver(
        library=first.driver if first else None,
        kernel_module=module,
        cuda=cuda.cuda if first else None,
        source=first.source if first else source,
        libcuda=cuda.path or state.libcuda,
        problem=problem,
    )
    troubles = tuple(make_trouble_finding(trouble) for trouble in nvml.troubles)
    return DriverReading(
        driver=driver, gpus=smi.gpus if smi and smi.ok else (), findings=(*findings, *troubles)
    )


def _read_working(
    answer: DriverAnswer, module: str | None, libcuda: str | None, aside: str | None = None
) -> DriverReading:
    """Return the reading of a driver that gave GPUs.

    A libcuda newer than the kernel module is a cuda-compat library. It then gives the CUDA version, and the
    driver's own CUDA version stays unknown.
    """
    compat = is_newer(parse_library_version(libcuda), module)
    library = module if compat else answer.driver or module
    findings = [make_trouble_finding(trouble) for trouble in answer.troubles]
    if not compat and module and answer.driver and module != answer.driver:
        shown = [
            Evidence(f"kernel module {module}", "/proc/driver/nvidia/version"),
            Evidence(f"driver libraries {answer.driver}", "reported by the driver"),
        ]
        shown += [Evidence(aside, "nvml")] if aside else []
        findings.append(
            make_finding("loaded_module_differs", tuple(shown), library=answer.driver, module=module)
        )
    driver = Driver(
        library=library,
        kernel_module=module,
        cuda=None if compat else answer.cuda,
        source=answer.source,
        libcuda=libcuda,
    )
    return DriverReading(
        driver=driver,
        gpus=answer.gpus,
        forward_compat=answer.cuda if compat else None,
        findings=tuple(findings),
    )


def is_newer(library: str | None, module: str | None) -> bool:
    """Return whether a library's driver version is newer than the kernel module's. False if one is unknown."""
    from packaging.version import InvalidVersion, Version

    try:
        return bool(library and module) and Version(library or "") > Version(module or "")
    except InvalidVersion:
        return False


def make_trouble_finding(trouble: Trouble) -> Finding:
    """Return the finding for one GPU that could not be read. Other GPUs may work."""
    evidence = Evidence(f"GPU {trouble.index}: {trouble.text} (NVML code {trouble.code})", "nvml")
    known = {NVML_NO_PERMISSION: "gpu_access_denied", NVML_GPU_LOST: "gpu_lost"}
    return make_finding(known.get(trouble.code, "gpu_silent"), (evidence,), index=trouble.index)
