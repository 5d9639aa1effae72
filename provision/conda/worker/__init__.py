"""The program that runs py-rattler for gpuenv: how it reports progress and its answer, and ends for a silent server."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

Json = dict[str, Any]
"""An object of the JSON that gpuenv and this program exchange."""
_ALIVE = 0.02
"""The least processor seconds that a slow download uses during the timeout."""

awaited: set[str] = set()
"""The channels or packages with pending answers."""


def write_progress(event: str, **fields: Any) -> None:
    """Write one line of progress for gpuenv."""
    sys.stderr.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stderr.flush()


def end_with(request: Json, answer: Json) -> None:
    """Write the answer and end the process at once."""
    draft = Path(f"{request['answer']}.{threading.get_ident()}")
    draft.write_text(json.dumps(answer), encoding="utf-8")
    draft.replace(request["answer"])
    os._exit(0)


def end_stalled(request: Json) -> None:
    """End the process with an error if nothing happens for `patience` seconds while a connection is open.

    The engine waits forever for a server that accepts the connection and sends nothing. Waiting for another process's
    lock on the cache opens no connection and has no timeout.
    """
    used, since = time.process_time(), time.monotonic()
    while sys.platform == "linux":
        time.sleep(1.0)
        if time.process_time() - used > _ALIVE:
            used, since = time.process_time(), time.monotonic()
        elif time.monotonic() - since > request["patience"] and _is_connected():
            text = f"no data arrived for {request['patience']:.0f} s: {', '.join(sorted(awaited))}"
            end_with(request, {"error": {"kind": "Stalled", "text": text}})


def _is_connected() -> bool:
    """Return whether this process has a TCP connection that is open or opening."""
    sockets = set()
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            sockets.add(str(link.readlink()))
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for row in Path(f"/proc/self/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
                fields = row.split()
                if fields[3] in ("01", "02") and f"socket:[{fields[9]}]" in sockets:
                    return True
    return False
