"""The search for a smallest set that has an effect, with few tries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def find_smallest(items: Sequence[T], suffice: Callable[[Sequence[T]], bool]) -> list[T]:
    """Return some of the items that suffice, of which none can be left out. All of them together must suffice.

    This is QuickXplain (Junker 2004). It finds one item among n in about log n tries.
    """

    def find_needed(base: Sequence[T], tried: bool, among: Sequence[T]) -> list[T]:
        """Return those that are needed beside the base. It alone was `tried` already, or is to be tried."""
        if not tried and suffice(base):
            return []
        if len(among) == 1:
            return [*among]
        first, second = among[: len(among) // 2], among[len(among) // 2 :]
        of_second = find_needed([*base, *first], False, second)
        return [*find_needed([*base, *of_second], not of_second, first), *of_second]

    return find_needed((), True, items)
