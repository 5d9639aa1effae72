"""The driver through a real libcuda and libnvidia-ml made of C, found by the loader of a child."""

import json
from pathlib import Path

import pytest
from detected_drivers import DATA, detected_machine

from driver_stub import H200, T4, V100, spec
from provision import detect
from provision.model import as_document

H200_PCI = {
    "/sys/bus/pci/devices/0000:19:00.0/vendor": "0x10de\n",
    "/sys/bus/pci/devices/0000:19:00.0/device": "0x2335\n",
    "/sys/bus/pci/devices/0000:19:00.0/class": "0x030200\n",
}


MODULE = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build  (dvs-builder@U22)\n"


def module(version):
    return {"/proc/driver/nvidia/version": MODULE.format(version)}


@pytest.fixture
def detected(tmp_path):
    """Run the real detect in a child, under a made root, with the stub driver on the loader's path."""

    def run(what, files=None, *, seconds=30, parts=("driver",), **more):
        return detected_machine(tmp_path, what, files or {}, parts, seconds=seconds, **more)

    return run


def causes(machine):
    return [finding["cause"] for finding in machine["findings"]]


def test_driver_580_with_an_h200_is_read_completely(detected):
    machine = detected("580-h200", module("580.159.04"))
    assert machine["driver"]["source"] == "nvml"
    assert machine["driver"]["library"] == machine["driver"]["kernel_module"] == "580.159.04"
    assert machine["driver"]["libcuda"].endswith("/libcuda.so.580.159.04")
    assert machine["driver"]["problem"] is None
    assert machine["gpus"] == [
        {
            "index": 0,
            "name": "NVIDIA H200",
            "capability": "9.0",
            "uuid": "GPU-8c2c2c9a-7d41-4a1e-b3f5-0a9b8c7d6e5f",
            "memory_mib": 143771,
            "mig": [],
        }
    ]
    target = machine["target"]
    assert (target["driver"], target["driver_cuda"], target["driver_os"]) == ("580.159.04", "13.0", "linux")
    assert target["gpus"] == [{"capability": "9.0", "name": "NVIDIA H200"}]
    assert target["forward_compat"] is None
    assert machine["findings"] == []


@pytest.mark.parametrize(
    ("what", "driver", "cuda", "gpus"),
    [
        ("470-k80", "470.256.02", "11.4", [("Tesla K80", "3.7")]),
        ("535-v100-t4", "535.129.03", "12.2", [("Tesla V100-SXM2-16GB", "7.0"), ("Tesla T4", "7.5")]),
        ("590-b200", "590.48.01", "13.1", [("NVIDIA B200", "10.0")]),
    ],
)
def test_other_drivers_and_boards_are_read(detected, what, driver, cuda, gpus):
    machine = detected(what, driver=driver)
    assert (machine["target"]["driver"], machine["target"]["driver_cuda"]) == (driver, cuda)
    assert [(gpu["name"], gpu["capability"]) for gpu in machine["gpus"]] == gpus
    assert [gpu["index"] for gpu in machine["gpus"]] == list(range(len(gpus)))


def test_mig_devices_are_listed_with_their_gpu(detected):
    (gpu,) = detected("580-h200-mig")["gpus"]
    assert gpu["mig"] == [
        "MIG-3b1f7c52-1111-5222-8333-444455556666",
        "MIG-3b1f7c52-1111-5222-8333-777788889999",
    ]


def test_a_hidden_gpu_does_not_bind_the_plan(detected):
    for what in ("535-v100-t4", "libcuda-only"):
        machine = detected(what, driver="535.129.03", env={"CUDA_VISIBLE_DEVICES": "1"})
        assert [gpu["capability"] for gpu in machine["target"]["gpus"]] == ["7.0", "7.5"]


def test_without_nvml_libcuda_tells_the_same(detected):
    through_nvml = detected("535-v100-t4", driver="535.129.03")
    machine = detected("libcuda-only", driver="535.129.03", leave_out=("libnvidia-ml.so.1",))
    assert machine["driver"].pop("source") == "libcuda"
    assert through_nvml["driver"].pop("source") == "nvml"
    assert machine == through_nvml


