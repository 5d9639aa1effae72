"""bundle: everything that a machine without a network needs, in one folder that proves itself."""

from __future__ import annotations

from . import own, pythons
from .channel import channel_file, local_packages, name_origins
from .collecting import Item, Need, bytes_there, collect, needed
from .folder import (
    MANIFEST,
    README,
    assert_writable,
    claim,
    is_whole,
    items_of,
    not_writable,
    read,
    refuse_edited,
    refuse_unlisted,
    remove_old,
    settle,
    verify,
)
from .readme import text as readme
from .remade import wheel_of_unhashed
from .sdists import build_requires

__all__ = [
    "MANIFEST",
    "README",
    "Item",
    "Need",
    "assert_writable",
    "build_requires",
    "bytes_there",
    "channel_file",
    "claim",
    "collect",
    "is_whole",
    "items_of",
    "local_packages",
    "name_origins",
    "needed",
    "not_writable",
    "own",
    "pythons",
    "read",
    "readme",
    "refuse_edited",
    "refuse_unlisted",
    "remove_old",
    "settle",
    "verify",
    "wheel_of_unhashed",
]
