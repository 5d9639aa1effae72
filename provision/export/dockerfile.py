"""Write a Dockerfile that builds the lock, also without a GPU.

It needs BuildKit.
"""

from __future__ import annotations

import json
from pathlib import PurePosixPath

from ..model import BaseImage, Lock
from . import base_images, export_subject_and_shared_texts as s
from .export_subject_and_shared_texts import Subject

FORM = "dockerfile"
ENV = "/opt/env"
EXACTLY = "# Installs the lock and checks every hash."
# The caches of pip and uv: later builds reuse them, and the image does not contain them.
_CACHE = "--mount=type=cache,target=/root/.cache"
# pip's configuration for a private index, available only during the step and not stored in a layer.
_SECRET = "--mount=type=secret,id=pip,target=/etc/pip.conf"  # noqa: S105  # the name of a mount
_CONTEXT = "--mount=type=bind,target=/context"


def text(subject: Subject) -> str:
    """Return the Dockerfile. Raises UsageError if no base image fits."""
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
        f"docker build -t app .            (put this file and {s.oneline(subject.gpuenv.files(subject.lock_file))} in one folder)",
        f"docker run --rm {gpus}app python train.py",
    ]


def _start(start: BaseImage, subject: Subject) -> list[str]:
    lock = subject.lock
    if start.cuda:
        why = f"# The wheels need CUDA but do not include it: the base image has CUDA {start.cuda} and cuDNN."
    elif lock.plan.device == "cuda":
        why = f"# CUDA comes from the {'packages' if lock.manager == 'conda' else 'wheels'}, and the driver from the host. The base image needs neither."
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
    default = subject.gpuenv.requirement("/context")
    itself, requirements = s.install_gpuenv(subject.lock, "/opt/gpuenv", '"$GPUENV"')
    return [
        "# What pip installs as gpuenv: a wheel with its hash. What it requires has hashes in it. The build context is /context during this step. To use an",
        "# address (a git address needs git in the base image) or another wheel of the build context:",
        "#   docker build --build-arg GPUENV=/context/gpuenv-0.1.0-py3-none-any.whl ."
        if subject.gpuenv.wheel
        else "#   docker build --build-arg GPUENV=ADDRESS .",
        f'ARG GPUENV="{default}"',
        f"RUN {_CACHE} \\",
        f"    {_SECRET} \\",
        f"    {_CONTEXT} \\",
        "    python3 -m venv /opt/gpuenv \\",
        f" && {itself} \\",
        f" && {requirements} \\",
        " && ln -s /opt/gpuenv/bin/gpuenv /usr/local/bin/gpuenv",
        "",
    ]  # fmt: skip


def _environment(subject: Subject) -> list[str]:
    lock = subject.lock
    lock_path = f"/opt/lock/{PurePosixPath(subject.lock_file).name}"
    wheels = [s.oneline(s.file_name(p)) for p in s.local_files(lock)]
    create = s.create_command(subject, ENV, lock_path, *(["--find-links", "/wheels"] if wheels else []))
    return [
        EXACTLY
        + (
            " The image build has no GPU, so options describe the target machine."
            if lock.plan.device == "cuda"
            else ""
        ),
        *_folders(subject),
        f"COPY {json.dumps([subject.lock_file, lock_path])}",
        *local(wheels),
        "ENV UV_LINK_MODE=copy UV_PYTHON_INSTALL_DIR=/opt/python",
        f"RUN {_CACHE} \\",
        f"    {_SECRET} \\",
        *(["    --mount=type=bind,source=wheels,target=/wheels \\"] if wheels else []),
        f"    {_override(lock)}{s.shell(*create)}",
        "# Verifies without a GPU: imports, and convolutions on the CPU.",
        f"RUN {_CACHE} \\",
        f"    {s.shell('gpuenv', 'verify', ENV, '--device', 'cpu')}",
        "",
    ]


def _override(lock: Lock) -> str:
    cuda = s.conda_override(lock)
    return f"CONDA_OVERRIDE_CUDA={s.shell(cuda)} " if cuda else ""


def local(wheels: list[str]) -> list[str]:
    """Return the comment on wheels of the locking machine, if any."""
    head = "# Copy these wheels from the locking machine to ./wheels"
    return [head, *(f"#   {name}" for name in wheels)] if wheels else []


def _folders(subject: Subject) -> list[str]:
    """Return the steps that copy folders to the paths in the lock."""
    rows = []
    for package in subject.lock.packages:
        folder = s.folder_of(package)
        if folder:
            rows.append(f"# The folder of {s.oneline(package.name)}, at the path in the lock.")
            rows.append(f"COPY {json.dumps([in_context(folder, subject.folder), folder])}")
    return rows


def in_context(folder: str, context: str) -> str:
    """Return a folder's path in the build context, or its name outside of it."""
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
        "# Checks driver, runtime, libraries and a small cuDNN convolution. It uses some GPU memory for a second."
        if cuda else "# Checks imports and convolutions on the CPU.",
        f"HEALTHCHECK --interval=5m --timeout=2m --start-period=30s CMD {check}",
        "# Runs the program with the variables that the environment needs (LD_LIBRARY_PATH for old TensorFlow).",
        f"ENTRYPOINT {json.dumps(['gpuenv', 'run', '--exec', ENV, '--'])}",
        'CMD ["python"]',
        "",
    ]  # fmt: skip
