"""Names of packages: their normal form, aliases of frameworks, and the packages of builds.

Facts about versions are rows of `profiles/*.yaml`. The names here are needed before those are read.
"""

from __future__ import annotations

import re

# Alias of a framework, by people or an index -> the framework
FRAMEWORK_ALIASES = {
    "pytorch": "torch",
    "tf": "tensorflow",
    "tensorflow-gpu": "tensorflow",
    "tensorflow-cpu": "tensorflow",
    "jaxlib": "jax",
}
# Conda package -> its wheel, for packages that verify compares without reading a profile
WHEEL_NAMES = {"pytorch": "torch"}
# Packages with code compiled against one build of torch, and released with each torch
TORCH_COMPANIONS = ("torchvision", "torchaudio")
# The packages that a plan installs from the PyTorch index together with torch
PYTORCH_INDEX_PACKAGES = ("torch", *TORCH_COMPANIONS, "pytorch-triton")

_FRAMEWORK_PACKAGE = re.compile(
    r"torch|torchvision|torchaudio|tensorflow(-\w+)?|(tf-)?keras|jax|jaxlib|nvidia-[\w-]+"
)
_BUILD_PACKAGE = re.compile(
    r"nvidia-.+-cu\d+|(pytorch-)?triton(-rocm|-xpu)?|jax-cuda\d+-(plugin|pjrt)|jax-rocm\d+-(plugin|pjrt)"
)


def normalize_name(name: str) -> str:
    """Return a package name in the normal form of PEP 503.

    The result is that of packaging.utils.canonicalize_name. That module is too slow to import for `verify --quick`.
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def is_stack_package(name: str) -> bool:
    """Return whether a package is a framework, a part of one, or released by NVIDIA. The name is in normal form."""
    return (
        _FRAMEWORK_PACKAGE.fullmatch(name) is not None or name in FRAMEWORK_ALIASES or is_build_package(name)
    )


def is_build_package(name: str) -> bool:
    """Return whether only a build of a framework requires a package. The name is in normal form."""
    return _BUILD_PACKAGE.fullmatch(name) is not None
