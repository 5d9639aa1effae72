"""The command `gpuenv`. `--version` is answered before anything heavy is imported."""

# Only modules that Python has loaded at its start: a folder on PYTHONPATH could hold one of another name, such as
# `signal` or `__future__`.

import gc
import os
import sys

_OPTIONS = {
    "PYTHONDONTWRITEBYTECODE": "-B",
    "PYTHONNOUSERSITE": "-s",
    "PYTHONPYCACHEPREFIX": "-Xpycache_prefix={}",
    "PYTHONUTF8": "-Xutf8={}",
    **({"PYTHONSAFEPATH": "-P"} if sys.version_info >= (3, 11) else {}),
}
"""The options of Python that replace the variables which `-E` makes it ignore."""


def main() -> None:
    """Run the command line and exit with its code."""
    _ignore_pythonpath()
    import signal

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    # A run keeps most of what it makes, so collections find little. They took 5 % of `gpuenv lock`.
    gc.set_threshold(200_000, 20, 20)
    from .system import standard_streams

    standard_streams.guard()
    try:
        if sys.argv[1:2] in (["--version"], ["-V"], ["version"]):
            from . import __version__

            sys.stdout.write(f"gpuenv {__version__}\n")
            code = 0
        else:
            from .cli import run

            code = run(sys.argv[1:])
            signal.signal(
                signal.SIGINT, signal.SIG_IGN
            )  # the run is over: a second interrupt changes nothing
    except ModuleNotFoundError as error:
        sys.stderr.write(
            f"error: gpuenv requires the module {error.name}, which is missing in {sys.prefix}\n"
            f"hint: {'unset PYTHONHOME' if os.environ.get('PYTHONHOME') else 'reinstall gpuenv'}\n"
        )
        code = 7
    except KeyboardInterrupt:  # before `run` could hold it, or once more while it was ending
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.stderr.write("interrupted\n")
        code = 130
    code = standard_streams.finish(code)
    gc.freeze()  # the last collection of Python would visit every module, and free what the system frees at once
    sys.exit(code)


def _leave(number: int, _frame: object) -> None:
    """End at once with the code of an interrupt: nothing was begun before the command line has its own handler."""
    os.write(2, b"interrupted\n")
    os._exit(128 + number)


def _ignore_pythonpath() -> None:
    """Start this program again with `-E` where PYTHONPATH is set. Its modules are meant for the environment, and
    one named `typing` or an old `packaging` would break gpuenv. Child processes still get the variable."""
    if not _applies_pythonpath():
        return
    options = [option.format(value) for name, option in _OPTIONS.items() if (value := os.environ.get(name))]
    try:
        os.execv(sys.executable, [sys.executable, "-E", *options, *sys.orig_argv[1:]])
    except OSError as error:
        if sys.stderr:
            sys.stderr.write(
                f"note: cannot restart {sys.executable} without PYTHONPATH: {error.strerror}. gpuenv imports modules from PYTHONPATH\n"
            )


def _applies_pythonpath() -> bool:
    """Return whether Python searches PYTHONPATH for gpuenv's own imports, and could do without."""
    folders = os.environ.get("PYTHONPATH")
    if not folders or sys.flags.ignore_environment or os.name != "posix":
        return False
    if not sys.executable or os.environ.get("PYTHONHOME"):
        return False  # without PYTHONHOME this Python might not find its own library
    if sys.argv[0] in ("", "-") or sys.orig_argv[len(sys.orig_argv) - len(sys.argv) + 1 :] != sys.argv[1:]:
        return False  # called by a program with arguments of its own
    installed = os.path.realpath(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return all(os.path.realpath(folder) != installed for folder in folders.split(os.pathsep))


if __name__ == "__main__":
    main()
