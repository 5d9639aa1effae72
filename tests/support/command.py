"""`gpuenv` as a user runs it, in a home of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import in_process
from fork_server import ForkServers

KEPT = (
    "PATH",
    "LANG",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "TMPDIR",
    "PYTHONDONTWRITEBYTECODE",
    "LD_LIBRARY_PATH",
)


class Ran:
    """How a `gpuenv` run ended."""

    def __init__(self, done):
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr

    @property
    def json(self):
        return json.loads(self.out)


class Command:
    """`gpuenv` in a folder, home, cache and configuration of its own. `env` may be changed.

    A run is a call in this process where `inside` is set and the run allows it; else, with `servers`, a fork of one
    where the environment allows that; else Python starts anew."""

    inside = False
    servers: ForkServers | None = None

    def __init__(self, folder):
        self.folder = folder
        self.usual = {k: v for k, v in os.environ.items() if k in KEPT}
        self.env = self.usual | {
            "HOME": str(folder / "home"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "UV_CACHE_DIR": str(folder / "uv-cache"),
            "PIP_CONFIG_FILE": os.devnull,
            "PYENV_ROOT": os.environ.get("PYENV_ROOT", str(Path("~/.pyenv").expanduser())),
        }
        self.work = folder / "work"
        for path in (self.work, folder / "home"):
            path.mkdir(parents=True, exist_ok=True)

    def __call__(self, *args, timeout=600):
        if self.inside and in_process.serves([*map(str, args)], self.env, self.usual):
            return Ran(in_process.run([*map(str, args)], self.env, self.work))
        if self.servers and self.servers.serves(self.env):
            return Ran(self.servers.run([*map(str, args)], self.env, self.work, timeout))
        argv = [sys.executable, "-m", "provision", *map(str, args)]
        done = subprocess.run(
            argv, env=self.env, cwd=self.work, capture_output=True, text=True, timeout=timeout,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        return Ran(done)
