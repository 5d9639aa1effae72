"""Reports of the process that loads libcuda, and the rules for causes."""

import json

from detected_drivers import cuda, nvml
from rows import rows

from provision.detect.causes import DriverState, Uvm, explain, explain_missing_driver, judge_uvm
from provision.detect.driver import _read_working, is_newer
from provision.detect.files import DeviceFile
from provision.detect.query import DriverAnswer, Trouble, parse_answer
from provision.model import HardwareDevice, HostContext


def told(*records):
    return "".join(json.dumps({"run": None, **record}) + "\n" for record in records).encode()


def stage(call, code=None, text=None, **values):
    failed = {"call": call, "code": code, "name": None, "text": text}
    return {"kind": "stage", "stage": "driver", "failed": failed, "values": {"devices": [], **values}}


def test_a_report_cut_in_the_middle_keeps_what_came_before():
    values = {"libcuda": "/lib/libcuda.so.1", "cuda": "12.2", "devices": []}
    begun = {"kind": "begin", "stage": "driver", "doing": "calling cuInit", "values": values}
    answer = parse_answer(told(begun) + b'{"kind": "sta', "did not return within 60 s", hung=True)
    assert (answer.hung, answer.cuda, answer.ok) == ("cuInit", "12.2", False)
    assert answer.error == "libcuda: cuInit did not return within 60 s"


@rows(
    ("failed", "code", "error"),
    [
        (
            stage("dlopen libcuda.so.1", text="libcuda.so.1: cannot open"),
            None,
            "libcuda: libcuda.so.1: cannot open",
        ),
        (stage("cuDeviceGetCount", 100, "no device is visible"), 100, "libcuda: no device is visible"),
    ],
)
def test_the_words_of_the_loader_and_of_a_driver_without_a_device_are_the_error(failed, code, error):
    answer = parse_answer(told(failed))
    assert (answer.code, answer.error) == (code, error)


def test_library_chatter_is_passed_over():
    answer = parse_answer(b"hello\n" + told(stage("cuInit", 802)))
    assert answer.error.endswith("cuInit returned 802 (CUDA_ERROR_SYSTEM_NOT_READY)")


def test_a_stub_library_has_no_version_of_a_driver():
    answer = parse_answer(told(stage("cuInit", 34, libcuda="/cuda/stubs/libcuda.so.580.1")))
    assert (answer.code, answer.driver) == (34, None)


def test_driver_versions_are_compared_by_number():
    assert is_newer("580.65.06", "535.129.03")
    assert not is_newer("535.129.03", "535.129.03")
    assert not is_newer("535.54.03", "535.129.03")
    assert not is_newer(None, "535.129.03")
    assert not is_newer("not a version", "535.129.03")


NO_NVML = DriverAnswer(source="nvml", error="NVML: NVML Shared Library Not Found")


NO_CUDA = DriverAnswer(source="libcuda", error="libcuda: cannot open shared object file")


BOARD = (HardwareDevice(vendor="nvidia", address="0000:19:00.0", device="0x2335"),)


WSL_LIBRARY = (HardwareDevice(vendor="nvidia", address="/usr/lib/wsl/lib/libcuda.so.1"),)


CTL = DeviceFile(path="/dev/nvidiactl", allowed=True, mode="0666")


LOCKED = DeviceFile(path="/dev/nvidiactl", allowed=False, mode="0660")


