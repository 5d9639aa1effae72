"""Warnings that programs print and go on are no failure."""

from diagnosed import causes
from rows import rows

ENDS = (
    (),
    ("Epoch 1/3 loss 0.31", "Epoch 2/3 loss 0.22", "done"),
    ("Epoch 1/3 loss 0.31", "Traceback (most recent call last):", '  File "train.py", line 8, in <module>', "KeyError: 'lr'"),
)  # fmt: skip
HARMLESS = [
    "[W socket.cpp:663] [c10d] The client socket has failed to connect to [localhost]:29500 (errno: 99 - Cannot assign requested address).",
    "[rank0]:[W1120 10:00:00.123 ProcessGroupNCCL.cpp:1250] Warning: WARNING: process group has NOT been destroyed before we destruct ProcessGroupNCCL.",
    "[rank0]:[W1120 10:00:00.123 ProcessGroupNCCL.cpp:4115] [PG ID 0 PG GUID 0 Rank 0]  using GPU 0 to perform barrier as devices used by this process are currently unknown. This can potentially cause a hang if this rank to GPU mapping is incorrect.",
    "UserWarning: expandable_segments not supported on this platform (Triggered internally at C:\\cb\\pytorch\\c10/cuda/CUDAAllocatorConfig.h:28.)",
    "W1120 torch/_inductor/utils.py:1137] [0/0] Not enough SMs to use max_autotune_gemm mode",
    "UserWarning: TensorFloat32 tensor cores for float32 matrix multiplication available but not enabled. Consider setting `torch.set_float32_matmul_precision('high')` for better performance.",
    "UserWarning: Torch was not compiled with flash attention. (Triggered internally at ..\\aten\\src\\ATen\\native\\transformers\\cuda\\sdp_utils.cpp:455.)",
    "UserWarning: 1Torch was not compiled with flash attention.",
    "WARNING: CUDA is available, but flash-attn is not installed. Falling back to the default attention.",
    "You are attempting to use Flash Attention 2.0 without specifying a torch dtype. This might lead to unexpected behaviour",
    "FlashAttention is not available on this device. Using scaled_dot_product_attention instead.",
    "A matching Triton is not available, some optimizations will not be enabled.",
    "W tensorflow/compiler/tf2tensorrt/utils/py_utils.cc:38] TF-TRT Warning: Could not find TensorRT",
    "E external/local_xla/xla/stream_executor/cuda/cuda_fft.cc:477] Unable to register cuFFT factory: Attempting to register factory for plugin cuFFT when one has already been registered",
    "I tensorflow/compiler/xla/stream_executor/cuda/cuda_gpu_executor.cc:996] successful NUMA node read from SysFS had negative value (-1), but there must be at least one NUMA node, so returning NUMA node zero.",
    "I tensorflow/stream_executor/cuda/cuda_dnn.cc:384] Loaded cuDNN version 8204",
    "W tensorflow/core/common_runtime/bfc_allocator.cc:290] Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.20GiB with freed_by_count=0. The caller indicates that this is not a failure, but this may mean that there could be performance gains if more memory were available.",
    "W tensorflow/stream_executor/gpu/asm_compiler.cc:76] Running ptxas --version returned 256",
    "I tensorflow/core/util/port.cc:110] oneDNN custom operations are on.",
    "2024-01-01 W external/xla/xla/service/gpu/autotuning/gemm_fusion_autotuner.cc:1] Compiling 12 configs",
    "E0 slow_operation_alarm.cc:65] Constant folding an instruction is taking > 1s",
    "/usr/lib/python3.11/multiprocessing/popen_fork.py:66: RuntimeWarning: os.fork() was called. os.fork() is incompatible with multithreaded code, and JAX is multithreaded, so this will likely lead to a deadlock.",
    "2024-05-01 10:00:00 [W:onnxruntime:, session_state.cc:1162 onnxruntime::VerifyEachNodeIsAssignedToAnEp] Some nodes were not assigned to the preferred execution providers which may or may not have an negative impact on performance.",
    "UserWarning: Specified provider 'TensorrtExecutionProvider' is not in available provider names.Available providers: 'CUDAExecutionProvider, CPUExecutionProvider'",
    "/usr/lib/python3.10/site-packages/torch/cuda/__init__.py:54: FutureWarning: The pynvml package is deprecated. Please install nvidia-ml-py instead.",
    "UserWarning: User provided device_type of 'cuda', but CUDA is not available. Disabling",
    "WARNING - xformers not installed, using default attention",
    "WARNING:xformers:WARNING[XFORMERS]: Need to compile C++ extensions to use all xFormers features.",
    "[WARNING] async_io requires the dev libaio .so object and headers but these were not found.",
    "[WARNING] using untested triton version (3.1.0), only 1.0.0 is known to be compatible",
    "[WARNING] sparse_attn requires a torch version >= 1.5 and < 2.0 but detected 2.5",
    "[WARNING]  NVIDIA Inference is only supported on Ampere and newer architectures",
    "The 8-bit optimizer is not available on your device, only available on CUDA for now.",
    "huggingface/tokenizers: The current process just got forked, after parallelism has already been used. Disabling parallelism to avoid deadlocks...",
    "apex is not installed. Reverting to non-apex modules.",
    "Failed to import transformer_engine, will use default layers",
    "INFO: Could not find module 'flash_attn_2_cuda', using torch sdpa",
    "Warning: caught exception 'No module named triton', memory monitor disabled",
    "tcmalloc: large alloc 1258291200 bytes == 0x5c0a000",
    "libGL error: No matching fbConfigs or visuals found",
    "libGL error: failed to load driver: swrast",
    "ALSA lib confmisc.c:855:(parse_card) cannot find card '0'",
    "QStandardPaths: XDG_RUNTIME_DIR not set, defaulting to '/tmp/runtime-root'",
    "Gym has been unmaintained since 2022 and does not support NumPy 2.0 amongst other critical functionality.",
    "Warning: Numba cannot find nvvm; CUDA simulator disabled",
    "NumbaPerformanceWarning: Grid size 1 will likely result in GPU under-utilization due to low occupancy.",
    "[TRT] [W] CUDA lazy loading is not enabled. Enabling it can significantly reduce device memory usage",
    "[I] NVIDIA TensorRT: Detected invalid timing cache, setup a local cache instead",
    "NCCL INFO NET/Plugin : No plugin found (libnccl-net.so), using internal implementation",
    "NCCL INFO NET/IB : No device found.",
    "NCCL WARN Cuda failure 'peer access is not supported between these two devices'",
    "ray: UserWarning: Tip: In future versions of Ray, Ray will no longer override accelerator visible devices env var",
    "WARNING: The NVIDIA Driver was not detected by nvidia-persistenced; ignore",
    "Setting `pad_token_id` to `eos_token_id`:2 for open-end generation.",
    "CUDA extension not installed.",
    "NOTE: Redirects are currently not supported in Windows or MacOs.",
    "/bin/sh: 1: lspci: not found",
]


@rows("end", ENDS)
@rows("line", HARMLESS)
def test_a_warning_of_a_program_that_goes_on_says_nothing(line, end):
    assert causes(line, *end) == []


def test_ptx_that_the_driver_compiles_is_no_failure_of_a_program_that_goes_on():
    line = "INTERNAL: ptxas exited with non-zero error code 256, output: Relying on driver to perform ptx compilation. Modify $PATH to customize ptxas location."
    assert causes(line)[0] == "ptxas_missing_or_too_old"
    assert causes(line, "Epoch 1/3 loss 0.31") == []
