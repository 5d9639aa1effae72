"""diagnose: the fix fits the place where the program ran."""

import dataclasses

from diagnosed import diagnosis_of, found
from known import KNOWN
from rows import rows

from provision.diagnose.rules import find_mistakes
from provision.model import FailureFix, HostContext, Machine, Target

NO_DRIVER = "RuntimeError: Found no NVIDIA driver on your system."
DOCKER = Machine(target=Target(platform="linux-x86_64"), context=HostContext(container="docker"))
PLAIN = dataclasses.replace(DOCKER, context=HostContext())


def fix_of(cause, *lines, machine=None):
    return next(f.fix for f in found(*lines, machine=machine) if f.cause == cause)


@rows(
    ("lines", "machine"),
    [
        ((NO_DRIVER, "$ docker run -it ubuntu bash"), None),
        ((NO_DRIVER,), DOCKER),
        ((NO_DRIVER, "in the container"), PLAIN),
    ],
)
def test_in_a_container_the_driver_is_of_the_host(lines, machine):
    for finding in found(*lines, machine=machine):
        assert "ubuntu-drivers" not in finding.fix, finding
    assert "On the host" in fix_of("driver_missing", *lines, machine=machine)


def test_on_a_host_the_driver_is_installed():
    assert "ubuntu-drivers" in fix_of("driver_missing", NO_DRIVER)
    assert "ubuntu-drivers" in fix_of("driver_missing", NO_DRIVER, machine=PLAIN)


def test_on_windows_no_command_of_linux_is_proposed():
    lines = (r'File "C:\Users\u\train.py", line 3', NO_DRIVER)
    for cause in ("driver_missing", "driver_module_not_loaded"):
        fix = fix_of(cause, *lines)
        assert "sudo" not in fix and "Windows" in fix


HOSTS_COMMANDS = ("ubuntu-drivers", "modprobe", "rmmod", "systemctl")


@rows("row", KNOWN.fixes, ids=lambda row: row.name)
def test_a_command_of_the_host_says_so(row):
    for step in row.steps:
        if any(command in step for command in HOSTS_COMMANDS):
            assert step.startswith("host: "), step


# --- the fix is made from the text --------------------------------------------------------------

CPU_BUILD = "AssertionError: Torch not compiled with CUDA enabled"
JAX_CPU = "An NVIDIA GPU may be present on this machine, but a CUDA-enabled jaxlib is not installed. Falling back to cpu."
NO_CUDA = "RuntimeError: No CUDA GPUs are available"
SHM = "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm)."
NUMPY = "A module that was compiled using NumPy 1.x cannot be run in NumPy 2.0.0 as it may crash."


@rows(
    ("lines", "has", "lacks"),
    [
        # the program and its manager
        ((CPU_BUILD,), "pip install --force-reinstall torchvision torch --index-url", "tensorflow"),
        ((JAX_CPU,), 'pip install -U "jax[cuda12]"', "torch"),
        (("$ conda install pytorch -c pytorch", CPU_BUILD), "conda install -c conda-forge", "pip install"),
        (("DGLError: Device API cuda is not enabled",), "dgl -f https://data.dgl.ai", "torchvision"),
        (("$ uv add onnxruntime-gpu onnxruntime", "'CUDAExecutionProvider' is not in available provider names"), "uv remove onnxruntime", "pip uninstall"),
        (("> .\\python_embeded\\python.exe -s main.py", CPU_BUILD), ".\\python_embeded\\python.exe -m pip install", "gpuenv"),
        (("uv run train.py", NUMPY), "uv add", "`pip"),
        (("vllm 0.6.1", "Cannot re-initialize CUDA in forked subprocess."), "VLLM_WORKER_MULTIPROC_METHOD=spawn", "gpuenv"),
        (("ImportError: /env/lib/python3.10/site-packages/flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so: undefined symbol: _ZN3c104",),
         "pip install flash-attn", "NAME"),
        # the container and its command line
        (("$ docker run -it image python train.py", NO_CUDA), "docker run --gpus all", "singularity"),
        (("$ singularity run image.sif", "AssertionError: CUDA is not available"), "singularity run --nv", "docker"),
        (("kubectl logs pod/train", NO_DRIVER), "nvidia.com/gpu: 1", "docker"),
        (("kubectl logs pod/train", SHM), "medium: Memory", "docker"),
        (("$ docker compose up", SHM), "shm_size: 8gb", "docker run"),
        (("$ podman run x nvidia-smi", "Failed to initialize NVML: Insufficient Permissions"), "--group-add keep-groups", "usermod"),
        (("SELinux is enforcing", "Failed to initialize NVML: Insufficient Permissions"), "setsebool", "usermod"),
        # the system
        (("Fedora 40", "modprobe: FATAL: Module nvidia not found in directory /lib/modules/6.8"), "akmods", "apt"),
        (("modprobe: ERROR: could not insert 'nvidia': Key was rejected by service",), "Secure Boot", "apt install"),
        # versions of the text
        (("libcudart.so.10.1: cannot open shared object file", "tensorflow: 2.1.0", "cuda: 10.2"), "cuda-10.1/lib64", "and-cuda"),
        (("The NVIDIA driver on your system is too old (found version 11060).",), "CUDA 11.6", "cu12"),
        (("Cuda compilation tools, release 12.4", "nvcc fatal : Unsupported gpu architecture 'compute_35'"), "no longer compiles for compute_35", "export"),
        (("Ubuntu 24.04", "nvcc", "#error -- unsupported GNU version! gcc versions later than 11 are not supported!"), "gcc-11", "CUDA_HOME"),
        # what the message proposes
        (("vllm", ("ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your Tesla T4 GPU has compute "
          "capability 7.5. You can use float16 instead by explicitly setting the `dtype` flag in CLI, for example: --dtype=half.")),
         'The message proposes: "You can use float16 instead', "gpuenv"),
        ((CPU_BUILD, "/home/u/env/lib/python3.12/site-packages/torch/cuda/__init__.py", "driver: 575.57.08"), "gpuenv create", "NAME"),
    ],
)  # fmt: skip
def test_the_fix_is_that_of_the_text(lines, has, lacks):
    fix = found(*lines)[0].fix
    assert has in fix and lacks not in fix, fix


