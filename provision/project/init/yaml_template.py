"""The gpuenv.yaml that `gpuenv init` writes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from provision.model import ProjectConfig

from ..config.gpuenv_yaml import parse_config
from ..config.key_forms import CONFIG_NAME
from ..quoted_text import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .detected_packages import Signs

_MOST_CHECKS = 20
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
    parts += _project(signs)
    parts += _packages(signs)
    parts.append(f"\n{'' if signs.python else '# '}python: {json.dumps(signs.python or '3.12')}\n")
    parts.append(
        f"{'' if signs.cuda else '# '}cuda: {json.dumps(signs.cuda or '12.6'):16}# only builds for this CUDA"
        f"{f': {shown(signs.cuda_origin)}' if signs.cuda_origin else ''}\n"
    )
    if signs.device:
        parts.append(f"device: {json.dumps(signs.device)}\n")
    if signs.find_links:
        parts.append(f"find_links: {json.dumps(signs.find_links)}\n")
    parts.append("# manager: conda        # venv is the default\n")
    parts.append('# targets: {node: {driver: "550.54.15", gpus: ["A100"]}}   # gpuenv lock --target node\n')
    parts += _checks(signs)
    if signs.remarks:
        parts += ["\n# Found, and left to you:\n", *(f"#   {shown(remark)}\n" for remark in signs.remarks)]
    text = "".join(parts)
    meant = ProjectConfig(
        frameworks=tuple(t for t, _ in frameworks), requirements=tuple(signs.requirements),
        project=signs.project, install=not (signs.project and signs.not_installed), python=signs.python, packages=tuple(signs.packages), cuda=signs.cuda,
        device=signs.device, find_links=tuple(signs.find_links),
    )  # fmt: skip
    if parse_config(CONFIG_NAME, text.encode()) != meant:
        raise AssertionError(f"{CONFIG_NAME} does not read back as it was meant")
    return text


def _project(signs: Signs) -> list[str]:
    """The project's folder, and whether it is installed."""
    if not signs.project:
        return []
    place = json.dumps(signs.project)
    if signs.not_installed:
        return [
            f"\n# read for its dependencies, not installed: {shown(signs.not_installed)}\n",
            f"project: {{path: {place}, install: false}}\n",
        ]
    return [
        "\n# the folder of pyproject.toml or setup.py; extras: and groups: of it may follow\n",
        f"project: {place}\n",
    ]


def _packages(signs: Signs) -> list[str]:
    """The packages, and as comments those that are suggested."""
    head = "\n# packages of this environment alone; `gpuenv add` writes here\n"
    parts = [head, "packages:\n" if signs.packages else "packages: []\n"]
    parts += [_row(text, origin) for text, origin in signs.packages.items()]
    if signs.suggested:
        parts.append("# Imported too, and perhaps optional. To add one: gpuenv add NAME\n")
        parts += [f"#   {shown(text)}  # {shown(why)}\n" for text, why in signs.suggested.items()]
    return parts


def _checks(signs: Signs) -> list[str]:
    """The imports that were found, as checks that the user may want."""
    head = "\n# What has to work beside the framework; `gpuenv verify` tries it last. Take the # away:\n"
    rows = [
        f"#   - import: {_quoted(module)}  # {shown(where)}\n"
        for module, where in list(signs.imported.items())[:_MOST_CHECKS]
    ]
    return [head, "# checks:\n", *(rows or ["#   - run: python train.py --help\n"])]


def _quoted(module: str) -> str:
    """A module's name as YAML text: `yes` and `null` are no words to it."""
    taken = module.lower() in ("y", "n", "yes", "no", "on", "off", "true", "false", "null")
    return f'"{module}"' if taken else module


def _row(text: str, origin: str) -> str:
    return f"  - {json.dumps(text, ensure_ascii=False)}" + (f"  # {shown(origin)}\n" if origin else "\n")
