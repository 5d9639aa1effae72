"""Show which variants the conda solver selects from a snapshot of channels, for each CUDA of a driver.

    python scripts/conda_solves.py FOLDER

FOLDER contains channels by their names (conda-forge/, pytorch/, nvidia/, each with linux-64/ and noarch/).
Each question is a `gpuenv lock` for a driver that supports that CUDA, or for the CPU. conda-lock renders each
lock, and its list must contain exactly the lock's packages. Prints a Markdown table. The exit code is 1 if a
lock cannot be rendered, or a CUDA question got a CPU build or a CUDA above its driver.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from provision import profiles

BIN = Path(sysconfig.get_path("scripts"))
SPOKEN = ("11.8", "12.2", "12.9", "13.0", None)
ASKED = (
    ("torch", ("conda-forge",), ()),
    ("tensorflow", ("conda-forge",), ()),
    ("jax", ("conda-forge",), ()),
    ("torch", ("pytorch", "nvidia", "conda-forge"), ("<2.4",)),
)
COLUMNS = (
    "framework",
    "channels",
    "`__cuda`",
    "build",
    "CUDA",
    "cuDNN",
    "Python",
    "packages",
    "GB",
    "s",
    "render",
)


@dataclass(frozen=True)
class SolveFolders:
    """The folder of the channels, and the folder that this run writes to."""

    channels: Path
    scratch: Path

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """Run a program with its own configuration and cache."""
        folders = {
            "XDG_CONFIG_HOME": str(self.scratch / "config"),
            "RATTLER_CACHE_DIR": str(self.scratch / "cache"),
        }
        kept = {k: v for k, v in os.environ.items() if not k.startswith("CONDA_")}
        return subprocess.run(
            argv, cwd=self.scratch, env=kept | folders, capture_output=True, text=True, check=False
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="a folder of channels")
    folder = parser.parse_args().folder.resolve()
    bad = []
    sys.stdout.write(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}\n")
    with tempfile.TemporaryDirectory(prefix="gpuenv-solves-") as scratch:
        folders = SolveFolders(folder, Path(scratch))
        for framework, channels, bound in ASKED:
            for cuda in SPOKEN:
                cells, wrong = row(folders, framework + "".join(bound), channels, cuda)
                bad += [f"{framework} {cuda}: {wrong}"] if wrong else []
                sys.stdout.write(
                    f"| {' | '.join((framework, ' '.join(channels), cuda or 'none', *cells))} |\n"
                )
                sys.stdout.flush()
    sys.stdout.write("".join(f"wrong: {text}\n" for text in bad))
    return 1 if bad else 0


def row(
    folders: SolveFolders, framework: str, channels: tuple[str, ...], cuda: str | None
) -> tuple[list[str], str]:
    """Return the cells of one question, and the fault of its answer or ""."""
    lock = folders.scratch / "conda-lock.yml"
    lock.unlink(missing_ok=True)
    named = [word for name in channels for word in ("--channel", str(folders.channels / name))]
    target = ["--driver", speaking(cuda)] if cuda else ["--device", "cpu"]
    options = ["--manager", "conda", "--framework", framework, "--platform", "linux-x86_64", *target, *named]
    began = time.perf_counter()
    done = folders.run(str(BIN / "gpuenv"), "lock", *options, "--json")
    seconds = f"{time.perf_counter() - began:.1f}"
    document = json.loads(done.stdout)
    if "error" in document:
        error = document["error"]
        words = f"exit {done.returncode}; would help: {error['hint']}"
        return [words, "", "", "", "", "", seconds, ""], ""
    (build,) = document["plan"]["builds"]
    conda = [p for p in document["packages"] if is_conda(p)]
    size = sum(p["size"] or 0 for p in document["packages"]) / 1e9
    rendered, wrong = render(folders, lock, conda)
    wrong = wrong or variant(build, cuda)
    cells = [named_build(build), build["cuda"] or "-", build["cudnn"] or "-", document["plan"]["python"],
             packages(conda, document["packages"]), f"{size:.2f}", seconds, rendered]  # fmt: skip
    return cells, wrong


def speaking(cuda: str) -> str:
    """Return the oldest Linux driver that supports a CUDA release natively."""
    return next(str(r.linux) for r in profiles.load().cuda if r.cuda == cuda)


def is_conda(package: dict[str, Any]) -> bool:
    return str(package["url"]).endswith((".conda", ".tar.bz2"))


def named_build(build: dict[str, Any]) -> str:
    pin = build["requirements"][0]
    return pin if build["index"] != "pypi" else f"{build['framework']} {build['version']} (wheel)"


def packages(conda: list[dict[str, Any]], every: list[dict[str, Any]]) -> str:
    wheels = len(every) - len(conda)
    return f"{len(conda)} + {wheels} wheels" if wheels else str(len(conda))


def render(folders: SolveFolders, lock: Path, conda: list[dict[str, Any]]) -> tuple[str, str]:
    """Return conda-lock's rendering of the lock in words, and how it differs from the lock's packages."""
    done = folders.run(str(BIN / "conda-lock"), "render", "-k", "explicit", "-p", "linux-64", str(lock))
    if done.returncode:
        return "refused", done.stderr.strip().splitlines()[-1]
    text = (folders.scratch / "conda-linux-64.lock").read_text(encoding="utf-8")
    urls = {
        line.partition("#")[0] for line in text.splitlines() if "://" in line and not line.startswith("#")
    }
    missing = {p["url"] for p in conda} ^ urls
    return f"{len(urls)} lines", f"rendered otherwise: {sorted(missing)[:3]}" if missing else ""


def variant(build: dict[str, Any], cuda: str | None) -> str:
    """Return the fault of the selected variant, or ""."""
    if (
        build["index"] == "pypi"
    ):  # a wheel's CUDA runs by minor-version compatibility, its major is what counts
        above = cuda is not None and int(build["cuda"].split(".")[0]) > int(cuda.split(".")[0])
        return f"CUDA {build['cuda']} on a driver of {cuda}" if above else ""
    if bool(build["cuda"]) != bool(cuda):
        return f"{build['requirements'][0]} for {cuda or 'the CPU'}"
    if cuda and tuple(map(int, build["cuda"].split("."))) > tuple(map(int, cuda.split("."))):
        return f"CUDA {build['cuda']} on a driver of {cuda}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
