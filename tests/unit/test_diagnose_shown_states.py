"""What the commands of a report show decides its cause: kernel modules, limits, copies of libraries."""

from diagnosed import causes, found
from rows import rows

SMI = "| NVIDIA-SMI 550.54.15    Driver Version: 550.54.15    CUDA Version: 12.4 |"

# --- the kernel module is of another kernel ------------------------------------------------------

NO_GPU = (
    "xmrig: no compatible GPUs were discovered",
    "RuntimeError: No CUDA GPUs are available",
    "whisper: no CUDA device found, running on the CPU",
)
BUILT = (
    ("$ dkms status", "nvidia/535.183.01, 5.15.0-101-generic, x86_64: installed"),
    ("$ dkms status", "nvidia, 470.256.02, 5.15.0-101-generic, x86_64: installed"),
    ("$ find /lib/modules -name 'nvidia*.ko'", "/lib/modules/5.15.0-101-generic/updates/dkms/nvidia.ko"),
)


@rows("message", NO_GPU)
@rows("built", BUILT)
def test_a_module_of_another_kernel_is_not_loaded(message, built):
    finding = found(message, "$ uname -r", "5.15.0-105-generic", *built, "$ lsmod | grep nvidia", "$")[0]
    assert (finding.cause, finding.confidence) == ("driver_module_not_loaded", "likely")
    assert "5.15.0-105-generic" in finding.title and "5.15.0-101-generic" in finding.title


@rows(
    "lines",
    [
        ("$ uname -r", "5.15.0-101-generic", *BUILT[0], "$ ls"),
        ("$ uname -r", "5.15.0-105-generic", *BUILT[0], "$ lsmod | grep nvidia", "nvidia 56713216 12"),
        (*BUILT[0], "$ lsmod | grep nvidia", "$ ls"),
        ("$ uname -r", "5.15.0-105-generic", "$ dkms status", "v4l2loopback/0.12.7, 5.15.0-101-generic: installed"),
    ],
)  # fmt: skip
def test_a_module_of_the_running_kernel_proves_nothing(lines):
    assert not any("another kernel" in f.title for f in found(NO_GPU[0], *lines))


# --- error codes without names -------------------------------------------------------------------


@rows(
    "message",
    [
        "hashcat: cuInit returned 999",
        "miner: cuda init failure: 999",
        "cannot use /usr/lib/libcuda.so.1: error 999",
        "CUDA driver initialization failed with code 999",
    ],
)
def test_code_999_after_a_suspend_is_a_stale_module(message):
    finding = found(SMI, "kernel: PM: suspend exit", message)[0]
    assert (finding.cause, finding.confidence) == ("nvidia_uvm_stale", "likely")


@rows(
    ("code", "cause"),
    [
        ("803", "driver_library_mismatch"),
        ("804", "forward_compat_unsupported_hw"),
        ("802", "fabricmanager_not_running"),
        ("34", "cuda_stub_library_loaded"),
        ("101", "visible_devices_invalid"),
    ],
)
def test_a_code_is_read_in_the_wording_of_any_program(code, cause):
    for text in (
        f"engine: cuda init failure: {code}",
        f"opening libcuda.so.1 failed: error {code}",
        f"cuInit() = {code}",
    ):
        assert causes(text)[0] == cause, text


# --- Windows, shown only by prompts --------------------------------------------------------------


@rows("printed", ["GPUs: []", "available gpu devices = []", "GPU count: 0"])
@rows("prompt", [r"(ml) D:\study>", r"PS D:\study>"])
def test_windows_is_known_by_its_prompt(prompt, printed):
    listed = ("Package    Version", "---------- -------", "tensorflow 2.15.0")
    assert causes(f"{prompt}pip list", *listed, f"{prompt}python fit.py", printed)[0] == (
        "no_gpu_build_for_platform"
    )


@rows("printed", ["GPUs: ['/physical_device:GPU:0']", "GPU count: 10", "rows: []"])
def test_a_gpu_that_is_seen_on_windows_is_no_missing_build(printed):
    assert causes(r"D:\study>pip list", "tensorflow 2.15.0", r"D:\study>python fit.py", printed) == []


# --- libraries that a listing shows --------------------------------------------------------------


@rows("name", ["libnvinfer.so.8", "libnvonnxparser.so.10", "libcutensor.so.2", "libnvjpeg.so.12"])
def test_an_nvidia_library_that_a_listing_shows_is_not_on_the_path(name):
    message = f"Failed to load plugin: {name}: cannot open shared object file: No such file or directory"
    listed = (f"$ find / -name '{name}'", f"/opt/nv/lib/{name}")
    assert causes(message, *listed)[0] == "nvidia_libs_not_on_loader_path"
    assert (
        "nvidia_libs_not_on_loader_path"
        not in causes(message, f"$ find / -name '{name}'", "/opt/lib/libx.so")[:1]
    )


@rows(
    "message",
    [
        "The installed Paddle is compiled with CUDNN 8.9, but CUDNN version in your machine is 8.6",
        "engine was linked against cuDNN 8.9.0 but loaded cuDNN 8.6.0",
        "built against cuDNN 8.9.0, found cuDNN 8.6.0",
    ],
)
def test_an_older_cudnn_outweighs_a_later_status(message):
    listed = ("$ find / -name 'libcudnn.so*'", "/usr/lib/libcudnn.so.8.6.0", "$ ls")
    assert causes(message, "CUDNN_STATUS_BAD_PARAM", *listed)[0] == "cudnn_older_than_compiled"


def test_a_newer_cudnn_than_compiled_is_no_older_one():
    message = "engine was compiled with cuDNN 8.6, but cuDNN version in your machine is 8.9"
    assert "cudnn_older_than_compiled" not in causes(message, "CUDNN_STATUS_BAD_PARAM")[:1]


# --- processes -----------------------------------------------------------------------------------


@rows("second", [("Segmentation fault (core dumped)",), ("training is slow",)])
def test_two_openmp_runtimes_are_a_candidate(second):
    warning = (
        "RuntimeWarning: Found Intel OpenMP ('libiomp') and GNU OpenMP ('libgomp') loaded at",
        "the same time. Both libraries are known to be incompatible",
    )
    assert "duplicate_openmp_runtime" in causes(*warning, *second)[:3]


EMPTY = "| N/A   30C    P0    40W / 300W |      3MiB / 24576MiB |      0%      Default |"
FULL = "| N/A   30C    P0    40W / 300W |  24100MiB / 24576MiB |      0%      Default |"
OUT = "RuntimeError: CUDA error: out of memory"
LIMITS = (
    "virtual memory          (kbytes, -v) 33554432",
    "#$ -l h_vmem=16G",
    "$ ulimit -v 16000000",
    "Max address space         17179869184          17179869184          bytes",
    "RLIMIT_AS = 17179869184",
)


@rows("limit", LIMITS)
def test_a_limit_on_addresses_explains_a_full_empty_gpu(limit):
    finding = found(limit, EMPTY, OUT)[0]
    assert finding.cause == "process_limit_reached" and "address space" in finding.title
    assert causes(limit, FULL, OUT)[0] == "gpu_memory_exhausted"


def test_no_limit_on_addresses_leaves_the_gpu():
    assert causes("virtual memory   (kbytes, -v) unlimited", EMPTY, OUT)[0] == "gpu_memory_exhausted"
