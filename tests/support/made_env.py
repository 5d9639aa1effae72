"""Environments that `create` made of tiny wheels, once for all tests of a process, and copies of them to be changed."""

import contextlib
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

from command import Command
from environment_facts import HERE, ok, own
from loopback import Index, serving
from once import run_folder

JAX = ("--framework", "jax", "--python", HERE, "--index", "pypi", "--device", "cpu")
"""What asks for the environment of `made_jax()`."""


def copied(made: Command, folder: Path) -> Command:
    """A copy of the folder of `made`: its work, its home and its caches. Its environments are known there.

    `cp` keeps the links between an environment and the cache of uv."""
    subprocess.run(["cp", "-a", made.folder, folder], check=True)
    copy = Command(folder, warm=False)
    copy.work = folder / made.work.relative_to(made.folder)
    copy.env = {k: v.replace(str(made.folder), str(folder)) for k, v in made.env.items()}
    shutil.rmtree(folder / "home/.local/share/gpuenv/environments", ignore_errors=True)
    for record in copy.work.glob("*/.gpuenv"):
        own(record.parent, copy.env)
    return copy


def jax_env(folder: Path, project: str = "", *more: str) -> Command:
    """A copy of jax for the CPU in `.venv`, as JAX and `more`, or the gpuenv.yaml `project`, ask for it. It has no proof.

    Its `index` has jax, kept 1.0 and 2.0, more, base, needs-base and ipykernel."""
    made, index, wheels = _make_jax(project, *more)
    copy = copied(made, folder)
    index.wheels = {name: dict(files) for name, files in wheels.items()}
    index.faults.clear()
    index.forget()
    copy.index = index
    return copy


_running = contextlib.ExitStack()
"""The indexes of made environments, until this process ends."""


@functools.cache
def _make_jax(project: str, *more: str) -> tuple[Command, Index, dict[str, dict[str, bytes]]]:
    gpuenv = Command(Path(tempfile.mkdtemp(dir=run_folder())) / "made")
    index = _running.enter_context(serving(Index()))
    index.add_plan(gpuenv("resolve", "--json", *JAX).json)
    for name in ("kept", "more", "base"):
        index.add(name, "1.0")
    index.add("kept", "2.0")
    index.add("ipykernel", "7.4.0")
    index.add("needs-base", "1.0", requires=("base",))
    gpuenv.env["PIP_INDEX_URL"] = index.url
    if project:
        (gpuenv.work / "gpuenv.yaml").write_text(project)
    ok(gpuenv("create", *(more if project else (*JAX, *more)), "--no-verify"))
    return gpuenv, index, {name: dict(files) for name, files in index.wheels.items()}
