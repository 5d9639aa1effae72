"""`gpuenv run`: run a command in an environment, and explain its failure."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from .. import detect
from ..config import options as where, rows
from ..config.env import choose_env_to_read
from ..config.options import Choices
from ..config.project import find_project_env, locate_project_file
from ..environment import interrupted
from ..errors import BuildError, UsageError
from ..model import Emit, Event, Finding, RunResult, drop_event
from ..model.declare import argument, group, option
from ..system import process, trust
from ..system.process import foreground
from . import find_unsearched_tensorflow_folders

if TYPE_CHECKING:
    from ..diagnose import Ran
    from ..verify.settings import Suspect

_GROWTH = {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
_NOT_FAILURES = ("SIGINT", "SIGPIPE", "SIGTERM", "SIGHUP", "SIGQUIT")
"""A program that was told to stop, or whose reader went away, has nothing to be diagnosed."""
_LIBRARY_FOLDERS = (
    "lib/python3*/site-packages/nvidia/*/lib",
    "lib/python3*/site-packages/torch/lib",
    "lib",
)
_FAMILIES = ("libcudnn", "libcublas", "libcudart", "libnvrtc", "libnvJitLink", "libcusparse", "libcusolver",
             "libcufft", "libcurand", "libnccl", "libcupti")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of `run`. With `stdout_to_stderr` the command writes everything to standard error.

    With `diagnose` a failure is explained.
    """

    env: Path | None = argument(
        None, help="Path of the environment.  [default: .venv]", complete="environments"
    )
    keep_env: bool = option(False, help="Do not change LD_LIBRARY_PATH, LD_PRELOAD and PYTHONFAULTHANDLER.")
    exec_: bool = option(
        False, "--exec", help="Replace the gpuenv process with CMD. A failure of CMD is not diagnosed."
    )
    memory_growth: bool = option(False, help="Let TensorFlow and JAX allocate GPU memory as needed.")
    choices: Choices = group(Choices, "profiles", "cache_dir", "trust_project")
    command: list[str] = field(default_factory=list)
    stdout_to_stderr: bool = False
    diagnose: bool = True

    @property
    def takes_stdout(self) -> bool:
        """Whether the command uses standard output."""
        return not self.stdout_to_stderr


def run(options: RunOptions, emit: Emit = drop_event) -> RunResult:
    """Run a command in an environment to its end. With `exec_` this process becomes the command."""
    command = options.command
    if not command:
        raise UsageError("no program given", hint="gpuenv run python train.py")
    if options.exec_ and options.stdout_to_stderr:
        raise UsageError(
            "--json and --exec cannot be used together",
            hint="remove --exec. With --exec, CMD replaces the gpuenv process, so gpuenv cannot print JSON",
        )
    env = choose_env_to_read(emit, options.env)
    interrupted.roll_back_interrupted(emit, where.make_absolute(env))
    root, programs = find_programs(env)
    inherited = process.environ()
    trust.settle_home()  # for gpuenv only: the program gets the variables of the user
    environ = prepare_variables(emit, root, programs, inherited, options.choices, keep=options.keep_env)
    if options.memory_growth:
        environ |= _GROWTH
    explains = options.diagnose and not options.exec_
    if explains and not options.keep_env:
        environ.setdefault("PYTHONFAULTHANDLER", "1")  # a crash of Python then prints a traceback
    before = foreground.oom_kills()
    ended = _run_to_end(options, environ, emit)
    if isinstance(ended, int):
        return RunResult(env=str(root), command=tuple(command), code=ended)
    findings: tuple[Finding, ...] = ()
    if ended.returncode != 0 and ended.signal not in _NOT_FAILURES and explains:
        from .program_evidence import describe_exit

        findings = explain_failure(
            command[0], ended, options.choices, root, describe_exit(root, command, ended, before)
        )
    code = ended.returncode if ended.returncode >= 0 else 128 - ended.returncode
    return RunResult(env=str(root), command=tuple(command), code=code, signal=ended.signal, findings=findings)


def _run_to_end(options: RunOptions, environ: dict[str, str], emit: Emit) -> process.ForegroundResult | int:
    """Run the command, and return its result, or the exit code of a shell if it cannot be started."""
    command = options.command
    stdout = sys.stderr.fileno() if options.stdout_to_stderr else None
    try:
        if options.exec_:
            process.replace(command, environ)
        return process.attend(command, environ, stdout=stdout)
    except OSError as error:
        text = f"gpuenv: {command[0]}: {error.strerror}{_python_hint(command)}"
        emit(Event(kind="log", stage="run", text=text))
        return 127 if isinstance(error, FileNotFoundError) else 126


def _python_hint(command: Sequence[str]) -> str:
    """Return a line with the command that runs a Python file; "" for any other program."""
    if not command[0].endswith(".py") or not Path(command[0]).is_file():
        return ""
    return f"\nhint: gpuenv run python {shlex.join(command)}"


