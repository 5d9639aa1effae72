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

_UVS = "uv venv + uv pip install"
_PIPS = "python -m venv + pip install"
_BARE = "the same, nothing compiled"
_REST = 5.0  # seconds, in which a virtual machine gives the memory of files now gone back to its host


class Sides:
    """The same environment, built by each tool in a new folder, which is not timed.

    The files of a run are synced to the disk before the next run. Otherwise gigabytes of writes would count
    as its time.
    """

    def __init__(self, ground: Ground, env: Mapping[str, str]) -> None:
        self.ground, self.env = ground, env

    def _fresh(self, name: str) -> Path:
        """Return the path of an environment after moving the earlier one away."""
        self.ground.put_away(self.ground.project / name)
        os.sync()
        return self.ground.project / name

    def uv(self) -> float:
        creating = timed(
            [UV, "venv", str(self._fresh("uv-env")), "--python", sys.executable],
            self.ground.project,
            self.env,
        )
        argv = [UV, "pip", "install", "--python", "uv-env/bin/python", f"torch=={self.ground.torch}"]
        return creating + timed(argv, self.ground.project, self.env)

    def pip(self) -> float:
        creating = timed(
            [sys.executable, "-m", "venv", str(self._fresh("pip-env"))], self.ground.project, self.env
        )
        argv = ["pip-env/bin/pip", "install", "-q", f"torch=={self.ground.torch}"]
        return creating + timed(argv, self.ground.project, self.env)

    def locked(self) -> float:
        self._fresh("env")
        argv = [GPUENV, "create", "env", "--locked", "--gpu", "9.0", "--no-verify"]
        return timed(argv, self.ground.project, self.env)

    def unlocked(self) -> float:
        self._fresh("env")
        return timed([GPUENV, "create", "env", *TORCH, "--no-verify"], self.ground.project, self.env)


def warm(ground: Ground) -> Iterator[Row]:
    """Measure builds with everything in each tool's cache."""
    sides, runs = Sides(ground, ground.at_index()), ground.runs
    locked, unlocked, uv = interleaved((sides.locked, sides.unlocked, sides.uv), runs)
    yield Row("warm", "create --locked", _UVS, locked / uv, 0.85, locked, uv, runs=runs)
    yield Row("warm", "create, no lock", _UVS, unlocked / uv, 1.1, unlocked, uv, runs=runs)
    plain = Sides(ground, ground.at_index({"UV_COMPILE_BYTECODE": "0"}))
    locked, bare, uv = interleaved((sides.locked, plain.locked, plain.uv), runs)
    # Then little is left but starting up: Python, its imports and virtualenv against a compiled program.
    yield Row("warm", "create --locked, nothing compiled", _UVS, bare / uv, None, bare, uv, runs=runs)
    # What copies of the bytecode, checked by digest, cost.
    yield Row("warm", "create --locked, bytecode copied", _BARE, locked / bare, None, locked, bare, runs=runs)


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

    runs, each = ground.runs, (lambda: sides().locked(), lambda: sides().unlocked(), lambda: sides().uv())
    locked, unlocked, uv = interleaved(each, runs, warm=False)
    ground.empty("cold")
    gone()
    yield Row("cold", "create --locked, cold", _UVS, locked / uv, 1.05, locked, uv, runs=runs)
    yield Row("cold", "create, no lock, cold", _UVS, unlocked / uv, 1.05, unlocked, uv, runs=runs)
