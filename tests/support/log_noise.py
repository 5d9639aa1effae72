"""Realistic noise around a text: what terminals, notebooks, containers and schedulers add to a program's output.

Every function takes the lines of a text and a random generator, and returns lines that hold the same messages. The
same seed gives the same noise.
"""

from __future__ import annotations

import html
import json
import random
from collections.abc import Callable, Sequence

Noise = Callable[[list[str], random.Random], list[str]]

HARMLESS = (
    "2024-05-01 10:00:00.000001: I tensorflow/core/util/port.cc:113] oneDNN custom operations are on. You may see slightly different numerical results due to floating-point round-off errors from different computation orders. To turn them off, set the environment variable `TF_ENABLE_ONEDNN_OPTS=0`.",
    "2024-05-01 10:00:00.000002: E external/local_xla/xla/stream_executor/cuda/cuda_dnn.cc:9261] Unable to register cuDNN factory: Attempting to register factory for plugin cuDNN when one has already been registered",
    "2024-05-01 10:00:00.000003: E external/local_xla/xla/stream_executor/cuda/cuda_blas.cc:1515] Unable to register cuBLAS factory: Attempting to register factory for plugin cuBLAS when one has already been registered",
    "2024-05-01 10:00:00.000004: I tensorflow/core/platform/cpu_feature_guard.cc:182] This TensorFlow binary is optimized to use available CPU instructions in performance-critical operations.",
    "To enable the following instructions: AVX2 FMA, in other operations, rebuild TensorFlow with the appropriate compiler flags.",
    "2024-05-01 10:00:00.000005: W tensorflow/compiler/tf2tensorrt/utils/py_utils.cc:38] TF-TRT Warning: Could not find TensorRT",
    "E0000 00:00:1714550400.000001    4242 computation_placer.cc:177] computation placer already registered. Please check linkage and avoid linking the same target more than once.",
    "successful NUMA node read from SysFS had negative value (-1), but there must be at least one NUMA node, so returning NUMA node zero.",
    "train.py:12: FutureWarning: `torch.cuda.amp.GradScaler(args...)` is deprecated. Please use `torch.amp.GradScaler('cuda', args...)` instead.",
    "train.py:40: FutureWarning: You are using `torch.load` with `weights_only=False` (the current default value), which uses the default pickle module implicitly.",
    "train.py:7: DeprecationWarning: pkg_resources is deprecated as an API. See https://setuptools.pypa.io/en/latest/pkg_resources.html",
    "UserWarning: This DataLoader will create 8 worker processes in total. Our suggested max number of worker in current system is 4, which is smaller than what this DataLoader is going to create.",
    "UserWarning: The parameter 'pretrained' is deprecated since 0.13 and may be removed in the future, please use 'weights' instead.",
    "huggingface/tokenizers: The current process just got forked, after parallelism has already been used. Disabling parallelism to avoid deadlocks...",
    "Some weights of BertForSequenceClassification were not initialized from the model checkpoint at bert-base-uncased and are newly initialized: ['classifier.bias', 'classifier.weight']",
    "You should probably TRAIN this model on a down-stream task to be able to use it for predictions and inference.",
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
    "wandb: Currently logged in as: someone. Use `wandb login --relogin` to force relogin",
    "[notice] A new release of pip is available: 23.0.1 -> 24.0",
    "Downloading data from https://storage.example.org/mnist.npz",
    "loading annotations into memory... Done (t=0.47s)",
    "Global seed set to 42",
    "GPU available: True (cuda), used: True",
    "TPU available: False, using: 0 TPU cores",
    "LOCAL_RANK: 0 - CUDA_VISIBLE_DEVICES: [0,1]",
    "You are using a CUDA device that has Tensor Cores. To properly utilize them, you should set `torch.set_float32_matmul_precision('medium' | 'high')` which will trade-off precision for performance.",
    "[W socket.cpp:663] [c10d] The client socket has failed to connect to [localhost]:29500 (errno: 99 - Cannot assign requested address).",
    "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid your system being overloaded, please further tune the variable for optimal performance in your application as needed.",
    "conv.py:456: UserWarning: Plan failed with a cudnnException: CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: cudnnFinalizeDescriptor Failed cudnn_status: CUDNN_STATUS_NOT_SUPPORTED (Triggered internally at ../aten/src/ATen/native/cudnn/Conv_v8.cpp:919.)",
    "2024-05-01 10:00:00.000006: W tensorflow/core/common_runtime/bfc_allocator.cc:296] Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.31GiB with freed_by_count=0. The caller indicates that this is not a failure, but this may mean that there could be performance gains if more memory were available.",
    "2024-05-01 10:00:00.000007: W tensorflow/core/framework/cpu_allocator_impl.cc:83] Allocation of 536870912 exceeds 10% of free system memory.",
    "2024-05-01 10:00:00.000008: W tensorflow/stream_executor/platform/default/dso_loader.cc:64] Could not load dynamic library 'libnvinfer.so.7'; dlerror: libnvinfer.so.7: cannot open shared object file: No such file or directory",
    "I0000 00:00:1714550400.000001    4242 service.cc:146] XLA service 0x7f3c initialized for platform Host (this does not guarantee that XLA will be used). Devices:",
    "A matching Triton is not available, some optimizations will not be enabled.",
    "UserWarning: Detected call of `lr_scheduler.step()` before `optimizer.step()`.",
    "libpng warning: iCCP: known incorrect sRGB profile",
    'Gtk-Message: 10:00:00.000: Failed to load module "canberra-gtk-module"',
    "UserWarning: Error while fetching `HF_TOKEN` secret value from your vault.",
    "INFO:root:model has 23.5M parameters",
    "lr: 0.0010, momentum: 0.9, weight decay: 0.0005",
)
"""Lines that programs print whether or not anything fails."""


