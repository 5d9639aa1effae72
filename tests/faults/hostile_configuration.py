"""Configuration and Pythons that another user leaves where uv would look for them: they decide nothing."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from field import ASK, Field, case

STRANGER = 12345
FRAMEWORK = "jax"
KEYS = {
    "an index": '[[index]]\nurl = "EVIL"\n',
    "an index of pip's": '[pip]\nindex-url = "EVIL"\n',
    "another index first": 'index-strategy = "unsafe-best-match"\nextra-index-url = ["EVIL"]\n',
    "a folder of wheels": 'index-strategy = "unsafe-best-match"\nfind-links = ["WHEELS"]\n',
    "a target": '[pip]\ntarget = "OUTSIDE"\n',
    "a prefix": '[pip]\nprefix = "OUTSIDE"\n',
    "a cache": 'cache-dir = "OUTSIDE"\n',
    "overrides": 'override-dependencies = ["plain==99.0"]\n[pip]\noverride = ["plain==99.0"]\n',
    "no file of that format": "cache-dir = \n[[[",
}
EVERYTHING = KEYS["a folder of wheels"] + KEYS["a cache"] + KEYS["an index"] + KEYS["a target"]


def prepare(at: Field) -> None:
    """Put a package on the index, and a newer one on the index and in the folder of a stranger."""
    if "plain" not in at.index.wheels:  # the time is in a wheel: made again it has another hash
        at.index.add("plain", "1.0")
        at.evil.add("plain", "99.0", content="# of a stranger\n")
        at.evil.add("pip", "99.0", content="# of a stranger\n")
    wheels = at.work / "wheels"
    wheels.mkdir()
    for files in at.evil.wheels.values():
        for name, data in files.items():
            (wheels / name).write_bytes(data)
    at.gpuenv.env.pop("UV_CACHE_DIR")  # it would decide before any file


def write_configuration(at: Field, folder: Path, text: str) -> None:
    for word, path in (("EVIL", at.evil.url), ("OUTSIDE", at.outside), ("WHEELS", at.work / "wheels")):
        text = text.replace(word, str(path))
    (folder / "uv.toml").write_text(text)
    give_away(folder / "uv.toml")


def write_project(at: Field, folder: Path) -> None:
    """The same in a project's file, and a Python's version that nobody has."""
    (folder / "pyproject.toml").write_text(
        f'[project]\nname = "x"\nversion = "1"\n[tool.uv]\ncache-dir = "{at.outside}"\n'
        f'[[tool.uv.index]]\nurl = "{at.evil.url}"\ndefault = true\n'
    )
    (folder / ".python-version").write_text("3.99\n")
    for name in ("pyproject.toml", ".python-version"):
        give_away(folder / name)


def write_python(at: Field, folder: Path) -> None:
    """An environment whose Python leaves a mark."""
    python = folder / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    (folder / ".venv" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    python.write_text(f"#!/bin/sh\necho \"$@\" >> '{at.marker}'\nexec '{sys.executable}' \"$@\"\n")
    python.chmod(0o755)
    (python.parent / "python3").symlink_to("python")
    for path in (folder / ".venv", *(folder / ".venv").rglob("*")):
        give_away(path)


def give_away(path: Path) -> None:
    """Make another user the owner, where this one may do so."""
    if os.geteuid() == 0:
        os.chown(path, STRANGER, STRANGER, follow_symlinks=False)


# --- what reads it ------------------------------------------------------------------------------------


def brings(at: Field) -> None:
    """A package that brings the framework: `resolve` has to solve to find that out."""
    plan = at.gpuenv("resolve", "--json", *ASK).json
    at.index.add("brings", "1.0", requires=(f"{FRAMEWORK}=={plan['builds'][0]['version']}",))
    (at.gpuenv.work / "requirements.txt").write_text("brings\nplain\n")


def locked(at: Field) -> None:
    ran = at.gpuenv("lock", *ASK, "--with", "plain", "-o", at.gpuenv.work / "pylock.toml")
    assert ran.code == 0, ran.err


def own(at: Field) -> None:
    """What a bundle has of gpuenv itself."""
    from bundle_site import add_own

    add_own(at.index)
    at.gpuenv.env["UV_PYTHON_INSTALL_MIRROR"] = "file:///nowhere"


def made(at: Field) -> None:
    at.made(str(at.gpuenv.work / "env"))


def nothing(at: Field) -> None:
    """Nothing has to be there before."""


# A command, and what it needs to be there before the stranger comes.
COMMANDS = {
    "resolve": (brings, ("resolve", "-r", "requirements.txt", *ASK[2:])),
    "lock": (nothing, ("lock", *ASK, "--with", "plain")),
    "lock --upgrade": (locked, ("lock", *ASK, "--with", "plain", "--upgrade")),
    "create": (nothing, ("create", "env", *ASK, "--with", "plain", "--no-verify")),
    "create --lock": (locked, ("create", "env", "--lock", "pylock.toml", "--no-verify")),
    "create --with": (made, ("create", "env", *ASK, "--with", "plain", "--no-verify")),
    "bundle": (own, ("bundle", "stick", *ASK, "--with", "plain")),
}  # fmt: skip


def tried(at: Field, command: str, place: str, text: str = EVERYTHING, *, also: bool = True) -> str | None:
    """A command where a stranger left `text` as uv.toml, a Python, and (with `also`) a project's file."""
    prepare(at)
    shared, project = at.work / "shared", at.work / "parent" / "project"
    (shared / "mine").mkdir(parents=True)
    project.mkdir(parents=True)
    shared.chmod(0o1777)
    at.gpuenv.env["TMPDIR"] = str(shared / "mine" if place.startswith("above the temp") else shared)
    where = {
        "temporary files": shared, "above the temporary files": shared, "this folder": project, "above this folder": project.parent,
    }[place]  # fmt: skip
    before, at.gpuenv.work = at.gpuenv.work, project
    try:
        ready, argv = COMMANDS[command]
        ready(at)
        at.evil.requests.clear()
        write_configuration(at, where, text)
        if also:
            write_python(at, where)
            if where == shared:
                write_project(at, where)
        ran = at.gpuenv(*argv)
    finally:
        at.gpuenv.work = before
    return at.harm(ran, right=(0,)) or taken(project) or left(shared)


