"""An environment that `create` made of tiny wheels: built once, and copied for each test that begins with it."""

import copy
import hashlib
import json
import shutil
import subprocess
from collections import Counter
from pathlib import Path

from command import Command
from environment_facts import HERE, ok, own
from loopback import Index, serving
from once import once

from provision.environment import place

JAX = ("--framework", "jax", "--python", HERE, "--index", "pypi", "--device", "cpu")
"""What asks for the environment of `jax_env`."""
PROJECT = f'frameworks: [jax]\ndevice: cpu\nindex: pypi\npython: "{HERE}"\npackages: ["kept<2"]\n'
"""A gpuenv.yaml for `jax_env`. One that asks for the same in other words is written afterwards, and nothing is built."""


def jax_index(gpuenv: Command, index: Index) -> None:
    """Let `index` have jax, kept 1.0 and 2.0, more, base, needs-base and ipykernel, and `gpuenv` ask it."""
    index.add_plan(gpuenv("resolve", "--json", *JAX).json)
    for name in ("kept", "more", "base"):
        index.add(name, "1.0")
    index.add("kept", "2.0")
    index.add("ipykernel", "7.4.0")
    index.add("needs-base", "1.0", requires=("base",))
    gpuenv.env["PIP_INDEX_URL"] = index.url


def jax_env(gpuenv: Command, index: Index, project: str = "", *more: str) -> None:
    """Put jax for the CPU into `.venv`, as JAX and `more`, or the gpuenv.yaml `project`, ask for it, from `jax_index`."""
    jax_index(gpuenv, index)
    if project:
        (gpuenv.work / "gpuenv.yaml").write_text(project)
    create(gpuenv, index, *(() if project else JAX), *more)


def create(gpuenv: Command, index: Index, *argv: str) -> None:
    """Put into `gpuenv.work` what `gpuenv create ARGV --no-verify` leaves there with the files that it has, on `index`.

    It was built in this run of the tests for another folder and an index with the same files. It has no proof, and its
    caches do not come along.
    """
    files = {p.relative_to(gpuenv.work): p.read_bytes() for p in gpuenv.work.rglob("*") if p.is_file()}
    variables = {k: v for k, v in gpuenv.env.items() if gpuenv.first.get(k) != v}
    here = {index.url: "<index>", str(gpuenv.work): "<work>", str(gpuenv.folder): "<folder>"}
    asked = json.dumps([argv, variables, {str(name): data.hex() for name, data in sorted(files.items())}])
    key = hashlib.sha256((_replace(asked, here) + index.digest()).encode()).hexdigest()[:16]

    def make(folder: Path) -> None:
        held = copy.copy(index)
        held._requests = Counter()
        with serving(held):
            made = Command(folder)
            there = {index.url: held.url, str(gpuenv.work): str(made.work), str(gpuenv.folder): str(folder)}
            for name, data in files.items():
                (made.work / name).parent.mkdir(parents=True, exist_ok=True)
                (made.work / name).write_bytes(_replace_bytes(data, there))
            made.env |= {name: _replace(value, there) for name, value in variables.items()}
            ok(made("create", *(_replace(word, there) for word in argv), "--no-verify"))
            (folder / "url").write_text(held.url)

    kept = once(f"made-{key}", make)
    subprocess.run(["cp", "-aT", kept / "work", gpuenv.work], check=True)
    names = {
        (kept / "url").read_text(): index.url,
        str(kept / "work"): str(gpuenv.work),
        str(kept): str(gpuenv.folder),
    }
    for mark in gpuenv.work.rglob(place.MARK):
        env = mark.parent
        for path in (*gpuenv.work.glob("*"), *mark.iterdir(), *env.glob("bin/*"), env / "pyvenv.cfg"):
            if path.is_file() and not path.is_symlink():
                path.write_bytes(_replace_bytes(path.read_bytes(), names))
        own(env, gpuenv.env)


def copied(made: Command, folder: Path) -> Command:
    """A copy of the folder of `made`, which a fixture of a module made: its work, its home and its caches.

    `cp` keeps the links between an environment and the cache of uv."""
    subprocess.run(["cp", "-a", made.folder, folder], check=True)
    again = Command(folder, warm=False)
    again.work = folder / made.work.relative_to(made.folder)
    again.env = {k: v.replace(str(made.folder), str(folder)) for k, v in made.env.items()}
    shutil.rmtree(folder / "home/.local/share/gpuenv/environments", ignore_errors=True)
    for record in again.work.glob("*/.gpuenv"):
        own(record.parent, again.env)
    return again


def _replace(text: str, names: dict[str, str]) -> str:
    for old, new in names.items():
        text = text.replace(old, new)
    return text


def _replace_bytes(data: bytes, names: dict[str, str]) -> bytes:
    for old, new in names.items():
        data = data.replace(old.encode(), new.encode())
    return data
