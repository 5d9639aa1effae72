"""Hold the facts of a text by name, each with its line.

The first value of a fact counts. A text describes its machine, then the error, and seldom a second machine.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from ..model import Evidence

CONDITIONS = frozenset(
    ("torch", "tensorflow", "jax", "jaxlib", "ctranslate2", "numpy", "onnxruntime", "cuda", "cuda_build", "cudnn",
     "driver", "driver_cuda", "capability", "board_capability", "python", "os", "visible", "library_path",
     "oom_kills")
)  # fmt: skip
"""Facts that a rule may require or exclude."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A value in the text, and its line."""

    value: str
    evidence: Evidence


@dataclass
class Facts:
    """Facts by name, in the order of the text.

    Names: driver, driver_cuda, gpu, capability, kernels (a whole list), kernel (one of a list of lines),
    cuda_build, cuda (installed), cudnn_built, cudnn_loaded, cudnn, python, os, missing, loaded, present,
    free_bytes, total_bytes, library_path, visible, glibc, device_in, oom_kills (of the kernel, while the
    program ran), packages by their names, and those of libraries_listed_in_text.py.
    """

    seen: dict[str, list[Fact]] = field(default_factory=dict)

    def add(self, name: str, value: str, where: Evidence) -> None:
        known = self.seen.setdefault(name, [])
        if len(known) < 40 and all(f.value != value for f in known):
            known.append(Fact(value, where))

    def first(self, name: str) -> str | None:
        known = self.seen.get(name)
        return known[0].value if known else None

    def all(self, name: str) -> tuple[str, ...]:
        return tuple(f.value for f in self.seen.get(name, ()))

    def where(self, *names: str) -> tuple[Evidence, ...]:
        """Return the lines of the first facts of these names."""
        return tuple(dict.fromkeys(self.seen[n][0].evidence for n in names if self.seen.get(n)))

    def said(self, name: str, pattern: re.Pattern[str]) -> tuple[Evidence, ...]:
        """Return the first lines of a fact's values that match the pattern."""
        lines = (f.evidence for f in self.seen.get(name, ()) if pattern.match(f.value))
        return tuple(dict.fromkeys(lines))[:3]

    def holds(self, condition: str) -> bool:
        """Return whether a condition is true: "os=windows", "torch==1.8.0", or "torch" (known at all)."""
        match = re.match(r"([\w-]+)(.*)", condition)
        assert match, condition
        name, rest = match.groups()
        values = self.all(name)
        if not rest:
            return bool(values)
        if rest[0] == "=" and rest[1] != "=":
            return rest[1:] in values
        return any(meets(v, rest) for v in values)


def meets(text: str, bounds: str) -> bool:
    """Return whether a version is within the bounds. An invalid version is not."""
    try:
        return SpecifierSet(bounds).contains(Version(text), prereleases=True)
    except (InvalidVersion, InvalidSpecifier):
        return False
