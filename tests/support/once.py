"""What is made once for all workers of a run of the tests."""

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

_VARIABLE = "GPUENV_TESTS_RUN"


def run_folder() -> Path:
    """The folder of this run. The first process makes it, for those that it starts, and removes it at its end."""
    if _VARIABLE not in os.environ:
        os.environ[_VARIABLE] = tempfile.mkdtemp(prefix="gpuenv-tests-")
        atexit.register(shutil.rmtree, os.environ[_VARIABLE], ignore_errors=True)
    return Path(os.environ[_VARIABLE])


def once(name: str, make: Callable[[Path], object]) -> Path:
    """The folder that `make` fills, in whichever worker asks first. Nobody may change it."""
    path = run_folder() / name
    done = path.with_name(f"{name}.done")
    with FileLock(path.with_name(f"{name}.lock")):
        if not done.exists():
            make(path)
            done.touch()
    return path
