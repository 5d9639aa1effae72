"""A Dockerfile for BuildKit that builds exactly the lock, on a machine that need not have a GPU."""

from __future__ import annotations

import json
from pathlib import PurePosixPath

from ..model import BaseImage, Lock
from . import base_images, export_source as s
from .export_source import Subject

FORM = "dockerfile"
ENV = "/opt/env"
EXACTLY = "# Exactly the lock, hashes checked."
# pip and uv fill their caches here; the next build finds them again, the image holds none of them.
_CACHE = "--mount=type=cache,target=/root/.cache"
# pip's own configuration for a private index: seen while the step runs, kept in no layer.
_SECRET = "--mount=type=secret,id=pip,target=/etc/pip.conf"  # noqa: S105  # the name of a mount
_CONTEXT = "--mount=type=bind,target=/context"


def text(subject: Subject) -> str:
    """The Dockerfile. Raises UsageError where no base image fits."""
    s.linux_only(subject, "a Dockerfile")
    start = base_images.image(subject)
    return "\n".join([
        "# syntax=docker/dockerfile:1",
        s.comment(subject, FORM, "", *_usage(subject)),
        *_start(start, subject),
        *_gpuenv(subject),
        *_environment(subject),
        *_user(subject.lock),
    ])  # fmt: skip


def _usage(subject: Subject) -> list[str]:
    gpus = "--gpus all " if subject.lock.plan.device == "cuda" else ""
    return [
        f"docker build -t app .            (this file, {s.oneline(subject.gpuenv.files(subject.lock_file))} in one folder)",
        f"docker run --rm {gpus}app python train.py",
    ]


def _start(start: BaseImage, subject: Subject) -> list[str]:
    lock = subject.lock
    if start.cuda:
        why = f"# The wheels look for CUDA and bring none: the base has CUDA {start.cuda} and cuDNN."
    elif lock.plan.device == "cuda":
        why = f"# CUDA comes with the {'packages' if lock.manager == 'conda' else 'wheels'}, and the driver from the host: the base needs neither."
    else:
        why = "# An environment without CUDA."
    return [why, f"FROM {start.image}", *_apt(start, subject), ""]


def _apt(start: BaseImage, subject: Subject) -> list[str]:
    """Return the step that installs what gpuenv requires: Python, and git for commits."""
    packages = [*start.apt, *s.git_packages(subject)]
    if not packages:
        return []
    return [
        "RUN --mount=type=cache,target=/var/cache/apt,sharing=locked \\",
        "    --mount=type=cache,target=/var/lib/apt/lists,sharing=locked \\",
        "    rm -f /etc/apt/apt.conf.d/docker-clean \\",
        f" && apt-get update && apt-get install -y --no-install-recommends {s.shell(*packages)}",
    ]


def _gpuenv(subject: Subject) -> list[str]:
    default = subject.gpuenv.requirement(subject.lock, "/context")
    return [
        "# What pip installs as gpuenv, with its hash. The build context is /context while this step runs. For an",
        "# address (one of git needs git in the base) or another wheel of the build context:",
        "#   docker build --build-arg GPUENV=/context/gpuenv-0.1.0-py3-none-any.whl ."
        if subject.gpuenv.wheel
        else "#   docker build --build-arg GPUENV=ADDRESS .",
        f'ARG GPUENV="{default}"',
        f"RUN {_CACHE} \\",
        f"    {_SECRET} \\",
        f"    {_CONTEXT} \\",
        "    python3 -m venv /opt/gpuenv \\",
        ' && /opt/gpuenv/bin/pip install --disable-pip-version-check "$GPUENV" \\',
        " && ln -s /opt/gpuenv/bin/gpuenv /usr/local/bin/gpuenv",
        "",
    ]  # fmt: skip


def _environment(subject: Subject) -> list[str]:
    lock = subject.lock
    held = f"/opt/lock/{PurePosixPath(subject.lock_file).name}"
    wheels = [s.oneline(s.file_name(p)) for p in s.local_files(lock)]
    create = s.create_command(subject, ENV, held, *(["--find-links", "/wheels"] if wheels else []))
    return [
        EXACTLY + (" A build sees no GPU: the target is told instead." if lock.plan.device == "cuda" else ""),
        *_folders(subject),
        f"COPY {json.dumps([subject.lock_file, held])}",
        *local(wheels),
        "ENV UV_LINK_MODE=copy UV_PYTHON_INSTALL_DIR=/opt/python",
        f"RUN {_CACHE} \\",
        f"    {_SECRET} \\",
        *(["    --mount=type=bind,source=wheels,target=/wheels \\"] if wheels else []),
        f"    {_override(lock)}{s.shell(*create)}",
        "# What can be proved without a GPU: it imports, and convolutions are right on the CPU.",
        f"RUN {_CACHE} \\",
        f"    {s.shell('gpuenv', 'verify', ENV, '--device', 'cpu')}",
        "",
    ]


def _override(lock: Lock) -> str:
    cuda = s.conda_override(lock)
    return f"CONDA_OVERRIDE_CUDA={s.shell(cuda)} " if cuda else ""


def local(wheels: list[str]) -> list[str]:
    """Return the comment on wheels of the machine that locked, if there are any."""
    told = "# From folders of the machine that locked: put these into ./wheels"
    return [told, *(f"#   {name}" for name in wheels)] if wheels else []


def _folders(subject: Subject) -> list[str]:
    """The lock names folders by their path, so they go to that very path."""
    rows = []
    for package in subject.lock.packages:
        folder = s.folder_of(package)
        if folder:
            rows.append(f"# The folder of {s.oneline(package.name)}, which the lock names by its path.")
            rows.append(f"COPY {json.dumps([in_context(folder, subject.folder), folder])}")
    return rows


def in_context(folder: str, context: str) -> str:
    """A folder's path in the build context; its name where it lies outside."""
    path = PurePosixPath(folder)
    return f"{path.relative_to(context) if path.is_relative_to(context) else path.name}/"


def _user(lock: Lock) -> list[str]:
    gpu = ["    NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility"]
    cuda = lock.plan.device == "cuda"
    path = f"ENV PATH={ENV}/bin:$PATH"
    check = json.dumps(s.quick_check(lock, ENV))
    return [
        f"{path} \\" if cuda else path,
        *(gpu if cuda else []),
        "RUN useradd --create-home --uid 1000 app",
        "USER 1000:1000",
        "WORKDIR /home/app",
        "# Driver, runtime, libraries and a small convolution by cuDNN. It takes some GPU memory for a second."
        if cuda else "# Imports, and convolutions on the CPU.",
        f"HEALTHCHECK --interval=5m --timeout=2m --start-period=30s CMD {check}",
        "# It becomes the program, with what the environment's libraries need (old TensorFlow: LD_LIBRARY_PATH).",
        f"ENTRYPOINT {json.dumps(['gpuenv', 'run', '--exec', ENV, '--'])}",
        'CMD ["python"]',
        "",
    ]  # fmt: skip
