"""What the fault scripts share: `gpuenv` in a folder of its own beside a small index, and what is there.

Every script beside this one is run by `make faults`, says in its first lines what it does, takes
`--help`, is bounded in time, prints a line for each case and ends with exit code 1 if one failed.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from command import Command, Ran
from environment_facts import own
from loopback import Index, serving

__all__ = ["ASK", "HERE", "Command", "Ground", "Ran", "Report", "differences", "ground", "own", "parser_of",
           "tree"]  # fmt: skip
HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
ASK = ("--framework", "jax", "--device", "cpu", "--python", HERE)
"""The plan with the fewest wheels: jax, jaxlib and pip."""


class Ground:
    """`gpuenv` with an index that holds all that ASK needs, in a folder that is removed afterwards."""

    def __init__(self, folder: Path, index: Index) -> None:
        self.gpuenv, self.index = Command(folder), index
        self.gpuenv.env |= {"PIP_INDEX_URL": index.url, "UV_HTTP_TIMEOUT": "4", "PIP_TIMEOUT": "4"}
        self.folder, self.work = folder, self.gpuenv.work
        self.plan = self.gpuenv("resolve", "--json", *ASK).json
        index.add_plan(self.plan)

    def cold(self) -> None:
        """Forget what the installer and gpuenv have in their caches."""
        for name in ("uv-cache", "cache"):
            shutil.rmtree(self.folder / name, ignore_errors=True)


@contextlib.contextmanager
def ground() -> Iterator[Ground]:
    """A Ground and its running index."""
    folder = Path(tempfile.mkdtemp(prefix="gpuenv-faults-"))
    try:
        with serving(Index()) as index:
            yield Ground(folder, index)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def tree(path: Path, *, times: bool = False) -> dict[str, str]:
    """What a folder holds: kind, mode and content of every file by its path; links are not followed."""
    found: dict[str, str] = {}
    for folder, names, files in os.walk(path):
        for name in [*names, *files]:
            one = Path(folder) / name
            told = one.lstat()
            if stat.S_ISLNK(told.st_mode):
                content = str(one.readlink())
            elif stat.S_ISREG(told.st_mode):
                content = hashlib.sha256(one.read_bytes()).hexdigest()
            else:
                content = ""
            when = f" {told.st_mtime_ns}" if times else ""
            found[str(one.relative_to(path))] = f"{told.st_mode:o} {content}{when}"
    return found


def differences(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """The paths that came, went or changed."""
    return sorted(p for p in before.keys() | after.keys() if before.get(p) != after.get(p))


def parser_of(text: str | None) -> argparse.ArgumentParser:
    """A parser whose help is the first lines of a script."""
    return argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)


class Report:
    """Prints a line for each case and counts those that failed."""

    def __init__(self) -> None:
        self.cases, self.failed, self.began = 0, 0, time.monotonic()

    def case(self, name: str, wrong: str | None, told: str = "") -> None:
        self.cases += 1
        self.failed += bool(wrong)
        print(f"{'FAIL' if wrong else 'ok  '} {name:32} {f'{wrong}: ' if wrong else ''}{told}", flush=True)

    def end(self, what: str) -> int:
        seconds = time.monotonic() - self.began
        print(f"{what}: {self.cases} cases, {self.failed} failed, {seconds:.0f} s", flush=True)
        return 1 if self.failed else 0
