"""Words that all stages share: devices, statuses, frameworks, events, and the names of packages and lock files."""

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, get_args

from .values import Value

Device = Literal["auto", "cuda", "cpu"]

Manager = Literal["venv", "conda"]

MANAGERS = get_args(Manager)

Status = Literal["pass", "warn", "fail", "skip"]

Confidence = Literal["certain", "likely", "possible"]
CONFIDENCES = ("certain", "likely", "possible")
"""The surest first."""

Outcome = Literal["works", "cpu", "unproven", "wrong", "fails"]

CheckKind = Literal["import", "run", "compile"]

PROJECT_FRAMEWORKS = ("torch", "tensorflow", "jax")
"""The frameworks that a requirement of this name requests.

The package onnxruntime is a CPU build that many packages require. onnxruntime-gpu can be installed beside a
framework. So only --framework plans ONNX Runtime.
"""
FRAMEWORKS = (*PROJECT_FRAMEWORKS, "onnxruntime")

PLATFORMS = ("linux-x86_64", "linux-aarch64", "windows-x86_64")

CONDA_SUBDIRS = {"linux-x86_64": "linux-64", "linux-aarch64": "linux-aarch64", "windows-x86_64": "win-64"}
"""Platform -> the name that conda has for it."""

ASSUMED_GLIBC = "2.17"
"""The glibc of a Linux machine that states none: that of manylinux2014."""

NVIDIA_LIBRARY_FAMILIES = ("libcudnn", "libcublas", "libcudart", "libnvrtc", "libnvJitLink")


class Event(Value, kw_only=False):
    """A message of a stage while it works.

    `kind` is start, progress, note, warning or done. Three more kinds are next (the command that follows a success),
    summary (a sentence in place of the result's details) and log (lines to show in any case). `done` and `total` are
    in `unit` (bytes, packages, stages). `files` is the number of files to download.
    """

    kind: str
    stage: str
    text: str
    done: int | None = None
    total: int | None = None
    unit: str | None = None
    files: int | None = None


Emit = Callable[[Event], None]
"""A callback that receives events."""


def drop_event(_event: Event) -> None:
    """Drop an event: the `emit` of a caller who only wants the value."""


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

_FRAMEWORK_PACKAGE = (
    r"torch|torchvision|torchaudio|tensorflow(-\w+)?|(tf-)?keras|jax|jaxlib|onnxruntime(-gpu)?|nvidia-[\w-]+"
)
_BUILD_PACKAGE = (
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
        re.fullmatch(_FRAMEWORK_PACKAGE, name) is not None
        or name in FRAMEWORK_ALIASES
        or is_build_package(name)
    )


_NAME = re.compile(r"\s*([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?![A-Za-z0-9._:/+-])")


@functools.lru_cache(maxsize=1 << 12)
def requirement_name(text: str) -> str:
    """Return the name of a requirement in normal form, or "" for a path, an address or an option."""
    match = _NAME.match(text)
    return normalize_name(match[1]) if match else ""


def is_build_package(name: str) -> bool:
    """Return whether only a build of a framework requires a package. The name is in normal form."""
    return re.fullmatch(_BUILD_PACKAGE, name) is not None


# Package -> the framework of this CPU build
CPU_PACKAGES = {"jax": "jax", "jaxlib": "jax", "tensorflow-cpu": "tensorflow"}
# Extras of jax without code for a GPU
_NO_GPU = r"cpu|minimum-jaxlib|ci|k8s|xprof"


def is_cpu_build(name: str, extras: Iterable[str] = (), specifier: str = "") -> bool:
    """Return whether a requirement, its name in normal form, names a framework's CPU build."""
    gpu = [e for e in extras if not re.fullmatch(_NO_GPU, normalize_name(e))]
    return name in CPU_PACKAGES and not gpu and "+cu" not in specifier


VENV_LOCK = "pylock.toml"
CONDA_LOCK = "conda-lock.yml"
LOCK_NAMES = {"venv": VENV_LOCK, "conda": CONDA_LOCK}
"""The name of a project's lock file by manager."""
VENV_LOCKS = "pylock*.toml"
VENV_CLASS_LOCKS = "pylock.*.toml"
"""Patterns of venv lock files in a folder: all of them, and those of targets and classes."""
UV_LOCK_FORMAT = VENV_LOCK
"""The name of uv's output format for such locks."""
_NAMED = r"pylock\.([^.]+)\.toml|([^.]+)\.conda-lock\.yml"


def make_lock_name(manager: str, target: str | None = None) -> str:
    """Return the name of a project's lock file, or of that of a named target or class.

    The latter are pylock.NAME.toml and NAME.conda-lock.yml. conda-lock requires this suffix.
    """
    if not target:
        return LOCK_NAMES[manager]
    return f"{target}.{CONDA_LOCK}" if manager == "conda" else f"pylock.{target}.toml"


def find_lock_target(name: str) -> str | None:
    """Return the target or class in the name of a lock file, or None for the name of a project's lock."""
    match = re.fullmatch(_NAMED, name)
    return (match[1] or match[2]) if match else None


def is_venv_lock(name: str) -> bool:
    """Return whether a file name is that of a venv lock, also of a target or class."""
    return name.startswith("pylock.") and name.endswith(".toml")


def name_few(names: Sequence[str], most: int = 3) -> str:
    """Return some names, and how many there are more: "a, b, c and 4 more"."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def format_bytes(count: float) -> str:
    """Return bytes in powers of ten, as `df -H` and disk vendors count: "2.4 GB"."""
    for unit in ("B", "kB", "MB"):
        if count < 999.5:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def format_cuda(number: int) -> str | None:
    """Return CUDA's number as text: 13000 is "13.0", and 0 (no answer) is None."""
    return f"{number // 1000}.{number % 1000 // 10}" if number > 0 else None


def format_label(cuda: str | None) -> str:
    """Return the local label of a build for a CUDA: "cu128", or "cpu"."""
    return f"cu{cuda.replace('.', '')}" if cuda else "cpu"


def format_cudnn(version: str | int | Sequence[int] | None) -> str | None:
    """Return cuDNN's version in three parts: 8907 is 8.9.7, 91002 is 9.10.2, [9, 19, 0] is 9.19.0."""
    if version is None or isinstance(version, str):
        return version
    if isinstance(version, int):
        major, minor = divmod(version // 100, 100 if version >= 90000 else 10)
        version = (major, minor, version % 100)
    return ".".join(map(str, version))
