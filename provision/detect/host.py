"""Reads the surroundings of gpuenv: PCI devices, device files, container, WSL, Colab and Slurm."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from ..model import PLATFORMS, Evidence, Finding, HardwareDevice, HostContext
from .causes import make_finding
from .files import exists, join_root, list_device_files, list_entries, read_text

# PCI vendor numbers and class prefixes: pci.ids, "display controller" and "processing accelerator".
VENDORS = {"0x10de": "nvidia", "0x1002": "amd", "0x8086": "intel"}
CLASSES = ("0x03", "0x12")
WSL_LIBCUDA = "/usr/lib/wsl/lib/libcuda.so.1"
JETSON = "jetson"
SLURM_CONFS = ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf", "/run/slurm/conf/slurm.conf")
"""Of slurm.conf(5): the usual places, that of Debian before 11, and the copy on a host without a file of its own."""


def make_pci_device(address: str, vendor: str, device: str, kind: str) -> HardwareDevice | None:
    """Return a device of three vendors from its files in /sys.

    Return None for other vendors, and for functions that are no GPU (NVIDIA's audio and USB functions, NVSwitch
    bridges).
    """
    if vendor not in VENDORS or not kind.startswith(CLASSES):
        return None
    return HardwareDevice(vendor=VENDORS[vendor], address=address, device=device or None)


def read_pci(root: Path) -> tuple[HardwareDevice, ...]:
    """Return the GPUs and accelerators in /sys/bus/pci/devices."""
    devices = []
    for path in list_entries(join_root(root, "/sys/bus/pci/devices")):
        vendor, device, kind = (read_text(path / name) or "" for name in ("vendor", "device", "class"))
        devices.append(make_pci_device(path.name, vendor, device, kind))
    return tuple(item for item in devices if item)


def parse_jetson_model(release: str | None, model: str | None) -> str | None:
    """Return the name of a Jetson board, or None for other machines.

    It is read from /etc/nv_tegra_release ("# R35 (release), REVISION: 4.1, ...") and /proc/device-tree/model
    ("NVIDIA Jetson AGX Orin Developer Kit").
    """
    if model and re.search(r"jetson|nvidia.*(orin|thor|xavier)", model, re.IGNORECASE):
        return model
    return "NVIDIA Jetson" if release and re.match(r"# R\d+ \(release\)", release) else None


def read_hardware(root: Path) -> tuple[HardwareDevice, ...]:
    """Return all signs of a GPU that do not need a working driver."""
    devices = list(read_pci(root))
    devices += [
        HardwareDevice(vendor="nvidia", address=node.path)
        for node in list_device_files(root)
        if node.path != "/dev/dxg"  # Microsoft's, there for GPUs of every maker
    ]
    if exists(join_root(root, WSL_LIBCUDA)):
        devices.append(HardwareDevice(vendor="nvidia", address=WSL_LIBCUDA))
    board = parse_jetson_model(
        read_text(join_root(root, "/etc/nv_tegra_release")),
        read_text(join_root(root, "/proc/device-tree/model")),
    )
    if board:
        devices.append(HardwareDevice(vendor="nvidia", address=JETSON, device=board))
    return tuple(devices)


def judge_hardware(hardware: tuple[HardwareDevice, ...]) -> tuple[Finding, ...]:
    """Return findings for GPUs without builds that gpuenv knows."""
    jetson = next((item for item in hardware if item.address == JETSON), None)
    if jetson:
        return (make_finding("jetson", _list_evidence((jetson,)), board=jetson.device),)
    if any(item.vendor == "nvidia" for item in hardware):
        return ()
    findings = []
    for vendor, name in (("amd", "AMD"), ("intel", "Intel")):
        items = tuple(item for item in hardware if item.vendor == vendor)
        if items:
            findings.append(make_finding("gpu_of_other_maker", _list_evidence(items), maker=name))
    return tuple(findings)


def _list_evidence(items: tuple[HardwareDevice, ...]) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(
            f"{item.vendor} device {item.device or 'of unknown model'}",
            item.address if item.address == JETSON else f"/sys/bus/pci/devices/{item.address}",
        )
        for item in items
    )


CGROUPS = (
    ("kubernetes", r"kubepods"),
    ("podman", r"libpod"),
    ("docker", r"/docker[/-]"),
    ("other", r"containerd|/lxc[./]|/machine\.slice/machine-|garden"),
)


def find_container_kind(
    environ: Mapping[str, str], *, dockerenv: bool, containerenv: bool, cgroup: str, init: str
) -> str | None:
    """Return the kind of container, or None.

    The signs are variables, the marker files of docker and podman, /proc/1/cgroup, and `container=` of systemd
    and nspawn (`init`).
    """
    if "APPTAINER_CONTAINER" in environ or "SINGULARITY_CONTAINER" in environ:
        return "apptainer"
    if "KUBERNETES_SERVICE_HOST" in environ:
        return "kubernetes"
    if containerenv:
        return "podman"
    by_cgroup = next((kind for kind, mark in CGROUPS if re.search(mark, cgroup)), None)
    if by_cgroup:
        return by_cgroup
    if dockerenv:
        return "docker"
    named = environ.get("container") or init
    return None if not named or named == "wsl" else named if named in ("docker", "podman") else "other"


def is_wsl(release: str, *, driver_folder: bool) -> bool:
    """Return whether a kernel release is WSL's ("5.15.167.4-microsoft-standard-WSL2").

    A kernel that the user built keeps the driver's folder.
    """
    return "microsoft" in release.lower() or driver_folder


def find_slurm_role(root: Path, environ: Mapping[str, str]) -> str | None:
    """Return "job" inside a Slurm job, "login" on a machine that submits jobs and runs none, else None.

    Such a machine has a slurm.conf that names nodes, and no slurmd, which runs on each node. Slurm's programs alone
    mean nothing: distributions install them without a cluster.
    """
    if "SLURM_JOB_ID" in environ:
        return "job"
    named = environ.get("SLURM_CONF")
    conf = next(
        (text for path in ([named] if named else SLURM_CONFS) if (text := read_text(join_root(root, path)))),
        "",
    )
    if not re.search(r"^\s*(NodeName|NodeSet|include)\b", conf, re.IGNORECASE | re.MULTILINE):
        return None
    running = (
        read_text(entry / "comm") for entry in list_entries(join_root(root, "/proc")) if entry.name.isdigit()
    )
    return None if "slurmd" in running else "login"


def read_wsl(root: Path) -> bool:
    """Return whether this is WSL."""
    release = read_text(join_root(root, "/proc/sys/kernel/osrelease")) or ""
    return is_wsl(release, driver_folder=exists(join_root(root, "/usr/lib/wsl/lib")))


def read_context(root: Path, environ: Mapping[str, str]) -> HostContext:
    """Read all marks under `root`."""
    container = find_container_kind(
        environ,
        dockerenv=exists(join_root(root, "/.dockerenv")),
        containerenv=exists(join_root(root, "/run/.containerenv")),
        cgroup=read_text(join_root(root, "/proc/1/cgroup")) or "",
        init=read_text(join_root(root, "/run/systemd/container")) or "",
    )
    return HostContext(
        container=container,
        wsl=read_wsl(root),
        colab="COLAB_RELEASE_TAG" in environ or _has_colab_package(root),
        slurm=find_slurm_role(root, environ),
    )


def _has_colab_package(root: Path) -> bool:
    """Return whether Colab's working directory and its Python package exist."""
    if not exists(join_root(root, "/content")):
        return False
    return any(
        exists(folder / "dist-packages" / "google" / "colab")
        for folder in list_entries(join_root(root, "/usr/local/lib"))
        if folder.name.startswith("python3")
    )


def judge_platform(name: str) -> tuple[Finding, ...]:
    """Return a finding for a platform without CUDA builds."""
    if name in PLATFORMS:
        return ()
    finding = "platform_without_builds"
    if name.startswith("macos-"):
        finding = "macos"
    elif name.endswith("-musl"):
        finding = "musl"
    evidence = Evidence(f"platform {name}", "python")
    return (make_finding(finding, (evidence,), platform=name, platforms=", ".join(PLATFORMS)),)
