"""The requirement sets of tests/data/requirement_sets.yaml."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

SETS = Path(__file__).resolve().parent.parent / "tests" / "data" / "requirement_sets.yaml"


@dataclass(frozen=True, kw_only=True)
class RequirementSet:
    """Requirements as a project writes them, with the framework that gpuenv plans for it."""

    name: str
    source: str
    framework: str
    requirements: list[str]

    @property
    def named(self) -> list[str]:
        """The packages that the set names, its framework among them."""
        names = [str(canonicalize_name(Requirement(r).name)) for r in self.requirements]
        return list(dict.fromkeys([*names, self.framework]))

    def write(self, path: Path) -> None:
        """Write the requirements into a file. A framework that they do not name is the last line."""
        names = {canonicalize_name(Requirement(r).name) for r in self.requirements}
        more = [] if self.framework in names else [self.framework]
        path.write_text("\n".join([*self.requirements, *more]) + "\n", encoding="utf-8")


def read_sets(path: Path = SETS) -> list[RequirementSet]:
    """Return the sets of a file."""
    return [RequirementSet(**row) for row in yaml.safe_load(path.read_text(encoding="utf-8"))]