def wrapped(text: str, seed: int) -> str:
    """A text in one kind of noise. The seed chooses the kind and everything in it."""
    generator = random.Random(seed)
    kind = generator.choice([k for k in KINDS if not _tells_more(k, text)])
    lines = KINDS[kind](_with_warnings(text.splitlines(), generator), generator)
    return "\n".join(lines) + "\n"


def _tells_more(kind: str, text: str) -> bool:
    """Whether the noise itself says where the program ran, and the text is of another place."""
    low = text.lower()
    if kind == "windows":
        return "windows" not in low and ".dll" not in low and ":\\" not in low
    return kind == "kubernetes" and not any(w in low for w in ("kubernetes", "docker", "container", "pod "))


def _with_warnings(lines: list[str], generator: random.Random) -> list[str]:
    return [*generator.sample(HARMLESS, generator.randint(3, 12)), *lines]


def plain(lines: list[str], generator: random.Random) -> list[str]:
    """A terminal with a progress bar that returns to the beginning of its line."""
    bar = "\r".join(
        f"{i:3d}%|{'#' * (i // 10):10}| {i}/100 [00:0{i // 20}<00:05, 19.{i % 10}it/s]"
        for i in range(0, 100, 7)
    )
    return [bar, *lines, f"\r{generator.randint(1, 99)}%"]


def notebook(lines: list[str], generator: random.Random) -> list[str]:
    """A notebook's traceback with colours, and its output as a page shows it."""
    red, off = "\x1b[0;31m", "\x1b[0m"
    shown = [
        f"{red}{line[:9]}{off}\x1b[1;32m{line[9:]}{off}" if generator.random() < 0.6 else line
        for line in lines
    ]
    if generator.random() < 0.5:
        return ["<pre>", *(html.escape(line) for line in lines), "</pre>"]
    return [f"{red}{'-' * 75}{off}", *shown]


