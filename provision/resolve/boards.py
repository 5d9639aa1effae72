"""Board names as people write them ("RTX 4090", "v100", "NVIDIA H200") to compute capabilities."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence

from ..model import GpuModel, TargetGpu

_MAKERS = re.compile(r"\b(nvidia|geforce|tesla|quadro|gpu|graphics)\b|[^a-z0-9]+")
# How a board is built or housed; its capability is that of the board without these words.
_FORMS = re.compile(r"\b(sxm\d?|pcie?|nvl|hbm\d?e?|\d+gb|laptop|mobile|max q|workstation|server|edition)\b")


def gpu_named(text: str, gpus: Sequence[GpuModel]) -> TargetGpu:
    """The GPU that "9.0" or "RTX 4090" means. Raises ValueError that names near boards."""
    if re.fullmatch(r"\d+\.\d+", text):
        if text not in {g.capability for g in gpus}:
            known = " ".join(g.capability for g in gpus)
            raise ValueError(f"no GPU of capability {text} is known; known are {known}")
        return TargetGpu(capability=text)
    boards = {b: g.capability for g in gpus for b in g.boards}
    if found := _exactly(text, boards) or _in_another_form(text, boards):
        return found
    near = _near(_plain(text), boards)
    raise ValueError(
        f"no GPU called {text!r} is known; "
        + (f"near are {', '.join(near)}" if near else "a capability such as 9.0 may be given instead")
    )


def _plain(name: str) -> str:
    return " ".join(_MAKERS.sub(" ", name.lower()).split())


def _joined(name: str) -> str:
    return _plain(name).replace(" ", "")


def _bare(name: str) -> str:
    return _FORMS.sub("", _plain(name)).replace(" ", "")


def _exactly(text: str, boards: Mapping[str, str]) -> TargetGpu | None:
    wanted = _joined(text)
    return next((TargetGpu(capability=c, name=b) for b, c in boards.items() if _joined(b) == wanted), None)


def _in_another_form(text: str, boards: Mapping[str, str]) -> TargetGpu | None:
    """The board less its form ("A100-SXM-80GB", "RTX 4070 Laptop GPU"), under the name that was given."""
    wanted = _bare(text)
    found = {c for b, c in boards.items() if wanted and _bare(b) == wanted}
    return TargetGpu(capability=found.pop(), name=text.strip()) if len(found) == 1 else None


def _near(wanted: str, boards: Mapping[str, str]) -> list[str]:
    """Boards with all of its words, then those written most like it."""
    words = set(wanted.split())
    having = [b for b in boards if words and words <= set(_plain(b).split())]
    plain = {_plain(b): b for b in boards}
    alike = [plain[n] for n in difflib.get_close_matches(wanted, plain, n=3, cutoff=0.5)]
    return list(dict.fromkeys([*having, *alike]))[:3]
