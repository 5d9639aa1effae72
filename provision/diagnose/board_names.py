"""Find GPU board names in free text, with their compute capabilities."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..model import GpuModel

_WORDS = re.compile(r"[a-z]+\d+[a-z]*|\d+[a-z]*|[a-z]+")
_NOISE = frozenset(("nvidia", "geforce", "tesla", "quadro", "gpu", "graphics", "laptop", "generation"))
_SERIES = (
    "rtx",
    "gtx",
    "gt",
    "titan",
    "tesla",
    "quadro",
    "geforce",
    "nvidia",
    "gpu",
    "jetson",
    "orin",
    "xavier",
    "spark",
    "kaggle",
)
_LONGEST = 5


def _split(text: str) -> list[str]:
    """Return the words of a name. "RTX 2080Ti" and "rtx 2080 ti" are equal."""
    words: list[str] = []
    for word in _WORDS.findall(text):
        glued = re.fullmatch(r"(rtx|gtx|gt)(\d\w*)", word)
        for part in glued.groups() if glued else (word,):
            suffixed = re.fullmatch(r"(\d{3,4})(ti|super|m|d)", part)
            words += suffixed.groups() if suffixed and suffixed.group(2) != "m" else (part,)
    return [w for w in words if w not in _NOISE]


class Boards:
    """Board names, found by their longest sequence of words."""

    def __init__(self, gpus: Sequence[GpuModel]) -> None:
        self._known: dict[tuple[str, ...], tuple[str, str]] = {}
        for model in gpus:
            for board in model.boards:
                self._known.setdefault(tuple(_split(board.lower())), (board, model.capability))
        self._starts = {key[0] for key in self._known if key}

    def named(self, low: str) -> Iterator[tuple[str, str]]:
        """Yield (board, capability) of every board in a lower-case line about hardware."""
        if not any(word in low for word in _SERIES):
            return
        words = _split(low[:600])
        i = 0
        while i < len(words):
            size = next(
                (n for n in range(_LONGEST, 0, -1) if self._is(words[i : i + n], low))
                if words[i] in self._starts
                else iter(()),
                0,
            )
            if size:
                yield self._known[tuple(words[i : i + size])]
            i += size or 1

    def _is(self, words: list[str], low: str) -> bool:
        """Return whether the words are a board. A short single word such as "k80" needs "tesla" beside it."""
        key = tuple(words)
        return key in self._known and (len(key) > 1 or len(key[0]) > 2 or "tesla" in low)
