"""Run the commands of the README's first screen for real and put their output there.

`readme.py` shows what would change, `--write` changes README.md. Each `$ ` line between the session
marks is run in one empty folder; paths of this machine become ~/project.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"
SESSION = re.compile(r"(<!-- session -->\n)(.*?)(<!-- /session -->)", re.DOTALL)
COMMANDS = (
    "gpuenv resolve --framework torch --driver 550.54.15 --gpu T4 --python 3.12",
    "gpuenv create --framework jax --device cpu --python 3.12",
)
VOLATILE = (
    (re.compile(r"off by [0-9.e+-]+"), "off by N"),
    (re.compile(r"the worst is \S+ \S+ \S+:"), "the worst is CASE:"),
    (re.compile(r"\d+ packages"), "N packages"),
)


STILL = re.compile(r"(lock|build|verify): .*(, \d+ s|, \d+:\d\d min| left)$")
"""A line that a slow machine adds every ten seconds."""


def session() -> str:
    """The commands and their output, as a terminal of 80 columns shows them."""
    folder = Path(tempfile.mkdtemp(prefix="gpuenv-readme-")) / "project"
    folder.mkdir()
    env = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "SHELL": "/bin/bash"}
    env["PATH"] = f"{sysconfig.get_path('scripts')}{os.pathsep}{env['PATH']}"
    lines = []
    try:
        for command in COMMANDS:
            done = subprocess.run(
                ["bash", "-c", command], cwd=folder, env=env, text=True, check=False,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
            shown = done.stdout.replace(str(folder), "~/project")
            if done.returncode:
                sys.exit(f"{command}\n{shown}\nexit {done.returncode}")
            kept = [
                x for x in shown.splitlines() if not (x.startswith("build: downloading") or STILL.match(x))
            ]
            lines += [f"$ {command}", *kept, ""]
    finally:
        shutil.rmtree(folder.parent)
    return "```console\n" + "\n".join(lines).rstrip() + "\n```\n"


def masked(text: str) -> str:
    """A session without what differs from run to run and is no claim: errors and counts."""
    words = " ".join(text.split())
    for pattern, instead in VOLATILE:
        words = pattern.sub(instead, words)
    return words


def main() -> None:
    """Show the difference, or write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    old = README.read_text(encoding="utf-8")
    fresh = session()
    new = SESSION.sub(lambda m: m.group(1) + fresh + m.group(3), old)
    sys.stdout.writelines(
        difflib.unified_diff(old.splitlines(True), new.splitlines(True), "README.md", "now")
    )
    if options.write:
        README.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
