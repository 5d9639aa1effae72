"""`gpuenv run [ENV] -- CMD...`: a command in an environment, and the cause where it fails."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from .. import detect, show
from ..commands import recovery as settling
from ..commands import unsearched
from ..errors import BuildError, UsageError
from ..model import Finding, Run
from ..request import facts
from ..request import options as o
from ..request import paths as where
from ..system import process

if TYPE_CHECKING:
    from ..verify.culprit import Suspect

_GROWTH = {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
_DEFAULT_ENV = Path(".venv")
_NOT_FAILURES = ("SIGINT", "SIGPIPE", "SIGTERM", "SIGHUP", "SIGQUIT")
"""A program that was told to stop, or whose reader went away, has nothing to be diagnosed."""
_LIBRARY_FOLDERS = (
    "lib/python3*/site-packages/nvidia/*/lib",
    "lib/python3*/site-packages/torch/lib",
    "lib",
)
_FAMILIES = ("libcudnn", "libcublas", "libcudart", "libnvrtc", "libnvJitLink", "libcusparse", "libcusolver",
             "libcufft", "libcurand", "libnccl", "libcupti")  # fmt: skip


def run(
    context: typer.Context,
    env: o.Env = _DEFAULT_ENV,
    keep_env: bool = typer.Option(
        False, "--keep-env", help="Leave LD_LIBRARY_PATH and LD_PRELOAD as they are."
    ),
    exec_: bool = typer.Option(
        False, "--exec", help="Become CMD: no process in between, and no diagnosis of a failure."
    ),
    memory_growth: bool = typer.Option(
        False,
        "--memory-growth",
        help="TensorFlow and JAX take GPU memory as they need it, not nearly all of it at once.",
    ),
    profiles: o.ProfileDirs = None,
    cache_dir: o.CacheDir = None,
    json: o.JsonOfRun = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> int:
    """CMD in the environment (after --); its exit code, and the cause where it fails."""
    command = context.obj
    if not command:
        raise UsageError("no command was named", hint="gpuenv run [ENV] -- python train.py")
    if json and exec_:
        raise UsageError(
            "--json and --exec contradict each other", hint="with --exec nothing of gpuenv is left to tell"
        )
    screen = show.Screen(json=json, quiet=quiet, verbose=verbose, environ=process.environ(),
                         out=sys.stdout if json else sys.stderr)  # fmt: skip
    choices = o.Choices(profiles=list(profiles or []), cache_dir=cache_dir)
    settling.settle(show.emitter(screen), env)
    root, bin_folder = _found(env)
    given = process.environ()
    process.settle_home()  # gpuenv's own: the program gets its variables as they were
    environ, removed = inside(root, bin_folder, given, keep=keep_env)
    for suspect in removed:
        screen.say(
            f"note: without {suspect.named}: it would shadow the environment's own (--keep-env leaves it)"
        )
    if (root / "conda-meta").is_dir():
        environ = _activated(screen, root, environ)
    if not keep_env:
        _reach(screen, root, environ, choices)
    if memory_growth:
        environ |= _GROWTH
    try:
        if exec_:
            process.replace(command, environ)
        ended = process.attend(command, environ, stdout=sys.stderr.fileno() if json else None)
    except OSError as error:
        screen.say(f"gpuenv: {command[0]}: {error.strerror}", always=True)
        code = 127 if isinstance(error, FileNotFoundError) else 126
        return _told(screen, Run(env=str(root), command=tuple(command), code=code))
    found: tuple[Finding, ...] = ()
    if ended.returncode != 0 and ended.signal not in _NOT_FAILURES and (json or not quiet):
        found = _explained(screen, command[0], ended, choices, root)
    code = ended.returncode if ended.returncode >= 0 else 128 - ended.returncode
    _told(screen, Run(env=str(root), command=tuple(command), code=code, signal=ended.signal, findings=found))
    return process.die_of(ended.signal) if ended.signal else code


def _told(screen: show.Screen, told: Run) -> int:
    """The document of `--json`; without it the program has said all itself."""
    if screen.json:
        show.result(screen, told)
    return told.code


def _found(env: Path) -> tuple[Path, Path]:
    """The environment's root and its folder of programs. Raises UsageError where it is none."""
    path = where.absolute(env)
    if path.is_file():
        return path.parent.parent, path.parent
    for folder in ("bin", "Scripts"):
        if (path / folder / "python").exists() or (path / folder / "python.exe").exists():
            return path, path / folder
    raise UsageError(f"{path} holds no Python", hint=f"make it: gpuenv create {env} --framework torch")