@rows(
    ("lines", "cause"),
    [
        (("RuntimeError: Failed to infer device type",), "cpu_only_build"),
        (("$ apptainer exec image.sif python x.py", "RuntimeError: could not find any accelerator"), "container_without_gpu"),
        (("ImportError: flash_attn.so", "RuntimeError: FlashAttention only supports Ampere GPUs or newer."), "gpu_lacks_feature"),
        (("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",), "disk_full"),
        (("fatal error: Python.h: No such file or directory",), "host_compiler_unsuitable"),
        (("ImportError: cannot import name 'x' from 'y' (/e/lib/python3.11/site-packages/y/__init__.py)",),
         "python_packages_incompatible"),
        (("BLAS = 0", "| NVIDIA-SMI 550.54.14    Driver Version: 550.54.14 |"), "cpu_only_build"),
        (("torchvision 0.18.0+cpu", NO_CUDA), "cpu_only_build"),
    ],
)  # fmt: skip
def test_causes_with_other_fixes_are_apart(lines, cause):
    assert found(*lines)[0].cause == cause


def test_the_machine_s_container_decides_as_that_of_a_text_does():
    assert [f.cause for f in found(NO_CUDA, machine=DOCKER)] == [f.cause for f in found("docker:", NO_CUDA)]
    apptainer = dataclasses.replace(DOCKER, context=HostContext(container="apptainer"))
    assert "apptainer exec --nv" in fix_of("container_without_gpu", NO_CUDA, machine=apptainer)


def test_a_platform_is_named_only_with_a_sign_of_it():
    names = [
        f.cause for f in found("Error: libcuda.so: cannot open shared object file: No such file or directory")
    ]
    assert names and not [n for n in names if "wsl" in n or "windows" in n]


def test_the_context_has_each_value_with_its_line():
    text = b"Ubuntu 22.04\n$ docker run -it vllm/vllm-openai:v0.6\ntorch 2.4.0+cu121\nPython 3.11\nNo CUDA GPUs are available\n"
    context = diagnosis_of([("log", [text])]).context
    values = {v.name: (v.value, v.evidence.line) for v in context}
    assert values["program"] == ("vllm", 2) and values["framework"] == ("torch", 3)
    assert values["container"] == ("docker", 2) and values["gpu_flag"] == ("no", 2)
    assert values["launch"][0].startswith("docker run -it vllm")
    assert values["torch"] == ("2.4.0", 3) and values["cuda_build"] == ("12.1", 3)
    assert values["python"] == ("3.11", 4)
    assert (values["system"], values["distribution"]) == (("linux", 1), ("debian", 1))


@rows(
    ("row", "problem"),
    [
        ({"steps": ("host: {nothing}",)}, "nothing is no slot"),
        ({"steps": ("host: {driver}",)}, "the last fix of a cause has no condition and no slot"),
        (
            {"steps": ("reboot",), "wants": ("container",)},
            "the last fix of a cause has no condition and no slot",
        ),
        ({"steps": ("`reboot`",)}, "begins a step with a command, and is no place"),
        ({"steps": ("reboot",), "lacks": ("no_such_words",)}, "is neither a message nor a fact"),
    ],
)
def test_a_fix_that_can_stay_unfilled_is_refused(row, problem):
    wrong = FailureFix(name="n", cause="nv_cache_corrupt", **row)
    assert find_mistakes(KNOWN) == []
    assert problem in " ".join(find_mistakes(dataclasses.replace(KNOWN, fixes=(*KNOWN.fixes, wrong))))


def test_a_message_with_the_name_of_a_fact_is_refused():
    message = KNOWN.messages[0]._replace(name="container")
    wrong = find_mistakes(dataclasses.replace(KNOWN, messages=(*KNOWN.messages, message)))
    assert wrong == ["container: a fact has the name of this message"]
