"""Installed packages, their pins, and DLLs that load but do not match."""

from diagnosed import causes, found
from known import KNOWN
from rows import rows

FELL_BACK = "WARNING:jax._src.xla_bridge:969: An NVIDIA GPU may be present on this machine, but a CUDA-enabled jaxlib is not installed. Falling back to cpu."
NO_CUDNN = "RuntimeError: Unable to load cuDNN. Is it installed?"


@rows(
    ("lines", "cause"),
    [
        ((FELL_BACK, "$ pip list", "jax   0.4.38", "jaxlib   0.4.38"), "cpu_only_build"),
        ((NO_CUDNN, FELL_BACK, "$ pip list", "jaxlib   0.4.38", "jax-cuda12-plugin   0.4.38"), "cudnn_not_found"),
        ((FELL_BACK, "$ pip list", "jaxlib   0.4.38", "jax-cuda12-plugin   0.4.31"), "jax_plugin_version_mismatch"),
        (
            (FELL_BACK, "$ pip list", "jaxlib   0.4.38", "jax-cuda12-plugin   0.4.38", "container: jax:1",
             "OSError: libcuda.so.1: cannot open shared object file: No such file or directory"),
            "container_without_gpu",
        ),
    ],
)  # fmt: skip
def test_jax_with_its_cuda_plugin_is_no_cpu_build(lines, cause):
    found_causes = causes(*lines)
    assert found_causes[0] == cause
    assert ("cpu_only_build" in found_causes) == (cause == "cpu_only_build")


PIN = '{0} requires nvidia-cudnn-cu12=={1}; extra == "and-cuda", but you have nvidia-cudnn-cu12 {2} which is incompatible.'
SKIPPED = "Cannot dlopen some GPU libraries. Please make sure the missing libraries mentioned above are installed properly"


@rows("fails", [SKIPPED, FELL_BACK, "CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH"])
@rows("other", ["torch  2.4.0", "jax  0.4.31", "onnxruntime-gpu  1.19.2"])
def test_pins_of_two_frameworks_that_differ_in_the_major_are_a_conflict(fails, other):
    lines = (PIN.format("tensorflow 2.15.1", "8.9.4.25", "9.3.0.75"), fails, "$ pip list", other)
    assert "conflicting_frameworks_in_one_env" in causes(*lines)[:3]


def test_pins_without_a_failure_or_a_second_framework_say_nothing():
    pin = PIN.format("tensorflow 2.15.1", "8.9.4.25", "9.3.0.75")
    assert causes(pin, "$ pip list", "torch  2.4.0") == []
    assert "conflicting_frameworks_in_one_env" not in causes(pin, SKIPPED)


@rows(
    ("folder", "package"),
    [("nvidia/cudnn/lib", "nvidia-cudnn-cu12"), ("nvidia/cublas/lib", "nvidia-cublas-cu12")],
)
def test_an_installed_package_without_its_libraries_is_damaged(folder, package):
    lines = ("ImportError: libcublas.so.12: cannot open shared object file: No such file or directory",
             "$ pip list", f"{package}  12.4.5.8", f"$ ls env/lib/python3.11/site-packages/{folder}")  # fmt: skip
    assert "package_files_damaged" in causes(*lines, "__init__.py", "$ echo")[:3]
    assert "package_files_damaged" not in causes(*lines, "libx.so.12", "$ echo")


@rows(
    ("invalid", "says", "damaged"),
    [
        ("-orch", "AttributeError: module 'torch' has no attribute 'cuda'", True),
        ("~orch", "AttributeError: module 'torch' has no attribute 'nn'", True),
        ("-ensorflow-gpu", "AttributeError: module 'tensorflow' has no attribute 'config'", True),
        ("-ip", "AttributeError: module 'torch' has no attribute 'xpu'", False),
        ("-umpy", "AttributeError: module 'numpy' has no attribute 'float'", False),
        ("-nnxruntime-gpu", "AttributeError: module 'onnxruntime' has no attribute 'InferenceSession'", True),
    ],
)
def test_a_package_that_pip_left_half_removed_is_damaged(invalid, says, damaged):
    warning = f"WARNING: Ignoring invalid distribution {invalid} (env/lib/site-packages)"
    assert ("package_files_damaged" in causes(warning, says)) == damaged


