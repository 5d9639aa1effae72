"""The command `gpuenv`. `--version` is answered before anything heavy is imported."""

from __future__ import annotations

import sys

from . import __version__


def main() -> None:
    """Run the command line and exit with its code."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        sys.stdout.write(f"gpuenv {__version__}\n")
        return
    from .cli import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
