"""Measure verify against a bare script, on the CPU and on a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from .ground import Ground
from .measuring import GPUENV, Row, interleaved, timed

_BARE = {
    "torch": """
import sys, torch
where = sys.argv[1]
x = torch.randn(2, 8, 16, 16, device=where, requires_grad=True)
conv = torch.nn.Conv2d(8, 16, 3, padding=1).to(where)
conv(x).square().sum().backward()
assert float(x.grad.abs().sum()) > 0
""",
    "jax": """
import sys, jax, jax.numpy as np
x = np.ones((2, 8, 16, 16))
w = np.ones((16, 8, 3, 3))
def loss(x, w):
    return (jax.lax.conv(x, w, (1, 1), "SAME") ** 2).sum()
gx, gw = jax.grad(loss, (0, 1))(x, w)
assert float(abs(gx).sum()) > 0 and float(abs(gw).sum()) > 0
""",
    "tensorflow": """
import tensorflow as tf
x = tf.Variable(tf.random.normal((2, 16, 16, 8)))
w = tf.Variable(tf.random.normal((3, 3, 8, 16)))
with tf.GradientTape() as tape:
    y = tf.reduce_sum(tf.nn.conv2d(x, w, 1, "SAME") ** 2)
gx, gw = tape.gradient(y, (x, w))
assert float(tf.reduce_sum(tf.abs(gx))) > 0 and float(tf.reduce_sum(tf.abs(gw))) > 0
""",
}  # fmt: skip


def on_cpu(ground: Ground) -> Iterator[Row]:
    """Measure JAX's CPU build, and torch's CUDA build on the CPU."""
    yield from _rows(ground, "jax", ground.jax_env, "cpu", 4.0)
    yield from _rows(ground, "torch", ground.torch_env, "cpu", 4.0)


def on_gpu(ground: Ground, envs: Sequence[str]) -> Iterator[Row]:
    """Measure existing environments, given as FRAMEWORK=PATH."""
    for option in envs:
        framework, _, path = option.partition("=")
        limit = 2.0 if framework == "torch" else 3.0
        yield from _rows(ground, framework, Path(path).absolute(), "cuda", limit)


def _rows(ground: Ground, framework: str, env: Path, device: str, limit: float) -> Iterator[Row]:
    # A verdict that is not "works" is as long in the making: a CUDA build proved on the CPU says 8.
    # Where an environment has several frameworks, the script runs one of them only.
    verify_options = ["--device", "cpu"] if device == "cpu" else ["--framework", framework]
    run = partial(timed, folder=ground.folder, env=ground.env, codes=(0, 8) if device == "cpu" else (0,))
    bare = [str(env / "bin" / "python"), "-c", _BARE[framework], device]
    sides = [[GPUENV, "verify", str(env), *verify_options], bare]
    if device == "cuda":
        sides.insert(1, [GPUENV, "verify", str(env), "--quick"])
    whole, *quick, script = interleaved([partial(run, argv) for argv in sides], ground.runs)
    against = f"a script that runs {framework}"
    where = "CPU" if device == "cpu" else "GPU"
    yield Row(
        "verify",
        f"verify {framework}, {where}",
        against,
        whole / script,
        limit,
        whole,
        script,
        runs=ground.runs,
    )
    for took in quick:
        name = f"verify --quick {framework}, {where}"
        yield Row("verify", name, against, took / script, 0.25, took, script, runs=ground.runs)
