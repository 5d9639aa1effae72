"""Names of packages with a framework's CPU build: tensorflow-cpu, jax without a GPU extra."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .package_names_and_build_packages import normalize_name

# Package -> the framework of this CPU build
CPU_PACKAGES = {"jax": "jax", "jaxlib": "jax", "tensorflow-cpu": "tensorflow"}
# Extras of jax without code for a GPU
_NO_GPU = re.compile(r"cpu|minimum-jaxlib|ci|k8s|xprof")


def is_cpu_build(name: str, extras: Iterable[str] = (), specifier: str = "") -> bool:
    """Return whether a requirement, its name in normal form, names a framework's CPU build."""
    gpu = [e for e in extras if not _NO_GPU.fullmatch(normalize_name(e))]
    return name in CPU_PACKAGES and not gpu and "+cu" not in specifier
