"""What a log says that an installer changed before things failed: a notebook's `!pip install` above all.

On Colab and Kaggle the runtime comes with matching builds; what a cell installs over them is the first
suspect where builds or libraries do not fit, and going back is the shortest fix.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from ..model import Evidence, FailureCause, Finding
from .candidates import Case
from .log_lines import Line
from .message_patterns import evidence

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
    """A package that an installer put there, and what it took away for it."""

    name: str
    new: str
    old: str | None
    evidence: Evidence

    def __str__(self) -> str:
        return f"{self.name} {self.old} to {self.new}" if self.old else f"{self.name} {self.new}"


def installs(lines: Sequence[Line]) -> tuple[Install, ...]:
    """The packages of the frameworks' stack that pip or uv says it installed, in the log's order."""
    old: dict[str, str] = {}
    found: dict[str, Install] = {}
    for line in lines:
        text = line.text
        if match := _FOUND.search(text):
            old[match.group(1).lower()] = match.group(2)
        elif "Successfully installed" in text:
            for name, version in _INSTALLED.findall(text):
                found[name.lower()] = Install(name.lower(), version, old.get(name.lower()), evidence(line))
        elif match := _UV.match(text):
            sign, name, version = match.group(1), match.group(2).lower(), match.group(3)
            if sign == "-":
                old[name] = version
            else:
                found[name] = Install(name, version, old.get(name), evidence(line))
    return tuple(i for i in found.values() if i.old != i.new)


def with_installs(
    found: Sequence[Finding], case: Case, causes: Sequence[FailureCause], lines: Sequence[Line]
) -> tuple[Finding, ...]:
    """The findings; a leading one of builds or libraries with what was installed before."""
    layers = {c.cause: c.layer for c in causes}
    if not found or layers.get(found[0].cause) not in _LAYERS:
        return tuple(found)
    changed = installs(lines)
    if not changed:
        return tuple(found)
    first = found[0]
    shown = tuple(dict.fromkeys((*first.evidence, *(i.evidence for i in changed[:3]))))
    fix = first.fix or ""
    if _hosted(case):
        again = case.said.group("imported_before")
        what = ", ".join(map(str, changed[:3]))
        fix = (
            (
                "Restart the session first: what was imported before the install is still in use. "
                if again
                else ""
            )
            + f"This notebook changed its runtime ({what}): without that cell, after `Disconnect and delete "
            f"runtime`, it has the builds that it came with. Or, to keep the change: {fix}"
        )
        shown = tuple(dict.fromkeys((*shown, *again[:1])))
    return (dataclasses.replace(first, evidence=shown, fix=fix), *found[1:])


def _hosted(case: Case) -> bool:
    """Whether the text is of a hosted notebook, as Colab and Kaggle are."""
    said = case.said
    return bool(said.group("colab") or (said.group("notebook") and said.group("dist_packages")))
