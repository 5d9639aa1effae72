"""What was found in the folder of a project."""

from __future__ import annotations

import dataclasses
from dataclasses import field

from ..errors import UsageError
from ..model import name_few
from .quote import quote_text


@dataclasses.dataclass(kw_only=True, slots=True)
class FolderFindings:
    """The findings in a folder. A mapping to texts has the origin of each value.

    `bounds` are bounds of frameworks from files that gpuenv.yaml does not list, `bounded` the frameworks with bounds in a
    listed file. `cpu` are frameworks of which a file asks for the CPU build by name. `python_bounds` are those of the project, which stay in its file, and their
    origin. `origins` has the origin of each single value ("cuda"). `named` maps a normalized name to its requirement in a file. `not_installed` is the reason for
    taking dependencies without the project. `computed` is the place of code that computes the project's requirements. `left` are files that state requirements and are not listed, each with the
    place that names it. `limits` maps a package to its bounds in a listed file and their origin. `undeclared` maps an imported module that no file requires to its package, with the extra that
    declares it, and programs.
    `refused` is the first mistake in a file that could not be read.
    """

    frameworks: dict[str, str] = field(default_factory=dict)
    cpu: dict[str, str] = field(default_factory=dict)
    bounds: dict[str, str] = field(default_factory=dict)
    requirements: dict[str, str] = field(default_factory=dict)
    project: str | None = None
    not_installed: str | None = None
    computed: str | None = None
    extras: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    python: str | None = None
    python_bounds: tuple[str, str] = ("", "")
    cuda: str | None = None
    device: str | None = None
    origins: dict[str, str] = field(default_factory=dict)
    find_links: list[str] = field(default_factory=list)
    packages: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    named: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    bounded: set[str] = field(default_factory=set)
    limits: dict[str, tuple[str, str]] = field(default_factory=dict)
    undeclared: dict[str, tuple[str | None, str]] = field(default_factory=dict)
    refused: UsageError | None = None

    def framework_texts(self) -> list[tuple[str, str]]:
        """Return the frameworks as requirements, each with its origin."""
        return [(name + self.bounds.get(name, ""), origin) for name, origin in self.frameworks.items()]


def list_first(files: list[str]) -> str:
    """Return the first of several files and the number of others, as text."""
    return name_few([quote_text(file) for file in dict.fromkeys(files)], most=1)
