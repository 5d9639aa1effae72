"""The gpuenv.yaml that `gpuenv init` writes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from provision.model import ProjectConfig

from ..config.gpuenv_yaml import parse_config
from ..config.key_forms import CONFIG_NAME
from ..quote_for_messages_and_parse_requirement import quote_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .folder_findings import FolderFindings

_MOST_CHECKS = 20
_HEAD = """\
# The GPU environment of this project. `gpuenv create` builds and verifies it.
# For all keys, see docs/reference/gpuenv-yaml.md of gpuenv. Quote versions: YAML reads 3.10 as 3.1.
"""


# A few lines longer than most functions: it lists the parts of the file in their order.
def render_config(signs: FolderFindings, frameworks: Sequence[tuple[str, str]]) -> str:
    """Return the text of a gpuenv.yaml with the frameworks, each with its origin, and the findings.

    The text is parsed again and must give the same values.
    """
    parts = [_HEAD, "\nframeworks:\n", *(_render_row(text, origin) for text, origin in frameworks)]
    if signs.requirements:
        parts += [
            "\n# Requirements files in pip's format\nrequirements:\n",
            *(_render_row(f, "") for f in signs.requirements),
        ]
    else:
        parts.append('\n# requirements: ["requirements.txt"]\n')
    parts += _render_project(signs)
    parts += _render_packages(signs)
    parts.append(f"\n{'' if signs.python else '# '}python: {json.dumps(signs.python or '3.12')}\n")
    parts.append(
        f"{'' if signs.cuda else '# '}cuda: {json.dumps(signs.cuda or '12.6'):16}# only builds for this CUDA"
        f"{f': {quote_text(signs.cuda_origin)}' if signs.cuda_origin else ''}\n"
    )
    if signs.device:
        parts.append(f"device: {json.dumps(signs.device)}\n")
    if signs.find_links:
        parts.append(f"find_links: {json.dumps(signs.find_links)}\n")
    parts.append("# manager: conda        # the default is venv\n")
    parts.append('# targets: {node: {driver: "550.54.15", gpus: ["A100"]}}   # gpuenv lock --target node\n')
    parts += _render_checks(signs)
    if signs.remarks:
        parts += [
            "\n# Not included, please check:\n",
            *(f"#   {quote_text(remark)}\n" for remark in signs.remarks),
        ]
    text = "".join(parts)
    meant = ProjectConfig(
        frameworks=tuple(t for t, _ in frameworks), requirements=tuple(signs.requirements),
        project=signs.project, install=not (signs.project and signs.not_installed), python=signs.python, packages=tuple(signs.packages), cuda=signs.cuda,
        device=signs.device, find_links=tuple(signs.find_links),
    )  # fmt: skip
    if parse_config(CONFIG_NAME, text.encode()) != meant:
        raise AssertionError(
            f"internal error: {CONFIG_NAME} does not contain the expected values after writing"
        )
    return text


def _render_project(signs: FolderFindings) -> list[str]:
    """Return the lines about the project's folder."""
    if not signs.project:
        return []
    place = json.dumps(signs.project)
    if signs.not_installed:
        return [
            f"\n# Only the dependencies, the project is not installed: {quote_text(signs.not_installed)}\n",
            f"project: {{path: {place}, install: false}}\n",
        ]
    return [
        "\n# The folder of pyproject.toml or setup.py. You can add extras: and groups:\n",
        f"project: {place}\n",
    ]


def _render_packages(signs: FolderFindings) -> list[str]:
    """Return the packages, with suggested ones as comments."""
    head = "\n# Other packages of this environment. `gpuenv add` edits this list.\n"
    parts = [head, "packages:\n" if signs.packages else "packages: []\n"]
    parts += [_render_row(text, origin) for text, origin in signs.packages.items()]
    if signs.suggested:
        parts.append("# Also imported, perhaps optional. Add one with: gpuenv add NAME\n")
        parts += [f"#   {quote_text(text)}  # {quote_text(why)}\n" for text, why in signs.suggested.items()]
    return parts


def _render_checks(signs: FolderFindings) -> list[str]:
    """Return the imports as commented checks."""
    head = "\n# Checks that `gpuenv verify` runs after its own stages. Uncomment to use them:\n"
    rows = [
        f"#   - import: {_quote_module(module)}  # {quote_text(where)}\n"
        for module, where in list(signs.imported.items())[:_MOST_CHECKS]
    ]
    return [head, "# checks:\n", *(rows or ["#   - run: python train.py --help\n"])]


def _quote_module(module: str) -> str:
    """Return a module's name as YAML text. Words such as `yes` and `null` need quotes."""
    taken = module.lower() in ("y", "n", "yes", "no", "on", "off", "true", "false", "null")
    return f'"{module}"' if taken else module


def _render_row(text: str, origin: str) -> str:
    return f"  - {json.dumps(text, ensure_ascii=False)}" + (f"  # {quote_text(origin)}\n" if origin else "\n")
