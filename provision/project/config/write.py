"""Write several files: all of them, or none."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from provision.system.safe_write import Draft, resolve, write_file

if TYPE_CHECKING:
    from collections.abc import Mapping


def write_all(contents: Mapping[Path, bytes]) -> None:
    """Write files, each by a rename, with the permissions that it had. A link is followed inside the file's
    folder, and refused where it leads out. Where one file fails, the others are as they were. Raises OSError."""
    done: list[tuple[Path, bytes | None]] = []
    with contextlib.ExitStack() as stack:
        drafts = []
        for path, data in contents.items():
            drafts.append((path, stack.enter_context(Draft(path))))
            drafts[-1][1].write(data)
        try:
            for path, draft in drafts:
                place = resolve(path, path.parent)
                old = place.read_bytes() if place.exists() else None
                draft.commit()
                done.append((place, old))
        except BaseException:
            for place, old in reversed(done):
                if old is None:
                    place.unlink(missing_ok=True)
                else:
                    write_file(place, old)
            raise
