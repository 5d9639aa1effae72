"""Short reports: a message with the output of commands after it. Facts around a message decide its cause."""

from diagnosed import causes, found
from rows import rows

REPORTS = [
    (
        "cpu_only_build",
        "$ python -c 'import torch; print(torch.cuda.is_available(), torch.version.cuda)'\nFalse None\n$ nvidia-smi -L\nGPU 0: NVIDIA A10 (UUID: GPU-1)",
    ),
    (
        "cpu_only_build",
        "$ uv pip list | grep torch\ntorch             2.3.1+cpu\n>>> model.cuda()\nAssertionError: Torch not compiled with CUDA enabled",
    ),
    (
        "no_gpu_build_for_platform",
        "Name: tensorflow\nVersion: 2.17.0\nLocation: c:\\x\\site-packages\n>>> tf.config.list_physical_devices('GPU')\n[]\nC:\\x>ver\nMicrosoft Windows [Version 10.0.22631]",
    ),
    (
        "no_gpu_build_for_platform",
        'PS C:\\p> pip install -U "jax[cuda12]"\nERROR: Could not find a version that satisfies the requirement jax-cuda12-plugin (from versions: none)\nERROR: No matching distribution found for jax-cuda12-plugin',
    ),
    (
        "no_gpu_build_for_platform",
        "ERROR: Ignored the following versions that require a different python version: 1.21.2 Requires-Python >=3.7,<3.11\nERROR: Could not find a version that satisfies the requirement torch==1.13.1 (from versions: 2.6.0, 2.7.0)\nERROR: No matching distribution found for torch==1.13.1\n$ python --version\nPython 3.13.1",
    ),
    (
        "extension_built_for_other_torch_or_cuda",
        'Traceback (most recent call last):\n  File "/e/lib/python3.10/site-packages/flash_attn/flash_attn_interface.py", line 10, in <module>\n    import flash_attn_2_cuda\nImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory\ntorch 2.3.0+cu121',
    ),
    (
        "cuda_major_mismatch",
        'ImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory\n  File "/e/lib/python3.10/site-packages/cupy/__init__.py"\n$ ls /usr/local/cuda/lib64/libcudart*\n/usr/local/cuda/lib64/libcudart.so.12',
    ),
    (
        "cudnn_not_found",
        "$ ldd libonnxruntime_providers_cuda.so | grep 'not found'\n\tlibcudnn.so.9 => not found\nFailed to load library libonnxruntime_providers_cuda.so with error: libcudnn.so.9: cannot open shared object file: No such file or directory",
    ),
    (
        "cuda_major_mismatch",
        "[E:onnxruntime:Default, provider_bridge_ort.cc:1992 TryGetProviderInfo_CUDA] Failed to load library libonnxruntime_providers_cuda.so with error: libcublasLt.so.12: cannot open shared object file: No such file or directory\n$ ls /usr/local | grep cuda\ncuda-11.8",
    ),
    (
        "cuda_major_mismatch",
        "Failed to load library libonnxruntime_providers_cuda.so with error: libcublasLt.so.11: cannot open shared object file: No such file or directory\n$ ldconfig -p | grep cublasLt\n\tlibcublasLt.so.12 (libc6,x86-64) => /usr/local/cuda/lib64/libcublasLt.so.12",
    ),
    (
        "nvidia_libs_not_on_loader_path",
        "Failed to load library libonnxruntime_providers_cuda.so with error: libcublasLt.so.12: cannot open shared object file: No such file or directory\n$ find / -name 'libcublasLt*' 2>/dev/null\n/opt/venv/lib/python3.11/site-packages/nvidia/cublas/lib/libcublasLt.so.12",
    ),
    (
        "cudnn_major_mismatch",
        "Could not load library libcudnn_ops_infer.so.8. Error: libcudnn_ops_infer.so.8: cannot open shared object file: No such file or directory\nctranslate2 4.4.0\n$ pip list | grep cudnn\nnvidia-cudnn-cu12  9.1.0.70",
    ),
    (
        "cudnn_major_mismatch",
        "Unable to load any of {libcudnn_ops.so.9.1.0, libcudnn_ops.so.9.1, libcudnn_ops.so.9, libcudnn_ops.so}\n$ dpkg -l | grep cudnn\nii  libcudnn8  8.9.7.29-1+cuda12.2  amd64  cuDNN runtime libraries",
    ),
    (
        "cudnn_major_mismatch",
        "Could not locate cudnn_ops_infer64_8.dll. Please make sure it is in your library path!\nC:\\x>where cudnn_ops64_9.dll\nC:\\Program Files\\NVIDIA\\CUDNN\\v9.1\\bin\\cudnn_ops64_9.dll",
    ),
    (
        "cudnn_not_found",
        "Could not locate cudnn_ops64_9.dll. Please make sure it is in your library path!\nC:\\x>where cudnn*64_9.dll\nINFO: Could not find files for the given pattern(s).\nC:\\x>",
    ),
    (
        "cudnn_older_than_compiled",
        "Loaded runtime CuDNN library: 8.5.0 but source was compiled with: 8.6.0.  CuDNN library needs to have matching major version and equal or higher minor version.\n$ conda list cudnn\ncudnn  8.5.0.96  hx  conda-forge",
    ),
    (
        "container_without_gpu",
        "$ docker run --rm myimg python -c 'import torch; print(torch.cuda.is_available())'\nFalse\n$ nvidia-smi -L\nGPU 0: NVIDIA L4 (UUID: GPU-1)",
    ),
    (
        "container_without_gpu",
        "root@abc:/app# ls /dev/nvidia*\nls: cannot access '/dev/nvidia*': No such file or directory\nroot@abc:/app# python t.py\nRuntimeError: Found no NVIDIA driver on your system.\ncontainer: myimg",
    ),
    (
        "driver_missing",
        "$ nvidia-smi\nbash: nvidia-smi: command not found\n$ lspci | grep -i nvidia\n01:00.0 VGA compatible controller: NVIDIA Corporation GA104\n>>> torch.zeros(1).cuda()\nRuntimeError: Found no NVIDIA driver on your system.",
    ),
    (
        "driver_module_not_loaded",
        "$ nvidia-smi\nNVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.\n$ dkms status\nnvidia/535.183.01, 5.15.0-113-generic, x86_64: installed\n$ uname -r\n5.15.0-116-generic",
    ),
    (
        "visible_devices_invalid",
        "$ echo $CUDA_VISIBLE_DEVICES\n3\n$ nvidia-smi -L\nGPU 0: NVIDIA L4 (UUID: GPU-1)\nRuntimeError: No CUDA GPUs are available",
    ),
    (
        "visible_devices_invalid",
        "torch.cuda.device_count() 2\nRuntimeError: CUDA error: invalid device ordinal\n  torch.cuda.set_device(local_rank)",
    ),
    (
        "gpu_device_access_denied",
        "$ ls -l /dev/nvidia0\ncrw-rw---- 1 root video 195, 0 Nov 1 10:00 /dev/nvidia0\n$ id\nuid=1000(ann) gid=1000(ann) groups=1000(ann)\nRuntimeError: No CUDA GPUs are available",
    ),
    (
        "gpu_memory_exhausted",
        "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED\n$ nvidia-smi\n|   0  NVIDIA GeForce RTX 3090   | 24100MiB / 24576MiB |",
    ),
    (
        "nvidia_lib_symbol_mismatch",
        "$ pip list | grep nccl\nnvidia-nccl-cu11 2.21.5\nnvidia-nccl-cu12 2.20.5\nImportError: libtorch_cuda.so: undefined symbol: ncclCommRegister",
    ),
    (
        "process_limit_reached",
        "/var/spool/slurmd/job123/slurm_script: line 12: 4711 Killed                  python train.py\nslurmstepd: error: Detected 1 oom-kill event(s) in StepId=123.batch.",
    ),
    ("framework_bug_upgrade", "RuntimeError: Expected is_sm80 to be true, but got false.\ntorch 2.0.0"),
    (
        "forked_after_cuda_init",
        'RuntimeError: CUDA error: initialization error\n  File "/e/torch/utils/data/_utils/worker.py", line 302, in _worker_loop',
    ),
    (
        "ptxas_missing_or_too_old",
        "ptxas fatal   : Value 'sm_90a' is not defined for option 'gpu-name'\n  File \"/e/lib/python3.10/site-packages/triton/compiler.py\"",
    ),
    (
        "build_toolkit_missing_or_mismatched",
        "RuntimeError: \nThe detected CUDA version (12.4) mismatches the version that was used to compile\nPyTorch (11.8). Please make sure to use the same CUDA versions.",
    ),
    (
        "wsl_libcuda_wrong_or_unlinked",
        "ann@PC:~$ uname -r\n5.15.153.1-microsoft-standard-WSL2\nann@PC:~$ ldconfig -p | grep libcuda.so\n\tlibcuda.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libcuda.so.1\n$ dpkg -l | grep nvidia\nii  libnvidia-compute-535  535.183\nFailed to initialize NVML: GPU access blocked by the operating system",
    ),
    (
        "arch_dropped_too_old",
        "CUDA error: no kernel image is available for execution on the device\n>>> torch.cuda.get_arch_list()\n['sm_75', 'sm_80', 'sm_86', 'sm_90', 'sm_100', 'sm_120']\n>>> torch.cuda.get_device_capability()\n(6, 1)",
    ),
    (
        "arch_not_in_wheel_too_new",
        "CUDA error: no kernel image is available for execution on the device\n>>> torch.cuda.get_arch_list()\n['sm_50', 'sm_60', 'sm_70', 'sm_75', 'sm_80', 'sm_86', 'sm_90']\nGPU 0: NVIDIA GeForce RTX 5080",
    ),
    (
        "driver_too_old_for_runtime",
        "$ nvidia-smi | grep Version\n| NVIDIA-SMI 470.256.02   Driver Version: 470.256.02   CUDA Version: 11.4 |\n>>> torch.__version__\n'2.4.0+cu121'\n>>> torch.cuda.is_available()\nFalse",
    ),
    (
        "system_library_missing",
        "libmpi_cxx.so.20: cannot open shared object file: No such file or directory\nImportError: libmpi_cxx.so.20: cannot open shared object file: No such file or directory",
    ),
    (
        "conflicting_frameworks_in_one_env",
        "import paddle\nimport torch\nSegmentation fault (core dumped)\nimporting torch first works",
    ),
    (
        "fabricmanager_not_running",
        "$ systemctl status nvidia-fabricmanager\n   Active: failed (Result: exit-code)\n>>> torch.cuda.is_available()\nFalse\nGPU: NVIDIA H100 80GB HBM3",
    ),
    (
        "nvidia_uvm_stale",
        "failed call to cuInit: CUDA_ERROR_UNKNOWN: unknown error\n$ nvidia-smi -L\nGPU 0: NVIDIA RTX A2000\n$ ls /dev/nvidia*\n/dev/nvidia0 /dev/nvidiactl",
    ),
    (
        "container_shm_too_small",
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n$ df -h /dev/shm\nshm 64M 64M 0 100% /dev/shm",
    ),
    (
        "numpy_abi",
        "A module that was compiled using NumPy 1.x cannot be run in\nNumPy 2.1.0 as it may crash.",
    ),
    (
        "jax_plugin_version_mismatch",
        "$ pip list | grep jax\njax 0.4.35\njaxlib 0.4.34\njax-cuda12-plugin 0.4.30\nRuntimeError: Unable to initialize backend 'cuda': no supported devices found for platform CUDA",
    ),
]


@rows(("cause", "text"), REPORTS)
def test_a_short_report_leads_to_its_cause(cause, text):
    assert causes(*text.splitlines())[0] == cause


@rows(
    ("module", "package"),
    [
        ("insightface", "insightface"),
        ("imageio_ffmpeg", "imageio-ffmpeg"),
        ("parselmouth", "praat-parselmouth"),
    ],
)
def test_a_module_of_a_plugin_is_named_by_its_package(module, package):
    lines = (
        '  File "custom_nodes/x/nodes.py", line 15, in <module>',
        f"ModuleNotFoundError: No module named '{module}'",
    )
    first = found(*lines)[0]
    assert first.cause == "python_package_missing"
    assert f"pip install {package}" in first.fix
