"""Run the sessions of README.md and docs/ again, and update their output in the pages: `sessions.py
[--write]`.

A session is a console block between `<!-- session -->` and `<!-- /session -->`. Its lines that begin with `$
` run in one empty folder. Paths of this machine become ~/project.
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

ROOT = Path(__file__).resolve().parent.parent
SESSION = re.compile(r"(<!-- session -->\n)(.*?)(<!-- /session -->)", re.DOTALL)
VOLATILE = (
    (re.compile(r"largest error [0-9.e+-]+ \(limit [0-9.e+-]+\)"), "largest error N (limit N)"),
    (re.compile(r"\d+ packages"), "N packages"),
)
STILL = re.compile(r"(lock|build|verify): .*(, \d+ s|, \d+:\d\d min| left)$")
"""A line that a slow machine adds every ten seconds."""


def pages() -> list[Path]:
    """Return the pages that have a session."""
    every = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in every if SESSION.search(page.read_text(encoding="utf-8"))]


def rerun(written: str) -> str:
    """Run the commands of a session, and return it with their output as a terminal of 80 columns shows it."""
    folder = Path(tempfile.mkdtemp(prefix="gpuenv-session-")) / "project"
    folder.mkdir()
    env = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "SHELL": "/bin/bash"}
    env["PATH"] = f"{sysconfig.get_path('scripts')}{os.pathsep}{env['PATH']}"
    lines = []
    try:
        for command in re.findall(r"^\$ (.+)$", written, re.MULTILINE):
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
    """Return a session without the errors and counts that differ from run to run."""
    words = " ".join(text.split())
    for pattern, instead in VOLATILE:
        words = pattern.sub(instead, words)
    return words


def main() -> None:
    """Print the differences, or write them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    for page in pages():
        old = page.read_text(encoding="utf-8")
        new = SESSION.sub(lambda m: m[1] + rerun(m[2]) + m[3], old)
        name = str(page.relative_to(ROOT))
        sys.stdout.writelines(difflib.unified_diff(old.splitlines(True), new.splitlines(True), name, "now"))
        if options.write:
            page.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
