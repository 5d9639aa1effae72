"""The driver and the GPUs: who is asked, in which order, and what is made of the answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.version import InvalidVersion, Version

from ..model import Driver, Evidence, Finding, Gpu
from .broken_driver_facts import Facts
from .driver_findings import NVML_GPU_LOST, NVML_NO_PERMISSION, explain, explain_cuda
from .findings import make_finding
from .host_context import read_context, read_hardware
from .kernel_files import device_nodes, is_there, kernel_module, library_version, under
from .libcuda import NOT_THERE, ask_libcuda
from .nvml_and_smi import Answer, Trouble, ask_nvml, ask_smi
from .system_libraries import find_files
from .uvm import read_uvm


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """The driver, its GPUs, the CUDA of a cuda-compat libcuda in use, and what is wrong."""

    driver: Driver
    gpus: tuple[Gpu, ...] = ()
    forward_compat: str | None = None
    findings: tuple[Finding, ...] = ()


def read_driver(
    root: Path, environ: Mapping[str, str], machine: str, seconds: float, *, start_cuda: bool = False
) -> Seen:
    """Ask NVML; only where it gives no GPU, libcuda in a child, /proc, /sys, and nvidia-smi.

    `machine` is the processor as in platform strings, `seconds` the deadline of a child. With `start_cuda` CUDA is
    started in a child also where NVML gives GPUs: cuInit can fail there.
    """
    nvml = ask_nvml()
    module, source = kernel_module(root)
    files = find_files(("libcuda.so.1", "libnvidia-ml.so.1"), root, environ, machine)
    libcuda = files.get("libcuda.so.1")
    nodes = device_nodes(root)
    if nvml.ok and nvml.gpus:
        seen = _working(nvml, module, libcuda)
        if not start_cuda:
            return seen
        cuda = ask_libcuda(environ, seconds)
        version = cuda.driver or library_version(files.get("libnvidia-ml.so.1"))
        return _with_cuda(
            seen,
            Facts(
                nvml=nvml,
                cuda=cuda,
                kernel_module=module,
                kernel_source=source,
                libcuda=libcuda,
                library=version,
                nodes=nodes,
                context=read_context(root, environ),
                uvm=read_uvm(root),
            ),
        )
    trace = nvml.code is not None or module or libcuda or nodes
    cuda = ask_libcuda(environ, seconds) if trace else NOT_THERE
    if cuda.ok and cuda.gpus:
        return _working(cuda, module, cuda.path or libcuda, nvml.error)
    smi = ask_smi(root, environ, seconds)
    problem, findings = explain(
        Facts(
            nvml=nvml,
            cuda=cuda,
            smi=smi,
            kernel_module=module,
            kernel_source=source,
            libcuda=libcuda,
            library=cuda.driver or library_version(files.get("libnvidia-ml.so.1")),
            nodes=nodes,
            hardware=read_hardware(root),
            context=read_context(root, environ),
            nouveau=is_there(under(root, "/sys/module/nouveau")),
            uvm=read_uvm(root),
        )
    )
    # libcuda's version is its file's name, which says nothing of a driver where no module is loaded.
    asked = (nvml, cuda if module else None, smi)
    tellers = [answer for answer in asked if answer and answer.driver]
    driver = Driver(
        library=tellers[0].driver if tellers else None,
        kernel_module=module,
        cuda=cuda.cuda if tellers else None,
        source=tellers[0].source if tellers else source,
        libcuda=cuda.path or libcuda,
        problem=problem,
    )
    more = tuple(trouble_finding(trouble) for trouble in nvml.troubles)
    return Seen(driver=driver, gpus=smi.gpus if smi and smi.ok else (), findings=(*findings, *more))


def _working(answer: Answer, module: str | None, libcuda: str | None, aside: str | None = None) -> Seen:
    """A driver that gave GPUs. libcuda newer than the kernel module is a cuda-compat library, which
    then answers for the CUDA version: what the driver itself speaks stays unknown."""
    compat = is_newer(library_version(libcuda), module)
    library = module if compat else answer.driver or module
    findings = [trouble_finding(trouble) for trouble in answer.troubles]
    if not compat and module and answer.driver and module != answer.driver:
        findings.append(_different(module, answer.driver, aside))
    driver = Driver(
        library=library,
        kernel_module=module,
        cuda=None if compat else answer.cuda,
        source=answer.source,
        libcuda=libcuda,
    )
    return Seen(
        driver=driver,
        gpus=answer.gpus,
        forward_compat=answer.cuda if compat else None,
        findings=tuple(findings),
    )


def _with_cuda(seen: Seen, facts: Facts) -> Seen:
    """A driver that gave GPUs, with why CUDA does not start on them."""
    finding = explain_cuda(facts)
    if finding is None:
        return seen
    others = tuple(f for f in seen.findings if f.cause != finding.cause)
    driver = replace(seen.driver, problem=finding.title)
    return replace(seen, driver=driver, findings=(finding, *others))


def is_newer(library: str | None, module: str | None) -> bool:
    """Whether a library's driver version is above the kernel module's; False where one is unknown."""
    try:
        return bool(library and module) and Version(library or "") > Version(module or "")
    except InvalidVersion:
        return False


def _different(module: str, library: str, aside: str | None) -> Finding:
    evidence = [Evidence(text=f"kernel module {module}", source="/proc/driver/nvidia/version")]
    evidence.append(Evidence(text=f"driver libraries {library}", source="reported by the driver"))
    if aside:
        evidence.append(Evidence(text=aside, source="nvml"))
    return make_finding(
        "loaded_module_differs", tuple(evidence), confidence="likely", library=library, module=module
    )


def trouble_finding(trouble: Trouble) -> Finding:
    """What is wrong with one GPU where others may work."""
    evidence = Evidence(text=f"GPU {trouble.index}: {trouble.text} (NVML code {trouble.code})", source="nvml")
    if trouble.code == NVML_NO_PERMISSION:
        return make_finding("gpu_access_denied", (evidence,), index=trouble.index)
    lost = trouble.code == NVML_GPU_LOST
    return make_finding(
        "gpu_lost" if lost else "gpu_silent", (evidence,), confidence="certain" if lost else "possible",
        index=trouble.index,
    )  # fmt: skip
