"""One kernel of each compiled package beside torch, on a real GPU: torchao, bitsandbytes, xformers.

    python tests/gpu/satellite_kernels.py

Run with the Python of an environment that has torch and these packages. Every result is compared with torch's own in
float32. Prints one line per package; exits 1 where a kernel fails or is wrong.
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable

import torch

TOLERANCE = 0.05
"""The largest error that is allowed, as a part of the largest value: what half precision and 8 bits give."""


def error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference of two tensors, relative to the largest expected value."""
    return float((found.float() - expected.float()).abs().max() / expected.float().abs().max())


def torchao() -> float:
    """A product with a 2:4 sparse matrix in 8-bit floating point (_C_cutlass_90a, compute capability 9.0 alone)."""
    import torchao.ops  # noqa: F401  # registers torch.ops.torchao

    generator = torch.Generator("cuda").manual_seed(0)
    weight = torch.randn(128, 256, device="cuda", generator=generator)
    mask = torch.tensor([1.0, 1.0, 0.0, 0.0], device="cuda").repeat(128, 64)
    weight = (weight * mask).to(torch.float8_e4m3fn)
    rows = torch.randn(64, 256, device="cuda", generator=generator).to(torch.float8_e4m3fn)
    ones = torch.ones(64, device="cuda"), torch.ones(128, device="cuda")
    packed, meta = torch.ops.torchao.to_sparse_semi_structured_cutlass_sm9x_f8(weight)
    found = torch.ops.torchao.rowwise_scaled_linear_sparse_cutlass_f8f8(
        rows, ones[0], packed, meta, ones[1], None, torch.bfloat16
    )
    return error(found, rows.float() @ weight.float().T)


def bitsandbytes() -> float:
    """8-bit quantization by blocks, there and back."""
    import bitsandbytes.functional as functional

    values = torch.randn(64, 4096, device="cuda")
    packed, state = functional.quantize_blockwise(values)
    return error(functional.dequantize_blockwise(packed, state), values)


def xformers() -> float:
    """A 2:4 sparse mask by xformers' own library: the part of the tiles that do not keep two values of four."""
    import xformers.ops  # noqa: F401  # registers torch.ops.xformers

    values = torch.randn(256, 256, device="cuda", dtype=torch.float16)
    mask = torch.ops.xformers.sparse24_largest_mask_2d(values)
    kept = mask.bool().reshape(64, 4, 64, 4).permute(0, 2, 1, 3)
    right = (kept.sum(-1) <= 2).all(-1) & (kept.sum(-2) <= 2).all(-1) & (kept.sum((-1, -2)) >= 6)
    return float((~right).float().mean())


def ran(name: str, kernel: Callable[[], float]) -> bool:
    """Run a kernel and print what came of it; whether it was right."""
    try:
        version, off = importlib.metadata.version(name), kernel()
        torch.cuda.synchronize()
    except Exception as problem:  # noqa: BLE001  # whatever a package raises is its result
        print(
            f"{name}: {type(problem).__name__}: {str(problem).splitlines()[0][:200] if str(problem) else ''}"
        )
        return False
    print(f"{name} {version}: off by {off:.4f}, at most {TOLERANCE}")
    return off <= TOLERANCE


def main() -> int:
    """Run all of them. Exit code 1 where one failed."""
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name(0)}")
    kernels = {"torchao": torchao, "bitsandbytes": bitsandbytes, "xformers": xformers}
    wanted = sys.argv[1:] or list(kernels)
    results = [ran(name, kernels[name]) for name in wanted]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
