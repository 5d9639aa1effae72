"""Causes from what stages saw, where the status alone says nothing."""

from rows import rows
from verify_stub import verification

from provision.model import Evidence
from provision.system import process
from provision.verify import causes, layers, probe, proof, settings

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


@rows(
    ("code", "driver", "seen", "cause", "words"),
    [
        (35, {}, {}, "driver_too_old_for_runtime", "older than this CUDA runtime requires"),
        (35, {"cuda": "12.2"}, {"version": "12.8"}, "driver_too_old_for_runtime", "runtime 12.8"),
        (46, {"devices": [{"index": 0, "compute_mode": 2}]}, {"device": 0}, "gpu_busy_exclusive", "prohibited"),
        (100, {"files": [{"path": "/dev/nvidia0", "problem": "Operation not permitted"},
                         {"path": "/dev/nvidiactl", "problem": None}, {"path": "/dev/nvidia-uvm", "problem": None}]},
         {}, "gpu_device_access_denied", "/dev/nvidia0"),
        (100, {}, {}, "driver_module_not_loaded", "kernel module"),
        (999, {"files": [{"path": p, "problem": None} for p in ("/dev/nvidia0", "/dev/nvidiactl")]}, {},
         "nvidia_uvm_stale", "/dev/nvidia-uvm is missing"),
        (100, {"files": [{"path": p, "problem": None} for p in ("/dev/nvidia0", "/dev/nvidiactl")]}, {},
         "gpu_device_access_denied", "/dev/nvidia-uvm"),
    ],
)  # fmt: skip
def test_a_status_is_explained_by_what_else_the_stage_read(code, driver, seen, cause, words):
    whole = {"files": [*FILES, {"path": "/dev/nvidiactl", "problem": None}], **driver}
    finding = causes.explain_cuda_call({"call": "cuInit", "code": code}, seen, whole)
    assert (finding.cause, words in finding.title) == (cause, True), finding.title
    assert "{" not in finding.title and "[[" not in finding.title


@rows(
    ("text", "cause"),
    [
        ("/lib/libm.so.6: version `GLIBC_2.38' not found (required by /env/x.so)", "system_libs_too_old"),
        ("libcudnn.so.9: cannot open shared object file: No such file", "cudnn_not_found"),
        ("libcufft.so.11: cannot open shared object file: No such file", "nvidia_libs_not_installed"),
        ("/env/lib/libcublas.so.12: file too short", "package_files_damaged"),
        ("/env/libcusparse.so.12: undefined symbol: __nvJitLinkCreate_12_8", "nvidia_lib_symbol_mismatch"),
        ("/env/libodd.so: undefined symbol: odd", None),
    ],
)
def test_a_message_of_the_loader_names_its_cause(text, cause):
    finding = causes.explain_loader_message(text, ())
    assert (finding and finding.cause) == cause


@rows(
    ("signal", "timed_out", "cause"),
    [
        ("SIGBUS", False, "package_files_damaged"),
        ("SIGKILL", False, "process_limit_reached"),
        ("SIGKILL", True, None),
        ("SIGSEGV", False, None),
    ],
)
def test_a_signal_has_a_cause_unless_the_deadline_sent_it(signal, timed_out, cause):
    finished = process.Finished(
        returncode=-9, stdout="", stderr="", timed_out=timed_out, signal=signal, report=b""
    )
    finding = causes.explain_signal(finished, ())
    assert (finding and finding.cause) == cause
    report = probe.ProbeReport(records=(), finished=finished, seconds=1)
    in_cudnn = layers._explain_death(report, "cudnn")
    assert (in_cudnn and in_cudnn.cause) == (cause if signal == "SIGBUS" else None)


def test_a_guilty_setting_has_the_cause_of_what_it_brought_in(tmp_path):
    (tmp_path / "stubs").mkdir()
    (tmp_path / "stubs/libcuda.so.1").touch()
    stubs = settings.Suspect("LD_LIBRARY_PATH", str(tmp_path / "stubs"))
    assert settings.explain_settings([stubs], [], None).cause == "cuda_stub_library_loaded"
    preload = settings.Suspect("LD_PRELOAD", "/x/libcublas.so.12", ("/x/libcublas.so.12",))
    found = settings.explain_settings([preload], ["/x/libcublas.so.12"], None)
    assert (found.cause, "/x/libcublas.so.12" in found.title) == ("nvidia_lib_symbol_mismatch", True)
    user = settings.Suspect("user site", "/home/u/.local/lib")
    found = settings.explain_settings([user, preload], [], "gpu_hardware_fault")
    assert found.cause == "conflicting_frameworks_in_one_env"
    assert found.fix.startswith("Set PYTHONNOUSERSITE=1") and "remove /x/libcublas" in found.fix
    assert "the user's site-packages, /home/u/.local/lib," in found.title