def test_wsl_drivers_have_windows_numbers(detected):
    files = {"/proc/sys/kernel/osrelease": "5.15.167.4-microsoft-standard-WSL2\n"}
    machine = detected(spec(driver="566.36", cuda=12070, gpus=[T4]), files, driver="566.36")
    assert (machine["target"]["driver"], machine["target"]["driver_os"]) == ("566.36", "windows")


def test_a_cuda_compat_libcuda_is_forward_compatibility(detected):
    answer = spec(driver="535.129.03", cuda=13000, gpus=[V100])  # NVML asks the libcuda it finds
    machine = detected(answer, module("535.129.03"), driver="580.65.06")
    assert machine["target"]["driver"] == "535.129.03"
    assert machine["target"]["forward_compat"] == "13.0"
    assert machine["target"]["driver_cuda"] is None
    assert machine["findings"] == []


def test_a_driver_that_is_not_asked_for_is_not_read(detected):
    machine = detected("580-h200", parts=("context", "hardware"))
    assert machine["gpus"] == machine["target"]["gpus"] == machine["findings"] == []
    assert machine["target"]["driver"] is machine["driver"]["library"] is None


def test_a_machine_without_driver_and_gpu_says_so(detected):
    machine = detected("no-driver")
    assert causes(machine) == ["driver_missing"]
    assert "no NVIDIA GPU" in machine["driver"]["problem"]
    assert machine["target"]["driver"] is None
    assert machine["gpus"] == []


def test_a_gpu_without_a_driver_says_to_install_one(detected):
    machine = detected("no-driver", H200_PCI, leave_out=("libcuda.so.1",))
    assert causes(machine) == ["driver_missing"]
    (finding,) = machine["findings"]
    assert finding["title"].startswith("There is an NVIDIA GPU")
    assert {"text": "nvidia device 0x2335", "source": "0000:19:00.0", "line": None} in finding["evidence"]
    assert "`sudo " in finding["fix"]


def test_a_stub_libcuda_is_the_certain_cause(detected):
    machine = detected("stub-libcuda", driver="")
    assert causes(machine)[0] == "cuda_stub_library_loaded"
    assert machine["findings"][0]["confidence"] == "certain"
    assert "CUDA_ERROR_STUB_LIBRARY" in json.dumps(machine["findings"][0]["evidence"])
    assert "LD_LIBRARY_PATH" in machine["findings"][0]["fix"]
    assert machine["target"]["driver"] is machine["driver"]["library"] is None


@pytest.mark.parametrize("files", [{}, {"/dev/nvidiactl": ""}, H200_PCI])
def test_stub_libcuda_in_a_container_has_a_fix_for_containers(detected, files):
    machine = detected("stub-libcuda", {"/.dockerenv": "", **files}, driver="")
    assert causes(machine)[0] == "cuda_stub_library_loaded"
    assert len(machine["findings"]) == 2
    assert "ubuntu-drivers" not in json.dumps(machine)
    if "/dev/nvidiactl" not in files:
        assert causes(machine)[1] == "container_without_gpu"


def test_stub_libcuda_in_wsl_before_windows_own_is_the_whole_cause(detected):
    files = {"/proc/sys/kernel/osrelease": "5.15.167.4-microsoft-standard-WSL2\n"}
    files["/usr/lib/wsl/lib/libcuda.so.1"] = ""
    assert causes(detected("stub-libcuda", files, driver="")) == ["cuda_stub_library_loaded"]


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        (34, "cuda_stub_library_loaded"),
        (802, "fabricmanager_not_running"),
        (803, "driver_library_mismatch"),
        (804, "forward_compat_unsupported_hw"),
        (999, "nvidia_uvm_stale"),
    ],
)
def test_a_cuda_that_does_not_start_is_found_only_when_asked(detected, code, cause):
    answers = spec(driver="580.159.04", cuda=13000, gpus=[H200], cu_init=code)
    unasked = detected(answers, module("580.159.04"))
    assert unasked["findings"] == [] and unasked["driver"]["problem"] is None
    machine = detected(answers, module("580.159.04"), parts=("driver", "cuda"))
    assert causes(machine) == [cause]
    assert machine["driver"]["problem"] == machine["findings"][0]["title"]
    assert (machine["driver"]["library"], len(machine["gpus"])) == ("580.159.04", 1)


