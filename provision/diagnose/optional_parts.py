"""Drop warnings on optional parts of a package, if the program went on and failed for another reason.

torchvision warns if it cannot load its image reader, and torchaudio if FFmpeg is absent. Most programs use neither.
The warning counts only if nothing else ended the program.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ..model import FailureMessage
from .lines import Line
from .pattern_search import without
from .tracebacks import Raised, raised

_GROUP = "optional_part_failed"
_LINKS = re.compile(
    r"undefined symbol|cannot open shared|torchvision|torchaudio|nms|custom C\+\+ ops|DLL|\.so\b",
    re.IGNORECASE,
)
_PROGRESS = re.compile(r"\b(?:epoch|loss|accuracy|it/s|step)\b", re.IGNORECASE)
_LOADING = ("ImportError", "ModuleNotFoundError", "OSError")


def without_optional_parts(lines: list[Line], messages: Iterable[FailureMessage]) -> list[Line]:
    """Return the lines without warnings on optional parts that did not end the program."""
    kept = without(lines, messages, _GROUP)
    if len(kept) == len(lines):
        return lines
    numbers = {(line.source, line.number) for line in kept}
    first = next(line for line in lines if (line.source, line.number) not in numbers)
    last = next(reversed(raised(kept)), None)
    return kept if _went_on(first, last, kept) else lines


def _went_on(warning: Line, last: Raised | None, kept: Sequence[Line]) -> bool:
    """Return whether the program ran on after a warning, to its end or to an unrelated exception."""
    later = [line for line in kept if line.source == warning.source and line.number > warning.number]
    if last is None:
        return any(_PROGRESS.search(line.text) for line in later)
    unrelated = last.kind not in _LOADING and not _LINKS.search(last.message)
    return unrelated and last.line in later
