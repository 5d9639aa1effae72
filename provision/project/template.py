"""The gpuenv.yaml that `gpuenv init` writes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from provision.model import Project

from .config import parse_config
from .kinds import CONFIG_NAME
from .words import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .folder_signs import Signs

_HEAD = """\
# What this project's GPU environment is made of; `gpuenv create` builds and verifies it.
# Every key: README of gpuenv, section gpuenv.yaml. Write versions in quotes: 3.10 is 3.1 to YAML.
"""


def rendered(signs: Signs, frameworks: Sequence[tuple[str, str]]) -> str:
    """The text of a gpuenv.yaml that lists frameworks (each with where it was found) and the files that were
    found. It reads back as exactly that."""
    parts = [_HEAD, "\nframeworks:\n", *(_row(text, origin) for text, origin in frameworks)]
    if signs.requirements:
        parts += ["\n# read as pip reads them\nrequirements:\n", *(_row(f, "") for f in signs.requirements)]
    else:
        parts.append('\n# requirements: ["requirements.txt"]\n')
    if signs.project:
        parts.append(
            f"\n# the folder of pyproject.toml or setup.py; extras: and groups: of it may follow\nproject: {json.dumps(signs.project)}\n"
        )
    parts.append("\n# packages of this environment alone; `gpuenv add` writes here\npackages: []\n")
    parts.append(f"\n{'' if signs.python else '# '}python: {json.dumps(signs.python or '3.12')}\n")
    parts.append('# cuda: "12.6"          # only builds for this CUDA\n')
    parts.append("# manager: conda        # venv is the default\n")
    parts.append('# targets: {node: {driver: "550.54.15", gpus: ["A100"]}}   # gpuenv lock --target node\n')
    if signs.remarks:
        parts += ["\n# Found, and left to you:\n", *(f"#   {shown(remark)}\n" for remark in signs.remarks)]
    text = "".join(parts)
    meant = Project(
        frameworks=tuple(t for t, _ in frameworks), requirements=tuple(signs.requirements),
        project=signs.project, python=signs.python,
    )  # fmt: skip
    if parse_config(CONFIG_NAME, text.encode()) != meant:
        raise AssertionError(f"{CONFIG_NAME} does not read back as it was meant")
    return text


def _row(text: str, origin: str) -> str:
    return f"  - {json.dumps(text, ensure_ascii=False)}" + (f"  # {shown(origin)}\n" if origin else "\n")
