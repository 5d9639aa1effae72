"""Create the wheels, index and environments that rows need, on first use."""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
import time
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path

import tomli

from .measuring import GPUENV, HERE, environment, ran
from .serving import serving

TORCH = ("--framework", "torch", "--index", "pypi", "--gpu", "9.0", "--python", HERE)
JAX = ("--framework", "jax", "--device", "cpu", "--python", HERE)


@dataclasses.dataclass(frozen=True)
class Ground:
    """The folder of the benchmark and the number of runs of each side. Wheels stay if the folder stays."""

    folder: Path
    runs: int
    stack: ExitStack

    def place(self, name: str) -> Path:
        """Return an existing or new subfolder."""
        path = self.folder / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def empty(self, name: str) -> Path:
        """Return an empty subfolder."""
        shutil.rmtree(self.folder / name, ignore_errors=True)
        return self.place(name)

    def put_away(self, path: Path) -> None:
        """Move a folder away, and remove it at the end.

        For minutes after thousands of files are removed, ext4 takes ten times as long to create a file. It
        skips recently used inodes.
        """
        if path.exists():
            path.rename(self._put_away / f"{path.name}-{time.monotonic_ns()}")

    @cached_property
    def _put_away(self) -> Path:
        """The folder for folders that were moved away."""
        folder = self.empty("put-away")
        self.stack.callback(shutil.rmtree, folder, ignore_errors=True)
        return folder

    @cached_property
    def env(self) -> dict[str, str]:
        """The variables with caches of the benchmark and the indexes of this machine."""
        caches = {
            "UV_CACHE_DIR": "uv-cache",
            "XDG_CACHE_HOME": "cache",
            "XDG_DATA_HOME": "data",
            "XDG_CONFIG_HOME": "config",
        }
        return environment({k: str(self.place(v)) for k, v in caches.items()})

    @cached_property
    def index(self) -> str:
        """The URL of an index with all wheels of torch with CUDA, downloaded once."""
        wheels = self.place("wheels")
        if not (self.folder / "fetched").exists():
            self._fetch(wheels)
            (self.folder / "fetched").touch()
        return self.stack.enter_context(serving(wheels))

    def _fetch(self, wheels: Path) -> None:
        project = self.empty("first-lock")
        ran([GPUENV, "lock", *TORCH], project, self.env)
        ran([GPUENV, "export", "--format", "requirements", "-o", "all.txt"], project, self.env)
        ran([sys.executable, "-m", "venv", "pip"], project, self.env)
        argv = ["pip/bin/pip", "download", "-q", "--no-cache-dir", "--no-deps", "--require-hashes"]
        ran([*argv, "-d", str(wheels), "-r", "all.txt"], project, self.env)

    def at_index(self, more: dict[str, str] | None = None) -> dict[str, str]:
        """Return the variables with which every tool uses only that index."""
        names = ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS")
        kept = {k: v for k, v in self.env.items() if k not in names}
        ours = {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": self.index, "UV_DEFAULT_INDEX": self.index}
        return {**kept, **ours, "PIP_CACHE_DIR": str(self.place("pip-cache")), **(more or {})}

    @cached_property
    def project(self) -> Path:
        """A folder with a lock of torch and all its CUDA wheels, from that index."""
        project = self.empty("project")
        ran([GPUENV, "lock", *TORCH], project, self.at_index())
        return project

    @cached_property
    def small_project(self) -> Path:
        """A folder with a lock of JAX for the CPU, from the indexes of this machine."""
        project = self.empty("small")
        ran([GPUENV, "lock", *JAX], project, self.env)
        return project

    @cached_property
    def torch(self) -> str:
        """The locked version of torch."""
        locked = tomli.loads((self.project / "pylock.toml").read_text(encoding="utf-8"))
        return next(str(p["version"]) for p in locked["packages"] if p["name"] == "torch")

    @cached_property
    def torch_env(self) -> Path:
        """An environment of that lock."""
        if not (self.project / "env").exists():
            ran(
                [GPUENV, "create", "env", "--locked", "--gpu", "9.0", "--no-verify"],
                self.project,
                self.at_index(),
            )
        return self.project / "env"

    @cached_property
    def jax_env(self) -> Path:
        """A verified CPU environment."""
        project = self.place("jax")
        ran([GPUENV, "create", "env", *JAX], project, self.env)
        return project / "env"
