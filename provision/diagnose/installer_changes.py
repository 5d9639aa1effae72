"""Read packages that pip or uv changed before a failure, mostly a notebook's `!pip install`.

The runtimes of Colab and Kaggle have matching builds. If builds or libraries conflict, a package that a cell
installed is the first suspect, and restoring the runtime is the shortest fix.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from ..model import Evidence, FailureCause, Finding
from .candidates import Case
from .lines import Line
from .pattern_search import evidence

_NAMES = (
    r"(torch|torchvision|torchaudio|tensorflow(?:-gpu|-cpu)?|keras|jax|jaxlib|jax-cuda1\d-plugin|jax-cuda1\d-pjrt|"
    r"numpy|triton|xformers|nvidia-cudnn-cu1\d|nvidia-cublas-cu1\d)"
)
_VERSION = r"(\d[\w.+!]{0,40})"
_FOUND = re.compile(rf"Found existing installation: {_NAMES} {_VERSION}", re.IGNORECASE)
_INSTALLED = re.compile(rf"(?<![\w-]){_NAMES}-{_VERSION}", re.IGNORECASE)
_UV = re.compile(rf"^\s{{0,4}}([-+]) {_NAMES}==?{_VERSION}", re.IGNORECASE)
_LAYERS = ("4", "5", "6", "7")  # package, libraries, packages together, system


@dataclasses.dataclass(frozen=True, slots=True)
class Install:
    """A package that an installer added, and the version that it replaced."""

    name: str
    new: str
    old: str | None
    evidence: Evidence

    def __str__(self) -> str:
        return f"{self.name} {self.old} to {self.new}" if self.old else f"{self.name} {self.new}"


def installs(lines: Sequence[Line]) -> tuple[Install, ...]:
    """Return the framework packages that pip or uv installed, in the log's order."""
    old: dict[str, str] = {}
    by_name: dict[str, Install] = {}
    for line in lines:
        text = line.text
        if match := _FOUND.search(text):
            old[match.group(1).lower()] = match.group(2)
        elif "Successfully installed" in text:
            for name, version in _INSTALLED.findall(text):
                by_name[name.lower()] = Install(name.lower(), version, old.get(name.lower()), evidence(line))
        elif match := _UV.match(text):
            sign, name, version = match.group(1), match.group(2).lower(), match.group(3)
            if sign == "-":
                old[name] = version
            else:
                by_name[name] = Install(name, version, old.get(name), evidence(line))
    return tuple(i for i in by_name.values() if i.old != i.new)


def with_installs(
    findings: Sequence[Finding], case: Case, causes: Sequence[FailureCause], lines: Sequence[Line]
) -> tuple[Finding, ...]:
    """Return the findings. Add earlier installs to a leading one of builds or libraries."""
    layers = {c.cause: c.layer for c in causes}
    if not findings or layers.get(findings[0].cause) not in _LAYERS:
        return tuple(findings)
    changed = installs(lines)
    if not changed:
        return tuple(findings)
    first = findings[0]
    shown = tuple(dict.fromkeys((*first.evidence, *(i.evidence for i in changed[:3]))))
    fix = first.fix or ""
    if _is_hosted(case):
        again = case.said.group("imported_before")
        what = ", ".join(map(str, changed[:3]))
        fix = (
            (
                "Restart the session first: it still uses the modules imported before the install. "
                if again
                else ""
            )
            + f"This notebook changed its runtime ({what}). To restore it, remove that cell and choose `Disconnect and "
            f"delete runtime`. To keep the change: {fix}"
        )
        shown = tuple(dict.fromkeys((*shown, *again[:1])))
    return (dataclasses.replace(first, evidence=shown, fix=fix), *findings[1:])


def _is_hosted(case: Case) -> bool:
    """Return whether the text is of a hosted notebook such as Colab or Kaggle."""
    said = case.said
    return bool(said.group("colab") or (said.group("notebook") and said.group("dist_packages")))
