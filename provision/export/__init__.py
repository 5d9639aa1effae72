"""Export a lock to the formats of other tools. An export is text that is made of values, without I/O."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sized
from importlib import import_module

from packaging.version import Version

from ..errors import UsageError
from ..system.wheel_file import label_of
from .subject import Subject, conda_packages, folder_of, hashed, linux_only, local_files, pip_packages

# Format -> module. Its function has the name of the format.
FORMATS = {
    **dict.fromkeys(("requirements", "pylock", "environment.yml", "conda-lock"), "manifests"),
    "dockerfile": "recipes",
    "apptainer": "recipes",
    **dict.fromkeys(("pixi", "uv"), "manifests"),
    **dict.fromkeys(("devcontainer", "github"), "recipes"),
    **dict.fromkeys(("sbatch", "prolog", "healthcheck", "taskprolog", "npd", "daemonset", "job"), "recipes"),
    "cyclonedx": "bom",
}
# Formats that install gpuenv
INSTALL_GPUENV = ("apptainer", "devcontainer", "dockerfile", "github")
# Formats without paths of this machine
_WITHOUT_PATHS = ("sbatch", "cyclonedx", "prolog", "healthcheck", "taskprolog", "npd", "daemonset", "job")
_ALIASES = {
    "pip": "requirements", "pyproject": "uv", "pyproject.toml": "uv", "conda": "environment.yml", "mamba": "environment.yml",
    "docker": "dockerfile", "podman": "dockerfile", "singularity": "apptainer", "vscode": "devcontainer",
    "actions": "github", "ci": "github", "slurm": "sbatch",
    "task-prolog": "taskprolog", "health-check": "healthcheck", "nhc": "healthcheck",
    "node-problem-detector": "npd", "kubernetes": "job", "k8s": "job",
    "sbom": "cyclonedx", "bom": "cyclonedx", "cdx": "cyclonedx",
}  # fmt: skip
# The command that uses the file: {} is its path, {folder} its folder, {name} its name
NEXT = {
    "requirements": "uv pip install --require-hashes --no-deps -r {}",
    "pylock": "gpuenv create --lock {}",
    "environment.yml": "conda env create -f {}",
    "conda-lock": "gpuenv create --lock {}",
    "dockerfile": "docker build -t app -f {} {folder}",
    "apptainer": "cd {folder} && apptainer build app.sif {name}",
    "pixi": "pixi lock --manifest-path {}",
    "uv": "uv sync --project {folder}",
    "sbatch": "sbatch {}",
    "prolog": "install -m 755 {} /etc/slurm/gpuenv-prolog",
    "healthcheck": "install -m 755 {} /etc/slurm/gpuenv-healthcheck",
    "taskprolog": "install -m 755 {} /etc/slurm/gpuenv-taskprolog",
    "npd": "kubectl apply -f {}",
    "daemonset": "sed 's|IMAGE|registry.example.com/train@sha256:...|' {} | kubectl apply -f -",
    "job": "sed 's|IMAGE|registry.example.com/train@sha256:...|' {} | kubectl create -f -",
}

MANIFESTS = {"uv": "pyproject.toml", "pixi": "pixi.toml"}
"""The only file name that the tool of a format reads."""


def render(form: str, subject: Subject) -> str:
    """Return a lock in a format. Raises UsageError for an unknown format or an unsupported lock."""
    assert_known(form)
    if FORMATS[form] == "recipes":
        linux_only(subject, form)
    module = import_module(f".{FORMATS[form]}", __name__)
    function: Callable[[Subject], str] = getattr(module, re.sub(r"\W", "_", form))
    return function(subject)


def assert_known(form: str) -> None:
    """Raise UsageError with a suggestion for an unknown format."""
    if form in FORMATS:
        return
    near = [_ALIASES[form.lower()]] if form.lower() in _ALIASES else []
    near = near or difflib.get_close_matches(form.lower(), FORMATS, n=1)
    raise UsageError(
        f"--format {form}: not one of {', '.join(FORMATS)}" + (f". Did you mean {near[0]}?" if near else "")
    )


def warnings(form: str, subject: Subject) -> list[str]:
    """Return what to do before an export works on another machine, as sentences."""
    lock, sentences = subject.lock, []
    loose = [p.name for p in pip_packages(lock) if not hashed(p)]
    if loose and form in ("requirements", "environment.yml"):
        warning = (
            "are installed by separate commands at the end of the file"
            if form == "requirements"
            else "make it necessary to omit the hashes of all packages"
        )
        sentences.append(f"packages without a hash ({', '.join(loose)}) {warning}")
    files, folders = list(local_files(lock)), [p.name for p in lock.packages if folder_of(p)]
    if files and form in INSTALL_GPUENV:
        sentences.append(
            f"{_wheels(files, 'comes', 'come')} from folders of this machine: copy to ./wheels beside the export"
        )
    elif files and form not in (*_WITHOUT_PATHS, "pylock"):
        sentences.append(f"{_wheels(files, 'is', 'are')} referenced by a local path of this machine")
    variants = [p.name for p in pip_packages(lock) if not p.unhashed and label_of(p.url.rpartition("/")[2])]
    if variants and form in ("requirements", "environment.yml", "pixi", "uv"):
        gpus = [Version(g.capability) for g in lock.target.gpus]
        forced = {"CUDA_DRIVER_VERSION": lock.plan.cuda,
                "SM_ARCH": str(min(gpus)) if gpus else None}  # fmt: skip
        words = " ".join(f"NV_VARIANT_PROVIDER_FORCE_{k}={v}" for k, v in forced.items() if v)
        sentences.append(
            f"{', '.join(variants)}: these are wheel variants, which pip refuses, and of which uv chooses its own with "
            f"UV_PREVIEW_FEATURES=wheel-variants {words}. `gpuenv export --format pylock` has the locked ones"
        )
    channels = dict.fromkeys(p.index or p.url for p in conda_packages(lock) if p.url.startswith("file:"))
    if channels and form not in _WITHOUT_PATHS:
        sentences.append(f"the channel {', '.join(channels)} is a folder of this machine")
    if folders and form not in _WITHOUT_PATHS:
        sentences.append(f"{', '.join(folders)} is installed from a folder of this machine")
    return sentences


def _wheels(files: Sized, one: str, many: str) -> str:
    return f"1 wheel {one}" if len(files) == 1 else f"{len(files)} wheels {many}"
