"""Where gpuenv runs: container, WSL, Colab, Slurm."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from ..model import Context
from .files import absolute_entries, entries, is_there, read_text, under

CGROUPS = (
    ("kubernetes", r"kubepods"),
    ("podman", r"libpod"),
    ("docker", r"/docker[/-]"),
    ("other", r"containerd|/lxc[./]|/machine\.slice/machine-|garden"),
)


def container_kind(
    environ: Mapping[str, str], *, dockerenv: bool, containerenv: bool, cgroup: str, init: str
) -> str | None:
    """The kind of container from its marks: what the environment says, docker's and podman's
    marker files, /proc/1/cgroup, and `container=` as systemd and nspawn set it (`init`)."""
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
    """Whether a kernel release is WSL's ("5.15.167.4-microsoft-standard-WSL2"); a kernel built by
    its user keeps the driver's folder."""
    return "microsoft" in release.lower() or driver_folder


def slurm_role(environ: Mapping[str, str], *, installed: bool) -> str | None:
    """Slurm's part here: "job" inside a job, "login" where Slurm is at hand and this is no job."""
    if "SLURM_JOB_ID" in environ:
        return "job"
    return "login" if installed else None


def read_wsl(root: Path) -> bool:
    """Whether this is WSL."""
    release = read_text(under(root, "/proc/sys/kernel/osrelease")) or ""
    return is_wsl(release, driver_folder=is_there(under(root, "/usr/lib/wsl/lib")))


def read_context(root: Path, environ: Mapping[str, str]) -> Context:
    """Read all marks under `root`."""
    container = container_kind(
        environ,
        dockerenv=is_there(under(root, "/.dockerenv")),
        containerenv=is_there(under(root, "/run/.containerenv")),
        cgroup=read_text(under(root, "/proc/1/cgroup")) or "",
        init=read_text(under(root, "/run/systemd/container")) or "",
    )
    slurm = (
        "SLURM_CONF" in environ
        or is_there(under(root, "/etc/slurm/slurm.conf"))
        or any(is_there(folder / "sinfo") for folder in absolute_entries(environ.get("PATH")))
    )
    return Context(
        container=container,
        wsl=read_wsl(root),
        colab="COLAB_RELEASE_TAG" in environ or _has_colab_package(root),
        slurm=slurm_role(environ, installed=slurm),
    )


def _has_colab_package(root: Path) -> bool:
    """Colab's working directory together with its own Python package."""
    if not is_there(under(root, "/content")):
        return False
    return any(
        is_there(folder / "dist-packages" / "google" / "colab")
        for folder in entries(under(root, "/usr/local/lib"))
        if folder.name.startswith("python3")
    )
