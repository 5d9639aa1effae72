"""Measure how time and disk grow with catalogue, packages, environments and logs."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from packaging.requirements import Requirement

from provision import profiles, resolve
from provision.model import FrameworkRequest, Request, Target, TargetGpu

from .fleets import resolved
from .ground import JAX, Ground
from .measuring import GPUENV, Row, ran, timed
from .plot import Curve
from .serving import serving
from .tiny import wheel

_NOISE = 1.1


def growth(ground: Ground) -> Iterator[tuple[Row, Curve]]:
    """Yield one row and one curve for each quantity that grows."""
    for name, unit, sizes, take in (
        ("resolve", "times the catalogue", (1, 10, 100), catalogue),
        ("diagnose", "MB of log", (1, 10, 100), lambda n: log(ground, n)),
    ):
        yield _grown(name, unit, sizes, [_median(ground.runs, lambda n=n, t=take: t(n)) for n in sizes])  # type: ignore[misc]
    sizes = (1_000, 10_000, 100_000)
    yield _grown("fleet", "hosts", sizes, [resolved(ground, n) for n in sizes])
    yield from packages(ground)
    yield from environments(ground)


def _median(runs: int, take: Callable[[], float]) -> float:
    take()
    return statistics.median(take() for _ in range(runs))


def _grown(name: str, unit: str, sizes: Sequence[int], taken: Sequence[float]) -> tuple[Row, Curve]:
    """Return a row that limits growth to linear, with a tenth for noise, and its curve."""
    times, more = taken[-1] / taken[0], sizes[-1] / sizes[0]
    times_taken = ", ".join(f"{n}: {t:.3g} s" for n, t in zip(sizes, taken, strict=True))
    row = Row(
        "growth",
        name,
        f"{sizes[0]} {unit}, {more:.0f} times as many",
        times,
        more * _NOISE,
        note=f"({times_taken})",
    )
    return row, Curve(f"{name}: {unit}", tuple(sizes), tuple(taken))


def catalogue(times: int) -> float:
    """Return the seconds of one resolve in this process over a catalogue that many times as large."""
    known = profiles.load()
    target = Target(
        platform="linux-x86_64", glibc="2.35", driver="550.54.15", gpus=(TargetGpu(capability="8.0"),)
    )
    request = Request(
        frameworks=(FrameworkRequest(name="torch"), FrameworkRequest(name="jax")),
        device="cuda",
        python="3.12",
    )
    # The copies are older than every real row, so that the answer stays and the work grows.
    older = [
        b._replace(version=f"0.{i}.{b.version.replace('.', '')}")
        for i in range(1, times)
        for b in known.builds
    ]
    grown = dataclasses.replace(known, builds=(*known.builds, *older))
    began = time.perf_counter()
    resolve.resolve(request, target, grown)
    return time.perf_counter() - began


_LINE = (
    "[rank0] 2026-11-01 12:00:{:02d} epoch {} step {} loss 0.{:04d} lr 1.0e-04 throughput 812.4 samples/s\n"
)
_END = "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED\n"


def log(ground: Ground, megabytes: int) -> float:
    """Return the seconds of diagnose for a training log of this size that ends in an error."""
    path = ground.place("logs") / f"{megabytes}.log"
    if not path.exists():
        with path.open("w", encoding="utf-8") as file:
            step = 0
            while file.tell() < megabytes * 1_000_000:
                file.writelines(_LINE.format(i % 60, step // 999, step + i, i % 9999) for i in range(1000))
                step += 1000
            file.write(_END)
    return timed([GPUENV, "diagnose", str(path), "--no-machine"], ground.folder, ground.env)


def _plan_wheels(ground: Ground, wheels: Path) -> None:
    """Write tiny wheels of the packages that a CPU plan of JAX pins."""
    plan = json.loads(ran([GPUENV, "resolve", "--json", *JAX], ground.folder, ground.env))
    wheel(wheels, "pip", "26.0")
    first, *others = [Requirement(r) for r in plan["builds"][0]["requirements"]]
    for need in (first, *others):
        needs = tuple(str(o).replace("===", "==") for o in others) if need is first else ()
        version = next(s.version for s in need.specifier)
        wheel(wheels, need.name, version, needs if need is first else ())


def _project(
    ground: Ground, wheels: Path, address: str, count: int
) -> tuple[Path, dict[str, str], list[str]]:
    """Return a folder, variables and options for a lock of that many packages of the index at `address`."""
    project = ground.empty(f"packages-{count}")
    names = sorted(p.name.split("-")[0].replace("_", "-") for p in wheels.glob("bench_*.whl"))[:count]
    (project / "requirements.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
    alone = {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": address, "UV_DEFAULT_INDEX": address}
    dropped = ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL")
    env = {**{k: v for k, v in ground.env.items() if k not in dropped}, **alone}
    return project, env, [*JAX, "--index", "pypi", "-r", "requirements.txt"]


def packages(ground: Ground) -> Iterator[tuple[Row, Curve]]:
    """Measure `lock` and `create --locked` with 50 to 500 packages."""
    sizes, wheels = (50, 158, 500), ground.empty("tiny")
    _plan_wheels(ground, wheels)
    for number in range(max(sizes)):
        wheel(wheels, f"bench-{number:03}", "1.0")
    locking, creating = [], []
    with serving(wheels) as address:
        for count in sizes:
            project, env, options = _project(ground, wheels, address, count)

            def lock(
                project: Path = project, env: dict[str, str] = env, options: list[str] = options
            ) -> float:
                (project / "pylock.toml").unlink(missing_ok=True)
                return timed([GPUENV, "lock", *options], project, env)

            def create(project: Path = project, env: dict[str, str] = env) -> float:
                shutil.rmtree(project / "env", ignore_errors=True)
                argv = [GPUENV, "create", "env", "--locked", "--device", "cpu", "--no-verify"]
                return timed(argv, project, env)

            locking.append(_median(ground.runs, lock))
            creating.append(_median(ground.runs, create))
    yield _grown("lock", "packages", sizes, locking)
    yield _grown("create --locked", "packages", sizes, creating)


def environments(ground: Ground) -> Iterator[tuple[Row, Curve]]:
    """Measure the time to create and list environments of 50 packages of 1 MB, and their disk usage."""
    sizes, wheels = (1, 10, 50), ground.empty("heavy")
    _plan_wheels(ground, wheels)
    for number in range(50):
        wheel(wheels, f"bench-{number:03}", "1.0", weight=1_000_000)
    with serving(wheels) as address:
        project, env, options = _project(ground, wheels, address, 50)
        own_folders = {n: str(ground.empty(f"environments/{n}")) for n in ("XDG_DATA_HOME", "UV_CACHE_DIR")}
        env = {**env, **own_folders}  # a list and a cache of its own
        ran([GPUENV, "lock", *options], project, env)
        argv = [GPUENV, "create", "first", "--locked", "--device", "cpu", "--no-verify"]
        ran(argv, project, env)
        shutil.rmtree(project / "first")
        making, listed, sums, took = [], [], [], []
        for number in range(max(sizes)):
            took.append(timed([*argv[:2], f"env{number}", *argv[3:]], project, env))
            if number + 1 in sizes:
                again = [timed([*argv[:2], f"more{n}", *argv[3:]], project, env) for n in range(ground.runs)]
                for n in range(ground.runs):
                    ran([GPUENV, "remove", f"more{n}"], project, env)
                making.append((number + 1) * statistics.median([*took[-8:], *again]))
                listed.append(_median(ground.runs, lambda: timed([GPUENV, "list"], project, env)))
                sums.append(disk([project, Path(env["UV_CACHE_DIR"])]))
    yield _grown("create", "environments", sizes, making)
    yield _grown("list", "environments", sizes, listed)
    one, all_of_them, copies = sums[0], sums[-1], sums[0] * sizes[-1]
    row = Row(
        "growth", "disk of 50 environments", "50 copies", all_of_them / copies, 0.1,
        note=f"({one / 1e6:.0f} MB with one and the cache, {all_of_them / 1e6:.0f} MB with 50)",
    )  # fmt: skip
    yield row, Curve("disk: environments", sizes, tuple(float(s) for s in sums))


def disk(folders: Sequence[Path]) -> int:
    """Return the bytes on disk, with each linked file counted once."""
    blocks: dict[tuple[int, int], int] = {}
    for folder in folders:
        for root, _, files in os.walk(folder):
            for name in (".", *files):
                status = os.lstat(os.path.join(root, name))  # noqa: PTH118  # hundreds of thousands
                blocks[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(blocks.values())
