"""Messages of programs beyond PyTorch, TensorFlow and JAX lead to their causes."""

from diagnosed import causes
from rows import rows

PROGRAMS = [
    (
        "cpu_only_build",
        "ggml_cuda_init: n/a\nllm_load_tensors: offloaded 0/33 layers to GPU\nwarning: not compiled with GPU offload support, --gpu-layers option will be ignored",
    ),
    (
        "driver_too_old_for_runtime",
        "ggml_cuda_init: failed to initialize CUDA: CUDA driver version is insufficient for CUDA runtime version",
    ),
    (
        "gpu_memory_exhausted",
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 8192.00 MiB on device 0: cudaMalloc failed: out of memory\nllama_model_load: error loading model: unable to allocate CUDA0 buffer",
    ),
    (
        "arch_not_in_wheel_too_new",
        "CUDA error: no kernel image is available for execution on the device\n  current device: 0, in function ggml_cuda_compute_forward at ggml/src/ggml-cuda/ggml-cuda.cu:2371\nggml/src/ggml-cuda/ggml-cuda.cu:75: CUDA error",
    ),
    (
        "arch_dropped_too_old",
        "ERROR: CUDA kernel mul_mat_q has no device code compatible with CUDA arch 700. ggml-cuda.cu was compiled for: 750,800",
    ),
    (
        "driver_missing",
        "[AVHWDeviceContext @ 0x55d] Cannot load libcuda.so.1\n[AVHWDeviceContext @ 0x55d] Could not dynamically load CUDA\nDevice creation failed: -1.",
    ),
    (
        "driver_too_old_for_runtime",
        "[h264_nvenc @ 0x5600] Driver does not support the required nvenc API version. Required: 12.1 Found: 11.1\n[h264_nvenc @ 0x5600] The minimum required Nvidia driver for nvenc is 530.41.03 or newer",
    ),
    (
        "container_without_gpu",
        "[h264_nvenc @ 0x5600] Cannot load libnvidia-encode.so.1\n[h264_nvenc @ 0x5600] The minimum required Nvidia driver for nvenc is (unknown) or newer\n$ docker run --gpus all x",
    ),
    (
        "gpu_memory_exhausted",
        "[h264_nvenc @ 0x5] OpenEncodeSessionEx failed: out of memory (10): (no details)",
    ),
    (
        "visible_devices_invalid",
        "cupy_backends.cuda.api.runtime.CUDARuntimeError: cudaErrorInvalidDevice: invalid device ordinal",
    ),
    (
        "driver_too_old_for_runtime",
        "cupy_backends.cuda.api.runtime.CUDARuntimeError: cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version",
    ),
    (
        "cuda_major_mismatch",
        "RuntimeError: CuPy failed to load libnvrtc.so.12: OSError: libnvrtc.so.12: cannot open shared object file: No such file or directory",
    ),
    (
        "cuda_major_mismatch",
        "ImportError: \n================================================================\nFailed to import CuPy.\n\nOriginal error:\n  ImportError: libcublas.so.11: cannot open shared object file: No such file or directory\n$ ls /usr/local\ncuda  cuda-12  cuda-12.2",
    ),
    (
        "package_files_damaged",
        "UserWarning: CuPy may not function correctly because multiple CuPy packages are installed in your environment:\n  cupy-cuda11x, cupy-cuda12x",
    ),
    (
        "nvidia_libs_not_installed",
        "numba.cuda.cudadrv.error.NvvmSupportError: libNVVM cannot be found. Do `conda install cudatoolkit`:\nlibrary nvvm not found",
    ),
    (
        "driver_missing",
        "numba.cuda.cudadrv.error.CudaSupportError: Error at driver init: \nCUDA driver library cannot be found.\nIf you are sure that a CUDA driver is installed,\ntry setting environment variable NUMBA_CUDA_DRIVER",
    ),
    (
        "visible_devices_invalid",
        "numba.cuda.cudadrv.error.CudaSupportError: Error at driver init: Call to cuInit results in CUDA_ERROR_NO_DEVICE (100)",
    ),
    (
        "driver_too_old_for_runtime",
        "numba.cuda.cudadrv.driver.LinkerError: [222] Call to cuLinkAddData results in CUDA_ERROR_UNSUPPORTED_PTX_VERSION\nptxas application ptx input, line 9; fatal   : Unsupported .version 8.4; current version is '8.0'",
    ),
    (
        "cudnn_not_found",
        "PreconditionNotMetError: Cannot load cudnn shared library. Cannot invoke method cudnnGetVersion.\n  [Hint: cudnn_dso_handle should not be null.] (at /paddle/paddle/phi/backends/dynload/cudnn.cc:60)",
    ),
    (
        "nvidia_libs_not_on_loader_path",
        "The third-party dynamic library (libcublas.so) that Paddle depends on is not configured correctly. (error code is libcublas.so: cannot open shared object file: No such file or directory)",
    ),
    (
        "cpu_only_build",
        "Compiled with WITH_GPU, but no GPU found in runtime\nValueError: The device should not be 'gpu', since PaddlePaddle is not compiled with CUDA",
    ),
    (
        "cudnn_older_than_compiled",
        "W0301 12:00:00.123 gpu_resources.cc:149] device: 0, cuDNN Version: 8.4.\nW0301 device_context.cc:465] WARNING: device: 0. The installed Paddle is compiled with CUDNN 8.9, but CUDNN version in your machine is 8.4, which may cause serious incompatible bug. Please recompile or reinstall Paddle with compatible CUDNN version.",
    ),
    (
        "arch_not_in_wheel_too_new",
        "W gpu_resources.cc] Paddle: Mismatched GPU Architecture: The installed PaddlePaddle package was compiled for 60 70 75 80 86, but your current GPU is 120.",
    ),
    (
        "cuda_major_mismatch",
        'OSError: libcudart.so.10.1: cannot open shared object file: No such file or directory\n  File "/usr/lib/python3.6/site-packages/mxnet/base.py", line 309, in _load_lib',
    ),
    ("cpu_only_build", "mxnet.base.MXNetError: Compile with USE_CUDA=1 to enable GPU usage"),
    (
        "extension_built_for_other_torch_or_cuda",
        "ImportError: libnvinfer.so.8: cannot open shared object file: No such file or directory",
    ),
    (
        "cudnn_shadowed_by_other_copy",
        "[TRT] [W] TensorRT was linked against cuDNN 8.9.0 but loaded cuDNN 8.5.0",
    ),
    (
        "driver_too_old_for_runtime",
        "[TRT] [E] CUDA initialization failure with error: 35. Please check your CUDA installation",
    ),
    (
        "gpu_memory_exhausted",
        "[TRT] [E] 1: [defaultAllocator.cpp::allocate::20] Error Code 1: Cuda Runtime (out of memory)\n[TRT] [W] Requested amount of GPU memory (4294967296 bytes) could not be allocated.",
    ),
    (
        "cpu_only_build",
        "lightgbm.basic.LightGBMError: CUDA Tree Learner was not enabled in this build.\nPlease recompile with CMake option -DUSE_CUDA=1",
    ),
    (
        "cpu_only_build",
        "lightgbm.basic.LightGBMError: GPU Tree Learner was not enabled in this build.\nPlease recompile with CMake option -DUSE_GPU=1",
    ),
    (
        "cpu_only_build",
        "xgboost.core.XGBoostError: /src/common/common.h:239: XGBoost version not compiled with GPU support.",
    ),
    (
        "visible_devices_invalid",
        "xgboost.core.XGBoostError: [09:13:01] /workspace/src/context.cc:44: No visible GPU is found for XGBoost.",
    ),
    (
        "cpu_only_build",
        "dgl._ffi.base.DGLError: [10:10:10] /opt/dgl/src/runtime/c_runtime_api.cc:82: Check failed: allow_missing: Device API cuda is not enabled. Please install the cuda version of dgl.",
    ),
    (
        "extension_built_for_other_torch_or_cuda",
        "FileNotFoundError: Cannot find DGL C++ graphbolt library at /usr/lib/python3.10/site-packages/dgl/graphbolt/libgraphbolt_pytorch_2.4.1.so",
    ),
    (
        "driver_too_old_for_runtime",
        "cudf: RuntimeError: Failure to acquire the CUDA driver: cudaErrorInsufficientDriver",
    ),
    (
        "arch_dropped_too_old",
        "UserWarning: A GPU with NVIDIA Volta(TM) (Compute Capability 7.0) or newer architecture is required.\nDetected GPU 0: Tesla P100 Compute Capability: 6.0",
    ),
    (
        "gpu_memory_exhausted",
        "MemoryError: std::bad_alloc: out_of_memory: CUDA error at: /opt/conda/include/rmm/mr/device/cuda_memory_resource.hpp:60: cudaErrorMemoryAllocation out of memory",
    ),
    (
        "arch_dropped_too_old",
        "`fa3B@0.0.0` is not supported because:\n    requires device with capability >= (8, 0) but your GPU has capability (7, 5) (too old)",
    ),
    (
        "arch_not_in_wheel_too_new",
        "`cutlassF-pt` is not supported because:\n    requires device with capability <= (9, 0) but your GPU has capability (12, 0) (too new)",
    ),
    (
        "visible_devices_invalid",
        "No available node types can fulfill resource requests {'GPU': 1.0}*2. Add suitable node types to this cluster to resolve this issue.",
    ),
    (
        "process_limit_reached",
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\nMemory on the node (IP: 10.1.2.3, ID: abc) where the task was running was 60.82GB / 62.78GB (0.968), which exceeds the memory usage threshold of 0.95.",
    ),
    (
        "visible_devices_invalid",
        "ValueError: No available node types can fulfill resource request {'GPU': 1.0}",
    ),
    (
        "system_library_missing",
        "OSError: cannot load library 'libsndfile.so': libsndfile.so: cannot open shared object file: No such file or directory",
    ),
    (
        "system_library_missing",
        "ImportError: libtbb.so.12: cannot open shared object file: No such file or directory",
    ),
    (
        "system_library_missing",
        'qt.qpa.plugin: Could not load the Qt platform plugin "xcb" in "" even though it was found.\nThis application failed to start because no Qt platform plugin could be initialized.',
    ),
    (
        "package_files_damaged",
        "ImportError: /e/lib/python3.10/site-packages/numpy/core/_multiarray_umath.so: invalid ELF header",
    ),
    (
        "package_files_damaged",
        'OSError: [WinError 193] %1 is not a valid Win32 application. Error loading "C:\\e\\Lib\\site-packages\\torch\\lib\\c10.dll"',
    ),
    (
        "process_limit_reached",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=123.0. Some of the step tasks have been OOM Killed.",
    ),
    (
        "process_limit_reached",
        "Last State:     Terminated\n      Reason:       OOMKilled\n      Exit Code:    137",
    ),
    (
        "variable_breaks_framework",
        "ERROR: ld.so: object '/usr/lib/libtcmalloc.so.4' from LD_PRELOAD cannot be preloaded (cannot open shared object file): ignored.",
    ),
    (
        "numpy_abi",
        "ImportError: numpy.core.multiarray failed to import (auto-generated because you didn't call 'numpy.import_array()')",
    ),
    (
        "forked_after_cuda_init",
        'cupy_backends.cuda.api.runtime.CUDARuntimeError: cudaErrorInitializationError: initialization error\n  File "/usr/lib/python3.10/multiprocessing/process.py", line 108, in run',
    ),
    (
        "user_code_index_out_of_range",
        "Error: /paddle/paddle/phi/kernels/funcs/cross_entropy.cu:120 Assertion `lbl >= 0 && lbl < D || lbl == ignore_idx` failed. The value of label expected >= 0 and < 10",
    ),
    (
        "system_libs_too_old",
        "/lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.32' not found (required by /e/lib/python3.12/site-packages/llama_cpp/lib/libllama.so)",
    ),
    (
        "ptxas_missing_or_too_old",
        "triton.runtime.errors.PTXASError: PTXAS error: Internal Triton PTX codegen error\n`ptxas` stderr:\nptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'",
    ),
    (
        "ptxas_missing_or_too_old",
        "E external/local_xla/xla/service/gpu/llvm_gpu_backend/gpu_backend_lib.cc:577] Can't find libdevice directory ${CUDA_DIR}/nvvm/libdevice.",
    ),
    (
        "extension_built_for_other_torch_or_cuda",
        "ImportError: /e/lib/python3.10/site-packages/torch_scatter/_scatter_cuda.so: undefined symbol: _ZN3c106detail23torchInternalAssertFailEPKcS2_jS2_RKSs",
    ),
    (
        "extension_built_for_other_torch_or_cuda",
        "WARNING[XFORMERS]: xFormers can't load C++/CUDA extensions. xFormers was built for:\n    PyTorch 2.1.0+cu121 with CUDA 1201 (you have 2.2.0+cu118)",
    ),
    (
        "extension_built_for_other_torch_or_cuda",
        "OSError: Could not load this library: /e/torchcodec/libtorchcodec_core4.so: undefined symbol: _ZN3c1013MessageLoggerC1EPKciib",
    ),
    (
        "jax_plugin_version_mismatch",
        "RuntimeError: jaxlib version 0.4.36 is newer than and incompatible with jax version 0.4.30. Please update your jax and/or jaxlib packages.",
    ),
    (
        "jax_plugin_version_mismatch",
        "AttributeError: module 'jaxlib.xla_extension' has no attribute 'GSPMDSharding'",
    ),
    ("gpu_hardware_fault", "WARNING: infoROM is corrupted at gpu 0000:5E:00.0"),
    (
        "container_without_gpu",
        "podman: Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all",
    ),
    (
        "container_without_gpu",
        "0/3 nodes are available: 3 Insufficient nvidia.com/gpu. preemption: 0/3 nodes are available",
    ),
    (
        "no_gpu_build_for_platform",
        "error: Distribution `torch==2.5.1 @ registry+https://download.pytorch.org/whl/cu124` can't be installed because it doesn't have a source distribution or wheel for the current platform\nhint: You're using CPython 3.14 (`cp314`), but `torch` (v2.5.1) only has wheels with the following Python ABI tags: `cp39`, `cp310`",
    ),
    (
        "cuda_lib_older_than_compiled",
        "Outdated cuSPARSE installation found.\nVersion JAX was built against: 12500\nMinimum supported: 12000\nInstalled version: 11700",
    ),
]


@rows(("cause", "text"), PROGRAMS)
def test_a_message_of_another_program_leads_to_its_cause(cause, text):
    assert causes(*text.splitlines())[0] == cause


@rows(
    ("compiled", "gpu", "cause"),
    [
        ("750,800", "700", "arch_dropped_too_old"),
        ("500,610,700,750,800", "1200", "arch_not_in_wheel_too_new"),
    ],
)
def test_the_architectures_of_llama_cpp_decide(compiled, gpu, cause):
    line = f"ERROR: CUDA kernel mmq has no device code compatible with CUDA arch {gpu}. ggml-cuda.cu was compiled for: {compiled}"
    assert causes(line) == [cause]


@rows(
    ("compiled", "gpu", "cause"),
    [("70 75 80 86", "61", "arch_dropped_too_old"), ("60 70 75 80 86", "120", "arch_not_in_wheel_too_new")],
)
def test_the_architectures_of_paddle_decide(compiled, gpu, cause):
    line = f"Paddle: Mismatched GPU Architecture: The installed PaddlePaddle package was compiled for {compiled}, but your current GPU is {gpu}."
    assert causes(line) == [cause]
