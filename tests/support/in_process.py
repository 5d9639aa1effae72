"""`gpuenv` in the process of the tests: what one run leaves is taken back before the next begins.

It saves the start of a process and what runs have in common: their modules and the parsed profiles. `serves` says
which runs need a process of their own.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace

from fork_server import at_start, prepare

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
_OWN_PROCESS = {"run", "version"}
"""The commands that need one: `run` gives its streams and signals to a program, and `version` is answered by the start."""
_SAME_IN_ALL_RUNS = (
    "provision.profiles", "provision.config.rows", "provision.resolve", "provision.diagnose", "provision.model",
    "provision.index.http", "provision.index.simple_api", "provision.index.wheel_names", "provision.lock.compile",
    "provision.lock.pages", "provision.requirements.lines", "provision.system.versions", "urllib",
)  # fmt: skip
"""The modules whose caches have the content of what was read, or its digest, as their keys, or all that decides."""


def serves(args: list[str], env: dict[str, str], usual: dict[str, str]) -> bool:
    """Return whether a run can be a call. `usual` are the variables of a run that sets none."""
    words = [a for a in args if not a.startswith("-")]
    return (
        sys.platform == "linux"
        and threading.current_thread() is threading.main_thread()
        and not _OWN_PROCESS & {*words[:1]}
        and at_start(env) == at_start(usual)
    )


@functools.cache
def _caches() -> list:
    """Return the functions of gpuenv that remember results."""
    prepare()
    modules = [m for name, m in sys.modules.items() if name.startswith("provision.")]
    found = {id(v): v for m in modules for v in vars(m).values() if hasattr(v, "cache_clear")}
    return [v for v in found.values() if not v.__module__.startswith(_SAME_IN_ALL_RUNS)]


@functools.cache
def _prepare_once(prepare_command):
    """Making of the typer command of a name, which takes 4 ms of each run."""
    return functools.cache(prepare_command)


@functools.cache
def _resolve_once(resolve):
    """`resolve` that answers a question on gpuenv's own rows once. It takes a fifth of the time of a `lock`."""
    from provision.config import rows

    known = functools.cache(lambda request, target, *more: resolve(request, target, rows._read[()], *more))

    def answer(request, target, profiles, *more):
        if profiles is rows._read[()]:
            return known(request, target, *more[:1], *map(tuple, more[1:2]), *more[2:])
        return resolve(request, target, profiles, *more)

    return answer


def _write_once(wheels, made=[]):  # noqa: B006  # kept on purpose
    """Writing of a wheel that compresses the same files once: gpuenv's own, of which each export tells the hash."""
    real = wheels.write

    def write(folder: Path, name: str, contents, info: str) -> str:
        if made and made[0] == (name, contents):
            with wheels.writing(folder):
                wheels.write_file(folder / name, made[1], root=folder.parent)
            return name
        real(folder, name, contents, info)
        made[:] = (name, contents), (folder / name).read_bytes()
        return name

    return write


def read_once():
    """Let gpuenv's own rows be parsed once; with rows of a test beside them each run would parse all."""
    from provision import profiles
    from provision.actions import profiles as command

    real, shipped, read = profiles.read_file, profiles.directory(), {}

    def read_file(path: Path):
        if path.parent != shipped:
            return real(path)
        at = path.stat()
        key = (path, at.st_mtime_ns, at.st_size)
        if key not in read:
            read[key] = real(path)
        return read[key]

    profiles.read_file = command.read_file = read_file


def run(args: list[str], env: dict[str, str], cwd: Path, stdin: str = "") -> SimpleNamespace:
    """Run `gpuenv` and return its exit code and what it wrote, as `subprocess.run` does."""
    from provision import __file__ as package, resolve
    from provision.bundle import wheels
    from provision.cli import run as run_command_line, typer_app
    from provision.config import rows
    from provision.system import grants, process, trust

    caches = _caches()  # without those that are put in below, which last
    with contextlib.ExitStack() as after, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        after.enter_context(_streams(stdin, out, err))
        after.enter_context(_environment(env, cwd))
        for number in _SIGNALS:
            after.callback(signal.signal, number, signal.getsignal(number))
        after.callback(setattr, sys, "unraisablehook", sys.unraisablehook)
        after.callback(setattr, sys, "argv", sys.argv)
        after.callback(setattr, process, "adopt_orphans", process.adopt_orphans)
        for name in ("accepts_project", "report"):
            after.callback(setattr, trust._Session, name, vars(trust._Session)[name])
        trust._Session.noted.clear()  # what a test of this process was told
        after.callback(trust._Session.noted.clear)
        for known in (grants._own_origins, grants._granted, grants._starts, grants._logins):
            after.callback(known.clear)  # a process has one user, whose own indexes do not change
        after.callback(setattr, wheels, "write", wheels.write)
        after.callback(setattr, typer_app, "_prepare_command", typer_app._prepare_command)
        after.callback(setattr, resolve, "resolve", resolve.resolve)
        wheels.write = _write_once(wheels)
        resolve.resolve = _resolve_once(resolve.resolve)
        typer_app._prepare_command = _prepare_once(typer_app._prepare_command)
        process.adopt_orphans = lambda: None  # other children of this process are not gpuenv's
        sys.argv = [package, *args]
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for cache in caches:
            cache.cache_clear()
        for key in [key for key in rows._read if key][:-1]:  # rows of tests before
            del rows._read[key]
        try:
            code = run_command_line(args)
        except SystemExit as error:
            code = error.code or 0
        sys.stdout.flush()
        sys.stderr.flush()
        return SimpleNamespace(returncode=code, stdout=_text(out), stderr=_text(err))


def _text(file) -> str:
    file.seek(0)
    return file.read().decode().replace("\r\n", "\n").replace("\r", "\n")


@contextlib.contextmanager
def _environment(env, cwd):
    """The variables and the folder of a run."""
    before, folder = dict(os.environ), Path.cwd()
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    temporary, tempfile.tempdir = tempfile.tempdir, None
    try:
        yield
    finally:
        tempfile.tempdir = temporary
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def _streams(text, out, err):
    """The standard streams of this process, for Python and for the programs that it starts: `text` is there to be read."""
    sys.stdout.flush()
    sys.stderr.flush()
    streams, kept = (sys.stdin, sys.stdout, sys.stderr), [os.dup(number) for number in range(3)]
    with tempfile.TemporaryFile() if text else Path(os.devnull).open("rb") as given:
        if text:
            given.write(text.encode())
            given.seek(0)
        for number, file in enumerate((given, out, err)):
            os.dup2(file.fileno(), number)
    with contextlib.ExitStack() as closing:
        sys.stdin = closing.enter_context(open(0, encoding="utf-8", closefd=False))
        sys.stdout = closing.enter_context(
            open(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)
        )
        sys.stderr = closing.enter_context(
            open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
        )
        try:
            yield
        finally:
            sys.stdin, sys.stdout, sys.stderr = streams
            closing.close()
            for number, end in enumerate(kept):
                os.dup2(end, number)
                os.close(end)
