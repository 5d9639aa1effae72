"""Find boards by the names that people write ("RTX 4090", "v100", "NVIDIA H200")."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from ..model import GpuModel, TargetGpu


def name_gpu(gpu: TargetGpu) -> str:
    return f"{gpu.name} ({gpu.capability})" if gpu.name else f"a GPU of capability {gpu.capability}"


_OTHER_MAKERS = {
    "an AMD": r"\b(amd|radeon|instinct|mi\d{2,3}[a-z]?|rx ?\d{4}|firepro)\b",
    "an Intel": r"\b(intel|arc|gaudi ?\d?|iris|ponte vecchio)\b",
    "an Apple": r"\b(apple|m[1-5]( (pro|max|ultra))?)$",
}
MAKERS = re.compile(r"\b(nvidia|geforce|tesla|quadro|gpu|graphics)\b|[^a-z0-9]+")
# The form factor of a board. It does not change the capability.
FORMS = re.compile(r"\b(sxm\d?|pcie?|nvl|hbm\d?e?|\d+gb|laptop|mobile|max q|workstation|server|edition)\b")


def find_gpu(text: str, gpus: Sequence[GpuModel]) -> TargetGpu:
    """Return the GPU that "9.0" or "RTX 4090" means. Raises ValueError that names similar boards."""
    if re.fullmatch(r"\d+\.\d+", text):
        if text not in {g.capability for g in gpus}:
            known = " ".join(g.capability for g in gpus)
            raise ValueError(f"unknown GPU capability {text}; known capabilities: {known}")
        return TargetGpu(capability=text)
    boards = {b: g.capability for g in gpus for b in g.boards}
    if gpu := _match(text, boards):
        return gpu
    if maker := next(
        (maker for maker, names in _OTHER_MAKERS.items() if re.search(names, text, re.IGNORECASE)), None
    ):
        raise ValueError(f"{text} is {maker} GPU; gpuenv supports NVIDIA GPUs")
    near = _find_similar(_normalize(text), boards)
    raise ValueError(
        f"unknown GPU name {text!r}; "
        + (f"similar names: {', '.join(near)}" if near else "give a compute capability such as 9.0")
    )


def _normalize(name: str) -> str:
    return " ".join(MAKERS.sub(" ", name.lower()).split())


def _strip_spaces(name: str) -> str:
    return _normalize(name).replace(" ", "")


def _strip_form(name: str) -> str:
    return FORMS.sub("", _normalize(name)).replace(" ", "")


def _match(text: str, boards: Mapping[str, str]) -> TargetGpu | None:
    """Return the GPU of a board's name, of a name without its form factor ("A100-SXM-80GB", "RTX 4070 Laptop GPU"), or
    of a part of one with a number ("4090"). All boards that match must have one capability.

    Of several the shortest name is used: that of the plain board.
    """
    words = set(_normalize(text).split())
    numbered = any(word[-1].isdigit() for word in words)
    matchers: tuple[tuple[bool, Callable[[str], bool]], ...] = (
        (False, lambda board: _strip_spaces(board) == _strip_spaces(text)),
        (True, lambda board: _strip_form(board) == _strip_form(text) != ""),
        (False, lambda board: numbered and words <= set(_normalize(board).split())),
    )
    for as_written, fits in matchers:
        same = {board: capability for board, capability in boards.items() if fits(board)}
        if len(capabilities := set(same.values())) == 1:
            return TargetGpu(
                capability=capabilities.pop(), name=text.strip() if as_written else min(same, key=len)
            )
    return None


def _find_similar(wanted: str, boards: Mapping[str, str]) -> list[str]:
    """Return boards with all of its words, then those with similar spelling."""
    words = set(wanted.split())
    having = [b for b in boards if words and words <= set(_normalize(b).split())]
    plain = {_normalize(b): b for b in boards}
    import difflib

    alike = [plain[n] for n in difflib.get_close_matches(wanted, plain, n=3, cutoff=0.5)]
    return list(dict.fromkeys([*having, *alike]))[:3]
