"""Writes the commands that install or restore packages of an environment."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from ...model import FRAMEWORKS, Environment
from ..python_paths import PythonPaths
from ..read_libraries import InstalledLibraries, LibraryPackage, read_requirements

_EXTRAS = {"tensorflow": "and-cuda"}


def list_needed(framework: str, wheels: Sequence[str], paths: PythonPaths) -> list[str]:
    """Return the framework's requirements of some wheels, in pip's form."""
    required = read_requirements(paths.sites, framework)
    return [r for w in wheels for r in required if re.match(rf"nvidia-{w}(-cu\d+)?([^\w-]|$)", r)]


def make_install_command(
    framework: str,
    wheels: Sequence[str],
    env: Environment,
    installed: InstalledLibraries,
) -> str:
    """Return the command that installs some NVIDIA wheels ("cudnn").

    It installs the requirement itself, or the framework's extra if more packages are missing.
    """
    if env.made_by_gpuenv:
        return make_repair_command(env)
    extra = _EXTRAS.get(framework)
    sites, packages = installed.paths.sites, installed.packages
    version = next((p.version for p in packages if p.name == framework), None)
    needed = list_needed(framework, wheels, installed.paths)
    required = {re.split(r"[^\w-]", r)[0] for r in read_requirements(sites, framework)}
    missing = required - {p.name for p in packages}
    if extra and version and len(missing) > 1 and needed:
        what = [f"{framework}[{extra}]=={version}"]
    elif needed:
        what = needed
    else:  # a release that does not state its wheels
        named = framework or "|".join(FRAMEWORKS)
        return f"gpuenv create NEW --framework {named}, a new environment with matching libraries"
    return make_pip_command(env, sites, what)


def make_pip_command(
    env: Environment, sites: Sequence[str], what: Sequence[str], *, again: bool = False
) -> str:
    """Return the command that installs packages into an environment, with pip if it is installed, else with uv.

    `again` installs the packages again to restore their files.
    """
    python, names = shlex.quote(env.python), " ".join(map(shlex.quote, what))
    if any((Path(s) / "pip").is_dir() for s in sites):
        options = " --force-reinstall --no-deps --no-cache-dir" if again else ""
        return f"{python} -m pip install{options} {names}"
    options = " --reinstall --no-deps --refresh" if again else ""
    return f"uv pip install --python {python}{options} {names}"


def make_repair_command(env: Environment) -> str:
    """Return the command that restores an environment of gpuenv from its lock."""
    return f"gpuenv repair {shlex.quote(env.path)}"


def make_reinstall_command(env: Environment, package: LibraryPackage) -> str:
    """Return the command that restores the files of a package."""
    if env.made_by_gpuenv:
        return make_repair_command(env)
    if env.manager == "conda" and not package.name.startswith("nvidia-"):
        prefix = shlex.quote(env.path)
        return f"conda install --prefix {prefix} --force-reinstall {package.name}={package.version}"
    match = re.match(r".*/(site|dist)-packages(?=/)", package.files[0].path) if package.files else None
    what = f"{package.name}=={package.version}"
    return make_pip_command(env, [match.group(0)] if match else [], [what], again=True)
