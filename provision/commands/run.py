"""`gpuenv run`: a command in an environment, and the cause where it fails."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import UsageError
from ..model import Emit, Event, Finding, Run, drop_event
from ..model.option import argument, group, option
from ..request.options import Choices


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of `run`. With `stdout_to_stderr` the command writes everything to standard error. `diagnose`: find
    the cause where it fails."""

    env: Path = argument(Path(".venv"), help="Path of the environment.", complete="environments")
    keep_env: bool = option(False, help="Leave LD_LIBRARY_PATH and LD_PRELOAD as they are.")
    exec_: bool = option(
        False, "--exec", help="Become CMD: no process in between, and no diagnosis of a failure."
    )
    memory_growth: bool = option(
        False, help="TensorFlow and JAX take GPU memory as they need it, not nearly all of it at once."
    )
    choices: Choices = group(Choices, "profiles", "cache_dir")
    command: list[str] = field(default_factory=list)
    stdout_to_stderr: bool = False
    diagnose: bool = True

    @property
    def takes_stdout(self) -> bool:
        """Whether standard output is the command's."""
        return not self.stdout_to_stderr


def run(options: RunOptions, emit: Emit = drop_event) -> Run:
    """Run a command in an environment to its end. With `exec_` this process becomes the command."""
    from ..system import process
    from . import recovery, running

    command = options.command
    if not command:
        raise UsageError("no command was named", hint="gpuenv run [ENV] -- python train.py")
    if options.exec_ and options.stdout_to_stderr:
        raise UsageError(
            "--json and --exec contradict each other", hint="with --exec nothing of gpuenv is left to tell"
        )
    recovery.settle(emit, options.env)
    root, programs = running.found_in(options.env)
    given = process.environ()
    process.settle_home()  # gpuenv's own: the program gets its variables as they were
    environ, removed = running.inside(root, programs, given, keep=options.keep_env)
    for suspect in removed:
        text = f"without {suspect.named}: it would shadow the environment's own (--keep-env leaves it)"
        emit(Event(kind="note", stage="run", text=text))
    if (root / "conda-meta").is_dir():
        environ = running.activated(emit, root, environ)
    if not options.keep_env:
        running.add_unsearched(emit, root, environ, options.choices)
    if options.memory_growth:
        environ |= running.GROWTH
    stdout = sys.stderr.fileno() if options.stdout_to_stderr else None
    try:
        if options.exec_:
            process.replace(command, environ)
        ended = process.attend(command, environ, stdout=stdout)
    except OSError as error:
        emit(Event(kind="log", stage="run", text=f"gpuenv: {command[0]}: {error.strerror}"))
        code = 127 if isinstance(error, FileNotFoundError) else 126
        return Run(env=str(root), command=tuple(command), code=code)
    found: tuple[Finding, ...] = ()
    if ended.returncode != 0 and ended.signal not in running.NOT_FAILURES and options.diagnose:
        found = running.explained(command[0], ended, options.choices, root)
    code = ended.returncode if ended.returncode >= 0 else 128 - ended.returncode
    return Run(env=str(root), command=tuple(command), code=code, signal=ended.signal, findings=found)
