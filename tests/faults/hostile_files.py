"""Files that are no files, and files that are too much: in the place of everything that gpuenv is given."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from field import ASK, PAYLOAD, Field, case
from readers import EXTREMES, PROFILE

BOMB = EXTREMES["a bomb"]
TAGS = (
    b'a: !!python/object/apply:os.system ["touch MARKER"]\n- !!python/object/new:os.system [touch MARKER]\n'
)

# A kind of file: where it lies, and the command that reads it.
READ: dict[str, tuple[str, tuple[object, ...]]] = {
    "profiles": ("profiles/jax.yaml", ("resolve", *ASK, "--profiles", "profiles")),
    "gpuenv.yaml": ("gpuenv.yaml", ("resolve",)),
    "target": ("t.json", ("resolve", "--framework", "jax", "--target", "t.json")),
    "machine": ("m.json", ("diagnose", "log.txt", "--machine", "m.json")),
    "log": ("log.txt", ("diagnose", "log.txt", "--no-machine")),
    "pylock.toml": ("pylock.toml", ("create", "env", "--lock", "pylock.toml", "--no-verify")),
    "conda-lock.yml": ("conda-lock.yml", ("create", "env", "--lock", "conda-lock.yml", "--no-verify")),
    "pixi.lock": ("pixi.lock", ("create", "env", "--lock", "pixi.lock", "--no-verify")),
    "@EXPLICIT": ("explicit.txt", ("create", "env", "--lock", "explicit.txt", "--no-verify")),
    "requirements.txt": ("requirements.txt", ("resolve", *ASK, "-r", "requirements.txt")),
    "pyproject.toml": ("pyproject.toml", ("resolve", *ASK, "--project", ".")),
    "bundle": ("bundle/gpuenv-bundle.json", ("create", "env", "--bundle", "bundle", "--no-verify")),
    "pip.conf": ("../pip.conf", ("lock", *ASK, "-o", "out.toml")),
    ".condarc": ("../home/.condarc", ("lock", *ASK, "--manager", "conda", "--channel", "http://127.0.0.1:9/c", "-o", "o.yml")),
    "a registry entry": ("../data/gpuenv/environments/x.json", ("list",)),
    "auth of rattler": ("../auth.json", ("lock", *ASK, "--manager", "conda", "--channel", "http://127.0.0.1:9/c", "-o", "o.yml")),
}  # fmt: skip
CODES = (0, 2, 3, 4, 5, 6, 7, 8, 9)


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(200 << 20)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def folder(path: Path) -> None:
    path.mkdir()
    (path / "x").write_text("x")


def itself(path: Path) -> None:
    path.symlink_to(path.name)


PLACES: dict[str, Callable[[Path], None]] = {
    "a pipe": os.mkfifo, "an endless device": endless, "a folder": folder, "200 MB": sparse, "a link to itself": itself,
}  # fmt: skip
CONTENTS = {
    "a bomb of aliases": BOMB,
    "tags of Python": TAGS,
    "deep lists": b"[" * 100_000,
    "deep tables": b"a: " + b'{"a":' * 100_000,
    "deep dashes": b"- " * 50_000,
    "a huge scalar": b'frameworks: ["' + b"a" * 5_000_000 + b'"]\n',
    "keys twice": b'frameworks: ["jax"]\nframeworks: ["torch"]\nframeworks: ["jax"]\n',
    "NUL and controls": b'frameworks: ["jax\0\x01\x1b[31m"]\n\0\0',
    "escapes": f'"{PAYLOAD}": ["{PAYLOAD}"]\n'.encode(),
    "no UTF-8": b"\xff\xfe\xfa\x80: \x80\n",
    "huge numbers": b'{"schema": ' + b"9" * 100_000 + b"}",
}  # fmt: skip


def tried(at: Field, kind: str, fill: Callable[[Path], None]) -> str | None:
    where, argv = READ[kind]
    (at.work / "log.txt").write_text("CUDNN_STATUS_NOT_INITIALIZED\n")
    path = at.work / where
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    fill(path)
    if kind == "pip.conf":
        at.gpuenv.env["PIP_CONFIG_FILE"] = str(path.resolve() if not path.is_symlink() else path)
    if kind == "auth of rattler":
        at.gpuenv.env["RATTLER_AUTH_FILE"] = str(at.folder / "auth.json")
    try:
        problem = at.harm(at.gpuenv(*argv), right=CODES)
    finally:
        if path.is_dir() and not path.is_symlink():
            (path / "x").unlink()
            path.rmdir()
        else:
            path.unlink(missing_ok=True)  # `list` takes out what is no entry
    half = [p.name for p in at.work.glob(".*gpuenv-*")]
    return problem or (f"left {half}" if half else None)


def enter(kind: str) -> None:
    for place, make in PLACES.items():
        if (kind, place) == ("log", "a pipe"):
            continue  # a log that is still being written is waited for, as `cat` does
        case(f"files: {kind}: {place}")(lambda at, m=make: tried(at, kind, m))
    for name, data in CONTENTS.items():

        def write(path: Path, data: bytes = data) -> None:
            path.write_bytes(data.replace(b"MARKER", str(path.parent / "ran").encode()))

        case(f"files: {kind}: {name}")(lambda at, w=write: tried(at, kind, w) or tag_ran(at))


def tag_ran(at: Field) -> str | None:
    return "a tag ran code" if any(at.folder.rglob("ran")) else None


for one in READ:
    enter(one)


@case("files: profiles: a sound overlay beside the harmful one is still checked")
def _(at: Field) -> str | None:
    (at.work / "profiles").mkdir()
    (at.work / "profiles" / "a.yaml").write_bytes(PROFILE)
    (at.work / "profiles" / "b.yaml").write_bytes(BOMB)
    return at.harm(at.gpuenv("resolve", *ASK, "--profiles", "profiles"), right=(3,))
