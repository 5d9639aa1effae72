"""Names of packages that hold a framework's CPU build: jax and jaxlib without an extra for a GPU, and tensorflow-cpu."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .package_names import normalize_name

# Package -> the framework whose CPU build it holds
CPU_PACKAGES = {"jax": "jax", "jaxlib": "jax", "tensorflow-cpu": "tensorflow"}
# Extras of jax that bring no code for a GPU
_NO_GPU = re.compile(r"cpu|minimum-jaxlib|ci|k8s|xprof")


def is_cpu_build(name: str, extras: Iterable[str] = (), specifier: str = "") -> bool:
    """Whether a requirement, its name in normal form, asks for a framework's CPU build."""
    gpu = [e for e in extras if not _NO_GPU.fullmatch(normalize_name(e))]
    return name in CPU_PACKAGES and not gpu and "+cu" not in specifier
