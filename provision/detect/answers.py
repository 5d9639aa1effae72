"""What one way of asking for the driver and the GPUs told."""

from __future__ import annotations

from dataclasses import dataclass

from ..model import Gpu


@dataclass(frozen=True, kw_only=True, slots=True)
class Trouble:
    """A GPU that could not be read: its index, the NVML code and the words for it."""

    index: int
    code: int
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """One source's answer. `code` is the library's own return code of the call that failed (0 when
    none did, None when the library did not load or the program did not run), `error` says the
    failure in words, `hung` is the call that did not return."""

    source: str
    driver: str | None = None
    cuda: str | None = None
    gpus: tuple[Gpu, ...] = ()
    code: int | None = None
    error: str | None = None
    hung: str | None = None
    path: str | None = None
    troubles: tuple[Trouble, ...] = ()

    @property
    def ok(self) -> bool:
        return self.code == 0
