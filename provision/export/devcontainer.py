"""Write devcontainer.json for VS Code, GitHub Codespaces and the devcontainer command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from ..model import Lock
from . import base_images, export_subject_and_shared_texts as s
from .export_subject_and_shared_texts import Subject

FORM = "devcontainer"


def text(subject: Subject) -> str:
    """Return the file for .devcontainer/ with comments, which its readers allow. Raises UsageError."""
    s.linux_only(subject, "a dev container")
    start, lock = base_images.image(subject, "devcontainer"), subject.lock
    # Outside of the workspace: that is the host's folder and may contain an environment of the host.
    env = f"/home/{start.user}/env"
    document: dict[str, Any] = {
        "name": s.headline(lock),
        "image": start.image,
        "remoteUser": start.user,
        **({"hostRequirements": {"gpu": "optional"}} if lock.plan.device == "cuda" else {}),
        **({"runArgs": ["--ipc=host"]} if any(b.framework == "torch" for b in lock.plan.builds) else {}),
        # The default of localEnv ends at its first colon, so the command has the default.
        "containerEnv": {"GPUENV_FROM": "${localEnv:GPUENV}"},
        "onCreateCommand": " && ".join(_make(subject, f"/home/{start.user}")),
        "postStartCommand": _check(lock, env),
        "customizations": {
            "vscode": {
                "extensions": ["ms-python.python"],
                "settings": {"python.defaultInterpreterPath": f"{env}/bin/python"},
            }
        },
    }
    return s.comment(subject, FORM, "", *_told(subject), sign="//") + json.dumps(document, indent=2) + "\n"


def _told(subject: Subject) -> list[str]:
    files = subject.gpuenv.files(subject.lock_file)
    rows = [
        f".devcontainer/devcontainer.json of a project. It needs {s.oneline(files)} in the project's folder",
        "To install gpuenv from another URL or wheel, set GPUENV on the host",
    ]
    if subject.lock.plan.device == "cuda":
        # Two `--gpus` are two requests, and a single one fails on a host without a GPU.
        rows.append("hostRequirements.gpu adds `--gpus all` if the host has a GPU")
    if any(b.framework == "torch" for b in subject.lock.plan.builds):
        rows.append("--ipc=host: data loaders of torch pass tensors through shared memory")
    wheels = [s.oneline(s.file_name(p)) for p in s.local_files(subject.lock)]
    if wheels:
        rows.append(f"copy these wheels from the locking machine to ./wheels: {', '.join(wheels)}")
    return rows


def _make(subject: Subject, home: str) -> list[str]:
    source, tool = subject.gpuenv, f"{home}/.gpuenv"
    copied = replace(source, wheel=PurePosixPath(source.wheel).name)
    wheels = ["--find-links", "wheels"] if any(s.local_files(subject.lock)) else []
    create = s.create_command(subject, f"{home}/env", subject.lock_file, *wheels)
    cuda = s.conda_override(subject.lock)
    override = f"CONDA_OVERRIDE_CUDA={s.shell(cuda)} " if cuda else ""
    return [
        "python3 -m venv ~/.gpuenv",
        # The path of the project's folder may contain a space, which an address cannot.
        *([f"cp {s.shell(source.wheel)} ~/.gpuenv/"] if source.wheel else []),
        f'{{ [ -n "$GPUENV_FROM" ] || GPUENV_FROM={s.shell(copied.requirement(tool))}; }}',
        *s.install_gpuenv(subject.lock, "~/.gpuenv", '"$GPUENV_FROM"'),
        "mkdir -p ~/.local/bin",
        "ln -sf ~/.gpuenv/bin/gpuenv ~/.local/bin/gpuenv",
        f"{override}~/.gpuenv/bin/gpuenv {s.shell(*create[1:])}",
    ]


def _check(lock: Lock, env: str) -> str:
    """Return the command that verifies the GPU of the host, or the CPU, at each start."""
    on_cpu = s.shell("verify", env, "--device", "cpu")
    if lock.plan.device != "cuda":
        return f"~/.gpuenv/bin/gpuenv {on_cpu}"
    quick = s.shell(*s.quick_check(lock, env)[1:])
    return (
        f"if [ -e /dev/nvidiactl ] || [ -e /dev/dxg ]; then ~/.gpuenv/bin/gpuenv {quick}; "
        f"else ~/.gpuenv/bin/gpuenv {on_cpu}; fi"
    )
