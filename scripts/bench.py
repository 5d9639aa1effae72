"""Speed of gpuenv as ratios against what people would use instead, in one run on one machine.

Every ratio is the median of interleaved runs, both sides with a warm cache and byte-compiled. Prints a
table; no test depends on a time. `--only NAME` runs one row, `--runs N` sets the runs of each side.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import tomli

from provision import profiles, resolve
from provision.model import Request, Target, TargetGpu, Wanted

BIN = Path(sysconfig.get_path("scripts"))
GPUENV = str(BIN / "gpuenv")
TORCH = ("--framework", "torch", "--index", "pypi", "--device", "cpu")
PASS = [sys.executable, "-c", "pass"]


def timed(argv: list[str], folder: Path) -> float:
    """Seconds of one run; a run that fails ends the benchmark."""
    env = {**os.environ, "UV_COMPILE_BYTECODE": "1"}
    env.pop("VIRTUAL_ENV", None)
    began = time.perf_counter()
    done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - began
    if done.returncode:
        sys.exit(f"{' '.join(argv)}\n{done.stdout}{done.stderr}\nexit {done.returncode}")
    return seconds


def ratio(ours: Callable[[], float], theirs: Callable[[], float], runs: int) -> tuple[float, float, float]:
    """(ratio of medians, our median, theirs), after one unmeasured run of each."""
    ours(), theirs()
    pairs = [(ours(), theirs()) for _ in range(runs)]
    mine, other = (statistics.median(p[i] for p in pairs) for i in (0, 1))
    return mine / other, mine, other


def start_up(folder: Path, runs: int) -> None:
    """The commands that people wait for without anything being built."""
    rows = (
        ("version", ["--version"], 3),
        ("resolve, another machine", ["resolve", "-f", "torch", "--driver", "550.54.15", "--gpu", "8.0"], 25),
        ("resolve, this machine", ["resolve", "-f", "torch", "--device", "cpu"], 25),
    )
    for name, args, limit in rows:
        found = ratio(lambda a=args: timed([GPUENV, *a], folder), lambda: timed(PASS, folder), runs * 3)  # type: ignore[misc]  # bound now
        told(name, found, "python -c pass", limit)


def growth(_folder: Path, runs: int) -> None:
    """resolve inside one process, warm, over the catalogue as it is, ten and a hundred times it."""
    known = profiles.load()
    target = Target(
        platform="linux-x86_64", glibc="2.35", driver="550.54.15", gpus=(TargetGpu(capability="8.0"),)
    )
    request = Request(frameworks=(Wanted(name="torch"), Wanted(name="jax")), device="cuda", python="3.12")
    first = 0.0
    for times in (1, 10, 100):
        # The copies are older than every real row, so that the answer stays and the work grows.
        older = [
            dataclasses.replace(b, version=f"0.{i}.{b.version.replace('.', '')}")
            for i in range(1, times)
            for b in known.builds
        ]
        grown = dataclasses.replace(known, builds=(*known.builds, *older))
        taken = []
        for _ in range(runs + 1):
            began = time.perf_counter()
            resolve.resolve(request, target, grown)
            taken.append(time.perf_counter() - began)
        median = statistics.median(taken[1:])
        first = first or median
        print(
            f"resolve, {times:3}x the rows     {median / first:7.2f}x  of the catalogue as it is ({median * 1000:.0f} ms)"
        )


def builds(folder: Path, runs: int) -> None:
    """A warm build of torch with all its CUDA wheels, with and without a lock."""
    timed([GPUENV, "lock", *TORCH], folder)
    locked = tomli.loads((folder / "pylock.toml").read_text(encoding="utf-8"))
    version = next(p["version"] for p in locked["packages"] if p["name"] == "torch")
    uv = str(BIN / "uv")

    def with_uv() -> float:
        shutil.rmtree(folder / "uv-env", ignore_errors=True)
        made = timed([uv, "venv", "--seed", "uv-env", "--python", sys.executable], folder)
        python = str(folder / "uv-env" / "bin" / "python")
        return made + timed([uv, "pip", "install", "--python", python, f"torch=={version}"], folder)

    def with_lock() -> float:
        shutil.rmtree(folder / "env", ignore_errors=True)
        return timed([GPUENV, "create", "env", "--locked", "--no-verify"], folder)

    def without_lock() -> float:
        shutil.rmtree(folder / "env", ignore_errors=True)
        return timed([GPUENV, "create", "env", *TORCH, "--no-verify"], folder)

    told("create --locked, warm", ratio(with_lock, with_uv, runs), "uv venv + uv pip install", 1.0)
    told("create, warm, no lock", ratio(without_lock, with_uv, runs), "uv venv + uv pip install", 1.1)
    again = [GPUENV, "create", "env", *TORCH, "--no-verify"]
    found = ratio(lambda: timed(again, folder), lambda: timed(PASS, folder), runs * 3)
    told("create, all in place", found, "python -c pass", 30)


def told(name: str, found: tuple[float, float, float], against: str, limit: float) -> None:
    """One row of the table."""
    times, mine, other = found
    mark = "ok" if times <= limit else "OVER"
    print(
        f"{name:26} {times:7.2f}x  of {against:26} at most {limit:5}  {mark:4}"
        f"  ({mine * 1000:.0f} ms / {other * 1000:.0f} ms)"
    )


def main() -> None:
    """Run the rows that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("start", "growth", "build"))
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="gpuenv-bench-"))
    try:
        for name, row in (("start", start_up), ("growth", growth), ("build", builds)):
            if options.only in (None, name):
                row(folder, options.runs)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
