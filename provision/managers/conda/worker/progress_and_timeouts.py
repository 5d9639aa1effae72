"""What is told on the way and at the end, and servers that never answer."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
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


def end_with(request: dict[str, Any], answer: dict[str, Any]) -> None:
    """Answer and end, whatever else is going on."""
    draft = Path(f"{request['answer']}.{threading.get_ident()}")
    draft.write_text(json.dumps(answer), encoding="utf-8")
    draft.replace(request["answer"])
    os._exit(0)


def watch(request: dict[str, Any]) -> None:
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
