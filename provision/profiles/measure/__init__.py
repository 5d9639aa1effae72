"""Measure rows of the profiles from the wheels of the default index.

`torch_rows`, `tensorflow_rows`, `jax_rows`, `onnxruntime_rows`, `cudnn_rows` and `satellite_rows` each take a
`Reader` and return rows as plain data. Values that cannot be read are added to `Reader.problems`, never
guessed.
"""

from __future__ import annotations

from .builds import (
    cudnn_rows,
    jax_rows,
    onnxruntime_rows,
    tensorflow_rows,
    toolkit_rows,
    torch_rows,
)
from .satellites import satellite_rows

MEASURED = {
    "toolkits": ("toolkits", toolkit_rows, "cuda-toolkit"),
    "cudnn": ("cudnn", cudnn_rows, "nvidia-cudnn-cu12"),
    "torch": ("builds", torch_rows, "torch"),
    "tensorflow": ("builds", tensorflow_rows, "tensorflow"),
    "jax": ("builds", jax_rows, "jax"),
    "onnxruntime": ("builds", onnxruntime_rows, "onnxruntime-gpu"),
    "satellites": ("satellites", satellite_rows, "torchvision"),
}
"""Profile file (without its suffix) -> the table in it that is measured, what measures it, and the
project that an index must list for an answer to be one."""

ON_REQUEST = frozenset({"satellites"})
"""Files that are measured only when they are named: their wheels are read whole, some 40 GB."""
DEFAULT = tuple(name for name in MEASURED if name not in ON_REQUEST)

SOURCE = "The wheels of the default index, read by scripts/update_profiles.py."
