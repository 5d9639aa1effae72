"""`gpuenv` started by fork: a process that has imported everything forks for each run.

A run is a process of its own, with its own arguments, environment, folder, streams and signals, so that nothing
leaks from one run to the next. It saves what Python and the imports cost, which is half of most runs.
`serves` says which environments cannot be given to a fork: what Python and the loader read at their start.
Of a driver made by `driver_stub` the fork opens the libraries itself, as the loader would have found them.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = (
    "ctypes", "fractions", "http.client", "packaging.requirements", "packaging.tags", "platformdirs", "rich.console", "rich.live",
    "rich.table", "shlex", "ssl", "statistics", "tempfile", "tomli", "tomli_w", "typer", "urllib.request", "urllib3", "uuid", "yaml",
    "zipfile", "tarfile", "concurrent.futures.thread", "pynvml", "email.parser", "difflib", "glob", "csv", "sqlite3",
)  # fmt: skip
"""What the modules of gpuenv import inside functions."""
_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "GLIBC_", "OPENSSL_")
"""How variables begin that are read when a program starts."""


def at_start(env: Mapping[str, str]) -> dict[str, str]:
    """The variables of an environment that only a new process reads, but for one that changes no text."""
    return {k: v for k, v in env.items() if k.startswith(_AT_START) and k != "PYTHONUNBUFFERED"}


def driver_libraries(env: Mapping[str, str]) -> list[str]:
    """The libraries of a stub driver that a run would find, or none if one of them is left out."""
    folder = Path(env.get("LD_LIBRARY_PATH") or "/nowhere")
    found = [folder / name for name in ("libcuda.so.1", "libnvidia-ml.so.1")]
    stub = (folder / "stub.spec").exists() and all(f.exists() and f.stat().st_size for f in found)
    return [str(f) for f in found] if stub else []


class ForkServers:
    """The client's side. The server starts with the first run."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = at_start(env)
        self._servers: list[tuple[socket.socket, subprocess.Popen[bytes]]] = []  # one, or none yet

    def serves(self, env: dict[str, str]) -> bool:
        """Whether a run in this environment can be a fork."""
        env = at_start(env)
        if driver_libraries(env):
            env = {k: v for k, v in env.items() if k != "LD_LIBRARY_PATH"} | {
                k: v for k, v in self._env.items() if k == "LD_LIBRARY_PATH"
            }
        return sys.platform == "linux" and hasattr(os, "pidfd_open") and env == self._env

    def _door(self, env: dict[str, str]) -> socket.socket:
        if not self._servers:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                argv = [sys.executable, str(Path(__file__)), str(theirs.fileno())]
                plain = {k: v for k, v in env.items() if k != "LD_LIBRARY_PATH"}
                server = subprocess.Popen(
                    argv, env=plain | self._env, cwd="/", pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
                )  # fmt: skip
            self._servers.append((ours, server))
        return self._servers[0][0]

    def close(self) -> None:
        """End the servers, which need no more than that their socket is closed."""
        while self._servers:
            door, server = self._servers.pop()
            door.close()
            server.wait()

    def run(self, args: list[str], env: dict[str, str], cwd: Path, timeout: float) -> SimpleNamespace:
        """Run `gpuenv`, or with "-c" a program, and return its exit code and what it wrote, as `subprocess.run` does."""
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        out, err = os.pipe(), os.pipe()
        request = json.dumps({"args": args, "env": env, "cwd": str(cwd)}).encode("utf-8", "surrogateescape")
        with mine:
            with theirs, os.fdopen(os.memfd_create("request"), "w+b") as given:
                given.write(request)
                given.flush()
                socket.send_fds(self._door(env), [b"run"], [theirs.fileno(), given.fileno(), out[1], err[1]])
            for end in (out[1], err[1]):
                os.close(end)
            pid = int(mine.recv(64))
            try:
                texts = _read_all((out[0], err[0]), time.monotonic() + timeout)
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(args, timeout) from None
            code = int(mine.recv(64))
        return SimpleNamespace(returncode=code, stdout=texts[0], stderr=texts[1])


