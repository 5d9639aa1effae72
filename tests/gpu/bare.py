"""Run what the default verdict runs of one framework, and nothing else: `run_gpu.py --compare` compares with it.

    python tests/gpu/bare.py torch|jax|tensorflow [--one]

It has the shapes, the types and the order of provision/probes, without a grade, a report or gpuenv. With --one it runs
a single convolution with its gradients, as people do to see whether cuDNN works.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

SHAPES = runpy.run_path(str(Path(__file__).parents[2] / "provision" / "probes" / "operations.py"))
CASES = dict(list(SHAPES["CASES"].items())[:5])  # type: ignore[call-overload]
TYPES = ("float32", "tf32", "float16", "bfloat16")


def convolutions() -> list[tuple[str, str]]:
    return [(name, t) for name in CASES for t in (TYPES if name == "conv2d" else TYPES[:1])]


def products() -> list[tuple[dict, str]]:
    rows = SHAPES["PRODUCTS"].items()
    return [(case, t) for name, case in rows for t in (TYPES if name == "matmul" else TYPES[-1:])]


def attentions() -> list[tuple[str, dict, str]]:
    return [
        (n, c, t) for (n, c), t in zip(SHAPES["ATTENTIONS"].items(), ("bfloat16", "float16"), strict=True)
    ]


def run_torch(one: bool) -> None:
    import torch

    kinds = {t: getattr(torch, t, torch.float32) for t in TYPES}

    def make(dtype: str, *shape: int) -> torch.Tensor:
        return torch.randn(shape, device="cuda", dtype=kinds[dtype], requires_grad=True)

    for name, dtype in convolutions()[:1] if one else convolutions():
        torch.backends.cudnn.allow_tf32 = dtype == "tf32"
        case = CASES[name]
        rank, groups, io = len(case["size"]), case.get("groups", 1), (case["cout"], case["cin"])
        moved = bool(case.get("transposed"))
        x = make(dtype, case["batch"], case["cin"], *case["size"])
        w = make(dtype, *(io[::-1] if moved else (io[0], io[1] // groups)), *case["kernel"])
        function = getattr(torch.nn.functional, f"conv_transpose{rank}d" if moved else f"conv{rank}d")
        y = function(x, w, stride=case["stride"], padding=case["padding"], groups=groups)
        y.sum().backward()
        [a.cpu() for a in (y, x.grad, w.grad)]
    for case, dtype in () if one else products():
        torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
        x, w = make(dtype, case["rows"], case["terms"]), make(dtype, case["terms"], case["columns"])
        y = torch.addmm(make(dtype, case["columns"]), x, w) if case.get("bias") else x @ w
        y.sum().backward()
        [a.cpu() for a in (y, x.grad, w.grad)]

    def attend(name: str, case: dict, dtype: str) -> None:
        shape = case["batch"], case["heads"], case["length"], case["width"]
        q, k, v = (make(dtype, *shape) for _ in range(3))
        masked = {"attn_mask": torch.tensor(SHAPES["attention_mask"](name), device="cuda")[None, None]}
        y = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, **(masked if case.get("masked") else {"is_causal": True})
        )
        y.sum().backward()
        [a.cpu() for a in (y, q.grad, k.grad, v.grad)]

    for job in () if one else attentions():
        attend(*job)
    if not one:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        for backend in (b for n, b in SDPBackend.__members__.items() if n not in ("ERROR", "OVERRIDEABLE")):
            with sdpa_kernel([backend]):
                attend(*attentions()[0])


def run_jax(one: bool) -> None:
    import jax
    import numpy as np

    jnp, random = jax.numpy, np.random.default_rng(0)
    kinds = {t: getattr(jnp, t, jnp.float32) for t in TYPES}

    def make(dtype: str, *shape: int) -> jax.Array:
        return jax.device_put(random.standard_normal(shape).astype(kinds[dtype]))

    def passes(function, *arrays):
        y, back = jax.vjp(function, *arrays)
        return (y, *back(jnp.ones_like(y)))

    def precise(dtype: str) -> jax.lax.Precision:
        return jax.lax.Precision.HIGHEST if dtype == "float32" else jax.lax.Precision.DEFAULT

    for name, dtype in convolutions()[:1] if one else convolutions():
        case = CASES[name]
        letters, groups = "DHW"[3 - len(case["size"]) :], case.get("groups", 1)
        io = (case["cout"], case["cin"]) if case.get("transposed") else (case["cin"] // groups, case["cout"])
        x = make(dtype, case["batch"], *case["size"], case["cin"])
        w = make(dtype, *case["kernel"], *io)
        options = {
            "dimension_numbers": (f"N{letters}C", f"{letters}IO", f"N{letters}C"),
            "precision": precise(dtype),
        }
        pads = [(p, p) for p in case["padding"]]
        around = [(k - 1 - p, k - 1 - p) for k, p in zip(case["kernel"], case["padding"], strict=True)]

        def forward(x, w, case=case, options=options, pads=pads, around=around, groups=groups):
            if case.get("transposed"):
                return jax.lax.conv_transpose(x, w, case["stride"], around, transpose_kernel=True, **options)
            return jax.lax.conv_general_dilated(
                x, w, case["stride"], pads, feature_group_count=groups, **options
            )

        [np.asarray(a) for a in jax.jit(lambda x, w, f=forward: passes(f, x, w))(x, w)]
    if one:
        return

    def product(x, w, *bias, dtype):
        y = jnp.matmul(x, w, precision=precise(dtype))
        return y + bias[0] if bias else y

    for case, dtype in products():
        arrays = [make(dtype, case["rows"], case["terms"]), make(dtype, case["terms"], case["columns"])]
        arrays += [make(dtype, case["columns"])] if case.get("bias") else []
        run = jax.jit(lambda *a, dtype=dtype: passes(lambda *b: product(*b, dtype=dtype), *a))
        [np.asarray(a) for a in run(*arrays)]
    for number, (name, case, dtype) in enumerate([*attentions(), attentions()[0]]):
        q, k, v = (make(dtype, case["batch"], case["length"], case["heads"], case["width"]) for _ in range(3))
        seen = (
            {"mask": jnp.asarray(SHAPES["attention_mask"](name))[None, None]}
            if case.get("masked")
            else {"is_causal": True}
        )
        seen["implementation"] = "cudnn" if number == 2 else None

        def attention(q, k, v, seen=seen):
            return jax.nn.dot_product_attention(q, k, v, **seen)

        [np.asarray(a) for a in jax.jit(lambda q, k, v, f=attention: passes(f, q, k, v))(q, k, v)]


def run_tensorflow(one: bool) -> None:
    import tensorflow as tf

    kinds = {t: getattr(tf, t, tf.float32) for t in TYPES}

    def make(dtype: str, *shape: int) -> tf.Tensor:
        return tf.cast(tf.random.normal(shape), kinds[dtype])

    def passes(function, *arrays):
        with tf.GradientTape() as tape:
            tape.watch(arrays)
            y = function(*arrays)
        [a.numpy() for a in (y, *tape.gradient(y, arrays))]

    for name, dtype in convolutions()[:1] if one else convolutions():
        tf.config.experimental.enable_tensor_float_32_execution(dtype == "tf32")
        case = CASES[name]
        io = (
            (case["cout"], case["cin"])
            if case.get("transposed")
            else (case["cin"] // case.get("groups", 1), case["cout"])
        )
        x, w = make(dtype, case["batch"], *case["size"], case["cin"]), make(dtype, *case["kernel"], *io)
        pads, strides = [[0, 0], *([p, p] for p in case["padding"]), [0, 0]], [1, *case["stride"], 1]

        def convolve(x, w, case=case, pads=pads, strides=strides):
            if case.get("transposed"):
                shape = case["batch"], *SHAPES["spatial"](case), case["cout"]
                return tf.nn.conv2d_transpose(x, w, shape, strides, padding=pads)
            if len(case["size"]) == 2:
                return tf.nn.conv2d(x, w, strides, pads)
            x = tf.pad(x, pads)
            return (
                tf.nn.conv3d(x, w, strides, "VALID")
                if len(case["size"]) == 3
                else tf.nn.conv1d(x, w, strides[1], "VALID")
            )

        passes(convolve, x, w)
    for case, dtype in () if one else products():
        tf.config.experimental.enable_tensor_float_32_execution(dtype == "tf32")
        bias = [make(dtype, case["columns"])] if case.get("bias") else []
        x, w = make(dtype, case["rows"], case["terms"]), make(dtype, case["terms"], case["columns"])
        passes(lambda x, w, *b: tf.nn.bias_add(x @ w, *b) if b else x @ w, x, w, *bias)


if __name__ == "__main__":
    globals()["run_" + sys.argv[1]]("--one" in sys.argv)
    print("passes")
