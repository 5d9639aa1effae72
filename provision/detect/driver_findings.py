"""Why the driver cannot be used: facts in, the problem in one sentence and the findings out. Pure.

The causes are the taxonomy's; the order of the rules is its order of decision, driver first, except
that what a library says by its own return code goes before what is only inferred.
"""

from __future__ import annotations

from dataclasses import replace

from ..model import Evidence, Finding
from .context_findings import (
    beside_stub,
    no_driver,
    no_driver_of_windows,
    no_gpu_in_container,
    no_gpu_of_slurm,
)
from .driver_facts import Facts, make_finding
from .uvm import judge_uvm

NVML_NO_PERMISSION, NVML_NOT_LOADED, NVML_GPU_LOST = 4, 9, 15
NVML_MISMATCH, NVML_UNKNOWN = 18, 999
CUDA_STUB, CUDA_NO_DEVICE, CUDA_NOT_READY = 34, 100, 802
CUDA_MISMATCH, CUDA_COMPAT, CUDA_UNKNOWN = 803, 804, 999


def explain(facts: Facts) -> tuple[str, tuple[Finding, ...]]:
    """(the problem, findings with the likeliest first) for a driver that gave no usable GPU."""
    rules = (
        _mismatch,
        _stub,
        _denied,
        _told_by_code,
        _hung,
        no_gpu_of_slurm,
        no_driver_of_windows,
        no_gpu_in_container,
        _no_files,
        _module,
        _libraries,
    )
    found = next((finding for rule in rules if (finding := rule(facts))), None) or no_driver(facts)
    if found.cause == "cuda_stub_library_loaded":
        return found.title, (found, *beside_stub(facts))
    return found.title, (found,)


def explain_cuda(facts: Facts) -> Finding | None:
    """Why CUDA does not start though NVML gives GPUs; None where it starts, or where its code says too little."""
    if facts.cuda.ok or (facts.cuda.code is None and not facts.cuda.hung):
        return None
    rules = (_mismatch, _stub, _denied, _told_by_code, _hung)
    return next((finding for rule in rules if (finding := rule(facts))), None)


def _mismatch(facts: Facts) -> Finding | None:
    if facts.nvml.code != NVML_MISMATCH and facts.cuda.code != CUDA_MISMATCH:
        return None
    library = facts.library or "version unknown"
    title = (
        f"The driver's libraries ({library}) and the loaded kernel module "
        f"({facts.kernel_module or 'version unknown'}) are of different versions"
    )
    if facts.context.container:
        fix = (
            "Take the driver's libraries out of the image: they come from the host "
            "(`dpkg -l 'libnvidia-*' 'libcuda*'` inside; then `apt purge` them)."
        )
    else:
        fix = (
            "Reboot (`sudo reboot`), or stop all GPU programs and reload the module: "
            "`sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia`."
        )
    return make_finding("driver_library_mismatch", title, facts, fix, "certain")


def _stub(facts: Facts) -> Finding | None:
    if facts.cuda.code != CUDA_STUB:
        return None
    path = facts.cuda.path or "libcuda.so.1"
    title = f"The loader finds the toolkit's stub library instead of the driver's libcuda: {path}"
    folder = path.rpartition("/")[0] or "the stubs folder"
    fix = f"Take {folder} out of LD_LIBRARY_PATH (`echo $LD_LIBRARY_PATH`): stubs are for linking only."
    return make_finding("cuda_stub_library_loaded", title, facts, fix, "certain")


def _denied(facts: Facts) -> Finding | None:
    locked = [node for node in facts.nodes if not node.allowed]
    codes = (facts.nvml.code, *(trouble.code for trouble in facts.nvml.troubles))
    by_code = NVML_NO_PERMISSION in codes
    if not by_code and not locked:
        return None
    names = ", ".join(node.path for node in locked) or "/dev/nvidia*"
    title = f"This user may not open {names}"
    evidence = tuple(Evidence(text=f"mode {node.mode}, access denied", source=node.path) for node in locked)
    if facts.context.container:
        fix = "Start the container with the devices' group (`ls -ln /dev/nvidia*`, then `--group-add GID`)."
    else:
        fix = (
            "See who may: `ls -l /dev/nvidia*`; join that group (`sudo usermod -aG video $USER`, then log in "
            "again) or give the files mode 666 (`sudo nvidia-modprobe -u -c 0`)."
        )
    return make_finding(
        "gpu_device_access_denied", title, facts, fix, "certain" if by_code else "likely", *evidence
    )


