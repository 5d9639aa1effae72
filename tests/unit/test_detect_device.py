"""cuda, cpu, or a refusal: the paragraph on `--device auto`, case by case."""

import re

import pytest
from rows import rows

from provision.cli import exit_codes
from provision.detect import judge_device
from provision.detect.host import judge_hardware, judge_platform
from provision.errors import MachineError
from provision.model import Driver, Evidence, Finding, Gpu, HardwareDevice, HostContext, Machine, Target

LINUX = Target(platform="linux-x86_64", glibc="2.36")
H200 = Gpu(index=0, name="NVIDIA H200", capability="9.0")
WORKS = Driver(library="580.159.04", kernel_module="580.159.04", cuda="13.0", source="nvml")
BROKEN = Driver(problem="The driver is installed, but its kernel module is not loaded")
NOTHING = Driver(problem="No NVIDIA driver and no NVIDIA GPU found")
PCI = (HardwareDevice(vendor="nvidia", address="0000:19:00.0", device="0x2335"),)
NODE = (HardwareDevice(vendor="nvidia", address="/dev/nvidiactl"),)
WSL_LIBCUDA = (HardwareDevice(vendor="nvidia", address="/usr/lib/wsl/lib/libcuda.so.1"),)
NOT_LOADED = Finding(
    cause="driver_module_not_loaded",
    title="The driver is installed, but its kernel module is not loaded",
    evidence=(Evidence(text="NVML: Driver Not Loaded", source="nvml"),),
    fix="`sudo modprobe nvidia`.",
)


def machine(**fields):
    return Machine(**{"target": LINUX, "driver": NOTHING, **fields})


@rows("wanted", ["auto", "cuda"])
def test_a_working_driver_with_gpus_means_cuda(wanted):
    device, why = judge_device(wanted, machine(driver=WORKS, gpus=(H200, H200), hardware=PCI))
    assert device == "cuda"
    assert why == "this machine has NVIDIA H200 and driver 580.159.04"


def test_cpu_that_was_asked_for_is_given_everywhere():
    for fields in ({}, {"driver": WORKS, "gpus": (H200,)}, {"driver": BROKEN, "hardware": PCI}):
        assert judge_device("cpu", machine(**fields)) == ("cpu", "--device cpu was asked for")


@rows(
    ("fields", "trace"),
    [
        ({"driver": BROKEN, "hardware": PCI}, "NVIDIA device 0x2335 at 0000:19:00.0"),
        ({"hardware": NODE}, "/dev/nvidiactl"),
        ({"hardware": WSL_LIBCUDA, "context": HostContext(wsl=True)}, "/usr/lib/wsl/lib/libcuda.so.1"),
        (
            {"driver": Driver(kernel_module="580.95.05", problem="no library")},
            "kernel module nvidia 580.95.05",
        ),
        ({"driver": Driver(library="580.95.05", source="nvml", problem="no GPU")}, "driver 580.95.05"),
        ({"driver": BROKEN, "gpus": (H200,), "hardware": PCI}, "0000:19:00.0"),
    ],
)
@rows("wanted", ["auto", "cuda"])
def test_a_trace_without_a_working_driver_stops(wanted, fields, trace):
    with pytest.raises(MachineError) as caught:
        judge_device(wanted, machine(**fields, findings=(NOT_LOADED,)))
    assert exit_codes.get_error_code(caught.value) == 4
    assert trace in caught.value.message
    assert "`sudo modprobe nvidia`" in caught.value.hint
    assert "--device cpu" in caught.value.hint
    assert caught.value.findings == (NOT_LOADED,)


@rows("wanted", ["auto", "cuda"])
def test_a_slurm_login_node_stops_and_offers_a_target(wanted):
    with pytest.raises(MachineError) as caught:
        judge_device(wanted, machine(context=HostContext(slurm="login")))
    assert "Slurm login node" in caught.value.message
    assert "--target" in caught.value.hint
    assert "--device cpu" in caught.value.hint


def test_a_slurm_login_node_with_gpus_is_served():
    fields = {"driver": WORKS, "gpus": (H200,), "context": HostContext(slurm="login")}
    assert judge_device("auto", machine(**fields))[0] == "cuda"


def test_a_slurm_job_without_a_gpu_is_a_cpu_machine():
    assert judge_device("auto", machine(context=HostContext(slurm="job")))[0] == "cpu"


def test_no_trace_at_all_gives_cpu_and_says_so():
    device, why = judge_device("auto", machine())
    assert device == "cpu"
    assert why == "No NVIDIA GPU found"


def test_a_driver_that_is_not_loaded_is_no_missing_gpu():
    """In a container without device files: nothing shows whether the host has a GPU."""
    fields = {"driver": Driver(libcuda="/usr/lib/libcuda.so.1", problem="no GPU"), "findings": (NOT_LOADED,)}
    said = "No working NVIDIA driver (NVML: Driver Not Loaded). `gpuenv detect` names the cause and its fix. With a working driver the same command is for the GPU"
    assert judge_device("auto", machine(**fields))[1] == said


def test_wsl_alone_is_a_warning():
    device, why = judge_device("auto", machine(context=HostContext(wsl=True)))
    assert device == "cpu"
    assert "Warning: this is WSL" in why
    why = judge_device(
        "auto", machine(context=HostContext(colab=True), environment={"NVIDIA_VISIBLE_DEVICES": "all"})
    )[1]
    assert re.search("Warning: .*Runtime > Change runtime type", why)


@rows(("value", "warned"), [("all", True), ("GPU-1", True), ("void", False), ("", False)])
def test_a_baked_in_nvidia_visible_devices_is_a_warning(value, warned):
    environment = {"NVIDIA_VISIBLE_DEVICES": value}
    device, why = judge_device(
        "auto", machine(environment=environment, context=HostContext(container="docker"))
    )
    assert device == "cpu"
    assert ("Warning: NVIDIA_VISIBLE_DEVICES" in why) is warned


def test_cuda_without_a_driver_is_refused():
    with pytest.raises(MachineError) as caught:
        judge_device("cuda", machine())
    assert caught.value.message.startswith("--device cuda was requested, but")
    assert "--target" in caught.value.hint


@rows("vendor", ["amd", "intel"])
def test_other_makers_get_cpu_in_one_honest_sentence(vendor):
    hardware = (HardwareDevice(vendor=vendor, address="0000:03:00.0"),)
    fields = {"hardware": hardware, "findings": judge_hardware(hardware)}
    device, why = judge_device("auto", machine(**fields))
    assert device == "cpu"
    assert judge_hardware(hardware)[0].title in why
    with pytest.raises(MachineError, match="NVIDIA GPUs and for the CPU only"):
        judge_device("cuda", machine(**fields))


def test_a_jetson_without_a_usable_driver_stops():
    hardware = (
        HardwareDevice(vendor="nvidia", address="jetson", device="NVIDIA Jetson AGX Orin Developer Kit"),
    )
    with pytest.raises(MachineError) as caught:
        judge_device("auto", machine(hardware=hardware, findings=judge_hardware(hardware)))
    assert "Jetson AGX Orin" in caught.value.message
    assert "JetPack" in caught.value.hint


@rows("platform", ["macos-arm64", "linux-x86_64-musl"])
def test_platforms_without_cuda_say_so(platform):
    here = machine(target=Target(platform=platform), findings=judge_platform(platform))
    assert judge_platform(platform)[0].title in judge_device("auto", here)[1]
    with pytest.raises(MachineError, match=judge_platform(platform)[0].title[:30]):
        judge_device("cuda", here)
