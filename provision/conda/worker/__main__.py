"""Solves and installs conda packages with py-rattler in a separate process.

gpuenv never imports this program, so that a panic or crash of the engine ends only this process. It reads a JSON request
from stdin, writes progress as JSON lines to stderr, and writes its answer to the file that the request names. It ends
with `os._exit`, because the engine's threads can crash an interpreter during shutdown. Channels, mirrors and credentials
come from the request and from the user's rattler configuration.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from pathlib import Path


def main() -> None:
    """Answer one request."""
    request = json.loads(sys.stdin.read())
    # Python runs with -I, so that neither this folder nor the current one precedes gpuenv's import path.
    sys.path[:] = [*request["sys_path"], str(Path(__file__).resolve().parents[3])]
    from provision.conda import worker
    from provision.conda.worker import channels, install

    operations = {"solve": channels.solve, "install": install.install, "pixi": channels.pixi,
                  "addresses": channels.addresses, "index": channels.index}  # fmt: skip
    threading.Thread(target=worker.end_stalled, args=(request,), daemon=True).start()
    try:
        answer = asyncio.run(operations[request["op"]](request))
    except BaseException as error:  # noqa: BLE001  # a panic of the engine is not an Exception
        answer = {"error": {"kind": type(error).__name__, "text": str(error)}}
    worker.end_with(request, answer)


if __name__ == "__main__":
    main()