# --- Windows ------------------------------------------------------------------------------------

WIN_127 = 'OSError: [WinError 127] The specified procedure could not be found. Error loading "D:\\env\\Lib\\site-packages\\torch\\lib\\{}" or one of its dependencies.'


@rows(
    ("says", "cause"),
    [
        (WIN_127.format("cudnn_cnn_infer64_8.dll"), "cudnn_shadowed_by_other_copy"),
        (WIN_127.format("cudnn_ops64_9.dll"), "cudnn_shadowed_by_other_copy"),
        (WIN_127.format("cublas64_12.dll"), "nvidia_lib_symbol_mismatch"),
        ("ImportError: DLL load failed while importing flash_attn_2_cuda: The specified procedure could not be found.",
         "extension_built_for_other_torch_or_cuda"),
        ("Could not load library cudnn_cnn_infer64_8.dll. Error code 127", "cudnn_shadowed_by_other_copy"),
    ],
)  # fmt: skip
def test_a_dll_that_lacks_a_function_is_of_another_version(says, cause):
    first = causes(says)
    assert first[0] == cause
    assert "cudnn_not_found" not in first


def test_a_dll_that_lacks_a_function_beside_two_frameworks_may_be_their_conflict():
    lines = (WIN_127.format("cudnn_cnn_infer64_8.dll"), "torch  2.1.2", "tensorflow  2.10.0")
    assert "conflicting_frameworks_in_one_env" in causes(*lines)[:3]


ORT = 'Error loading "onnxruntime_providers_cuda.dll" which depends on "{}" which is missing. (Error 126: "The specified module could not be found.")'
CODE_126 = "Could not load library cudnn_cnn_infer64_8.dll. Error code 126"
NONE = "INFO: Could not find files for the given pattern(s)."


@rows(
    ("lines", "cause"),
    [
        ((ORT.format("cudnn64_9.dll"),), "cudnn_not_found"),
        ((ORT.format("cudnn64_8.dll"),), "cudnn_not_found"),
        (("Could not load library cudnn_ops64_9.dll. Error code 126",), "cudnn_not_found"),
        ((CODE_126,), "windows_zlib_missing"),
        ((CODE_126, "C:\\x>where cudnn_cnn_infer64_8.dll", NONE, "C:\\x>"), "cudnn_not_found"),
        ((CODE_126, "C:\\x>where zlibwapi.dll", NONE, "C:\\x>"), "windows_zlib_missing"),
    ],
)
def test_zlib_is_only_the_cause_for_a_cudnn_8_that_exists(lines, cause):
    assert causes(*lines)[0] == cause


@rows(
    ("says", "first"),
    [
        ('OSError: [WinError 126] The specified module could not be found. Error loading "D:\\e\\torch\\lib\\c10.dll" or one of its dependencies.', "system_library_missing"),
        ('OSError: [WinError 126] The specified module could not be found. Error loading "D:\\e\\torch\\lib\\fbgemm.dll" or one of its dependencies.', "framework_bug_upgrade"),
        ('OSError: [WinError 1455] The paging file is too small for this operation to complete. Error loading "D:\\e\\torch\\lib\\caffe2_detectron_ops.dll" or one of its dependencies.', "process_limit_reached"),
    ],
)  # fmt: skip
def test_the_error_of_torchs_dll_decides(says, first):
    assert causes(says)[0] == first


# --- order of imports ---------------------------------------------------------------------------


