"""Causes from what stages saw, where the status alone says nothing."""

from rows import rows
from verify_stub import verification

from provision.model import Evidence
from provision.system import process
from provision.verify import causes, probe, proof, settings

FILES = [{"path": p, "problem": None} for p in ("/dev/nvidia0", "/dev/nvidia-uvm")]
MASKED = [*FILES, {"path": "/dev/nvidiactl", "problem": "another device stands in its place"}]
FORKED = "jax._src.xla_bridge: operation cuInit(0) failed: CUDA_ERROR_NOT_INITIALIZED: initialization error"
UNKNOWN = (
    "RuntimeError: Unknown backend: 'gpu' requested, but no platforms that are instances of gpu are present."
)


@rows("code", [100, 101, 304, 999])
def test_a_masked_control_device_is_named_whatever_the_status(code):
    driver = {"files": MASKED, "visible": "0"}
    finding = causes.explain_cuda_call({"call": "cuInit", "code": code}, driver, driver)
    assert finding.cause == "gpu_device_access_denied"
    assert "/dev/nvidiactl" in finding.title


def test_a_missing_control_device_is_named():
    driver = {"files": FILES, "visible": None}
    finding = causes.explain_cuda_call({"call": "cuInit", "code": 999}, driver, driver)
    assert finding.cause == "gpu_device_access_denied"
    assert Evidence(text="missing", source="/dev/nvidiactl") in finding.evidence


@rows("code", [2, 46, 802, 803, 804])
def test_a_status_with_one_meaning_decides_before_the_device_files(code):
    driver = {"files": MASKED, "visible": None}
    assert (
        causes.explain_cuda_call({"call": "cuInit", "code": code}, driver, driver).cause
        != "gpu_device_access_denied"
    )


def jax(stderr, cuda):
    """What the probe tells when JAX, a build for CUDA or not, finds no GPU."""
    finished = process.Finished(
        returncode=0, stdout="", stderr=stderr, timed_out=False, signal=None, report=b""
    )
    seen = {"kind": "framework", "version": "0.11.2", "cuda": cuda, "devices": [], "file": "jax.py", "at": 1}
    failed = {"kind": "failed", "stage": "framework", "error": "RuntimeError", "text": UNKNOWN, "at": 2}
    report = probe.ProbeReport(records=(seen, failed), finished=finished, seconds=60)
    outcome = proof.judge_framework(verification(), "jax", report)
    return outcome.stages["framework"].finding


def test_jax_tells_the_reason_only_in_its_log():
    assert jax(FORKED, "13.0").cause == "forked_after_cuda_init"
    assert jax("", "13.0").cause == "visible_devices_invalid"
    assert jax("", None).cause == "cpu_only_build"


def test_a_guilty_setting_does_not_replace_a_cause_that_fits_better():
    """Code on PYTHONPATH forked; a variable hid the GPU while a device file was bad too."""
    path = settings.Suspect(variable="PYTHONPATH", part="/x")
    assert settings.explain_settings([path], [], "forked_after_cuda_init").cause == "forked_after_cuda_init"
    hidden = settings.Suspect(variable="CUDA_VISIBLE_DEVICES", part="9")
    assert (
        settings.explain_settings([hidden], [], "gpu_device_access_denied").cause == "visible_devices_invalid"
    )
