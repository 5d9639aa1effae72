"""`gpuenv` as a user runs it, in a home of its own."""

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import in_process
from fork_server import ForkServers
from loopback import Index, serving
from once import once

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

    Without `servers` each run starts Python. With them it is a fork of one where the environment allows that, and with
    `inside` a call in this process where the run allows that too. `warm` is for the cache."""

    inside = False
    servers: ForkServers | None = None

    def __init__(self, folder, *, warm=True):
        self.folder = folder
        self.usual = {k: v for k, v in os.environ.items() if k in KEPT}
        self.env = self.usual | {
            "HOME": str(folder / "home"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "UV_CACHE_DIR": str(folder / "uv-cache"),
            "UV_HTTP_RETRIES": "0",  # uv would wait for seven seconds
            "PIP_CONFIG_FILE": os.devnull,
            "PYENV_ROOT": os.environ.get("PYENV_ROOT", str(Path("~/.pyenv").expanduser())),
        }
        self.work = folder / "work"
        for path in (self.work, folder / "home"):
            path.mkdir(parents=True, exist_ok=True)
        self.first = self.env.copy()
        if warm and self.inside:
            for cache in _warm_cache().iterdir():
                shutil.copytree(cache, folder / cache.name, dirs_exist_ok=True)

    def __call__(self, *args, timeout=600, stdin=""):
        if args[:1] == ("resolve",) and not stdin and self.inside and self._pristine():
            key = tuple(map(str, args))
            if key not in _resolved:
                _resolved[key] = self._run(*args, timeout=timeout)
            return _resolved[key]
        return self._run(*args, timeout=timeout, stdin=stdin)

    def _pristine(self):
        """Whether nothing but the arguments decides what `resolve` says."""
        places = (self.work, self.folder / "home", self.folder / "config")
        if self.work != self.folder / "work":
            return False  # files of a parent folder may decide
        return self.env == self.first and not any(any(p.iterdir()) for p in places if p.exists())

    def _run(self, *args, timeout=600, stdin=""):
        if self.inside and self.servers and in_process.serves([*map(str, args)], self.env, self.usual):
            return Ran(in_process.run([*map(str, args)], self.env, self.work, stdin))
        if self.servers and not stdin and self.servers.serves(self.env):
            return Ran(self.servers.run([*map(str, args)], self.env, self.work, timeout))
        argv = [sys.executable, "-m", "provision", *map(str, args)]
        given = {"input": stdin} if stdin else {"stdin": subprocess.DEVNULL}
        done = subprocess.run(
            argv, env=self.env, cwd=self.work, capture_output=True, text=True, timeout=timeout, check=False, **given
        )  # fmt: skip
        return Ran(done)


def run_forked(*args, env, cwd=None, timeout=300):
    """How `gpuenv ARGS` ended in an environment, or with "-c" a program that imports gpuenv: a fork where that serves."""
    args, env = [*map(str, args)], {k: str(v) for k, v in env.items()}
    if Command.servers and Command.servers.serves(env):
        return Command.servers.run(args, env, cwd or Path.cwd(), timeout)
    argv = [sys.executable, *([] if args[0] == "-c" else ["-m", "provision"]), *args]
    return subprocess.run(
        argv, env=env, cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False, stdin=subprocess.DEVNULL
    )  # fmt: skip


_resolved: dict[tuple[str, ...], Ran] = {}
"""What `resolve` said in a home with nothing in it."""


@functools.cache
def _warm_cache():
    """Caches that know the Pythons and what uv does: seven programs less in the first `create` of a test."""
    return once("warm", _warm)


def _warm(target):
    with tempfile.TemporaryDirectory(prefix="gpuenv-warm-") as folder, serving(Index()) as index:
        made = Command(Path(folder), warm=False)
        ask = ("--framework", "jax", "--device", "cpu", "--index", "pypi")
        index.add_plan(made("resolve", *ask, "--json").json)
        made.env["PIP_INDEX_URL"] = index.url
        ran = made("create", *ask, "--no-verify")
        assert ran.code == 0, ran.err
        kept = ("cache/gpuenv/pythons.json", "uv-cache/interpreter-*")
        for path in (p for pattern in kept for p in made.folder.glob(pattern)):
            place = target / path.relative_to(made.folder)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(path, place)
        (target / "uv-cache").chmod(0o700)  # as gpuenv makes it
