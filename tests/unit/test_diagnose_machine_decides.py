"""The machine's files decide why there is no GPU: one and the same text, different certain answers.

docs/reference/causes.md lists what a machine decides, and by what. The drivers are stubs, the files are made.
"""
# ruff: noqa: F811  # fixtures are imported by their names

import json

import pytest
from detected_drivers import detected_machine
from diagnosed import found
from verify_stub import env, pristine  # noqa: F401

from driver_stub import H200, build, scenario, spec

NO_DRIVER = "RuntimeError: Found no NVIDIA driver on your system."
BOARD = {
    "/sys/bus/pci/devices/0000:19:00.0/vendor": "0x10de\n",
    "/sys/bus/pci/devices/0000:19:00.0/device": "0x2335\n",
    "/sys/bus/pci/devices/0000:19:00.0/class": "0x030200\n",
}
MODULE = {
    "/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n"
}
WSL = {"/proc/sys/kernel/osrelease": "6.6.87.2-microsoft-standard-WSL2\n"}
OFFERED = {"/usr/lib/wsl/lib/libcuda.so.1": ""}
LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")


@pytest.fixture
def diagnosed(gpuenv, tmp_path):
    """The findings for one text beside a machine with the stub driver and made files.

    Libraries that are left out cannot be loaded, and detect searches no folder for them.
    """

    def run(what, files, leave_out=(), *, text=NO_DRIVER, env=None, uvm=None, driver="580.159.04"):
        root = tmp_path / "root"
        if uvm:
            (root / "dev").mkdir(parents=True)
            (root / "dev" / "nvidia-uvm").symlink_to(uvm)
        machine = detected_machine(
            tmp_path, what, files, driver=driver, leave_out=leave_out, alone=bool(leave_out)
        )
        (gpuenv.work / "machine.json").write_text(json.dumps(machine))
        (gpuenv.work / "a.log").write_text(text)
        assert {f.confidence for f in found(*text.splitlines())} <= {"possible", "likely"}
        named = ["--env", str(env)] if env else []
        if env:
            gpuenv.env |= scenario(build(tmp_path / "driver", driver, leave_out=leave_out), what)
        return gpuenv("diagnose", "a.log", "--machine", "machine.json", "--json", *named).json["findings"]

    return run


def leading(findings):
    return findings[0]["cause"], findings[0]["confidence"]


@pytest.mark.parametrize(
    ("what", "files", "leave_out", "cause"),
    [
        ("no-driver", BOARD, LIBRARIES, "driver_missing"),
        ("not-loaded", BOARD, (), "driver_module_not_loaded"),
        ("no-driver", {**BOARD, **MODULE, "/.dockerenv": ""}, (), "container_without_gpu"),
        ("no-driver", WSL, LIBRARIES, "wsl_driver_missing"),
        ("no-driver", {**WSL, **OFFERED}, LIBRARIES, "wsl_libcuda_wrong_or_unlinked"),
        ("mismatch", {**BOARD, **MODULE}, (), "driver_library_mismatch"),
        ("no-permission", {**BOARD, **MODULE}, (), "gpu_device_access_denied"),
        ("stub-libcuda", {**BOARD, **MODULE}, (), "cuda_stub_library_loaded"),
        (spec(driver="580.159.04", cuda=13000, gpus=[H200], nvml_init=15, cu_init=100), {**BOARD, **MODULE}, (),
         "gpu_hardware_fault"),
    ],
)  # fmt: skip
def test_the_system_s_files_decide_why_there_is_no_driver(diagnosed, what, files, leave_out, cause):
    findings = diagnosed(what, files, leave_out)
    assert leading(findings) == (cause, "certain"), findings
    assert findings[0]["evidence"] and findings[0]["fix"]


