"""Finds the Python of an environment and the folders in which that Python searches packages."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import UsageError
from ..model import FRAMEWORKS, Environment
from ..system import process, untrusted_files
from . import run_probe

_NAMES = ("bin/python", "bin/python3", "Scripts/python.exe", "python.exe")
_ASK = (
    "import sys; sys.stdout.write('gpuenv %d.%d.%d %s' % (sys.version_info[:3] + (sys.implementation.name,)))"
)


def locate_environment(env: Path, *, stated: bool = False) -> Environment:
    """Return the environment at a path: a venv, a conda prefix, or a Python executable.

    Nothing is written there, and nothing has to be installed in it. The executable is not resolved: a venv's
    python is a link, and the target of the link does not know the venv. With `stated` the version in pyvenv.cfg
    is used and Python is not started. `read_python_paths` reads the real version later.

    Raise UsageError if there is no Python at the path. Its hint names the most similar environment.
    """
    path = Path(os.path.abspath(env.expanduser()))
    if path.is_dir():
        python = next((path / n for n in _NAMES if os.access(path / n, os.X_OK)), None)
        if python is None:
            raise UsageError(describe_missing_python(path), hint=_suggest_environment(path))
        root = path
    elif path.exists():
        python = path
        root = path.parent.parent if path.parent.name in ("bin", "Scripts") else path.parent
    elif path.is_symlink():
        raise UsageError(
            f"{path} is a link to {os.readlink(path)}, which does not exist",
            hint="The Python of this environment was removed. Create the environment again.",
        )
    else:
        raise UsageError(describe_missing_python(path), hint=_suggest_environment(path))
    return Environment(
        path=str(root),
        manager=_find_manager(root),
        python=str(python),
        python_version=(stated and path.is_dir() and _read_stated_version(root))
        or _ask_version(python, path),
        made_by_gpuenv=(root / ".gpuenv" / "plan.json").is_file(),
    )


def describe_missing_python(path: Path) -> str:
    """Say why a path is no environment: it is missing, or its Python is."""
    if not path.exists():
        return f"{path} does not exist"
    return f"{path} has no Python: {'python.exe' if os.name == 'nt' else 'bin/python'} is missing"


def _find_manager(root: Path) -> str | None:
    if (root / "conda-meta").is_dir():
        return "conda"
    return "venv" if (root / "pyvenv.cfg").is_file() else None


def _read_stated_version(root: Path) -> str | None:
    """Return the version of Python in pyvenv.cfg, or None."""
    try:
        text = untrusted_files.read_bytes(root / "pyvenv.cfg").decode("utf-8", "replace")
    except OSError:
        return None
    match = re.search(r"^version(?:_info)?\s*=\s*(\d+\.\d+\.\d+)", text, re.MULTILINE)
    return match and match.group(1)


def _ask_version(python: Path, path: Path) -> str:
    """Return the version that a Python executable prints.

    The arguments mean nothing to a program that is not Python. Its output is accepted only if it begins with
    "gpuenv".
    """
    if not os.access(python, os.X_OK):
        raise UsageError(f"{path} is a file that cannot be run", hint=_suggest_environment(path))
    try:
        finished = process.run([str(python), "-I", "-S", "-B", "-c", _ASK], timeout=30)
    except OSError as error:
        raise UsageError(
            f"{path} is not a Python interpreter: {error.strerror or error}", hint=_suggest_environment(path)
        ) from error
    words = finished.stdout.split()
    if not finished.ok or words[:1] != ["gpuenv"]:
        log = (finished.stderr or finished.stdout)[-2000:]
        raise UsageError(
            f"{path} is not a working Python interpreter", hint=_suggest_environment(path), log=log or None
        )
    return words[1]


def _suggest_environment(path: Path) -> str:
    """Return a hint with the environment that the user may have meant."""
    import difflib

    inside = [p for p in (path / ".venv", path / "venv", path / "env") if _is_environment(p)]
    if inside:
        return f"Did you mean {inside[0]}?"
    parent = path.parent
    beside = sorted(p for p in _list_folders(parent) if p != path and _is_environment(p))
    close = difflib.get_close_matches(path.name, [p.name for p in beside], n=1, cutoff=0.5)
    if close:
        return f"Did you mean {parent / close[0]}?"
    if beside:
        return "Environments there: " + ", ".join(str(p) for p in beside[:5]) + "."
    return "Give a venv, a conda prefix or a python executable; `gpuenv create` makes an environment."


def _list_folders(folder: Path) -> list[Path]:
    try:
        return [p for p in folder.iterdir() if p.is_dir()]
    except OSError:
        return []


def _is_environment(path: Path) -> bool:
    return (path / "pyvenv.cfg").is_file() or (path / "conda-meta").is_dir()


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundFramework:
    """A framework that this Python would import: the file, and the folder that holds the package."""

    name: str
    origin: str
    site: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PythonPaths:
    """The folders that the target's Python searches, and its `version`.

    `sites` are its site-packages folders in the order of sys.path. `roots` are the folders of the environment's
    own files. `problems` are errors of the query.
    """

    prefix: str
    version: str
    sites: tuple[str, ...]
    roots: tuple[str, ...]
    user_site: str | None = None
    frameworks: tuple[FoundFramework, ...] = ()
    problems: tuple[str, ...] = field(default=())


def read_python_paths(
    env: Environment,
    environ: Mapping[str, str],
    timeout: float,
    on_start: Callable[[], None] | None = None,
) -> PythonPaths:
    """Read where the target's Python looks for packages and frameworks, with the user's settings.

    If these settings stop that Python (a broken sitecustomize), it is started again without them, and the
    problem is reported. Raise UsageError if it cannot be started at all.
    """
    problems: list[str] = []
    for options in ((), ("-I",)):
        report = run_probe.run_probe(
            env.python,
            ("report", "python_search_paths"),
            {"frameworks": list(FRAMEWORKS)},
            run_probe.ChildSettings(
                environ=environ, timeout=min(timeout, 60.0), options=options, on_start=on_start
            ),
        )
        where = report.last("where")
        if where is not None:
            python_path = [os.path.abspath(p) for p in environ.get("PYTHONPATH", "").split(":") if p]
            return _make_python_paths(env, where, python_path, problems)
        last = report.words(1)
        problems.append(f"{report.death or 'it reported nothing'}{': ' + last[0].text if last else ''}")
    _ask_version(Path(env.python), Path(env.path))  # raises a clearer error for a file that is no Python
    raise UsageError(
        f"the search path of {env.python} cannot be read: {problems[-1]}",
        hint="The Python of the environment does not work. Create the environment again.",
        log=report.finished.stderr[-4000:] or None,
    )


def _is_site(folder: str) -> bool:
    """Return whether a folder is a site-packages folder by its name. A .pth file can add such folders."""
    return os.path.basename(folder) in ("site-packages", "dist-packages")


def _make_python_paths(
    env: Environment, where: run_probe.Record, python_path: list[str], problems: list[str]
) -> PythonPaths:
    """Return the paths in a report. `python_path` are the entries of PYTHONPATH, which belong to the user."""
    frameworks = []
    for name, spec in where["frameworks"].items():
        if spec is None:
            continue
        if "error" in spec or not spec["origin"]:
            problems.append(f"{name}: {spec.get('error') or 'a folder without a package in it'}")
            continue
        package = os.path.dirname(spec["origin"])
        folder = package if os.path.basename(package) != name else os.path.dirname(package)
        frameworks.append(FoundFramework(name=name, origin=spec["origin"], site=folder))
    user = where["user_site"]
    sites = [
        s
        for s in where["path"]
        if s in where["sites"] or (_is_site(s) and s != user and s not in python_path)
    ]
    # Where the frameworks themselves were installed with --user, that folder is the environment's.
    if user in where["path"] and env.manager is None and any(f.site == user for f in frameworks):
        sites.append(user)
    is_managed = env.manager is not None
    roots = dict.fromkeys([env.path] * is_managed + [os.path.realpath(env.path)] * is_managed + sites)
    roots.update(dict.fromkeys(os.path.realpath(s) for s in sites))
    return PythonPaths(
        prefix=where["prefix"],
        version=where["version"],
        sites=tuple(dict.fromkeys(sites)),
        roots=tuple(roots),
        user_site=user,
        frameworks=tuple(frameworks),
        problems=tuple(problems),
    )
