"""The commands in fixes: each is one that a shell, gpuenv, pip or resolve accepts."""

import re
import shlex
import subprocess

import typer
from diagnosed import findings_of, found
from fix_commands import COMMANDS, GPUENV, OF_PROGRAMS
from fix_machine import put_examples
from known import KNOWN
from packaging.requirements import Requirement
from programs import run_program
from rows import rows

from provision.cli import read_words
from provision.cli.typer_app import app
from provision.model import FrameworkRequest, Request, Target, TargetGpu
from provision.resolve import resolve


def test_the_fixes_hold_many_commands():
    assert len(COMMANDS) > 120 and len(GPUENV) > 10


@rows("command", [*COMMANDS, *OF_PROGRAMS])
def test_a_command_is_one_that_a_shell_reads(command):
    run_program(["bash", "-n", "-c", command], check=True)


@rows("command", [c for c in COMMANDS if c.startswith(("unset ", "export "))])
def test_a_command_of_the_shell_itself_runs(command):
    run_program(["bash", "-e", "-c", command], check=True)


def test_the_damaged_cache_is_removed(tmp_path):
    assert "rm -rf ~/.nv" in COMMANDS
    (tmp_path / ".nv" / "ComputeCache").mkdir(parents=True)
    (tmp_path / ".nvm").mkdir()
    subprocess.run(
        ["bash", "-c", "rm -rf ~/.nv"], env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}, check=True
    )
    assert list(tmp_path.iterdir()) == [tmp_path / ".nvm"]


@rows(("limit", "low"), [("n", "64"), ("u", "4000"), ("v", "9000000")])
def test_a_limit_is_raised(limit, low):
    """Where root set no lower hard limit, which only root raises again."""
    (command,) = (c for c in COMMANDS if re.match(rf"ulimit -{limit} (?!-)\S", c))
    command = command.replace("65536", "$(ulimit -H -n)").replace("unlimited", "$(ulimit -H -v)")
    line = f"ulimit -S -{limit} {low} && {command} && ulimit -S -{limit} && ulimit -H -{limit}"
    done = run_program(["bash", "-c", line], check=True)
    soft, hard = done.stdout.split()
    assert soft == hard != low


@rows("command", GPUENV)
def test_gpuenv_reads_the_command(command):
    """Its own parser reads the whole line: command, options, their values and the program's words."""
    words = shlex.split(put_examples(command))[1:]
    of_program = words[words.index("--") + 1 :] if "--" in words else words[1:] if words[0] == "run" else []
    ours, program, _ = read_words(words)
    group = typer.main.get_command(app)
    outer = group.make_context("gpuenv", [*ours], obj=program)
    name, verb, rest = group.resolve_command(outer, ours)
    inner = verb.make_context(name, rest, parent=outer)
    given = {k for k in inner.params if inner.get_parameter_source(k).name == "COMMANDLINE"}
    assert (name, program) == (words[0], of_program or None)
    own = words[1 : len(words) - len(of_program)]
    positional = sum(p.name in given and p.param_type_name == "argument" for p in verb.params)
    options = {p.name for p in verb.params if set(p.opts) & set(own)}
    assert options | {p.name for p in verb.params if p.param_type_name == "argument"} >= given
    assert len(given) == len(options) + positional and (positional or not own or own[0].startswith("-"))


@rows("command", [c for c in COMMANDS if re.match(r"python -c|export LD_LIBRARY_PATH=\$\(python", c)])
def test_a_line_of_python_compiles(command):
    [code] = re.findall(r"python -c '([^']*)'", command)
    compile(code, "fix", "exec")


@rows("command", [c for c in COMMANDS if re.match(r"(?:python -m )?pip install ", c)])
def test_pip_gets_requirements_that_it_reads(command):
    words = shlex.split(command.removeprefix("python -m "))[2:]
    address = words.index("--index-url") if "--index-url" in words else len(words)
    for word in words[address + 1 : address + 2]:
        folder, label = word.rsplit("/", 1)
        assert folder in {row.url.rstrip("/") for row in KNOWN.indexes}, word
        released = {
            f"cu{b.cuda.replace('.', '')}"
            for b in KNOWN.builds
            if b.framework == words[address - 1].partition("==")[0] and b.cuda
        }
        assert label in released, word
    for word in words[:address]:
        if not word.startswith("-") and not word.startswith("NAME"):
            Requirement(word)