@pytest.mark.parametrize(
    ("what", "files", "leave_out"),
    [
        ("no-driver", {}, LIBRARIES),  # perhaps a machine without a GPU
        ("no-driver", {"/.dockerenv": ""}, ()),  # its host perhaps has no GPU
        ("no-driver", {**WSL, "/.dockerenv": ""}, LIBRARIES),  # Windows perhaps provides its driver outside
        ("no-driver", {**WSL, **OFFERED}, ()),  # the driver is found, and does not start
    ],
)
def test_a_machine_whose_files_allow_two_causes_proves_none(diagnosed, what, files, leave_out):
    assert "certain" not in {f["confidence"] for f in diagnosed(what, files, leave_out)}


UNKNOWN = "RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment"
LISTED = {"/proc/devices": "Character devices:\n195 nvidia\n511 nvidia-uvm\n"}


@pytest.mark.parametrize(
    ("files", "uvm", "codes", "cause"),
    [
        ({"/proc/devices": "Character devices:\n195 nvidia\n"}, None, {}, "nvidia_uvm_stale"),
        (LISTED, "/dev/null", {}, "gpu_device_access_denied"),
        (LISTED, None, {"cu_init": 803}, "driver_library_mismatch"),
        (LISTED, None, {"cu_init": 0, "cuda_error": 804}, "forward_compat_unsupported_hw"),
        (LISTED, None, {"cu_init": 0, "cuda_error": 35, "cudart": 14000}, "driver_too_old_for_runtime"),
    ],
)
def test_the_codes_of_an_environment_and_the_machine_s_files_decide(diagnosed, env, files, uvm, codes, cause):
    answers = spec(driver="580.159.04", cuda=13000, gpus=[H200], **{"cu_init": 999, **codes})
    findings = diagnosed(answers, {**MODULE, **files}, text=UNKNOWN, env=env, uvm=uvm)
    assert leading(findings) == (cause, "certain"), findings


def test_a_code_999_on_a_machine_without_a_fault_proves_nothing(diagnosed, env):
    answers = spec(driver="580.159.04", cuda=13000, gpus=[H200], cu_init=999)
    listed = {"/proc/devices": "Character devices:\n195 nvidia\n1 nvidia-uvm\n"}
    findings = diagnosed(answers, {**MODULE, **listed}, text=UNKNOWN, env=env, uvm="/dev/null")
    assert "certain" not in {f["confidence"] for f in findings}


NO_KERNEL = (
    "RuntimeError: CUDA error: no kernel image is available for execution on the device\ntorch: 2.6.0+cu124"
)
FALSE = "CUDA available: False\ntorch: 2.11.0+cu130"


@pytest.mark.parametrize(
    ("text", "what", "driver", "expected"),
    [
        (NO_KERNEL, "470-k80", "470.256.02", ("arch_dropped_too_old", "certain")),
        (NO_KERNEL, "590-b200", "590.48.01", ("arch_not_in_wheel_too_new", "certain")),
        (NO_KERNEL, "580-h200", "580.159.04", ("extension_built_for_other_torch_or_cuda", "likely")),
        (NO_KERNEL + "\nDriver Version: 550.54.14", "590-b200", "590.48.01", None),
        (FALSE, "535-v100-t4", "535.129.03", ("driver_too_old_for_runtime", "certain")),
        (FALSE, "stub-libcuda", "", ("cuda_stub_library_loaded", "certain")),
        (FALSE, "580-h200", "580.159.04", None),
    ],
)
def test_the_machine_that_is_named_for_a_text_proves_as_this_one_does(
    diagnosed, text, what, driver, expected
):
    """A text with another driver is not of this machine."""
    findings = diagnosed(what, BOARD, text=text, driver=driver)
    if expected:
        assert leading(findings) == expected, findings
    else:
        assert "certain" not in {f["confidence"] for f in findings}, findings


def test_a_named_machine_with_gpus_excludes_a_missing_driver(diagnosed):
    findings = diagnosed("580-h200", BOARD)
    assert not {"driver_missing", "driver_module_not_loaded", "container_without_gpu"} & {
        f["cause"] for f in findings
    }
