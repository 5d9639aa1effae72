"""Programs that a test starts, and what they print."""

import subprocess


def run_program(argv, *, check=False, **more):
    """Run a program and return how it ended, with its output as text."""
    return subprocess.run(argv, check=check, capture_output=True, encoding="utf-8", **more)