def test_cuda_that_starts_is_no_finding(detected):
    with_cuda = detected("580-h200", module("580.159.04"), parts=("driver", "cuda"))
    assert with_cuda == detected("580-h200", module("580.159.04"))


def test_a_kernel_module_of_another_version_is_named(detected):
    machine = detected("mismatch", module("570.86.15"))
    assert causes(machine) == ["driver_library_mismatch"]
    (finding,) = machine["findings"]
    assert "580.159.04" in finding["title"]
    assert "570.86.15" in finding["title"]
    assert "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" in json.dumps(finding["evidence"])
    assert "`sudo reboot`" in finding["fix"]
    assert machine["driver"]["problem"] == finding["title"]


def test_mismatch_in_a_container_is_the_images_fault(detected):
    machine = detected("mismatch", {**module("570.86.15"), "/.dockerenv": "", "/dev/nvidia0": ""})
    assert "apt purge" in machine["findings"][0]["fix"]


def test_cuinit_that_hangs_is_ended(detected):
    machine = detected("cuinit-hangs", module("580.159.04"), seconds=1)
    assert machine["driver"]["problem"] == "The driver hangs: cuInit did not return"
    assert "did not return within 1 s" in json.dumps(machine["findings"])
    assert causes(machine) == ["gpu_hardware_fault"]
    assert machine["driver"]["cuda"] == "13.0"  # told before the hang


def one_fails(code):
    """Return two GPUs without NVML, where libcuda does not tell the memory of the second."""
    return spec(driver="535.129.03", cuda=12020, gpus=[V100, f"{T4}|memory_error={code}"], nvml_init=12)


def test_a_failed_call_leaves_one_value_of_one_gpu_unknown(detected):
    machine = detected(one_fails(999), module("535.129.03"), driver="535.129.03")
    assert (machine["driver"]["source"], machine["driver"]["problem"]) == ("libcuda", None)
    assert [(gpu["capability"], gpu["memory_mib"]) for gpu in machine["gpus"]] == [
        ("7.0", 16384),
        ("7.5", None),
    ]


def test_a_call_that_hangs_after_cuinit_is_named(detected):
    machine = detected(one_fails(-1), module("535.129.03"), seconds=2)
    assert machine["driver"]["problem"] == "The driver hangs: cuDeviceTotalMem_v2 did not return"


def test_a_crash_in_cuinit_is_reported(detected):
    machine = detected("cuinit-crashes", {**module("580.159.04"), **H200_PCI})
    assert "cuInit was killed by SIGSEGV" in json.dumps(machine["findings"])
    assert machine["driver"]["problem"]


def test_missing_permission_for_the_device_files_is_named(detected):
    machine = detected("no-permission", {**module("580.159.04"), "/dev/nvidiactl": ""})
    assert causes(machine) == ["gpu_device_access_denied"]
    assert "`ls -l /dev/nvidia*`" in machine["findings"][0]["fix"]


def test_one_denied_gpu_of_two_is_named(detected):
    machine = detected("one-gpu-denied", module("580.159.04"))
    assert [gpu["capability"] for gpu in machine["gpus"]] == ["9.0"]
    assert machine["driver"]["problem"] is None
    assert causes(machine) == ["gpu_device_access_denied"]
    assert "GPU 1" in machine["findings"][0]["title"]


def test_a_denied_only_gpu_makes_the_driver_unusable(detected):
    answer = spec(driver="580.159.04", cuda=13000, gpus=[f"{H200}|handle_error=4"])
    machine = detected(answer, module("580.159.04"))
    assert machine["gpus"] == []
    assert set(causes(machine)) == {"gpu_device_access_denied"}
    assert machine["driver"]["problem"].startswith("This user has no permission to open")


def test_a_kernel_module_that_is_not_loaded_is_named(detected):
    machine = detected("not-loaded", {**H200_PCI, "/sys/module/nouveau/initstate": "live\n"})
    assert causes(machine) == ["driver_module_not_loaded"]
    assert "nouveau is loaded" in json.dumps(machine["findings"])
    assert "`sudo modprobe nvidia`" in machine["findings"][0]["fix"]