def taken(project: Path) -> str | None:
    """Whether the newer package is in what was locked or installed, or the one asked for is missing there."""
    lock, env = project / "pylock.toml", project / "env"
    if lock.exists() and ('version = "99.0"' in (text := lock.read_text()) or 'name = "plain"' not in text):
        return "the lock has another package than the one of the user's index"
    names = [p.name for p in env.glob("lib/python3*/site-packages/plain-*.dist-info")]
    if env.exists() and names != ["plain-1.0.dist-info"]:
        return f"installed: {names}"
    wheels = [p.name for p in project.glob("stick/wheels/*plain-*")]
    if (project / "stick").exists() and wheels != ["plain-1.0-py3-none-any.whl"]:
        return f"in the bundle: {wheels}"
    return None


def left(shared: Path) -> str | None:
    """What gpuenv left among the temporary files."""
    known = {"mine", "uv.toml", ".venv", "pyproject.toml", ".python-version"}
    others = sorted({p.name for p in shared.iterdir()} - known)
    return f"left: {others}" if others else None


for verb in COMMANDS:
    for spot in ("temporary files", "this folder"):
        case(f"configuration: {spot}: {verb}")(lambda at, v=verb, s=spot: tried(at, v, s))
for verb in ("lock", "create"):
    for spot in ("above the temporary files", "above this folder"):
        case(f"configuration: {spot}: {verb}")(lambda at, v=verb, s=spot: tried(at, v, s))
for key, value in KEYS.items():
    # uv reads the first where packages are solved, the second where they are installed.
    spot = (
        "temporary files" if "index" in key or key in ("a folder of wheels", "overrides") else "this folder"
    )
    case(f"configuration: {spot}: {key}: create")(
        lambda at, s=spot, t=value: tried(at, "create", s, t, also=False)
    )
case("configuration: temporary files: no file of that format: create")(
    lambda at: tried(at, "create", "temporary files", KEYS["no file of that format"], also=False)
)
