"""Why no driver or GPU is there, by the place: a job, WSL, a container, a notebook, a plain machine. Pure."""

from __future__ import annotations

from ..model import Evidence, Finding
from .driver_facts import Facts, make_finding


def no_gpu_of_slurm(facts: Facts) -> Finding | None:
    """Slurm hides the GPUs of its node from a job that did not ask for them (ConstrainDevices)."""
    if facts.context.slurm != "job" or not facts.kernel_module:
        return None
    title = "This Slurm job was given no GPU of its node"
    fix = "Ask for one: `srun --gpus=1 ...`, or `#SBATCH --gpus=1` in the job's script."
    return make_finding("gpu_device_access_denied", title, facts, fix, "likely")


def no_driver_of_windows(facts: Facts) -> Finding | None:
    """WSL gets its driver from Windows."""
    if not facts.context.wsl:
        return None
    if _is_offered(facts) and facts.cuda.code is None and not facts.libcuda:
        title = "Windows offers the driver in /usr/lib/wsl/lib, but the loader does not look there"
        fix = (
            "`echo /usr/lib/wsl/lib | sudo tee /etc/ld.so.conf.d/ld.wsl.conf && sudo ldconfig`, or "
            "`export LD_LIBRARY_PATH=/usr/lib/wsl/lib`."
        )
        return make_finding("wsl_libcuda_wrong_or_unlinked", title, facts, fix, "likely")
    title = "WSL is not offered a working NVIDIA driver by Windows"
    fix = (
        "On Windows: install the current NVIDIA driver, `wsl --update`, `wsl --shutdown`; `wsl -l -v` must say "
        "version 2. Install no Linux driver inside WSL."
    )
    dxg = any(node.path == "/dev/dxg" for node in facts.nodes)
    evidence = Evidence(text="present" if dxg else "absent", source="/dev/dxg")
    return make_finding("wsl_driver_missing", title, facts, fix, "likely", evidence)


def _is_offered(facts: Facts) -> bool:
    return any(h.address.startswith("/usr/lib/wsl/") for h in facts.hardware)


def no_gpu_in_container(facts: Facts) -> Finding | None:
    """A container gets its GPU and the driver's libraries from its host."""
    kind = facts.context.container
    if any(node.path != "/dev/dxg" for node in facts.nodes):
        return None
    if facts.context.colab:
        evidence = Evidence(text="no /dev/nvidia* in this runtime", source="Colab")
        fix = "Choose one: Runtime, Change runtime type."
        return make_finding(
            "driver_missing", "The notebook's runtime has no GPU", facts, fix, "likely", evidence
        )
    if not kind:
        return None
    host = bool(facts.kernel_module) or facts.boards
    title = "This container was started without its host's GPU" if host else "This container has no GPU"
    fixes = {
        "kubernetes": "Ask for one in the pod: `resources: {limits: {nvidia.com/gpu: 1}}`.",
        "podman": "Start it with `podman run --device nvidia.com/gpu=all ...` (nvidia-ctk cdi generate, once).",
        "apptainer": "Start it with `apptainer exec --nv ...`.",
    }
    fix = fixes.get(
        kind, "Start it with `docker run --gpus all ...`; the host needs nvidia-container-toolkit."
    )
    evidence = Evidence(text="no /dev/nvidia* in this container", source=kind)
    return make_finding(
        "container_without_gpu", title, facts, fix, "certain" if host else "possible", evidence
    )


def beside_stub(facts: Facts) -> tuple[Finding, ...]:
    """What is missing besides, where the loader finds a toolkit's stub and no kernel module is loaded."""
    if facts.kernel_module or (facts.context.wsl and _is_offered(facts)):
        return ()
    return (no_driver_of_windows(facts) or no_gpu_in_container(facts) or no_driver(facts),)


def no_driver(facts: Facts) -> Finding:
    """No driver is installed; in a container, none of its host's is there."""
    if facts.kernel_module:
        title = f"Kernel module {facts.kernel_module} is loaded, but the driver does not work"
        if facts.nvml.code is None and facts.cuda.code is None:
            title = (
                f"Kernel module {facts.kernel_module} is loaded, but the driver's libraries are not installed"
            )
    elif facts.boards or any(h.vendor == "nvidia" for h in facts.hardware):
        title = "There is an NVIDIA GPU, but no NVIDIA driver"
    else:
        return make_finding(
            "driver_missing",
            "There is no NVIDIA driver and no NVIDIA GPU to be seen",
            facts,
            "Use a machine with an NVIDIA GPU, or make a CPU environment: `gpuenv create --device cpu`.",
            "likely",
        )
    if facts.context.container:
        fix = (
            "On the host: install NVIDIA's driver and nvidia-container-toolkit. Then start the container with "
            "`docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ...`."
        )
        return make_finding("driver_missing", title, facts, fix, "certain")
    fix = (
        "Install NVIDIA's driver (`sudo ubuntu-drivers install` on Ubuntu, `sudo apt install nvidia-driver` on "
        "Debian, the vendor's package elsewhere), reboot, and run `nvidia-smi`."
    )
    return make_finding("driver_missing", title, facts, fix, "certain")
