"""Several files written at once: all of them, or none."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def write_all(contents: Mapping[Path, bytes]) -> None:
    """Write files, each by a rename, with the permissions that it had; links are followed. Where one fails,
    those before it are as they were. Raises OSError."""
    drafts: list[tuple[Path, Path]] = []
    done: list[tuple[Path, bytes | None]] = []
    try:
        for path, data in contents.items():
            place = Path(os.path.realpath(path))
            drafts.append((_draft(place, data), place))
        for draft, place in drafts:
            old = place.read_bytes() if place.exists() else None
            draft.replace(place)
            done.append((place, old))
    except BaseException:
        for place, old in reversed(done):
            if old is None:
                place.unlink(missing_ok=True)
            else:
                _draft(place, old).replace(place)
        raise
    finally:
        for draft, _ in drafts:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)


def _draft(place: Path, data: bytes) -> Path:
    """A file beside the place with its permissions, or those that a new file gets."""
    try:
        mode = stat.S_IMODE(place.stat().st_mode)
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        mode = 0o666 & ~mask
    fd, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return Path(name)
