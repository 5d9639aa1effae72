"""Board names as people write them ("RTX 4090", "v100", "NVIDIA H200") to compute capabilities."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from ..model import GpuModel, TargetGpu

_NOISE = re.compile(r"\b(nvidia|geforce|tesla|quadro|gpu|graphics)\b|[^a-z0-9]+")


def _plain(name: str) -> str:
    return " ".join(_NOISE.sub(" ", name.lower()).split())


def gpu_named(text: str, gpus: Sequence[GpuModel]) -> TargetGpu:
    """The GPU that "9.0" or "RTX 4090" means. Raises ValueError that names near boards."""
    if re.fullmatch(r"\d+\.\d+", text):
        if text not in {g.capability for g in gpus}:
            known = " ".join(g.capability for g in gpus)
            raise ValueError(f"no GPU of capability {text} is known; known are {known}")
        return TargetGpu(capability=text)
    boards = {_plain(b): (b, g.capability) for g in gpus for b in g.boards}
    wanted = _plain(text)
    if wanted in boards:
        name, capability = boards[wanted]
        return TargetGpu(capability=capability, name=name)
    near = difflib.get_close_matches(wanted, boards, n=3, cutoff=0.5)
    names = ", ".join(boards[n][0] for n in near)
    raise ValueError(f"no GPU called {text!r} is known" + (f"; near are {names}" if names else ""))
