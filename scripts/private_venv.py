"""Make a private venv with this checkout in it: `private_venv.py FOLDER [--group dev]`.

Without a group it installs exactly the packages of `release/*.txt`, with hashes. It needs only Python's own
venv module. If the system packages that separately, the message names the package to install.
"""

from __future__ import annotations

import signal

HEEDS_INTERRUPTS = signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
if HEEDS_INTERRUPTS:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends this script without a traceback

# ruff: noqa: E402  # imports take most of the time before the first child
import argparse
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parent.parent
OLDEST = (3, 10)


def main() -> None:
    """Make the venv. Exit with 1 and a message if something is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--group", help="a dependency group of pyproject.toml to install as well")
    options = parser.parse_args()
    complain_about_python()
    folder = options.folder.absolute()
    if code := run([sys.executable, "-m", "venv", "--clear", str(folder)], None):
        sys.exit(code)
    python = folder / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if options.group is None:
        # What a release is built and runs with, by hash: nothing else gets onto a user's machine.
        hashed = [
            x for name in ("requirements", "build") for x in ("-r", str(ROOT / "release" / f"{name}.txt"))
        ]
        run_quietly([*pip, "--require-hashes", "--only-binary", ":all:", *hashed])
        run_quietly([*pip, "--no-deps", "--no-build-isolation", "-e", str(ROOT)])
    else:
        # gpuenv's own installer installs gpuenv: once pip has brought it, it is ten times as fast.
        run_quietly([*pip, "uv"])
        group = f"{ROOT / 'pyproject.toml'}:{options.group}"
        argv = [str(python), "-m", "uv", "pip", "install", "--quiet", "--python", str(python)]
        run_quietly([*argv, "-e", str(ROOT), "--group", group, "--compile-bytecode"])
    # Where PYTHONDONTWRITEBYTECODE is set, as in many images, each start would compile all of it anew.
    run_quietly([str(python), "-m", "compileall", "-q", str(ROOT / "provision")])


def complain_about_python() -> None:
    """Exit with a helpful message if this Python cannot make a venv."""
    if sys.version_info < OLDEST:
        sys.exit(f"gpuenv needs Python 3.10 or newer; {sys.executable} is {sys.version.split()[0]}")
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
        sys.exit(
            f"{sys.executable} has no venv module. On Debian and Ubuntu: apt-get install {package}"
            " (or python3-venv)"
        )


def run_quietly(argv: list[str]) -> None:
    """Run a step. On failure print its output and exit with its code."""
    env = {k: v for k, v in os.environ.items() if k != "VIRTUAL_ENV"}
    if mirror := configured_index():
        env.setdefault("UV_DEFAULT_INDEX", mirror)
    if code := run(argv, env):
        sys.exit(f"failed ({code}): {' '.join(argv)}")


def run(argv: list[str], env: dict[str, str] | None) -> int:
    """Run a program and return its exit code. Ctrl-C does not reach it, but ends it and this script: Python's venv and pip
    would print tracebacks."""
    child = subprocess.Popen(argv, env=env, start_new_session=True)

    def stop(number: int, _frame: FrameType | None) -> None:
        os.killpg(child.pid, signal.SIGTERM)
        os.write(2, b"interrupted\n")
        os._exit(128 + number)

    if HEEDS_INTERRUPTS:
        signal.signal(signal.SIGINT, stop)
    return child.wait()


def configured_index() -> str:
    """Return the index that pip is configured with, or "" for its default."""
    command = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return os.environ.get("PIP_INDEX_URL") or (done.stdout.strip() if done.returncode == 0 else "")


if __name__ == "__main__":
    main()
