"""The files of /proc, /sys and /dev decide whether nvidia_uvm is why CUDA answers 999 on a machine with GPUs.

docs/reference/causes.md lists what a machine decides, and by what.
"""

import json

import pytest
from detected_drivers import detected_machine

from driver_stub import H200, spec

DRIVER = "580.159.04"
UNKNOWN = "RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment"
MODULE = (
    f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {DRIVER}  Release Build  (dvs-builder@U22)\n"
)
LISTED = "Character devices:\n  1 mem\n195 nvidia\n{} nvidia-uvm\n{} nvidia-uvm-tools\n"
VERSION = "/sys/module/nvidia_uvm/version"
SUSPENDS = "/sys/power/suspend_stats/success"


@pytest.fixture
def diagnosed(gpuenv, tmp_path):
    """The findings for one text beside a machine with the stub driver and made files. A device file is a link to one
    of this machine."""

    def run(files, device, *, code=999, text=UNKNOWN):
        root = tmp_path / "root"
        (root / "dev").mkdir(parents=True, exist_ok=True)
        for name, target in {"nvidiactl": "/dev/null", "nvidia-uvm": device}.items():
            if target:
                (root / "dev" / name).symlink_to(target)
        answers = spec(driver=DRIVER, cuda=13000, gpus=[H200], cu_init=code)
        machine = detected_machine(tmp_path, answers, {"/proc/driver/nvidia/version": MODULE, **files})
        assert machine["gpus"]
        (gpuenv.work / "machine.json").write_text(json.dumps(machine))
        (gpuenv.work / "a.log").write_text(text)
        return gpuenv("diagnose", "a.log", "--machine", "machine.json", "--json").json["findings"]

    return run


def leading(findings):
    return findings[0]["cause"], findings[0]["confidence"]


@pytest.mark.parametrize(
    ("files", "device", "says"),
    [
        ({"/proc/devices": "Character devices:\n195 nvidia\n"}, None, "is not loaded"),
        ({"/proc/devices": LISTED.format(1, 1), VERSION: "575.57.08\n"}, "/dev/null", "nvidia_uvm 575.57.08"),
        ({"/proc/devices": LISTED.format(1, 1)}, None, "/dev/nvidia-uvm is missing"),
        ({"/proc/devices": LISTED.format(511, 510)}, "/dev/tty", "is stale"),
        ({"/proc/devices": LISTED.format(511, 510)}, "/proc/version", "is stale"),
        # without a terminal /dev/tty refuses as a broken module does: ENXIO
        ({"/proc/devices": LISTED.format(5, 4)}, "/dev/tty", "rejects /dev/nvidia-uvm"),
    ],
    ids=["not loaded", "other version", "no file", "other major", "no device", "refuses"],
)
def test_the_system_s_files_prove_that_the_module_is_at_fault(diagnosed, files, device, says):
    first, *others = diagnosed(files, device)
    assert (first["cause"], first["confidence"]) == ("nvidia_uvm_stale", "certain")
    assert says in first["title"] and "`" in first["fix"]
    assert any("cuInit returned 999" in e["text"] for e in first["evidence"])
    assert "certain" not in {f["confidence"] for f in others}


WHOLE = {"/proc/devices": LISTED.format(1, 1), VERSION: f"{DRIVER}\n"}


@pytest.mark.parametrize(("suspends", "decided"), [("3", "likely"), (None, "likely"), ("0", None)])
def test_a_module_that_works_is_likely_only_after_a_suspend(diagnosed, suspends, decided):
    files = WHOLE | ({SUSPENDS: f"{suspends}\n"} if suspends else {})
    findings = diagnosed(files, "/dev/null")
    assert "certain" not in {f["confidence"] for f in findings}
    if decided:
        assert leading(findings) == ("nvidia_uvm_stale", decided)
        assert suspends is None or any("3 suspends" in e["text"] for e in findings[0]["evidence"])
    else:
        assert {f["confidence"] for f in findings} == {"possible"}


def test_a_masked_device_file_is_denied(diagnosed):
    """A sandbox binds /dev/null over a device that it does not give."""
    first = diagnosed({"/proc/devices": LISTED.format(511, 510)}, "/dev/null")[0]
    assert (first["cause"], first["confidence"]) == ("gpu_device_access_denied", "certain")


def test_a_driver_on_which_cuda_starts_proves_nothing(diagnosed):
    findings = diagnosed({"/proc/devices": LISTED.format(511, 510)}, "/dev/null", code=0)
    assert "certain" not in {f["confidence"] for f in findings}