TARGETS = {
    "h100": ("550.54.14", "9.0", "linux"),
    "t4": ("535.129.03", "7.5", "linux"),
    "blackwell": ("575.57.08", "12.0", "linux"),
    "old driver": ("470.256.02", "8.0", "linux"),
    "volta": ("580.65.06", "7.0", "linux"),
}
BROKEN = {
    "arch_not_in_wheel_too_new": "CUDA error: no kernel image is available for execution on the device\ntorch: 1.5.0+cu101",
    "cpu_only_build": "AssertionError: Torch not compiled with CUDA enabled",
    "driver_too_old_for_runtime": "RuntimeError: The NVIDIA driver on your system is too old (found version 10020).",
    "cudnn_older_than_compiled": "Loaded runtime CuDNN library: 8.2.1 but source was compiled with: 8.6.0.",
}


@rows("broken", BROKEN)
@rows("name", TARGETS)
def test_the_release_that_a_fix_names_is_one_that_resolve_chooses(broken, name):
    driver, capability, system = TARGETS[name]
    log = f"(venv) $ python train.py\n{BROKEN[broken]}\ndriver: {driver}\ngpu capability: {capability}"
    finding = next(f for f in findings_of([("log", [log.encode()])], KNOWN, None) if f.cause == broken)
    if "CuDNN" in log and capability == "12.0":
        assert " runs on " not in finding.fix  # no build of it supports this GPU
        return
    named = re.search(r"`gpuenv create --framework '(\w+)==([\d.]+)\.\*'`", finding.fix or "")
    assert named
    assert named.group(1) == ("tensorflow" if "CuDNN" in log else "torch")
    target = Target(platform="linux-x86_64", glibc="2.35", driver=driver, driver_os=system,
                    gpus=(TargetGpu(capability=capability),))  # fmt: skip
    wanted = FrameworkRequest(name=named.group(1), specifier=f"=={named.group(2)}.*")
    plan = resolve(Request(frameworks=(wanted,), device="cuda"), target, KNOWN)
    assert plan.builds and plan.builds[0].version.startswith(named.group(2))


def test_each_possible_cause_says_what_would_decide():
    for finding in found("RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"):
        decides = [e.text for e in finding.evidence if e.source == "to check"]
        assert decides and all("`" in text for text in decides)


@rows("cause", KNOWN.causes, ids=lambda c: c.cause)
def test_each_cause_names_a_command_that_would_decide(cause):
    assert re.search(r"`[^`]+`", cause.decides)


def test_what_would_decide_is_said_once_and_not_of_a_certain_cause():
    possible = found("RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED")
    certain = found("OMP: Error #15: Initializing libiomp5.so")
    for finding in (*possible, *certain):
        decides = [e for e in finding.evidence if e.source == "to check"]
        assert len(decides) == (finding.confidence != "certain"), finding


@rows(
    ("lines", "cause", "fix"),
    [
        (
            ["I external/local_tsl/tsl/cuda/cudart_stub.cc:32] Could not find cuda drivers on your machine, GPU will not be used."],
            "nvidia_libs_not_installed",
            'pip install "tensorflow[and-cuda]"',
        ),
        (
            ["Collecting flash-attn", "  error: subprocess-exited-with-error", "ModuleNotFoundError: No module named 'torch'"],
            "build_toolkit_missing_or_mismatched",
            "pip install --no-build-isolation flash-attn",
        ),
        (
            ["error: Failed to build `sage @ file:///sage`", "ModuleNotFoundError: No module named 'torch'", "or `uv pip install torch` into the environment and"],
            "build_toolkit_missing_or_mismatched",
            "uv pip install --no-build-isolation sage`",
        ),
        (
            ["ERROR: Could not find a version that satisfies the requirement torch==2.1.0+cu118 (from versions: 2.6.0, 2.7.1)"],
            "no_gpu_build_for_platform",
            "pip install torch==2.1.0 --index-url https://download.pytorch.org/whl/cu118",
        ),
        (
            [
                "NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.20.5",
                "socketStartConnect: Connect to 10.0.0.7<41235> failed : Software caused connection abort",
            ],
            "variable_breaks_framework",
            "ip -br addr",
        ),
        (["nvcc fatal   : Unsupported gpu architecture 'compute_90a'"], "build_toolkit_missing_or_mismatched", "12.0 for compute_90a"),
    ],
)  # fmt: skip
def test_the_first_cause_of_a_common_fault_has_the_fix_that_helps(lines, cause, fix):
    first = found(*lines)[0]
    assert first.cause == cause and fix in (first.fix or ""), first
    assert "The message proposes" not in (first.fix or "")