def test_a_driver_that_serves_no_gpu_has_a_finding(detected):
    machine = detected("no-gpus", {**module("580.159.04"), **H200_PCI})
    assert causes(machine) == ["driver_module_not_loaded"]
    assert machine["driver"]["library"] == "580.159.04"


@pytest.mark.parametrize(
    ("files", "env", "words"),
    [
        ({"/.dockerenv": ""}, {}, "--gpus all"),
        ({"/run/.containerenv": ""}, {}, "--device nvidia.com/gpu=all"),
        ({}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "nvidia.com/gpu: 1"),
        ({}, {"APPTAINER_CONTAINER": "/x.sif"}, "--nv"),
    ],
)
def test_a_container_without_a_gpu_gets_the_option_of_its_runtime(detected, files, env, words):
    machine = detected("no-driver", {**module("580.159.04"), **H200_PCI, **files}, env=env)
    assert causes(machine) == ["container_without_gpu"]
    assert machine["findings"][0]["confidence"] == "certain"
    assert words in machine["findings"][0]["fix"]
    assert machine["driver"]["kernel_module"] == "580.159.04"


def test_a_container_that_shows_nothing_of_its_host_s_driver_sends_to_the_host(detected):
    machine = detected("not-loaded", {"/.dockerenv": ""})
    assert causes(machine) == ["container_without_gpu"]
    [finding] = machine["findings"]
    assert finding["confidence"] == "possible"
    assert finding["fix"].startswith("On the host, run `nvidia-smi`") and "--gpus all" in finding["fix"]


def test_a_notebook_without_a_gpu_is_told_to_change_its_runtime(detected):
    machine = detected("no-driver", {"/.dockerenv": ""}, env={"COLAB_RELEASE_TAG": "release-colab_1"})
    assert causes(machine) == ["driver_missing"]
    assert "Change runtime type" in machine["findings"][0]["fix"]
    assert "docker" not in str(machine["findings"][0]["fix"])


def test_wsl_without_a_gpu_is_told_to_update(detected):
    files = {"/proc/sys/kernel/osrelease": "5.15.167.4-microsoft-standard-WSL2\n"}
    machine = detected("no-driver", files)
    assert causes(machine) == ["wsl_driver_missing"]
    assert "`wsl --update`" in machine["findings"][0]["fix"]


def test_the_driver_version_comes_from_sys_where_nothing_else_has_it(detected):
    machine = detected(
        "no-driver", {"/sys/module/nvidia/version": "535.129.03\n"}, leave_out=("libcuda.so.1",)
    )
    assert (machine["driver"]["source"], machine["target"]["driver"]) == ("sys", "535.129.03")
    assert causes(machine) == ["driver_missing"]


def test_nvidia_smi_is_used_where_it_alone_works(detected, tmp_path):
    smi = tmp_path / "root/usr/bin/nvidia-smi"
    smi.parent.mkdir(parents=True)
    smi.write_text(f"#!/bin/sh\nwhile read -r row; do echo $row; done < {DATA / 'smi_two_gpus.csv'}\n")
    smi.chmod(0o755)
    machine = detected("no-driver", leave_out=("libcuda.so.1",))
    assert machine["driver"]["source"] == "nvidia-smi"
    assert [gpu["capability"] for gpu in machine["target"]["gpus"]] == ["7.0", "7.5"]
    assert machine["target"]["driver"] == "535.129.03"
    assert causes(machine) == ["nvidia_libs_not_on_loader_path"]
    assert machine["driver"]["problem"]


@pytest.mark.skipif(Path("/proc/driver/nvidia/version").exists(), reason="this machine has a driver")
def test_this_machine_without_a_driver_has_a_finding():
    machine = as_document(detect.detect(("driver",), seconds=30))
    assert machine["driver"]["problem"]
    assert causes(machine)
    assert "libcuda.so.1: cannot open shared object file" in json.dumps(machine)
    assert machine["gpus"] == []
