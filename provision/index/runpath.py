"""Which folders of the NVIDIA wheels a library tells the loader to search: its RUNPATH, read from the
library's bytes as they come, so that little of a wheel at an index has to be fetched.

A RUNPATH is one string of the dynamic string table, which linkers put near a library's start; no other
string there begins with $ORIGIN (ELF gABI, "Dynamic Section"; ld.so(8)).
"""

from __future__ import annotations

import re
from typing import IO

_RUNPATH = re.compile(rb"\0\$ORIGIN([^\0]*)\0")
_FOLDER = re.compile(rb"nvidia/([a-z0-9_]+)/lib")
_PIECE = 1 << 20
_LONGEST = 1 << 16


def nvidia_folders(library: IO[bytes]) -> frozenset[str]:
    """The folders of nvidia/ in a library's RUNPATH ("cublas", "cudnn"); empty where it names none."""
    kept = b""
    while piece := library.read(_PIECE):
        text = kept + piece
        if found := _RUNPATH.search(text):
            return frozenset(m.decode() for m in _FOLDER.findall(found[1]))
        kept = text[-_LONGEST:]
    return frozenset()
