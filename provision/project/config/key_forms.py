"""Which keys gpuenv.yaml has and which form each value must have."""

from __future__ import annotations

import re
from typing import NamedTuple

from provision.model import MANAGERS, PLATFORMS

CONFIG_NAME = "gpuenv.yaml"
"""The project's file that `gpuenv init` writes."""
YAML_NAMES = (CONFIG_NAME, "gpuenv.yml")
PYPROJECT = "pyproject.toml"
"""A project's file where it has the table `tool.gpuenv`, with the same keys."""


class Form(NamedTuple):
    """What a string must look like: one of `words`, or `pattern` (told by `example`)."""

    example: str
    words: tuple[str, ...] = ()
    pattern: str = ""

    def problem(self, text: str) -> str | None:
        """What is wrong with a text, or None."""
        if text in self.words or (self.pattern and re.fullmatch(self.pattern, text)):
            return None
        if self.words and self.pattern:
            return f"not {', '.join(self.words)} or a form like {self.example}"
        return f"not one of {', '.join(self.words)}" if self.words else f"expected a form like {self.example}"


_ADDRESS = r"[A-Za-z][A-Za-z0-9+.-]*://\S+"
_LINE = r"[^\x00-\x1f\x7f]+"

PYTHON = Form("3.11", pattern=r"3\.\d{1,3}(\.\d{1,3})?")
_MINOR_OR_PATCH = r"3\.\d{1,3}(\.\d{1,3})?"
_PYTHON_BOUND = (
    rf"((>=|<=|>|<)\s*\d(\.\d{{1,3}}){{0,2}}|(==|!=)\s*{_MINOR_OR_PATCH}(\.\*)?|~=\s*{_MINOR_OR_PATCH})"
)
PYTHON_OR_BOUNDS = Form(
    '3.11 or ">=3.9,<3.13"', pattern=rf"{_MINOR_OR_PATCH}|{_PYTHON_BOUND}(\s*,\s*{_PYTHON_BOUND})*"
)
CUDA = Form("12.6", pattern=r"\d{1,3}(\.\d{1,3})?")
MANAGER = Form("venv", words=MANAGERS)
DEVICE = Form("cuda", words=("auto", "cuda", "cpu"))
PATH = Form("a/path", pattern=_LINE)
NAME = Form("dev", pattern=r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")

# key of gpuenv.yaml -> form of its one value
WORDS = {
    "python": PYTHON_OR_BOUNDS,
    "manager": MANAGER,
    "device": DEVICE,
    "cuda": CUDA,
    "index": Form("https://host/simple", words=("auto", "pypi", "pytorch"), pattern=_ADDRESS),
}
# key of gpuenv.yaml -> form of each value of its list; frameworks and packages are requirements besides
LISTS = {
    "frameworks": Form("torch>=2.6", pattern=_LINE),
    "packages": Form("numpy>=1.26", pattern=_LINE),
    "requirements": Form("requirements.txt", pattern=_LINE),
    "extras": NAME,
    "groups": NAME,
    "find_links": Form("wheels/", pattern=_LINE),
    "channels": Form("conda-forge", pattern=_LINE),
}
# `project` is a path, or a table whose keys are these fields: path is `project`
PROJECT = ("project", "install")
INDEXES = {
    "pypi": Form("https://host/simple", pattern=_ADDRESS),
    "pytorch": Form("https://host/whl", pattern=_ADDRESS),
}
TARGET_NAME = Form("node-a", pattern=r"[a-z0-9][a-z0-9._-]{0,63}")
TARGET_WORDS = {
    "file": PATH,
    "driver": Form("535.129.03", pattern=r"\d{3,4}(\.\d{1,6}){0,3}"),
    "driver_os": Form("linux", words=("linux", "windows")),
    "platform": Form("linux-x86_64", words=PLATFORMS),
    "glibc": Form("2.28", pattern=r"2\.\d{1,3}"),
    "python": PYTHON,
    "cuda": CUDA,
    "device": DEVICE,
    "manager": MANAGER,
}
TARGET_LISTS = {"gpus": Form("9.0", pattern=_LINE)}
# A target's file says all of these
SAID_BY_FILE = ("driver", "driver_os", "gpus", "platform", "glibc")