@rows(
    ("facts", "cause"),
    [
        ({"cuda": cuda(802), "nvml": nvml(0)}, "fabricmanager_not_running"),
        ({"cuda": cuda(804), "nvml": nvml(0)}, "forward_compat_unsupported_hw"),
        ({"cuda": cuda(803)}, "driver_library_mismatch"),
        ({"cuda": cuda(999), "nvml": nvml(0), "kernel_module": "580.1"}, "nvidia_uvm_stale"),
        ({"nvml": nvml(15)}, "gpu_hardware_fault"),
        ({"nvml": nvml(0, troubles=(Trouble(index=0, code=15, text="lost"),))}, "gpu_hardware_fault"),
        ({"nodes": (LOCKED,), "cuda": cuda(100), "kernel_module": "580.1"}, "gpu_device_access_denied"),
        (
            {"nvml": nvml(999), "nodes": (CTL,), "context": HostContext(container="docker")},
            "container_lost_gpu_cgroup",
        ),
        ({"nvml": nvml(9), "hardware": BOARD}, "driver_module_not_loaded"),
        ({"hardware": BOARD}, "driver_missing"),
        ({"kernel_module": "580.1", "hardware": BOARD}, "driver_missing"),
        ({"context": HostContext(wsl=True)}, "wsl_driver_missing"),
        ({"context": HostContext(wsl=True), "hardware": WSL_LIBRARY}, "wsl_libcuda_wrong_or_unlinked"),
        (
            {"context": HostContext(wsl=True), "hardware": WSL_LIBRARY, "cuda": cuda(100)},
            "wsl_driver_missing",
        ),
        ({"context": HostContext(container="docker")}, "container_without_gpu"),
        (
            {"context": HostContext(slurm="job"), "kernel_module": "580.1", "nodes": (CTL,)},
            "gpu_device_access_denied",
        ),
        ({"nvml": nvml(9), "kernel_module": "580.1", "hardware": BOARD}, "gpu_device_access_denied"),
        ({"nvml": nvml(9), "kernel_module": "580.1", "nodes": (CTL,)}, "driver_module_not_loaded"),
        ({}, "driver_missing"),
    ],
)
def test_each_set_of_facts_has_its_cause(facts, cause):
    problem, findings = explain(
        DriverState(**{"nvml": NO_NVML, "cuda": NO_CUDA, "context": HostContext(), **facts})
    )
    assert findings[0].cause == cause
    assert problem == findings[0].title
    assert all("`" in finding.fix or finding.cause == "forward_compat_unsupported_hw" for finding in findings)
    assert all(finding.evidence for finding in findings)


def test_a_stale_uvm_is_repaired_on_the_host_of_a_container():
    gone = Uvm(major=None, node=None)
    for container in (False, True):
        finding = judge_uvm(gone, "580.159.04", container=container)
        assert finding.cause == "nvidia_uvm_stale" and "sudo modprobe nvidia_uvm" in finding.fix
        assert finding.fix.startswith("On the host, not in the container") == container


def test_a_module_with_a_libcuda_in_an_unsearched_folder_names_the_folder():
    facts = DriverState(nvml=NO_NVML, cuda=NO_CUDA, kernel_module="580.159.04", unsearched="/opt/lib64")
    assert explain_missing_driver(facts).cause == "nvidia_libs_not_on_loader_path"
    assert "/opt/lib64" in explain_missing_driver(facts).title
    without = DriverState(nvml=NO_NVML, cuda=NO_CUDA, kernel_module="580.159.04")
    assert explain_missing_driver(without).cause == "driver_missing"


@rows(
    ("module", "libcuda", "found", "library"),
    [
        ("580.159.04", None, [], "580.159.04"),
        ("575.64.03", None, ["driver_library_mismatch"], "580.159.04"),
        ("575.64.03", "/compat/libcuda.so.580.159.04", [], "575.64.03"),
    ],
)
def test_libraries_of_another_version_than_the_module_are_a_finding_but_for_compat(
    module, libcuda, found, library
):
    answer = DriverAnswer(source="nvml", driver="580.159.04", cuda="13.0", code=0)
    reading = _read_working(answer, module, libcuda, "NVML: said")
    assert [f.cause for f in reading.findings] == found
    assert (reading.driver.library, reading.driver.cuda) == (library, None if libcuda else "13.0")
    assert all(
        e.text in ("NVML: said", f"kernel module {module}", "driver libraries 580.159.04")
        for f in reading.findings
        for e in f.evidence
    )