def _told_by_code(facts: Facts) -> Finding | None:
    if facts.cuda.code == CUDA_NOT_READY:
        title = "The GPUs wait for the fabric manager of this NVSwitch machine"
        fix = (
            "On the host: `systemctl status nvidia-fabricmanager`; install the one of exactly the driver's "
            "version and `sudo systemctl enable --now nvidia-fabricmanager`."
        )
        return make_finding("fabricmanager_not_running", title, facts, fix, "certain")
    if facts.cuda.code == CUDA_COMPAT:
        title = f"A cuda-compat libcuda is in use on a GPU that does not allow it: {facts.cuda.path}"
        fix = "Upgrade the host's driver, or take the compat folder off LD_LIBRARY_PATH."
        return make_finding("forward_compat_unsupported_hw", title, facts, fix, "certain")
    if NVML_GPU_LOST in (facts.nvml.code, *(trouble.code for trouble in facts.nvml.troubles)):
        title = "A GPU has fallen off the bus"
        fix = "See `sudo dmesg | grep -i xid`; power-cycle the machine, check the card, replace it."
        return make_finding("gpu_hardware_fault", title, facts, fix, "certain")
    if facts.nvml.code == NVML_UNKNOWN and facts.context.container and facts.nodes:
        title = "This container had the GPU and lost it (its device cgroup was rewritten)"
        fix = "Restart the container (`docker restart NAME`); on the host use the cgroupfs driver or CDI."
        return make_finding("container_lost_gpu_cgroup", title, facts, fix, "likely")
    if facts.cuda.code == CUDA_UNKNOWN and facts.nvml.ok:
        container = facts.context.container is not None
        found = judge_uvm(facts.uvm, facts.kernel_module, container=container)
        return replace(found, evidence=(*found.evidence, *facts.said, *facts.seen))
    return None


def _hung(facts: Facts) -> Finding | None:
    if not facts.cuda.hung:
        return None
    title = f"The driver hangs: {facts.cuda.hung} did not return"
    fix = (
        "See what the driver says: `sudo dmesg | grep -i -e nvrm -e xid`; end processes that hold the GPU "
        "(`sudo fuser -v /dev/nvidia*`), then reboot."
    )
    return make_finding("gpu_hardware_fault", title, facts, fix, "possible")


def _no_files(facts: Facts) -> Finding | None:
    """The module is loaded and the libraries are there, but nobody made the device files."""
    if not facts.kernel_module or any(node.path == "/dev/nvidiactl" for node in facts.nodes):
        return None
    if facts.nvml.ok or (facts.nvml.code != NVML_NOT_LOADED and facts.cuda.code != CUDA_NO_DEVICE):
        return None
    title = "The kernel module is loaded, but its device file /dev/nvidiactl is not there"
    fix = "Have it made: `sudo nvidia-modprobe -u -c 0` (a container needs it from its host: `--device /dev/nvidiactl`)."
    evidence = Evidence(text="absent", source="/dev/nvidiactl")
    return make_finding("gpu_device_access_denied", title, facts, fix, "likely", evidence)


def _module(facts: Facts) -> Finding | None:
    libraries = facts.nvml.code is not None or facts.cuda.code not in (None, CUDA_STUB)
    if facts.kernel_module and not (facts.nvml.ok or facts.nvml.code == NVML_NOT_LOADED):
        return None
    if not (libraries and (facts.boards or facts.nvml.code == NVML_NOT_LOADED or facts.nvml.ok)):
        return None
    if facts.nvml.ok:
        title = "The driver is loaded but serves none of the GPUs"
    elif facts.kernel_module:
        title = f"Kernel module {facts.kernel_module} is loaded, but does not answer the driver's libraries"
    else:
        title = "The driver is installed, but its kernel module is not loaded"
    fix = (
        "`sudo modprobe nvidia`; if that fails see `dkms status`, `mokutil --sb-state` and `sudo dmesg | grep -i "
        "nvrm`, install the headers of this kernel (`uname -r`) and reinstall the driver (open modules from "
        "Blackwell on)."
    )
    evidence = (Evidence(text="nouveau is loaded", source="/sys/module/nouveau"),) if facts.nouveau else ()
    return make_finding("driver_module_not_loaded", title, facts, fix, "certain", *evidence)


def _libraries(facts: Facts) -> Finding | None:
    """Only nvidia-smi works, or the module is loaded and no library of the driver is found."""
    if facts.nvml.code is not None or facts.cuda.code not in (None, CUDA_STUB):
        return None
    if facts.smi and facts.smi.ok:
        title = "nvidia-smi works, but the loader does not find the driver's libcuda.so.1"
        fix = (
            "Find it (`find / -name 'libcuda.so.1*' 2>/dev/null`) and put its folder on the loader's path: "
            "`export LD_LIBRARY_PATH=FOLDER`, or a file in /etc/ld.so.conf.d and `sudo ldconfig`."
        )
        return make_finding("nvidia_libs_not_on_loader_path", title, facts, fix, "certain")
    return None
