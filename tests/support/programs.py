"""Programs that a test starts, and what they print."""

import subprocess


def run_program(argv, *, check=False, **more):
    """Run a program and return how it ended, with its output as text. `check` is for one that has to succeed."""
    done = subprocess.run(argv, check=False, capture_output=True, encoding="utf-8", **more)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done
