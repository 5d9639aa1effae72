"""What is told on the way, and servers that never answer."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_ALIVE = 0.02
"""Seconds of processor time that even a slow download uses up in the time it is given."""

awaited: set[str] = set()
"""What an answer is waited for: channels, packages."""


def tell(event: str, **fields: Any) -> None:
    """One line for gpuenv."""
    sys.stderr.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stderr.flush()


def watch(request: dict[str, Any], end_with: Callable[[dict[str, Any], dict[str, Any]], None]) -> None:
    """The engine waits without an end for a server that has taken the connection and sends nothing. Where
    nothing at all was done for `patience` seconds while a connection is open, that is the answer. A wait
    for another process's lock on the cache has no open connection and may take as long as it takes."""
    used, since = time.process_time(), time.monotonic()
    while sys.platform == "linux":
        time.sleep(1.0)
        if time.process_time() - used > _ALIVE:
            used, since = time.process_time(), time.monotonic()
        elif time.monotonic() - since > request["patience"] and _connected():
            told = f"nothing came for {request['patience']:.0f} s: {', '.join(sorted(awaited))}"
            end_with(request, {"error": {"kind": "Stalled", "text": told}})


def _connected() -> bool:
    """Whether this process has a TCP connection that is open or being opened."""
    held = set()
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            held.add(str(link.readlink()))
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for row in Path(f"/proc/self/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
                fields = row.split()
                if fields[3] in ("01", "02") and f"socket:[{fields[9]}]" in held:
                    return True
    return False