def inside(
    root: Path, bin_folder: Path, environ: Mapping[str, str], *, keep: bool
) -> tuple[dict[str, str], list[Suspect]]:
    """The variables as after activation, without the loader's entries that would bring in another copy of
    a library that the environment has; and those entries."""
    from ..verify import culprit  # the cli starts fast: verify is not needed before this

    removed = [] if keep else _shadowing(root, environ)
    inner = culprit.without(environ, removed)
    inner["PATH"] = os.pathsep.join(p for p in (str(bin_folder), environ.get("PATH", "")) if p)
    inner.pop("PYTHONHOME", None)
    if (root / "conda-meta").is_dir():
        inner["CONDA_PREFIX"] = inner["CONDA_DEFAULT_ENV"] = str(root)
    else:
        inner["VIRTUAL_ENV"] = str(root)
    return inner, removed


def _activated(screen: show.Screen, root: Path, environ: dict[str, str]) -> dict[str, str]:
    """The variables as conda packages want them; those that the environment has where a script fails."""
    from ..managers.conda import scripts as conda_scripts

    try:
        return conda_scripts.activated(root, environ)
    except BuildError as error:
        screen.say(f"note: {error.message}; its variables are missing", always=True)
        return environ


def _reach(screen: show.Screen, root: Path, environ: dict[str, str], choices: o.Choices) -> None:
    """Put what TensorFlow needs and does not search on LD_LIBRARY_PATH, and say so."""
    if not sys.platform.startswith("linux"):
        return
    version, missing = unsearched.folders(root, environ, lambda: facts.known(choices))
    if missing:
        entries = [*map(str, missing), environ.get("LD_LIBRARY_PATH", "")]
        environ["LD_LIBRARY_PATH"] = ":".join(e for e in entries if e)
        names = ", ".join(f.parent.name for f in missing)
        screen.say(
            f"note: LD_LIBRARY_PATH gets nvidia/*/lib of {names}: TensorFlow {version} does not look there "
            "by itself (--keep-env leaves it)"
        )


def _shadowing(root: Path, environ: Mapping[str, str]) -> list[Suspect]:
    from ..verify import culprit

    brought = [
        str(file)
        for pattern in _LIBRARY_FOLDERS
        for folder in root.glob(pattern)
        for file in folder.iterdir()
        if file.name.startswith(_FAMILIES) and ".so" in file.name
    ]
    families = {Path(p).name.split(".so")[0] for p in brought}
    found = culprit.suspects(environ, brought, None, None)
    return [
        s for s in found
        if (s.variable == "LD_LIBRARY_PATH" and not Path(s.part or ".").resolve().is_relative_to(root.resolve()))
        or (s.variable == "LD_PRELOAD" and Path(s.part).name.split(".so")[0] in families)
    ]  # fmt: skip


def _explained(
    screen: show.Screen, name: str, ended: process.Attended, choices: o.Choices, root: Path
) -> tuple[Finding, ...]:
    """The diagnosis of the program's last words, with this machine's facts; on stderr where no document
    will have it."""
    from .troubleshoot import judged, made_for

    known = facts.known(choices)
    text = [(name, [ended.stderr])]
    device = made_for(root)
    found: tuple[Finding, ...] = judged(text, known, None, device=device)
    if found:
        found = judged(text, known, detect.detect(), here=True, device=device, holders=device != "cpu")
    if found and not screen.json:
        how = ended.signal or f"exit code {ended.returncode}"
        screen.say(f"gpuenv: {name} failed ({how}); gpuenv diagnose says:", always=True)
        show.findings(screen, found[:3])
    return found


def register(app: typer.Typer) -> None:
    """Add the command `run`."""
    app.command(name="run")(run)