@rows("start", ["python -c", "python -X faulthandler -c", "python3 -W ignore -c", "python -u -X dev -c"])
def test_both_orders_of_two_imports_are_compared(start):
    lines = (f"$ {start} 'import tensorflow; import torch'", "Segmentation fault (core dumped)",
             "$ python -c 'import torch; import tensorflow'", "ok")  # fmt: skip
    assert causes(*lines)[0] == "conflicting_frameworks_in_one_env"


# --- memory -------------------------------------------------------------------------------------

OOM = "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with shape[64,512] on /job:localhost/device:GPU:0 by allocator GPU_0_bfc"


def test_tensors_that_fill_the_reservation_need_a_smaller_job():
    filled = (OOM, "Limit:                     10101391360", "InUse:                      9556721664")
    first, *others = found(*filled)
    assert first.cause == "gpu_memory_exhausted" and "9114 of the 9633 MiB" in first.title
    assert "preallocation_leaves_no_memory" not in [f.cause for f in others]
    sparse = (OOM, "Limit:                     10101391360", "InUse:                      1556721664")
    assert "preallocation_leaves_no_memory" in causes(*sparse)


def test_memory_growth_that_is_on_already_is_no_cure():
    assert causes("tf.config.experimental.set_memory_growth(gpu, True)", OOM)[0] == "gpu_memory_exhausted"
    assert causes("stated: allow_growth = True fixes it", OOM)[0] == "preallocation_leaves_no_memory"


def test_two_wheels_of_one_library_are_removed_and_one_stays():
    failed = (
        "Traceback (most recent call last):",
        "ImportError: /x/torch/lib/libtorch_cuda.so: undefined symbol: ncclCommRegister",
    )
    (one,) = found("nvidia-nccl-cu12 2.20.5", *failed)
    (two,) = found("nvidia-nccl-cu12 2.20.5", "nvidia-nccl-cu11 2.19.3", *failed)
    assert one.cause == two.cause == "nvidia_lib_symbol_mismatch"
    assert "uninstall" not in one.fix and "install --force-reinstall --no-deps nvidia-nccl-cu12`" in one.fix
    assert "uninstall -y nvidia-nccl-cu11 nvidia-nccl-cu12`" in two.fix


# --- warnings on optional parts -----------------------------------------------------------------

IMAGE = "UserWarning: Failed to load image Python extension: 'image.so: undefined symbol: _ZN3c1017RegisterOperatorsD1Ev'"


@rows(
    "then",
    [
        ("RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x3136 and 1568x128)",),
        ("KeyError: 'label'",),
        ("epoch 1 loss 0.31", "epoch 2 loss 0.22"),
    ],
)
def test_an_optional_part_that_does_not_load_is_no_cause_if_the_program_goes_on(then):
    assert causes(IMAGE, *then) == []


@rows(
    "then", [(), ("RuntimeError: operator torchvision::nms does not exist",), ("$ pip list", "torch  2.1.0")]
)
def test_an_optional_part_is_the_cause_if_nothing_else_failed(then):
    assert causes(IMAGE, *then)[0] == "extension_built_for_other_torch_or_cuda"


# --- releases with a known fault ----------------------------------------------------------------


@rows("row", [r for r in KNOWN.known_bad if "cudnn" in r.package and not r.gpu], ids=lambda r: r.package)
def test_an_installed_release_with_a_known_fault_is_the_cause(row):
    lines = ("RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR", "$ pip list")
    first = found(*lines, f"{row.package}  {row.version}")[0]
    assert first.cause == "framework_bug_upgrade"
    assert row.version in first.title
    assert "known fault" not in found(*lines, f"{row.package}  9.5.1.17")[0].title
    assert causes(f"$ pip list\n{row.package}  {row.version}") == []


def test_a_framework_without_its_init_file_may_be_damaged():
    assert causes("ImportError: cannot import name 'Tensor' from 'torch' (unknown location)") == [
        "package_files_damaged"
    ]
    assert causes("ImportError: cannot import name 'x' from 'helpers' (unknown location)") == []
