"""Compare gpuenv's speed with that of other tools, in one run on one machine.

Every ratio is that of medians of interleaved runs at default settings (the programs are byte-compiled, what they
build is not). `--only PART` (repeatable) runs some parts, and `--repeat N` sets the rounds. `--folder DIR` keeps the
wheels of torch (3 GB) for the next run; some 30 GB of disk are needed. The exit status is 1 if a row is over
its limit. Growth is drawn to `--svg FILE`. On a machine with a GPU, `--gpu torch=.venv` (repeatable) measures
verify of an existing environment, and nothing else.
"""

from __future__ import annotations

import argparse
import compileall
import dataclasses
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from benches import builds, fleets, growth, memory, plot, proving, starting, tables
from benches.ground import Ground
from benches.measuring import Row

ROOT = Path(__file__).resolve().parent.parent
PARTS: dict[str, Callable[[Ground], Iterator[Row]]] = {
    "start": starting.start,
    "warm": builds.warm,
    "verify": proving.on_cpu,
    "memory": memory.memory,
    "pip": builds.pip,
    "cold": builds.cold,
    "fleet": fleets.fleets,
}
_OLD_NAMES = {"mine": "own_time", "told": "note"}
"""Names of fields in files that an earlier version wrote."""


def rows(ground: Ground, options: argparse.Namespace) -> Iterator[Row]:
    """Yield the requested rows as they are measured."""
    for file in options.rows or ():
        yield from (
            Row(**{_OLD_NAMES.get(k, k): v for k, v in r.items() if k != "ok"})
            for r in json.loads(file.read_text())["rows"]
        )
    if options.gpu:
        yield from proving.on_gpu(ground, options.gpu)
    if options.gpu or options.rows:
        return
    wanted = options.only or [*PARTS, "growth"]
    for name, part in PARTS.items():
        if name in wanted:
            yield from part(ground)
    if "growth" in wanted:
        curves = []
        for row, curve in growth.growth(ground):
            curves.append(curve)
            yield row
        options.svg.parent.mkdir(parents=True, exist_ok=True)
        options.svg.write_text(plot.svg(curves), encoding="utf-8")


def machine() -> str:
    """Return cores, memory and system of the machine, without its name."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores, {memory_gib:.0f} GiB, {platform.system()} {platform.machine()}, Python {platform.python_version()}"


# Longer than most functions: half of it declares the options.
def main() -> None:
    """Measure the requested rows and print them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=(*PARTS, "growth"))
    parser.add_argument("--repeat", type=int, default=5, metavar="N")
    parser.add_argument("--folder", type=Path, metavar="DIR")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the rows, for --write later or for others")
    parser.add_argument("--svg", type=Path, default=ROOT / "docs" / "growth.svg", metavar="FILE")
    parser.add_argument("--gpu", action="append", metavar="FRAMEWORK=ENV")
    parser.add_argument(
        "--rows", action="append", type=Path, metavar="FILE", help="what --json wrote: measure nothing"
    )
    parser.add_argument(
        "--write",
        action="store_true",
        help="write the tables of README.md and docs/explanation/benchmarks.md",
    )
    options = parser.parse_args()
    compileall.compile_dir(ROOT / "provision", quiet=2)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="gpuenv-bench-"))
    began, measured = time.monotonic(), []
    try:
        with ExitStack() as stack:
            for row in rows(Ground(folder.absolute(), options.repeat, stack), options):
                measured.append(row)
                print(row.text(), flush=True)
    finally:
        if not options.folder:
            shutil.rmtree(folder)
    print(f"{machine()}; {(time.monotonic() - began) / 60:.0f} minutes")
    if options.json:
        plain = [{**dataclasses.asdict(r), "ok": r.ok} for r in measured]
        options.json.write_text(
            json.dumps({"machine": machine(), "rows": plain}, indent=1) + "\n", encoding="utf-8"
        )
    if options.write:
        page = ROOT / "docs" / "explanation" / "benchmarks.md"
        tables.write(page, measured, machine())
        tables.write_speeds(ROOT / "README.md", page)
    sys.exit(any(not row.ok for row in measured))


if __name__ == "__main__":
    main()
