"""Detect forbidden actions of a command: network, child processes and heavy imports.

Python's audit events report them. If strace is installed, system calls of other libraries are seen too.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

HEAVY = (
    "asyncio", "conda_lock", "http.client", "multiprocessing", "pydantic", "rattler", "requests", "rich.live",
    "ssl", "urllib.request", "urllib3", "numpy", "torch", "jax", "tensorflow",
)  # fmt: skip
_AUDITED = """
import json, sys
seen = []
def hook(event, args):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto", "subprocess.Popen", "os.fork",
                 "os.forkpty", "os.posix_spawn", "os.exec", "os.system"):
        seen.append(event)
sys.addaudithook(hook)
out, heavy = sys.argv[1], sys.argv[2].split(",")
sys.argv = ["gpuenv", *sys.argv[3:]]
from provision.__main__ import main
try:
    main()
finally:
    found = {"events": seen, "heavy": [h for h in heavy if h in sys.modules]}
    with open(out, "w") as file:
        json.dump(found, file)
"""
_CALL = re.compile(r"^(?:\d+ +)?(execve|fork|vfork|clone3?|connect)\((.*)", re.MULTILINE)


def watched(args: Sequence[str], folder: Path, env: Mapping[str, str]) -> tuple[list[str], str]:
    """Return the forbidden actions of a command, and the means that detected them."""
    with tempfile.TemporaryDirectory() as scratch:
        out, trace = Path(scratch, "seen.json"), Path(scratch, "trace")
        argv = [sys.executable, "-c", _AUDITED, str(out), ",".join(HEAVY), *args]
        tracer = shutil.which("strace")
        if tracer:
            argv = [
                tracer,
                "-f",
                "-qq",
                "-o",
                str(trace),
                "-e",
                "trace=execve,fork,vfork,clone,clone3,connect",
                *argv,
            ]
        subprocess.run(argv, cwd=folder, env=dict(env), capture_output=True, check=True)
        seen = json.loads(out.read_text(encoding="utf-8"))
        calls = _calls(trace.read_text(encoding="utf-8")) if tracer else []
    means = "audit events and strace" if tracer else "audit events"
    return [*seen["events"], *(f"import {h}" for h in seen["heavy"]), *calls], means


def _calls(trace: str) -> list[str]:
    """Return the system calls that start a program or a connection.

    The first execve is the command itself. Threads and local sockets (AF_UNIX) do not count.
    """
    calls = []
    for name, rest in _CALL.findall(trace)[1:]:
        if "CLONE_THREAD" in rest or (name == "connect" and "AF_UNIX" in rest):
            continue
        calls.append(f"{name}({rest.partition(')')[0][:60]})")
    return calls
