"""Causes from what stages saw, where the status alone says nothing."""

from framework_envs import venv
from rows import rows
from verify_stub import fresh_state

from provision.model import Evidence
from provision.system import process
from provision.verify import causes, layers, probe, results, settings

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
    outcome = results.Results(fresh_state(), "jax", report).judge()
    return outcome.stages["framework"].finding


def test_jax_tells_the_reason_only_in_its_log():
    assert jax(FORKED, "13.0").cause == "forked_after_cuda_init"
    assert jax("", "13.0").cause == "visible_devices_invalid"
    assert jax("", None).cause == "cpu_only_build"


@rows(
    ("text", "cause"),
    [
        ("Bootstrap : no socket interface found", "variable_breaks_framework"),
        ("node1:42:42 [0] NCCL WARN No usable listening interface found", "variable_breaks_framework"),
        ("Error while creating shared memory segment /dev/shm/nccl-x (size 9)", "container_shm_too_small"),
        ("node1:42:42 [0] NCCL WARN failed to extend /dev/shm/nccl-x to 9637892 bytes", "container_shm_too_small"),
        ("RuntimeError: Cannot re-initialize CUDA in forked subprocess.", "forked_after_cuda_init"),
        (FORKED, "forked_after_cuda_init"),
        ("cuDNN version incompatibility: PyTorch was compiled  against (9, 1, 0) but found runtime version (9, 0, 0).",
         "cudnn_shadowed_by_other_copy"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB", "gpu_memory_exhausted"),
        ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 123 bytes", "gpu_memory_exhausted"),
        ("The NVIDIA driver on your system is too old (found version 11040)", "driver_too_old_for_runtime"),
        ("the provided PTX was compiled with an unsupported toolchain", "driver_too_old_for_runtime"),
        ("AssertionError: Torch not compiled with CUDA enabled", "cpu_only_build"),
        ("Mismatched PJRT plugin PJRT API version (0.55)", "jax_plugin_version_mismatch"),
        ("RuntimeError: module compiled against API version 0x10 but this version of numpy is 0xf", "numpy_abi"),
        ("Fatal Python error: failed to get the Python codec of the filesystem encoding", "variable_breaks_framework"),
        ("ImportError: /lib/libc.so.6: version `GLIBC_2.34' not found (required by /x/libtorch.so)", "system_libs_too_old"),
        ("libcudnn.so.9: cannot open shared object file: No such file or directory", "cudnn_not_found"),
        ("dlopen libcudnn.so.9: libz.so.1: cannot open shared object file: No such file or directory", None),
        ("/env/libodd.so: undefined symbol: odd", None),
        ("OSError: /x/libcudnn_ops.so.9: file too short", "package_files_damaged"),
        ("undefined symbol: __nvJitLinkComplete_12_4, version libnvJitLink.so.12", "nvidia_lib_symbol_mismatch"),
        ("RuntimeError: No CUDA GPUs are available", None),
        ("KeyError: 'x'", None),
    ],
)  # fmt: skip
def test_the_words_of_a_process_are_diagnosed(text, cause):
    """A text that allows several causes names none."""
    found = fresh_state().explain(text)
    assert (found and found.cause) == cause


KERNELS = "INTERNAL: CUDA_ERROR_NO_BINARY_FOR_GPU"


@rows(
    ("text", "stderr", "kernels", "cause"),
    [
        (KERNELS, "", [], "arch_not_in_wheel_too_new"),
        ("INTERNAL: 209", f"E external/xla: {KERNELS}", [], "arch_not_in_wheel_too_new"),
        ("CUDA error: no kernel image is available", "", ["sm_90"], "arch_dropped_too_old"),
    ],
)
def test_a_gpu_without_kernels_is_a_cause_without_a_list_too(text, stderr, kernels, cause):
    finished = process.Finished(0, "", stderr, timed_out=False, signal=None, report=b"")
    seen = {"kind": "framework", "cuda": "12.9", "devices": [{"capability": "7.5"}], "kernels": kernels}
    failed = {"kind": "failed", "stage": "convolution", "error": "InternalError", "text": text}
    report = probe.ProbeReport(records=(seen, failed), finished=finished, seconds=60)
    judged = results.Results(fresh_state(), "tensorflow", report)._judge_failure("convolution")
    assert judged.finding.cause == cause


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


def test_a_crash_is_shown_by_its_error_its_stack_and_its_modules():
    stack = [f'  File "a.py", line {n} in f' for n in range(9)]
    crash = ["Fatal Python error: Segmentation fault", "Current thread 0x1 (most recent call first):", *stack]
    for text, shown in (
        (["one", "two"], ["one", "two"]),
        (["before", *crash, "Extension modules: numpy"], [*crash[:8], "Extension modules: numpy"]),
        ([crash[0], "no stack"], [crash[0]]),
    ):
        finished = process.Finished(
            returncode=-11, stdout="", stderr="\n".join(text), timed_out=False, signal=None, report=b""
        )
        report = probe.ProbeReport(records=(), finished=finished, seconds=1)
        assert [row.text for row in report.words()] == [line.rstrip() for line in shown]


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


OVERLAY = """- table: "failures"
  source: "a colleague"
  read: "2026-11-27"
  rows:
  - {name: "mine", cause: "package_files_damaged", says: ["the flux capacitor is empty"], example: "OSError: the flux capacitor is empty", source: "a colleague", confidence: "certain", weight: "93"}
"""


def test_rows_of_the_user_explain_a_failed_stage(gpuenv):
    """Those of --profiles, of a child's words while the stage is judged. The default cache is not touched."""
    env, site = venv(gpuenv.work / "env")
    (site / "jax.py").write_text("raise OSError('the flux capacitor is empty')\n")
    (gpuenv.work / "rows").mkdir()
    (gpuenv.work / "rows" / "failures.yaml").write_text(OVERLAY)
    usual = gpuenv.work / "usual"
    gpuenv.env["XDG_CACHE_HOME"] = str(usual)
    command = ("verify", str(env), "--quick", "--device", "cpu", "--profiles", "rows", "--cache-dir", "cache")
    ran = gpuenv(*command, "--json")
    assert [f["cause"] for f in ran.json.get("findings", ())] == ["package_files_damaged"], ran.out + ran.err
    assert not usual.exists()
