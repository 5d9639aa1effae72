"""The command `gpuenv`. `--version` is answered before anything heavy is imported."""

from __future__ import annotations

import sys

from . import __version__


def main() -> None:
    """Run the command line and exit with its code."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        sys.stdout.write(f"gpuenv {__version__}\n")
        return
    import signal

    try:
        from .cli import run

        code = run(sys.argv[1:])
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run is over: a second interrupt changes nothing
    except KeyboardInterrupt:  # before `run` could hold it, or once more while it was ending
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.stderr.write("interrupted\n")
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