def docker(lines: list[str], _generator: random.Random) -> list[str]:
    """`docker logs --timestamps`."""
    return [f"2024-05-01T10:00:{i % 60:02d}.{i:09d}Z {line}" for i, line in enumerate(lines)]


def compose(lines: list[str], generator: random.Random) -> list[str]:
    """`docker compose logs`: two services, one of which goes on."""
    other = [f"db-1       | LOG:  checkpoint complete: wrote {i} buffers" for i in range(len(lines) // 2)]
    return _interleaved([f"trainer-1  | {line}" for line in lines], other, generator)


def json_file(lines: list[str], _generator: random.Random) -> list[str]:
    """The file of Docker's logging driver json-file."""
    return [
        json.dumps(
            {"log": f"{line}\n", "stream": "stderr", "time": f"2024-05-01T10:00:{i % 60:02d}.000000001Z"}
        )
        for i, line in enumerate(lines)
    ]


def slurm(lines: list[str], generator: random.Random) -> list[str]:
    """`srun --label`: another rank prints between the lines of the one that fails."""
    other = [f"0: step {i} loss 0.{i:04d} throughput {500 + i} samples/s" for i in range(2 * len(lines))]
    return _interleaved([f"3: {line}" for line in lines], other, generator)


def torchrun(lines: list[str], generator: random.Random) -> list[str]:
    """torchrun: each line with its rank, and another rank between."""
    other = [f"[rank1]: iteration {i}: loss {i / 7:.3f}" for i in range(len(lines))]
    return _interleaved([f"[rank0]: {line}" for line in lines], other, generator)


def kubernetes(lines: list[str], _generator: random.Random) -> list[str]:
    """`kubectl logs --prefix` after `kubectl get events`."""
    events = (
        "LAST SEEN   TYPE     REASON      OBJECT        MESSAGE",
        "2m          Normal   Scheduled   pod/train-0   Successfully assigned default/train-0 to node-7",
        '2m          Normal   Pulled      pod/train-0   Container image "registry.example.org/train:3" already present on machine',
        "2m          Normal   Started     pod/train-0   Started container main",
    )
    return [*events, *(f"[pod/train-0/main] {line}" for line in lines)]


def windows(lines: list[str], _generator: random.Random) -> list[str]:
    """PowerShell: the prompt, and lines that end with a carriage return."""
    return [f"{line}\r" for line in (r"PS C:\Users\someone\project> python .\train.py", *lines)]


def syslog(lines: list[str], _generator: random.Random) -> list[str]:
    """journalctl."""
    return [f"May 01 10:00:{i % 60:02d} node7 python3[4242]: {line}" for i, line in enumerate(lines)]


def logging_module(lines: list[str], generator: random.Random) -> list[str]:
    """A program that hands each line to Python's logging."""
    return [
        f"2024-05-01 10:00:{i % 60:02d},{generator.randint(0, 999):03d} ERROR    train: {line}"
        for i, line in enumerate(lines)
    ]


def cut(lines: list[str], generator: random.Random) -> list[str]:
    """The middle of a long log: cut within a line at either end."""
    steps = [f"epoch {i // 50} step {i} loss {generator.random():.4f} lr 0.001" for i in range(400)]
    return [steps[0][9:], *steps[1:250], *lines, *steps[250:], "epoch 8 step 4"]


def _interleaved(own: Sequence[str], other: Sequence[str], generator: random.Random) -> list[str]:
    """Two streams in one log, each in its own order."""
    lines, left, right = [], list(own), list(other)
    while left or right:
        from_own = left and (not right or generator.random() < 0.5)
        lines.append(left.pop(0) if from_own else right.pop(0))
    return lines


KINDS: dict[str, Noise] = {
    f.__name__: f
    for f in (
        plain,
        notebook,
        docker,
        compose,
        json_file,
        slurm,
        torchrun,
        kubernetes,
        windows,
        syslog,
        logging_module,
        cut,
    )
}
