"""Write the output of `gpuenv detect --json` for simulated GPU hosts, as JSON lines or as one file for each
host.

The same `--seed` gives the same hosts. Generations, drivers and systems are distributed as in clusters that
grew over years. There are racks of equal hosts, most of them recent, and drivers of a few data-centre
branches with several patch releases. Old boards have their last driver, and some hosts have no GPU.

    python scripts/simulate_fleet.py 1000 | gpuenv resolve --framework torch --target -
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Board, capability, cards in a host, its share of hosts, and the driver branches that it runs with their shares.
BOARDS = (
    ("NVIDIA H100 80GB HBM3", "9.0", 8, 24, {"535": 20, "550": 40, "570": 25, "580": 15}),
    ("NVIDIA H200", "9.0", 8, 8, {"550": 30, "570": 40, "580": 30}),
    ("NVIDIA B200", "10.0", 8, 5, {"570": 40, "580": 60}),
    ("NVIDIA A100-SXM4-80GB", "8.0", 8, 22, {"470": 2, "525": 8, "535": 45, "550": 35, "570": 10}),
    ("NVIDIA A100-PCIE-40GB", "8.0", 4, 7, {"470": 3, "535": 60, "550": 37}),
    ("NVIDIA L40S", "8.9", 4, 7, {"535": 45, "550": 45, "570": 10}),
    ("NVIDIA A40", "8.6", 4, 4, {"535": 70, "550": 30}),
    ("Tesla T4", "7.5", 4, 7, {"470": 5, "535": 60, "550": 35}),
    ("Tesla V100-SXM2-32GB", "7.0", 8, 7, {"470": 8, "535": 67, "550": 25}),
    ("Tesla P100-PCIE-16GB", "6.0", 2, 3, {"470": 20, "535": 80}),
    ("Tesla K80", "3.7", 4, 1, {"470": 100}),
)
"""Shares are those of a simulation: they name no real site."""
PATCHES = {
    "470": ("470.82.01", "470.199.02", "470.256.02"), "525": ("525.85.12", "525.105.17", "525.147.05"),
    "535": ("535.54.03", "535.104.05", "535.129.03", "535.161.08", "535.183.01"),
    "550": ("550.54.15", "550.90.07", "550.127.05", "550.144.03"), "570": ("570.86.15", "570.124.06", "570.148.08"),
    "580": ("580.65.06", "580.95.05"),
}  # fmt: skip
CUDA = {"470": "11.4", "525": "12.0", "535": "12.2", "550": "12.4", "570": "12.8", "580": "13.0"}
GLIBC = {"2.35": 45, "2.28": 15, "2.34": 15, "2.31": 13, "2.39": 10, "2.17": 2}
OLD_GLIBC = {"2.17": 45, "2.28": 35, "2.31": 20}
"""Of hosts with driver 470, whose systems are older as well."""
WITHOUT_GPU = 0.03
RACK = 16


def hosts(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield one document for each host, with the host's name."""
    chance = random.Random(seed)  # noqa: S311  # a simulation that can be repeated
    count_made = 0
    rack = 0
    while count_made < count:
        rack += 1
        kind = _rack(chance)
        for place in range(min(chance.randint(RACK // 4, RACK), count - count_made)):
            count_made += 1
            yield _host(f"rack{rack:05}-{place:02}", kind, chance)


def _rack(chance: random.Random) -> tuple[Any, ...]:
    """Return the common properties of the hosts in one rack: board, driver and glibc."""
    if chance.random() < WITHOUT_GPU:
        return None, None, _drawn(chance, GLIBC)
    board = chance.choices(BOARDS, [b[3] for b in BOARDS])[0]
    branch = _drawn(chance, board[4])
    return board, chance.choice(PATCHES[branch]), _drawn(chance, OLD_GLIBC if branch == "470" else GLIBC)


def _drawn(chance: random.Random, shares: dict[str, int]) -> str:
    return chance.choices(list(shares), list(shares.values()))[0]


def _host(name: str, kind: tuple[Any, ...], chance: random.Random) -> dict[str, Any]:
    board, driver, glibc = kind
    gpus: list[dict[str, Any]] = []
    if board:
        lost = chance.random() < 0.01  # a card that fell off the bus
        gpus = [
            {"index": i, "name": board[0], "capability": board[1], "memory_mib": 81559, "mig": [],
             "uuid": f"GPU-{chance.getrandbits(128):032x}"}
            for i in range(board[2] - lost)
        ]  # fmt: skip
    cuda = CUDA[driver.split(".")[0]] if driver else None
    target = {
        "platform": "linux-x86_64", "glibc": glibc, "driver": driver, "driver_os": "linux", "driver_cuda": cuda,
        "gpus": [{"capability": g["capability"], "name": g["name"]} for g in gpus], "forward_compat": None,
    }  # fmt: skip
    return {
        "schema": "gpuenv.machine/1", "host": name, "target": target,
        "driver": {
            "library": driver, "kernel_module": driver, "cuda": cuda, "source": "nvml" if driver else None,
            "libcuda": "/usr/lib/x86_64-linux-gnu/libcuda.so.1" if driver else None, "problem": None,
        },
        "gpus": gpus, "context": {"container": None, "wsl": False, "colab": False, "slurm": None},
        "hardware": [
            {"vendor": "nvidia", "address": f"0000:{i:02x}:00.0", "device": "10de:2330"} for i in range(len(gpus))
        ],
        "pythons": [{"path": "/usr/bin/python3", "version": "3.10.12", "source": "system"}], "libraries": [],
        "environment": {}, "findings": [],
    }  # fmt: skip


def main() -> None:
    """Write the hosts to standard output, or each to a file of a folder."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, metavar="DIR", help="one file a host, in place of JSON lines")
    options = parser.parse_args()
    for document in hosts(options.count, options.seed):
        if options.folder:
            options.folder.mkdir(parents=True, exist_ok=True)
            name = document.pop("host")
            (options.folder / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")
        else:
            sys.stdout.write(json.dumps(document) + "\n")


if __name__ == "__main__":
    main()
