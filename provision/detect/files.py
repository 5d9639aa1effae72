"""Reads small files of /proc, /sys, /dev and /etc under a root: the driver's, the platform's, and CUDA libraries.

A missing or unreadable file means unknown. The CSV output of nvidia-smi is parsed here too.
"""

from __future__ import annotations

import csv
import os
import platform
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..model import NVIDIA_LIBRARY_FAMILIES, Gpu, LibraryFile
from ..model.values import Value
from ..system import trust, untrusted
from ..system.elf import loader_cache
from ..system.redaction import redact_variable


def join_root(root: Path, path: str) -> Path:
    """Return an absolute path of the machine below `root`, which is "/" except in tests."""
    return root / path.lstrip("/")


def read_text(path: Path) -> str | None:
    """Return the stripped text of a file, or None if it is missing or unreadable."""
    try:
        return untrusted.read_text(path).strip("\0\n ")
    except OSError:
        return None


def exists(path: Path) -> bool:
    """Return whether a path exists. A folder without search permission means no."""
    return os.path.exists(path)  # noqa: PTH110  # Path.exists raises for such a folder


def list_entries(folder: Path) -> tuple[Path, ...]:
    """Return the paths in a folder, sorted by name; empty if it is missing or unreadable."""
    try:
        return tuple(sorted(folder.iterdir()))
    except OSError:
        return ()


SMI_FIELDS = ("index", "name", "compute_cap", "uuid", "memory.total", "driver_version")


class DeviceFile(Value):
    """A device file of the driver, and whether this process may read and write it."""

    path: str
    allowed: bool
    mode: str


def parse_proc_version(text: str) -> str | None:
    """Return the kernel module's version in /proc/driver/nvidia/version.

    There are two forms: "NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu ...", and for the open modules
    "NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build ...".
    """
    match = re.search(r"Kernel Module\s+(?:for\s+\S+\s+)?(\d+(?:\.\d+)+)", text)
    return match[1] if match else None


def read_kernel_module(root: Path) -> tuple[str | None, str | None]:
    """Return (version, source) of the loaded kernel module. The source is proc or sys."""
    version = parse_proc_version(read_text(join_root(root, "/proc/driver/nvidia/version")) or "")
    if version:
        return version, "proc"
    version = read_text(join_root(root, "/sys/module/nvidia/version"))
    return (version, "sys") if version else (None, None)


def list_device_files(root: Path) -> tuple[DeviceFile, ...]:
    """Return the device files /dev/nvidia0, /dev/nvidiactl, ..., and WSL's /dev/dxg."""
    nodes = []
    for path in list_entries(join_root(root, "/dev")):
        if not re.fullmatch(r"nvidia(\d+|ctl|-uvm)|dxg", path.name):
            continue
        try:
            mode = f"{path.stat().st_mode & 0o7777:04o}"
        except OSError:
            mode = "unknown"
        nodes.append(
            DeviceFile(path=f"/dev/{path.name}", allowed=os.access(path, os.R_OK | os.W_OK), mode=mode)
        )
    return tuple(nodes)


def parse_library_version(path: str | None) -> str | None:
    """Return the driver version in the file name of its libraries: "libcuda.so.580.159.04"."""
    match = re.search(r"\.so\.(\d{3,}(?:\.\d+)+)$", path or "")
    return match[1] if match else None


def parse_smi_rows(text: str, fields: tuple[str, ...] = SMI_FIELDS) -> tuple[tuple[Gpu, ...], str | None]:
    """Return (GPUs, driver version) from `nvidia-smi --query-gpu=... --format=csv,noheader,nounits`.

    Other lines, as warnings, are skipped. Values in brackets ("[N/A]", "[Not Supported]") are unknown.
    """
    gpus, driver = [], None
    for row in csv.reader(text.replace("\0", "").splitlines(), skipinitialspace=True, quoting=csv.QUOTE_NONE):
        if len(row) != len(fields) or not row[0].strip().isdecimal():
            continue
        cells = {k: v.strip() for k, v in zip(fields, row, strict=True)}
        known = {k: v for k, v in cells.items() if v and not v.startswith("[") and v != "N/A"}
        memory = known.get("memory.total", "")
        gpus.append(
            Gpu(
                index=int(cells["index"]),
                name=known.get("name"),
                capability=known.get("compute_cap"),
                uuid=known.get("uuid"),
                memory_mib=int(memory) if memory.isdecimal() else None,
            )
        )
        driver = known.get("driver_version", driver)
    return tuple(gpus), driver


def name_platform(system: str, machine: str, glibc: str | None) -> str:
    """Return the platform string of a plan, "linux-x86_64", from the values of `platform`.

    A Linux without glibc is named after its C library ("linux-x86_64-musl"), because manylinux wheels do not
    run there (PEP 600).
    """
    system = system.lower()
    machine = {"amd64": "x86_64", "x64": "x86_64"}.get(machine.lower(), machine.lower())
    if system == "darwin":
        return f"macos-{machine}"
    if system == "linux" and machine == "arm64":
        machine = "aarch64"
    name = f"{system}-{machine}"
    return name if system != "linux" or glibc else f"{name}-musl"


