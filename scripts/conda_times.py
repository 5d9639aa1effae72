"""Measure times of conda environments, as ratios within one run.

    python scripts/conda_times.py FOLDER [--runs N]

The solve is `gpuenv resolve` of torch over a snapshot of conda-forge (FOLDER/conda-forge), compared with the
engine's own solve in a bare process. The environment is a warm `gpuenv create` of jax from the small channel
of the tests. It is compared with `cp -al` of the same files and with the engine's own install. The times are
medians of interleaved runs, in seconds of processor time (a busy machine stretches the others) and of the
clock.
"""

from __future__ import annotations

import argparse
import importlib
import os
import resource
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GPUENV = str(Path(sysconfig.get_path("scripts")) / "gpuenv")
Seconds = tuple[float, float]
"""Of processor, of the clock."""
SOLVE = """
import asyncio, os, sys
from pathlib import Path
from rattler import Channel, Gateway, GenericVirtualPackage as V, MatchSpec, PackageName, Version, BuildString, solve
gateway = Gateway(cache_dir=Path(sys.argv[2]) / "repodata")
virtual = [V(PackageName(n), Version(v), BuildString("0")) for n, v in
           (("__glibc", "2.35"), ("__linux", "5.10"), ("__unix", "0"), ("__cuda", "13.0"))]
found = asyncio.run(solve([Channel(sys.argv[1])], [MatchSpec("pytorch * *cuda*"), MatchSpec("pip")], gateway=gateway,
                          platforms=["linux-64", "noarch"], virtual_packages=virtual))
os._exit(0 if len(found) > 60 else 1)  # the engine's threads now and then crash an interpreter on its way out
"""
INSTALL = """
import asyncio, os, sys
from pathlib import Path
from rattler import PackageCache, PrefixRecord, install
records = [PrefixRecord.from_path(p) for p in Path(sys.argv[1], "conda-meta").glob("*.json")]
asyncio.run(install(records, sys.argv[2], package_cache=PackageCache(Path(sys.argv[3]) / "pkgs"), show_progress=False))
os._exit(0)
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="a folder with a snapshot of conda-forge")
    parser.add_argument("--runs", type=int, default=7, help="runs of each side (7)")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT / "tests"))
    with tempfile.TemporaryDirectory(prefix="gpuenv-times-") as scratch:
        solving(options.folder.resolve() / "conda-forge", Path(scratch), options.runs)
        creating(Path(scratch), options.runs)


def solving(channel: Path, scratch: Path, runs: int) -> None:
    command = ("resolve", "--manager", "conda", "--framework", "torch", "--driver", "580.65.06", "--glibc", "2.35",
             "--platform", "linux-x86_64", "--channel", str(channel))  # fmt: skip
    sides = {
        "gpuenv resolve": lambda: timed(scratch, GPUENV, *command),
        "the engine alone": lambda: timed(
            scratch, sys.executable, "-c", SOLVE, channel.as_uri(), str(scratch / "cache")
        ),
    }
    show_times("solve of torch on the snapshot", medians(sides, runs))


def creating(scratch: Path, runs: int) -> None:
    channel = importlib.import_module("conda_channel").channel()
    created, copied, linked = (scratch / name for name in ("made", "copied", "linked"))
    command = ("create", str(created), "--manager", "conda", "--framework", "jax", "--device", "cpu", "--no-verify",
             "--channel", str(channel))  # fmt: skip
    timed(scratch, GPUENV, *command)
    subprocess.run(["cp", "-al", str(created), str(scratch / "kept")], check=True)
    kept = str(scratch / "kept")
    files = sum(1 for p in Path(kept).rglob("*") if p.is_file())
    sides = {
        "gpuenv create": lambda: fresh(created, lambda: timed(scratch, GPUENV, *command)),
        "cp -al": lambda: fresh(copied, lambda: timed(scratch, "cp", "-al", kept, str(copied))),
        "the engine alone": lambda: fresh(
            linked,
            lambda: timed(scratch, sys.executable, "-c", INSTALL, kept, str(linked), str(scratch / "cache")),
        ),
    }
    show_times(f"warm create of jax, {files} files", medians(sides, runs))


def timed(scratch: Path, *argv: str) -> Seconds:
    """Return the times of one run. A failure ends the program."""
    folders = {
        "XDG_CONFIG_HOME": str(scratch / "config"),
        "HOME": str(scratch),
        "RATTLER_CACHE_DIR": str(scratch / "cache"),
    }
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        argv, cwd=scratch, env=os.environ | folders, capture_output=True, text=True, check=False
    )
    clock, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{' '.join(argv)}\n{done.stdout}{done.stderr}\nexit {done.returncode}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, clock


def fresh(prefix: Path, run: Callable[[], Seconds]) -> Seconds:
    shutil.rmtree(prefix, ignore_errors=True)
    return run()


def medians(sides: dict[str, Callable[[], Seconds]], runs: int) -> dict[str, Seconds]:
    """Return the medians of each side, after one run that does not count."""
    for run in sides.values():
        run()
    every = [{name: run() for name, run in sides.items()} for _ in range(runs)]
    return {
        name: (
            statistics.median(one[name][0] for one in every),
            statistics.median(one[name][1] for one in every),
        )
        for name in sides
    }


def show_times(what: str, times: dict[str, Seconds]) -> None:
    """Print a line for each side: its times, and the ratio of the first side to it."""
    ours = next(iter(times.values()))
    sys.stdout.write(f"{what}\n")
    for name, (busy, clock) in times.items():
        ratios = f"ratio {ours[0] / max(busy, 0.01):.1f} and {ours[1] / clock:.1f}"
        sys.stdout.write(f"  {name:18} {busy:6.2f} s of processor {clock:6.2f} s of clock   {ratios}\n")


if __name__ == "__main__":
    main()