def find_programs(env: Path) -> tuple[Path, Path]:
    """Return the environment's root and its folder of programs.

    Raises UsageError if it has no Python, and UntrustedError for root if another user can change it.
    """
    path = where.make_absolute(env)
    names = ("bin/python", "bin/python.exe", "Scripts/python", "Scripts/python.exe")
    python = path if path.is_file() else next((path / n for n in names if (path / n).exists()), None)
    if python:
        trust.may_start(python, named=True)
        return python.parent.parent, python.parent
    of_project = env == find_project_env() and locate_project_file() is not None
    hint = "build it: gpuenv create" if of_project else f"build it: gpuenv create {env} --framework torch"
    if path.exists():
        hint = "give the folder of an environment or its Python"
    if env.name == str(env) and not path.exists() and shutil.which(str(env)):
        hint += f"; to run the program {env} in the project's environment: gpuenv run -- {env}"
    from ..environment.place import describe_missing_python  # only needed for a wrong path

    raise UsageError(describe_missing_python(path), hint=hint)


# Six parameters: the environment's two folders, the variables to change, and how.
def prepare_variables(
    emit: Emit, root: Path, programs: Path, inherited: Mapping[str, str], choices: Choices, *, keep: bool = False
) -> dict[str, str]:  # fmt: skip
    """Return the variables for a program in the environment. With `keep` those of the loader are unchanged."""
    environ, removed = list_inside_folders(root, programs, inherited, keep=keep)
    for suspect in removed:
        text = f"removing {suspect.named} from the variables, because it would override the libraries of the environment (use --keep-env to keep it)"
        emit(Event(kind="note", stage="run", text=text))
    if (root / "conda-meta").is_dir():
        environ = activate_variables(emit, root, environ)
    if not keep:
        add_tensorflow_folders(emit, root, environ, choices)
    return environ


def list_inside_folders(
    root: Path, bin_folder: Path, environ: Mapping[str, str], *, keep: bool
) -> tuple[dict[str, str], list[Suspect]]:
    """Return the variables as after activation, and the loader's entries that were removed.

    Removed are entries that would load another copy of a library of the environment.
    """
    from ..verify import settings  # imported late, so that the command line starts fast

    removed = [] if keep else _shadowing(root, environ)
    inner = settings.remove_suspects(environ, removed)
    inner["PATH"] = os.pathsep.join(p for p in (str(bin_folder), environ.get("PATH", "")) if p)
    inner.pop("PYTHONHOME", None)
    if (root / "conda-meta").is_dir():
        inner["CONDA_PREFIX"] = inner["CONDA_DEFAULT_ENV"] = str(root)
    else:
        inner["VIRTUAL_ENV"] = str(root)
    return inner, removed


def activate_variables(emit: Emit, root: Path, environ: dict[str, str]) -> dict[str, str]:
    """Return the variables that the activation scripts of conda packages set, or `environ` if a script fails."""
    from ..conda import activation as conda_scripts

    try:
        return conda_scripts.activate(root, environ)
    except BuildError as error:
        emit(Event(kind="log", stage="run", text=f"note: {error.message}; its variables are not set"))
        return environ


def add_tensorflow_folders(emit: Emit, root: Path, environ: dict[str, str], choices: Choices) -> None:
    """Add the folders that TensorFlow needs and does not search to LD_LIBRARY_PATH, and note it."""
    if not sys.platform.startswith("linux"):
        return
    version, missing = find_unsearched_tensorflow_folders.find_folders(
        root, environ, lambda: rows.load_all(choices)
    )
    if missing:
        entries = [*map(str, missing), environ.get("LD_LIBRARY_PATH", "")]
        environ["LD_LIBRARY_PATH"] = ":".join(e for e in entries if e)
        names = ", ".join(f.parent.name for f in missing)
        text = (
            f"adding nvidia/*/lib of {names} to LD_LIBRARY_PATH, because TensorFlow {version} does not search "
            "there (use --keep-env to prevent this)"
        )
        emit(Event(kind="note", stage="run", text=text))


def _shadowing(root: Path, environ: Mapping[str, str]) -> list[Suspect]:
    from ..verify import settings

    brought = [
        str(file)
        for pattern in _LIBRARY_FOLDERS
        for folder in root.glob(pattern)
        for file in folder.iterdir()
        if file.name.startswith(_FAMILIES) and ".so" in file.name
    ]
    families = {Path(p).name.split(".so")[0] for p in brought}
    suspects = settings.list_suspects(environ, brought, None, None)
    return [
        s for s in suspects
        if (s.variable == "LD_LIBRARY_PATH" and not Path(s.part or ".").resolve().is_relative_to(root.resolve()))
        or (s.variable == "LD_PRELOAD" and Path(s.part).name.split(".so")[0] in families)
    ]  # fmt: skip


def explain_failure(
    name: str, ended: process.ForegroundResult, choices: Choices, root: Path, how: Ran
) -> tuple[Finding, ...]:
    """Diagnose the last output of a program with this machine's facts. `how` describes how it ended."""
    from .diagnose import find_causes
    from .diagnosed_environment import read_device

    known = rows.load_all(choices)
    text = [(name, [ended.stderr])]
    device = read_device(root)
    findings = find_causes(text, known, None, device=device, ran=how)
    if findings:
        holders = device != "cpu"
        here = detect.detect(detect.WITH_CUDA if holders else detect.PARTS)
        findings = find_causes(text, known, here, here=True, device=device, holders=holders, ran=how)
    return findings
