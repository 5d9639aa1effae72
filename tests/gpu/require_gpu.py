"""Try `gpuenv run --require-gpu` on a real GPU.

    python tests/gpu/require_gpu.py [ENV ...]

Needs one NVIDIA GPU and a Python that can import provision. Without ENV only the driver is used, by ctypes. For each ENV with
torch, TensorFlow or JAX, programs that use the GPU, only ask for it, or choose the CPU are run, alone and as children. Exits 1 where
an exit code is not the expected one, or where the looking costs more than 2 % of the run time.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
DRIVER = "import ctypes as c; d = c.CDLL('libcuda.so.1'); assert d.cuInit(0) == 0; "
CONTEXT = "p = c.c_void_p(); assert d.cuDevicePrimaryCtxRetain(c.byref(p), 0) == 0; "
CHILD = "import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-c', {!r}]).returncode)"
ORPHAN = "import subprocess, sys; sys.exit(subprocess.run(['sh', '-c', '\"$0\" -c \"$1\" & wait', sys.executable, {!r}]).returncode)"
# What is imported -> a program on the GPU, one that only asks, one on the CPU, and a long one on the GPU
PROGRAMS = {
    "torch": (
        "import torch; print(torch.ones(9, device='cuda').sum().item())",
        "import torch; print(torch.cuda.is_available(), torch.cuda.device_count())",
        "import torch; print(torch.ones(9).sum().item())",
        "import torch; x = torch.rand(4096, 4096, device='cuda')\nfor _ in range(1500): x = (x @ x).clamp(0, 1)\nprint(x.sum().item())",
    ),
    "jax": (
        "import jax.numpy as n; print(n.ones(9).sum())",
        "import jax",
        "import os; os.environ['JAX_PLATFORMS'] = 'cpu'; import jax.numpy as n; print(n.ones(9).sum())",
        "import jax; import jax.numpy as n; x = n.ones((4096, 4096))\nfor _ in range(1500): x = n.clip(x @ x, 0, 1)\nprint(x.sum())",
    ),
    "tensorflow": (
        "import tensorflow as t; print(t.reduce_sum(t.ones(9)).numpy())",
        "import tensorflow as t; print(t.config.list_physical_devices('GPU'))",
        "import tensorflow as t; t.config.set_visible_devices([], 'GPU'); print(t.reduce_sum(t.ones(9)).numpy())",
        "import tensorflow as t; x = t.ones((4096, 4096))\nfor _ in range(1500): x = t.clip_by_value(x @ x, 0, 1)\nprint(t.reduce_sum(x).numpy())",
    ),
}


def run(env: Path, code: str, *options: str) -> tuple[int, float]:
    """Run a program in an environment with gpuenv of this checkout, and return exit code and seconds."""
    argv = [sys.executable, "-m", "provision", "run", *options, str(env), "--", "python", "-c", code]
    start = time.monotonic()
    done = subprocess.run(
        argv, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 8):
        print(done.stderr[-2000:])
    return done.returncode, time.monotonic() - start


def judge(env: Path, name: str, cases: dict[str, tuple[str, int]]) -> bool:
    """Try programs, each with the exit code that is expected."""
    good = True
    for what, (code, expected) in cases.items():
        found = {run(env, code, "--require-gpu")[0] for _ in range(3)}
        good &= found == {expected}
        print(
            f"{'ok ' if found == {expected} else 'BAD'} {name}: {what}: exit code {found}, expected {expected}",
            flush=True,
        )
    return good


def main() -> int:
    """Try the driver alone, then each environment of the command line."""
    short = DRIVER + CONTEXT
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder)
        cases = {
            "a context": (short, 0), "a context of a child": (CHILD.format(short), 0),
            "a context of a grandchild": (ORPHAN.format(short), 0), "cuInit alone": (DRIVER, 8), "nothing": ("", 8),
        }  # fmt: skip
        good = judge(Path(folder), "driver", cases)
    for env in map(Path, sys.argv[1:]):
        for name, (on_gpu, asks, on_cpu, long) in PROGRAMS.items():
            if not any(env.glob(f"lib/python3*/site-packages/{name}")):
                continue
            cases = {
                "on the GPU": (on_gpu, 0),
                "a child on the GPU": (CHILD.format(on_gpu), 0),
                "on the CPU": (on_cpu, 8),
            }
            # JAX and TensorFlow may make a context when they list devices
            good &= judge(env, name, cases | ({"asks only": (asks, 8)} if name == "torch" else {}))
            plain = min(run(env, long)[1] for _ in range(3))
            watched = min(run(env, long, "--require-gpu")[1] for _ in range(3))
            good &= watched < plain * 1.02 + 0.05
            print(f"{name}: {plain:.2f} s, with --require-gpu {watched:.2f} s", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