def _read_all(ends: tuple[int, ...], deadline: float) -> list[str]:
    """What is written to pipes until all have closed them, as text with its line ends translated."""
    parts: dict[int, list[bytes]] = {end: [] for end in ends}
    with selectors.DefaultSelector() as waiting, contextlib.ExitStack() as closing:
        for end in ends:
            waiting.register(end, selectors.EVENT_READ)
            closing.callback(os.close, end)
        while waiting.get_map():
            ready = waiting.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError
            for key, _ in ready:
                data = os.read(key.fd, 1 << 16)
                parts[key.fd].append(data)
                if not data:
                    waiting.unregister(key.fd)
    return [b"".join(parts[end]).decode().replace("\r\n", "\n").replace("\r", "\n") for end in ends]


# --- the server ----------------------------------------------------------------------------------


def prepare() -> None:
    """Import all that a run may import, and read gpuenv's own rows. No other cache of gpuenv has a value."""
    sys.path.insert(0, str(ROOT))
    import provision
    from provision import profiles
    from provision.config import rows

    for module in pkgutil.walk_packages(provision.__path__, "provision."):
        if ".probes" not in module.name and ".worker" not in module.name:
            importlib.import_module(module.name)
    for name in LIBRARIES:
        importlib.import_module(name)
    rows._read[()] = known = profiles.load()
    repr(known)  # each field is made when it is asked for: here, and not by each fork
    gc.collect()
    gc.freeze()


def _serve(door: socket.socket) -> None:
    """Fork for each request until the tests have closed their end; then end."""
    running: dict[int, tuple[int, socket.socket]] = {}
    with selectors.DefaultSelector() as waiting:
        waiting.register(door, selectors.EVENT_READ)
        while True:
            for key, _ in waiting.select():
                if key.fileobj is not door:
                    pid, answer = running.pop(key.fd)
                    waiting.unregister(key.fd)
                    os.close(key.fd)
                    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                    with answer, contextlib.suppress(BrokenPipeError):  # it may have waited long enough
                        answer.send(str(code).encode())
                    continue
                message, fds, _, _ = socket.recv_fds(door, 16, 4)
                if not message:
                    return
                pid = os.fork()
                if not pid:
                    for other in (door, *(a for _, a in running.values())):
                        other.close()
                    for ended in running:
                        os.close(ended)
                    waiting.close()
                    _become(*fds)
                answer = socket.socket(fileno=fds[0])
                for end in fds[1:]:
                    os.close(end)
                answer.send(str(pid).encode())
                watched = os.pidfd_open(pid)
                running[watched] = (pid, answer)
                waiting.register(watched, selectors.EVENT_READ)


def _become(answer: int, given: int, out: int, err: int) -> None:
    """Be the run that is asked for, and end as it ends."""
    os.close(answer)
    os.dup2(out, 1)
    os.dup2(err, 2)
    with os.fdopen(given, "rb") as file:
        file.seek(0)
        request = json.loads(file.read().decode("utf-8", "surrogateescape"))
    os.close(out)
    os.close(err)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    tempfile.tempdir = None  # an import may have looked for it
    sys.argv[:] = [str(ROOT / "provision" / "__main__.py"), *request["args"]]
    sys.orig_argv[:] = [sys.executable, "-m", "provision", *request["args"]]
    sys.path[:] = [p for p in sys.path if p != str(Path(__file__).parent)]
    for library in driver_libraries(os.environ):
        ctypes.CDLL(library)  # the next to open this soname gets this file
    try:
        if request["args"][0] == "-c":
            sys.argv[:] = ["-c", *request["args"][2:]]
            exec(request["args"][1], {"__name__": "__main__"})  # the test's own program
            sys.stdout.flush()
            sys.exit()
        from provision.__main__ import main

        main()
    except SystemExit as ended:
        if isinstance(ended.code, str):
            raise
        threading._shutdown()
        atexit._run_exitfuncs()
        os._exit(ended.code or 0)  # Python would free every module, in pages that it has to copy first: 45 ms


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prepare()
    from provision.config import rows
    from provision.diagnose import Circumstances, find_causes

    find_causes([("log", [b"a line"])], rows._read[()], Circumstances())  # its patterns are compiled once
    _serve(socket.socket(fileno=int(sys.argv[1])))