NO_GPUS = "RuntimeError: No CUDA GPUs are available"
OOM = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 23.69 GiB total capacity; {} GiB already "
    "allocated; 11.81 MiB free; 22.30 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting "
    "max_split_size_mb to avoid fragmentation."
)


@rows(
    ("lines", "cause", "says", "never"),
    [
        (
            ["nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open shared object file: no such file or directory: unknown."],
            "driver_missing", ["If `nvidia-smi` fails on the host too", "Docker Desktop"], ["container-toolkit", "--gpus all", "started without"],
        ),
        (
            ["F statusor.cc:33] INTERNAL: failed initializing StreamExecutor for CUDA device ordinal 0: INTERNAL: failed call to cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY: out of memory"],
            "gpu_memory_exhausted", ["nother process holds", "query-compute-apps"], ["batch", "GROWTH"],
        ),
        (
            ["RuntimeError: CUDA Setup failed despite GPU being available.", "CUDA SETUP: WARNING! libcudart.so not found in any environmental path. Searching in backup paths..."],
            "nvidia_libs_not_on_loader_path", ["did not find libcudart.so", "pip install -U bitsandbytes"], ["build it"],
        ),
        ([OOM.format("22.10")], "gpu_memory_exhausted", ["a smaller batch"], ["expandable_segments", "max_split_size_mb"]),
        ([OOM.format("14.10")], "gpu_memory_exhausted", ["a smaller batch", "setting max_split_size_mb"], ["expandable_segments"]),
        (
            ["socketStartConnect: Connect to 10.0.0.7<41235> failed : Software caused connection abort"],
            "variable_breaks_framework", ["likely", "whether the process of that host still runs", "NCCL_SOCKET_IFNAME", "NCCL_DEBUG=INFO shows"],
            ["another value of the variable"],
        ),
        (
            ["I external/local_tsl/tsl/cuda/cudart_stub.cc:32] Could not find cuda drivers on your machine, GPU will not be used."],
            "nvidia_libs_not_installed", ["CPU: tensorflow-cpu"], ["JAX", "+cpu", "torch"],
        ),
        (
            [
                "E external/xla/xla/stream_executor/cuda/cuda_dnn.cc:439] Could not create cudnn handle: CUDNN_STATUS_INTERNAL_ERROR",
                "E external/xla/xla/stream_executor/cuda/cuda_dnn.cc:443] Memory usage: 2624061440 bytes free, 12524191744 bytes total.",
                "jaxlib.xla_extension.XlaRuntimeError: FAILED_PRECONDITION: DNN library initialization failed. Look at the errors above.",
            ],
            "cudnn_major_mismatch", ["did not start, although 2502", "jax[cuda12]", "unset LD_LIBRARY_PATH", "PREALLOCATE=false"], ["torch", "ctranslate2"],
        ),
        (
            ["RuntimeError: operator torchvision::nms does not exist"],
            "extension_built_for_other_torch_or_cuda", ["pip check", "replaces torch"], ["of this torch release"],
        ),
        (
            ["ERROR: Could not find a version that satisfies the requirement torch==2.1.0+cu118 (from versions: 2.6.0, 2.7.1)"],
            "no_gpu_build_for_platform", ["(3.8 to 3.11)"], [],
        ),
        (
            ["NVIDIA GeForce GTX 1080 Ti with CUDA capability sm_61 is not compatible with the current PyTorch installation.",
             "Please install PyTorch with a following CUDA configurations:  12.6 following instructions at https://pytorch.org/get-started/locally/"],
            "arch_dropped_too_old", ["PyTorch names the build itself", "download.pytorch.org/whl/cu126"], [],
        ),
        (
            ["RuntimeError: CUDA error: no kernel image is available for execution on the device", "torch: 9.9.9+cu130", "NVIDIA GeForce GTX 1080 Ti"],
            "arch_dropped_too_old", ["certain This GPU (6.1) requires CUDA 12.9 or older; the build is for 13.0"], [],
        ),
        (
            ["torch.OutOfMemoryError: CUDA out of memory. GPU 0 has a total capacity of 23.69 GiB of which 11.81 MiB is free. Process 4242 has 20.10 GiB memory in use. Including non-PyTorch memory, this process has 2.15 GiB memory in use."],
            "gpu_memory_exhausted", ["another process holds most of the GPU's memory"], ["reduce the memory that it uses"],
        ),
        (
            ["$ torchrun --nproc_per_node=8 train.py", "RuntimeError: CUDA error: invalid device ordinal"],
            "visible_devices_invalid", ["`torchrun --nproc_per_node=gpu ...`"], [],
        ),
        (["ptxas fatal : Unsupported .version 8.4; current version is '8.2'"], "ptxas_missing_or_too_old", ["The PTX is of version 8.4"], []),
        (
            ["jax 0.4.30", "ptxas fatal : Unsupported .version 8.4; current version is '8.2'"],
            "ptxas_missing_or_too_old", ["nvidia-cuda-nvcc-cu12"], ["The PTX is of version"],
        ),
        (
            ["jax 0.1.50", "ptxas fatal : Unsupported .version 6.5; current version is '6.3'"],
            "ptxas_missing_or_too_old", ["XLA_FLAGS=--xla_gpu_cuda_data_dir"], ["nvidia-cuda-nvcc-cu12"],
        ),
        (
            ["ImportError: /home/u/project/build/fastsum.cpython-310-x86_64-linux-gnu.so: undefined symbol: _ZN3c1021throwNullDataPtrErrorEv"],
            "extension_built_for_other_torch_or_cuda", ["fastsum", "Rebuild it in its folder"], ["or install its wheel"],
        ),
        (["$ docker run -it tensorflow/tensorflow python x.py", NO_GPUS], "container_without_gpu", ["likely The container"], []),
        (["$ nvidia-docker run -it tensorflow/tensorflow python x.py", NO_GPUS], "visible_devices_invalid", [], ["likely"]),
        (["$ wsl.exe", "No GPU found, using CPU instead"], "wsl_driver_missing", ["wsl --update"], []),
        (
            ["Could not create cudnn handle: CUDNN_STATUS_INTERNAL_ERROR", "Memory usage: 1000061440 bytes free, 12524191744 bytes total."],
            "preallocation_leaves_no_memory", ["possible", "too little free memory"], ["MiB were free"],
        ),
        (["No module named 'cv2'"], "python_package_missing", ["possible", "pip install opencv-python"], ["likely"]),
        (["libGL.so.1: cannot open shared object file: No such file or directory"], "system_library_missing", ["libgl1"], []),
    ],
)  # fmt: skip
def test_what_is_said_fits_the_text(lines, cause, says, never):
    findings = found(*lines)
    assert findings[0].cause == cause
    said = " ".join(
        f"{f.confidence} {f.title} {f.fix} {' '.join(e.text for e in f.evidence if e.source == 'to check')}"
        for f in findings
    )
    assert [s for s in says if s not in said] == [] == [s for s in never if s in said], said


def test_a_build_in_isolation_names_no_package_of_the_environment():
    assert not found(
        "  cause: The build backend returned an error", "ModuleNotFoundError: No module named 'setuptools'"
    )


def test_the_pip_of_a_fix_is_that_of_the_first_sign_that_has_one():
    numpy = "A module that was compiled using NumPy 1.x cannot be run in NumPy 2.0.1 as it may crash."
    for lines, pip in (
        (["Ubuntu 22.04", "$ poetry run python a.py"], "poetry run pip"),
        (["/content/a.ipynb google.colab", "$ poetry run python a.py"], "!pip"),
    ):
        assert f'`{pip} install "numpy<2"`' in found(*lines, numpy)[0].fix
