"""Measure builds of torch with all its CUDA wheels against uv and pip."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from .ground import TORCH, Ground
from .measuring import GPUENV, UV, Row, interleaved, ran, timed

_SYNC = "uv venv + uv pip sync, the same lock"
_UVS = "uv venv + uv pip install"
_PIPS = "python -m venv + pip install"
_REST = 5.0  # seconds, in which a virtual machine gives the memory of files now gone back to its host


class Sides:
    """The same environment, built by each tool in a new folder, which is not timed.

    The files of a run are synced to the disk before the next run. Otherwise gigabytes of writes would count
    as its time.
    """

    def __init__(self, ground: Ground, env: Mapping[str, str], project: Path | None = None) -> None:
        self.ground, self.env, self.project = ground, env, project or ground.project

    def _fresh(self, name: str) -> Path:
        """Return the path of an environment after moving the earlier one away."""
        self.ground.put_away(self.project / name)
        os.sync()
        return self.project / name

    def _uv(self, *words: str) -> float:
        env = self._fresh("uv-env")
        creating = timed([UV, "venv", str(env), "--python", sys.executable], self.project, self.env)
        return creating + timed([UV, "pip", *words, "--python", str(env)], self.project, self.env)

    def uv(self) -> float:
        return self._uv("install", f"torch=={self.ground.torch}")

    def synced(self) -> float:
        return self._uv("sync", "pylock.toml")

    def pip(self) -> float:
        creating = timed([sys.executable, "-m", "venv", str(self._fresh("pip-env"))], self.project, self.env)
        argv = ["pip-env/bin/pip", "install", "-q", f"torch=={self.ground.torch}"]
        return creating + timed(argv, self.project, self.env)

    def locked(self) -> float:
        self._fresh("env")
        argv = [GPUENV, "create", "env", "--locked", "--gpu", "9.0", "--no-verify"]
        if self.project != self.ground.project:
            argv[4:6] = ["--device", "cpu"]
        return timed(argv, self.project, self.env)

    def unlocked(self) -> float:
        self._fresh("env")
        return timed([GPUENV, "create", "env", *TORCH, "--no-verify"], self.project, self.env)


def warm(ground: Ground) -> Iterator[Row]:
    """Measure builds with everything in each tool's cache: a small environment (JAX) and a large one (torch with CUDA)."""
    runs = ground.runs
    small = Sides(ground, ground.env, ground.small_project)
    for name, sides, limit in (
        ("small", small, 6),
        ("large", Sides(ground, ground.at_index()), 2.5),
    ):
        locked, synced = interleaved((sides.locked, sides.synced), runs)
        yield Row(
            "warm",
            f"create --locked --no-verify, {name}",
            _SYNC,
            locked / synced,
            limit,
            locked,
            synced,
            runs=runs,
        )


def pip(ground: Ground) -> Iterator[Row]:
    """Measure the same build against pip. It takes minutes, so it has a third of the runs."""
    env, runs = ground.at_index(), max(1, ground.runs // 3)
    sides, fetched = Sides(ground, env), ground.empty("pip-fetched")
    ran([sys.executable, "-m", "venv", "pip-env"], ground.project, env)
    ran(
        ["pip-env/bin/pip", "download", "-q", "-d", str(fetched), f"torch=={ground.torch}"],
        ground.project,
        env,
    )
    shutil.rmtree(fetched)  # pip's cache has all of it now
    sides.locked()
    locked, other = interleaved((sides.locked, sides.pip), runs, warm=False)
    shutil.rmtree(ground.project / "pip-env", ignore_errors=True)
    yield Row("pip", "create --locked", _PIPS, locked / other, 0.05, locked, other, runs=runs)


def cold(ground: Ground) -> Iterator[Row]:
    """Measure builds with empty caches and an index on 127.0.0.1.

    Before each run the files of both sides are removed and the machine rests. So no side has less or faster
    memory than the other.
    """

    def gone() -> None:
        for name in ("env", "uv-env"):
            shutil.rmtree(ground.project / name, ignore_errors=True)

    def sides() -> Sides:
        gone()
        caches = {n: str(ground.empty(f"cold/{n}")) for n in ("UV_CACHE_DIR", "XDG_CACHE_HOME")}
        os.sync()
        time.sleep(_REST)
        return Sides(ground, ground.at_index(caches))

    runs = ground.runs
    each = (
        lambda: sides().locked(),
        lambda: sides().synced(),
        lambda: sides().unlocked(),
        lambda: sides().uv(),
    )
    locked, synced, unlocked, uv = interleaved(each, runs, warm=False)
    ground.empty("cold")
    gone()
    yield Row("cold", "create --locked, cold", _SYNC, locked / synced, 1.05, locked, synced, runs=runs)
    yield Row("cold", "create, no lock, cold", _UVS, unlocked / uv, 1.05, unlocked, uv, runs=runs)
