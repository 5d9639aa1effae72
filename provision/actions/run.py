"""`gpuenv run`: run a command in an environment, and explain its failure."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from ..config.env import choose_env_to_read, find_project_env, locate_project_file
from ..config.options import Choices, make_absolute
from ..environment import guard, place
from ..environment.distributions import find_distribution, find_sites, list_names
from ..errors import BuildError, UsageError
from ..index.config import GUARD_FILE
from ..model import (
    MEMORY_GROWTH,
    Emit,
    Event,
    Evidence,
    Finding,
    RunResult,
    drop_event,
)
from ..model.declare import env_argument, group, option
from ..model.values import Value
from ..system import process, trust
from ..system.process import foreground
from ..system.process.gpu import ContextWatch
from .explain import explain_program

if TYPE_CHECKING:
    from ..verify.settings import Suspect

_SONAME = re.compile(r"lib[A-Za-z0-9_]+\.so\.\d+(\.\d+)?")
_NO_GPU = 8
_NOT_FAILURES = ("SIGINT", "SIGPIPE", "SIGTERM", "SIGHUP", "SIGQUIT")
"""A program that was told to stop, or whose reader went away, has nothing to be diagnosed."""


class RunOptions(Value):
    """The options of `run`. With `stdout_to_stderr` the command writes everything to standard error.

    With `diagnose` a failure is explained.
    """

    env: Path | None = env_argument()
    keep_env: bool = option(False, help="Do not change LD_LIBRARY_PATH, LD_PRELOAD and PYTHONFAULTHANDLER.")
    exec_: bool = option(
        False, "--exec", help="Replace the gpuenv process with CMD. A failure of CMD is not diagnosed."
    )
    require_gpu: bool = option(
        False,
        help="Fail with exit code 8 if CMD ends with 0 and neither it nor its child processes used a GPU.",
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
    if options.exec_ and options.require_gpu:
        raise UsageError("--require-gpu and --exec cannot be used together", hint="remove --exec")
    env = choose_env_to_read(emit, options.env)
    place.roll_back_interrupted(emit, make_absolute(env))
    root, programs = find_programs(env)
    inherited = process.environ()
    trust.choose_home()  # for gpuenv only: the program gets the variables of the user
    environ = prepare_variables(emit, root, programs, inherited, keep=options.keep_env)
    if options.memory_growth:
        environ |= MEMORY_GROWTH.values()
    explains = options.diagnose and not options.exec_
    if explains and not options.keep_env:
        environ.setdefault("PYTHONFAULTHANDLER", "1")  # a crash of Python then prints a traceback
    stdout = sys.stderr.fileno() if options.stdout_to_stderr else None
    before, used = foreground.oom_kills(), None
    watch = ContextWatch() if options.require_gpu else None
    if watch:
        watch.start()
    try:
        if options.exec_:
            process.replace(command, environ)
        ended = foreground.attend(command, environ, stdout=stdout)
    except OSError as error:
        is_missing = isinstance(error, FileNotFoundError)
        text = f"gpuenv: {command[0]}: {'command not found' if is_missing else error.strerror}"
        if command[0].endswith(".py") and Path(command[0]).is_file():
            text += f"\nhint: gpuenv run python {shlex.join(command)}"
        emit(Event("log", "run", text))
        return RunResult(env=str(root), command=tuple(command), code=127 if is_missing else 126)
    finally:
        if watch:
            used = watch.end()
    findings: tuple[Finding, ...] = ()
    if ended.returncode != 0 and ended.signal not in _NOT_FAILURES and explains:
        findings = explain_program(command[0], root, command, ended, before, options.choices, emit=emit)
    code = ended.returncode if ended.returncode >= 0 else 128 - ended.returncode
    if code == 0 and used is False:
        code, findings = _NO_GPU, (_explain_idle_gpu(root, command),)
    return RunResult(env=str(root), command=tuple(command), code=code, signal=ended.signal, findings=findings)


def _explain_idle_gpu(root: Path, command: Sequence[str]) -> Finding:
    """Return the finding on a program that ended well without a GPU."""
    from ..environment.record import read_device
    from ..profiles.wording import make_finding

    device = read_device(root)
    steps = (
        "This environment is for the CPU: on a machine with a GPU, `gpuenv create --recreate --device cuda`"
    )
    if device != "cpu":
        steps = "`gpuenv verify` says whether the environment can use the GPU; if it can, the program chooses the CPU (`--device`, `.to()`)"
    evidence = Evidence(
        "no process mapped /dev/nvidia-uvm, as every program on the GPU does", shlex.join(command)
    )
    return make_finding("program_used_no_gpu", (evidence,), program=command[0], steps=steps)


def find_programs(env: Path) -> tuple[Path, Path]:
    """Return the environment's root and its folder of programs.

    Raises UsageError if it has no Python, and UntrustedError for root if another user can change it.
    """
    path = make_absolute(env)
    if python := path if path.is_file() else place.find_python(path):
        trust.may_start(python, named=True)
        return python.parent.parent, python.parent
    place.require_python(path)
    of_project = env == find_project_env() and locate_project_file() is not None
    hint = "build it: gpuenv create" if of_project else f"build it: gpuenv create {env} --framework torch"
    if path.exists():
        hint = place.suggest_environment(path)
    if env.name == str(env) and not path.exists() and shutil.which(str(env)):
        hint += f"; to run the program {env} in the project's environment: gpuenv run -- {env}"
    raise UsageError(place.describe_missing_python(path), hint=hint)


def prepare_variables(
    emit: Emit, root: Path, programs: Path, inherited: Mapping[str, str], *, keep: bool = False
) -> dict[str, str]:
    """Return the variables for a program in the environment, as after activation.

    Entries of the loader that would load another copy of a library of the environment are removed, and the folders that
    TensorFlow needs and does not search are added. With `keep` those of the loader are unchanged.
    """
    from ..verify import settings  # imported late, so that the command line starts fast

    removed = [] if keep else _find_shadowing(root, inherited)
    for suspect in removed:
        text = f"removing {suspect.named} from the variables, because it would override the libraries of the environment (use --keep-env to keep it)"
        emit(Event("note", "run", text))
    environ = settings.remove_suspects(inherited, removed)
    environ["PATH"] = os.pathsep.join(p for p in (str(programs), inherited.get("PATH", "")) if p)
    environ.pop("PYTHONHOME", None)
    if address := guard.read_address(root):
        others = [w for w in environ.get("UV_CONSTRAINT", "").split() if not w.endswith(f"/{GUARD_FILE}")]
        environ["UV_CONSTRAINT"] = " ".join([*others, address])
    if (root / "conda-meta").is_dir():
        from ..conda.activation import activate

        environ["CONDA_PREFIX"] = environ["CONDA_DEFAULT_ENV"] = str(root)
        try:
            environ = activate(root, environ)
        except BuildError as error:
            emit(Event("log", "run", f"note: {error.message}; its variables are not set"))
    else:
        environ["VIRTUAL_ENV"] = str(root)
    if keep or not sys.platform.startswith("linux"):
        return environ
    version, missing = find_folders(root, environ)
    if missing:
        entries = [*map(str, missing), environ.get("LD_LIBRARY_PATH", "")]
        environ["LD_LIBRARY_PATH"] = ":".join(e for e in entries if e)
        names = ", ".join(f.parent.name for f in missing)
        text = (
            f"adding nvidia/*/lib of {names} to LD_LIBRARY_PATH, because TensorFlow {version} does not search "
            "there (use --keep-env to prevent this)"
        )
        emit(Event("note", "run", text))
    return environ


def _find_shadowing(root: Path, environ: Mapping[str, str]) -> list[Suspect]:
    from ..verify import settings
    from ..verify.libraries import list_folders, name_nvidia_wheel

    brought = [
        str(folder / name)
        for folder in list_folders(find_sites(root), root)
        for name in list_names(folder)
        if ".so" in name and name_nvidia_wheel(name)
    ]
    families = {Path(p).name.split(".so")[0] for p in brought}
    suspects = settings.list_suspects(environ, brought, None, None)
    return [
        s for s in suspects
        if (s.variable == "LD_LIBRARY_PATH" and not Path(s.part or ".").resolve().is_relative_to(root.resolve()))
        or (s.variable == "LD_PRELOAD" and Path(s.part).name.split(".so")[0] in families)
    ]  # fmt: skip


def find_folders(root: Path, environ: Mapping[str, str]) -> tuple[str, tuple[Path, ...]]:
    """Return TensorFlow's version, and the folders that LD_LIBRARY_PATH must include.

    There are none without TensorFlow, with the system's libraries, or if TensorFlow finds everything.
    """
    for site in (p for name in ("site", "dist") for p in sorted(root.glob(f"lib/python3*/{name}-packages"))):
        tensorflow = find_distribution([site], "tensorflow")
        wheels = sorted(p for p in (site / "nvidia").glob("*/lib") if p.is_dir())
        library = site / "tensorflow" / "libtensorflow_framework.so.2"
        if tensorflow is None or not wheels or not library.is_file():
            continue  # without this library it is not the wheel of the index
        from ..resolve.pip import OPENED_BY_TENSORFLOW  # most environments are without TensorFlow
        from ..system.kernels import read_nvidia_folders

        with library.open("rb") as stream:
            searched = read_nvidia_folders(stream)
        there = {Path(entry).resolve() for entry in environ.get("LD_LIBRARY_PATH", "").split(":") if entry}
        found_libraries = {name for w in wheels if w.parent.name in searched for name in _list_libraries(w)}
        return tensorflow.version, tuple(
            w for w in wheels
            if w.parent.name not in searched
            and (not searched or w.parent.name in OPENED_BY_TENSORFLOW)
            and _list_libraries(w) - found_libraries
            and w.resolve() not in there
        )  # fmt: skip
    return "", ()


def _list_libraries(folder: Path) -> set[str]:
    return {p.name for p in folder.iterdir() if _SONAME.fullmatch(p.name)}
