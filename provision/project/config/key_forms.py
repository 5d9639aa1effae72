"""The keys of gpuenv.yaml and the form of each value."""

from __future__ import annotations

import re
from typing import NamedTuple

from provision.model import MANAGERS, PLATFORMS

CONFIG_NAME = "gpuenv.yaml"
"""The project's file that `gpuenv init` writes."""
YAML_NAMES = (CONFIG_NAME, "gpuenv.yml")
PYPROJECT = "pyproject.toml"
"""A project's file with the same keys, if it has the table `tool.gpuenv`."""


class ValueForm(NamedTuple):
    """The form of a string: one of `words`, or `pattern`, which `example` illustrates."""

    example: str
    words: tuple[str, ...] = ()
    pattern: str = ""

    def problem(self, text: str) -> str | None:
        """Return the mistake in a text, or None."""
        if text in self.words or (self.pattern and re.fullmatch(self.pattern, text)):
            return None
        if self.words and self.pattern:
            return f"not {', '.join(self.words)} or a form like {self.example}"
        return f"not one of {', '.join(self.words)}" if self.words else f"expected a form like {self.example}"


_ADDRESS = r"[A-Za-z][A-Za-z0-9+.-]*://\S+"
_LINE = r"[^\x00-\x1f\x7f]+"

PYTHON = ValueForm("3.11", pattern=r"3\.\d{1,3}(\.\d{1,3})?")
_MINOR_OR_PATCH = r"3\.\d{1,3}(\.\d{1,3})?"
_PYTHON_BOUND = (
    rf"((>=|<=|>|<)\s*\d(\.\d{{1,3}}){{0,2}}|(==|!=)\s*{_MINOR_OR_PATCH}(\.\*)?|~=\s*{_MINOR_OR_PATCH})"
)
PYTHON_OR_BOUNDS = ValueForm(
    '3.11 or ">=3.9,<3.13"', pattern=rf"{_MINOR_OR_PATCH}|{_PYTHON_BOUND}(\s*,\s*{_PYTHON_BOUND})*"
)
CUDA = ValueForm("12.6", pattern=r"\d{1,3}(\.\d{1,3})?")
MANAGER = ValueForm("venv", words=MANAGERS)
DEVICE = ValueForm("cuda", words=("auto", "cuda", "cpu"))
PATH = ValueForm("a/path", pattern=_LINE)
NAME = ValueForm("dev", pattern=r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")

# Key of gpuenv.yaml -> form of its value
WORDS = {
    "python": PYTHON_OR_BOUNDS,
    "manager": MANAGER,
    "device": DEVICE,
    "cuda": CUDA,
    "index": ValueForm("https://host/simple", words=("auto", "pypi", "pytorch"), pattern=_ADDRESS),
}
# Key of gpuenv.yaml -> form of each value of its list. Frameworks and packages must be requirements as well.
LISTS = {
    "frameworks": ValueForm("torch>=2.6", pattern=_LINE),
    "packages": ValueForm("numpy>=1.26", pattern=_LINE),
    "requirements": ValueForm("requirements.txt", pattern=_LINE),
    "extras": NAME,
    "groups": NAME,
    "find_links": ValueForm("wheels/", pattern=_LINE),
    "channels": ValueForm("conda-forge", pattern=_LINE),
}
# The fields of the table `project`, in which `path` is the project. A path alone is allowed as well.
PROJECT = ("project", "install")
INDEXES = {
    "pypi": ValueForm("https://host/simple", pattern=_ADDRESS),
    "pytorch": ValueForm("https://host/whl", pattern=_ADDRESS),
}
TARGET_NAME = ValueForm("node-a", pattern=r"[a-z0-9][a-z0-9._-]{0,63}")
TARGET_WORDS = {
    "file": PATH,
    "driver": ValueForm("535.129.03", pattern=r"\d{3,4}(\.\d{1,6}){0,3}"),
    "driver_os": ValueForm("linux", words=("linux", "windows")),
    "platform": ValueForm("linux-x86_64", words=PLATFORMS),
    "glibc": ValueForm("2.28", pattern=r"2\.\d{1,3}"),
    "python": PYTHON,
    "cuda": CUDA,
    "device": DEVICE,
    "manager": MANAGER,
}
TARGET_LISTS = {"gpus": ValueForm("9.0", pattern=_LINE)}
# The keys that the file of a target states
SAID_BY_FILE = ("driver", "driver_os", "gpus", "platform", "glibc")