def read_glibc() -> str | None:
    """Return the glibc of this Python ("2.36"), or None without glibc (musl, macOS)."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (OSError, ValueError):
        return None  # macOS does not know the name; musl has no value
    return version if name == "glibc" else None


def read_platform() -> tuple[str, str | None]:
    """Return (platform, glibc) of this machine."""
    glibc = read_glibc() if platform.system() == "Linux" else None
    return name_platform(platform.system(), platform.machine(), glibc), glibc


NAMES = frozenset(
    (
        "CUDA_DEVICE_ORDER",
        "CUDA_HOME",
        "CUDA_MODULE_LOADING",
        "CUDA_PATH",
        "CUDA_ROOT",
        "CUDA_VISIBLE_DEVICES",
        "CONDA_PREFIX",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
        "NVIDIA_DRIVER_CAPABILITIES",
        "NVIDIA_REQUIRE_CUDA",
        "NVIDIA_VISIBLE_DEVICES",
        "PYTHONHOME",
        "PYTHONPATH",
        "PYTHONNOUSERSITE",
        "VIRTUAL_ENV",
        "SLURM_JOB_ID",
        "TRITON_PTXAS_PATH",
    )
)
PREFIXES = (
    "CONDA_OVERRIDE_",
    "CUDNN_",
    "JAX_",
    "NCCL_",
    "PYTORCH_",
    "TF_",
    "TORCH_",
    "XLA_",
)
# Terraform's, not TensorFlow's.
OTHERS = ("TF_CLI_", "TF_DATA_DIR", "TF_LOG", "TF_TOKEN_", "TF_VAR_", "TF_WORKSPACE")


def read_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that concern GPU environments, sorted by name."""
    return {
        name: redact_variable(name, value)
        for name, value in sorted(environ.items())
        if name in NAMES or (name.startswith(PREFIXES) and not name.startswith(OTHERS))
    }


FILE = rf"(?:{'|'.join((*NVIDIA_LIBRARY_FAMILIES, 'libcuda'))})(?:[A-Z_-][\w-]*)?\.so\.(?P<version>[\d.]*\d)"
DRIVER_FOLDERS = (
    "/usr/lib/wsl/lib", "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib64-nvidia", "/usr/lib64/nvidia",
    "/usr/lib/nvidia",
)  # fmt: skip
"""Where WSL, containers, Colab and distributions put the driver's libraries."""


def find_files(
    sonames: Iterable[str], root: Path, environ: Mapping[str, str], machine: str
) -> dict[str, str]:
    """Return soname -> real file that the loader would load, by its rules (ld.so(8)). Nothing is loaded."""
    files: dict[str, str] = {}
    wanted = tuple(sonames)
    for folder in trust.list_absolute_entries(environ.get("LD_LIBRARY_PATH")):
        for soname in wanted:
            if exists(folder / soname):
                files.setdefault(soname, str((folder / soname).resolve()))
    for soname, path in loader_cache(root, machine):
        if soname in wanted and exists(Path(path)):
            files.setdefault(soname, str(Path(path).resolve()))
    return files


def parse_file_version(soname: str, real: str) -> str | None:
    """Return the version in a file name if it says more than the soname: "9.14.0" in libcudnn.so.9.14.0.

    Wheels name the file like the soname, which shows only the major version.
    """
    match = re.fullmatch(FILE, real)
    if not match or (real == soname and match["version"].count(".") < 2):
        return None
    return match["version"]


def list_folder_libraries(folder: Path, names: Iterable[str]) -> tuple[LibraryFile, ...]:
    """Return the libraries among the file names of a folder.

    If a file has several names, its soname is the shortest with a version (libcudart.so.11.0 before
    libcudart.so.11.0.221).
    """
    sonames: dict[Path, str] = {}
    for name in sorted(
        (n for n in names if ".so." in n and re.fullmatch(FILE, n)), key=lambda n: (len(n), n)
    ):
        sonames.setdefault((folder / name).resolve(), name)
    return tuple(
        LibraryFile(soname=soname, path=str(folder / soname), version=parse_file_version(soname, real.name))
        for real, soname in sonames.items()
        if exists(real)
    )


def read_libraries(root: Path, environ: Mapping[str, str], machine: str) -> tuple[LibraryFile, ...]:
    """Return the libraries in LD_LIBRARY_PATH, in the loader's cache, and in folders of toolkits and drivers.

    The loader does not search the folders of toolkits and drivers.
    """
    libraries: list[LibraryFile] = []
    for folder in trust.list_absolute_entries(environ.get("LD_LIBRARY_PATH")):
        libraries += list_folder_libraries(folder, (path.name for path in list_entries(folder)))
    cached: dict[str, list[str]] = {}
    for soname, path in loader_cache(root, machine):
        cached.setdefault(path.rpartition("/")[0], []).append(soname)
    for parent, names in cached.items():
        libraries += list_folder_libraries(Path(parent), names)
    toolkits = [p / "lib64" for p in list_entries(join_root(root, "/usr/local")) if p.name.startswith("cuda")]
    for folder in (*toolkits, *(join_root(root, name) for name in DRIVER_FOLDERS)):
        libraries += list_folder_libraries(folder, (path.name for path in list_entries(folder)))
    first: dict[tuple[str, Path], LibraryFile] = {}
    for library in libraries:
        first.setdefault((library.soname, Path(library.path).resolve()), library)
    return tuple(first.values())
