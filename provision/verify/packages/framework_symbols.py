"""Compares the symbols that files require of torch with those that the installed torch exports."""

from __future__ import annotations

import os
import re

from ...system.elf import ElfError
from ...system.elf_symbols import list_unexported
from .compiled_files import Package
from .loader_search import LoadedFile, Problem, list_reached

_LIBRARY = re.compile(r"lib(?:torch|c10)")
"""The libraries of torch that extensions are linked with."""
_SYMBOL = re.compile(r"_Z(?:T[ISV])?NK?(?:3c10|2at|5torch|6caffe2)|aoti_torch_")
"""Symbols of torch's namespaces, as the Itanium C++ ABI mangles them, and of its stable interface."""


def find_undefined(node: LoadedFile, torch: Package | None) -> list[Problem]:
    """Return the first symbol of torch that a file linked with torch requires and no library exports.

    `torch` is the installed package. If one of its libraries cannot be read, nothing is known.
    """
    if torch is None or node.path in torch.files or not any(map(_LIBRARY.match, node.elf.needed)):
        return []
    own = [f for f in torch.files if _LIBRARY.match(os.path.basename(f)) and os.path.exists(f)]
    needed = [n.path for n in list_reached([node]) if n is not node]
    try:
        symbols = list_unexported(node.path, dict.fromkeys((*own, *needed)), _SYMBOL) if own else ()
    except ElfError:
        return []
    return [
        Problem(kind="symbol", file=node.path, library=torch.name, found=str(torch), detail=name)
        for name in symbols[:1]
    ]
