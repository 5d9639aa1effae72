"""The requirement sets of tests/data/requirement_sets.yaml."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

SETS = Path(__file__).resolve().parent.parent / "tests" / "data" / "requirement_sets.yaml"
FRAMEWORK_PACKAGES = {
    "jax": "jax",
    "jaxlib": "jax",
    "onnxruntime": "onnxruntime",
    "onnxruntime-gpu": "onnxruntime",
    "tensorflow": "tensorflow",
    "tensorflow-cpu": "tensorflow",
    "torch": "torch",
}
"""The packages that are a framework, with its name."""
_FOR_GPUS = {"onnxruntime": "onnxruntime-gpu"}


@dataclass(frozen=True, kw_only=True)
class RequirementSet:
    """Requirements as a project writes them, with the frameworks that gpuenv plans for it."""

    name: str
    source: str
    frameworks: list[str]
    requirements: list[str]

    @property
    def named(self) -> list[str]:
        """The packages that the set names, its frameworks among them."""
        return list(dict.fromkeys(_name(line) for line in self.lines()))

    @property
    def all_frameworks(self) -> list[str]:
        """The frameworks that gpuenv plans, and those that the requirements name beside them."""
        named = [FRAMEWORK_PACKAGES[n] for n in self.named if n in FRAMEWORK_PACKAGES]
        return list(dict.fromkeys([*self.frameworks, *named]))

    def lines(self, first: Collection[str] | None = None) -> list[str]:
        """Return the requirements. A framework that they do not name comes last.

        With `first`, the lines of these packages come first, then those of the frameworks, then the rest.
        """
        named = {_name(line) for line in self.requirements}
        missing = [p for f in self.frameworks if (p := _FOR_GPUS.get(f, f)) not in named]
        lines = [*self.requirements, *missing]
        if first is None:
            return lines
        return sorted(
            lines,
            key=lambda line: 0 if (name := _name(line)) in first else 1 + (name not in FRAMEWORK_PACKAGES),
        )

    def write(self, path: Path, first: Collection[str] | None = None) -> None:
        """Write the requirements into a file, in the order of `lines`."""
        path.write_text("\n".join(self.lines(first)) + "\n", encoding="utf-8")


def read_sets(path: Path = SETS) -> list[RequirementSet]:
    """Return the sets of a file."""
    return [_read(**row) for row in yaml.safe_load(path.read_text(encoding="utf-8"))]


def _read(framework: str | list[str], **row: str | list[str]) -> RequirementSet:
    frameworks = [framework] if isinstance(framework, str) else framework
    return RequirementSet(frameworks=frameworks, **row)  # type: ignore[arg-type]  # YAML has no types


def _name(line: str) -> str:
    return str(canonicalize_name(Requirement(line).name))
