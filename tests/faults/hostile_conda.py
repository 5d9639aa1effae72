"""Conda packages and records of conda environments that were made to lead out."""

from __future__ import annotations

import importlib
import io
import json
import os
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from field import PAYLOAD, Field, case
from ground import own
from hostile_environments import link, tree_of

cc = importlib.import_module("conda_channel")  # where it lies is known once `ground` was imported
CODES = (0, 2, 3, 4, 5, 6, 7, 8, 9)
ASK = ("--manager", "conda", "--framework", "jax", "--device", "cpu")
TYPES = {
    "link": tarfile.SYMTYPE,
    "hard link": tarfile.LNKTYPE,
    "pipe": tarfile.FIFOTYPE,
    "device": tarfile.CHRTYPE,
}
"""What a member may be that is no file."""


def channel(at: Field) -> Path:
    """A copy of the small channel, with a package that is there to be added."""
    folder = at.folder / "chan" / "conda-forge"
    if not folder.exists():
        shutil.copytree(cc.small(), folder)
        cc.write_package(folder, "extra", "1.0", "h0_0", (), [cc.Member("share/extra", data=b"x")])
        cc.index(folder)
    return folder


# --- packages ---------------------------------------------------------------------------------------

Made = dict[str, Any]
"""A package: `members` are (path, bytes or (kind, target), mode), `paths` the rows of paths.json that differ
from them, `link` what link.json says, `info` more files of info."""


def tar(members: Iterable[tuple[str, Any, int]]) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for path, what, mode in members:
            one = tarfile.TarInfo(path)
            one.mode = mode
            if isinstance(what, tuple):
                one.type, one.linkname = TYPES[what[0]], what[1]
                archive.addfile(one)
            else:
                one.size = len(what)
                archive.addfile(one, io.BytesIO(what))
    return raw.getvalue()


def write(folder: Path, name: str, made: Made, ending: str) -> None:
    """A package file in the channel."""
    import bz2
    import hashlib

    import zstandard

    members = [(*m, 0o644) if len(m) == 2 else m for m in made.get("members", [])]
    rows = [{"_path": p, "path_type": "softlink"} if isinstance(w, tuple) else {"_path": p, "path_type": "hardlink",
            "sha256": hashlib.sha256(w).hexdigest(), "size_in_bytes": len(w)} for p, w, _ in members]  # fmt: skip
    index = {"name": name, "version": "1.0", "build": "h0_0", "build_number": 0, "depends": made.get("depends", []),
             "subdir": "noarch" if made.get("link") else "linux-64", "timestamp": 1700000000000}  # fmt: skip
    index |= {"noarch": "python"} if made.get("link") else {}
    files: dict[str, Any] = {
        "info/index.json": index,
        "info/paths.json": {"paths": made.get("paths", rows), "paths_version": 1},
        "info/files": "".join(f"{r['_path']}\n" for r in made.get("paths", rows)),
        "info/about.json": {},
        **({"info/link.json": made["link"]} if made.get("link") else {}),
        **made.get("info", {}),
    }
    info = [(p, (t if isinstance(t, str) else json.dumps(t)).encode(), 0o644) for p, t in files.items()]
    path = folder / index["subdir"] / f"{name}-1.0-h0_0{ending}"
    path.parent.mkdir(exist_ok=True)
    if ending == ".tar.bz2":
        path.write_bytes(bz2.compress(tar([*info, *members])))
        return
    pack = zstandard.ZstdCompressor(level=1).compress
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata.json", '{"conda_pkg_format_version": 2}')
        archive.writestr(f"pkg-{name}-1.0-h0_0.tar.zst", pack(tar(members)))
        archive.writestr(f"info-{name}-1.0-h0_0.tar.zst", pack(tar(info)))


def up(path: Path) -> str:
    return "../" * 12 + str(path).lstrip("/")


def new(at: Field) -> Path:
    return at.outside / "new.txt"


def row(path: object, kind: str = "hardlink", **more: Any) -> dict[str, Any]:
    return {"_path": str(path), "path_type": kind, **more}


def entry(name: str) -> Made:
    return {"link": {"noarch": {"type": "python", "entry_points": [f"{name} = os:getcwd"]}, "package_metadata_version": 1},
            "depends": ["python"]}  # fmt: skip


PYTHON = {"noarch": {"type": "python", "entry_points": []}, "package_metadata_version": 1}
PACKAGES: dict[str, Callable[[Field], Made]] = {
    "a path": lambda at: {"members": [(up(new(at)), b"x")]},
    "an absolute path": lambda at: {"members": [(str(new(at)), b"x")]},
    "a path that is rows alone": lambda at: {"members": [("payload", b"x")], "paths": [row("../../pkgs/evil-1.0-h0_0/payload")]},
    "an absolute path of a file": lambda at: {"members": [("payload", b"x")], "paths": [row(at.outside / "precious.txt")]},
    "a path of a file": lambda at: {"members": [("payload", b"x")], "paths": [row(up(at.outside / "precious.txt"))]},
    "a placeholder in a file outside": lambda at: {"members": [("payload", b"x")], "paths": [
        row(at.outside / "precious.txt", file_mode="text", prefix_placeholder="precious")]},
    "a folder": lambda at: {"paths": [row(up(at.outside / "made"), "directory"), row(at.outside / "made2", "directory")]},
    "a link's path": lambda at: {"members": [("out", ("link", "/etc"))], "paths": [row(up(at.outside / "out"), "softlink"), row(at.outside / "out", "softlink")]},
    "a link": lambda at: {"members": [("share/out", ("link", str(at.outside)))]},
    "a link and through it": lambda at: {"members": [("share/out", ("link", str(at.outside))), ("share/out/new.txt", b"x")]},
    "a link of dots and through it": lambda at: {"members": [("share/out", ("link", up(at.outside))), ("share/out/new.txt", b"x")]},
    "a link that another goes through": lambda at: {"members": [("share/out", ("link", str(at.outside)))], "other": {"members": [("share/out/new.txt", b"x")]}},
    "a link through another's folder": lambda at: {"members": [("share/out/new.txt", b"x")], "other": {"members": [("share/out", ("link", str(at.outside)))]}},
    "a link in bin": lambda at: {"members": [("bin/activate", ("link", str(at.outside / "activate"))), ("bin/activate.fish", ("link", str(at.outside / "activate")))]},
    "bin is a link": lambda at: {"members": [("etc", ("link", str(at.outside))), ("conda-meta", ("link", str(at.outside)))]},
    "a hard link": lambda at: {"members": [("share/out", ("hard link", str(at.outside / "precious.txt")))]},
    "a hard link of dots": lambda at: {"members": [("share/out", ("hard link", up(at.outside / "precious.txt")))]},
    "info is a link": lambda at: {"members": [("info", ("link", str(at.outside)))]},
    "a file of info is a link": lambda at: {"members": [("info/index.json", ("link", str(at.outside / "precious.txt"))), ("info/paths.json", ("link", str(new(at))))]},
    "pure": lambda at: {"link": PYTHON, "depends": ["python"], "members": [(f"site-packages/{up(new(at))}", b"x")]},
    "pure, rows alone": lambda at: {"link": PYTHON, "depends": ["python"], "members": [("payload", b"x")],
                                    "paths": [row("site-packages/../../../../../../outside/precious.txt"), row("python-scripts/../../../outside/precious.txt")]},
    "an entry point": lambda at: entry(up(new(at))),
    "an absolute entry point": lambda at: entry(str(new(at))),
    "an entry point over python": lambda at: entry("python"),
    "the mark": lambda at: {"members": [(".gpuenv/plan.json", b"{}"), (".gpuenv/lock.json", b"{}"), (".gpuenv/request.json", b"[]")]},
    "the mark is a link": lambda at: {"members": [(".gpuenv", ("link", str(at.outside)))]},
    "conda-meta": lambda at: {"members": [("conda-meta/history", b"x"), ("conda-meta/evil-1.0-h0_0.json", b"[]"), ("conda-meta/x-1-0.json", ("link", str(at.outside / "precious.txt")))]},
    "setuid": lambda at: {"members": [("bin/su", b"#!/bin/sh\n", 0o6755)]},
    "a pipe": lambda at: {"members": [("share/pipe", ("pipe", ""))]},
    "a device": lambda at: {"members": [("share/device", ("device", ""))]},
    "odd index": lambda at: {"members": [("payload", b"x")], "info": {"info/index.json": {"name": "../../x", "version": 7, "depends": 7, "constrains": {}, "noarch": []}}},
    "odd paths": lambda at: {"members": [("payload", b"x")], "info": {"info/paths.json": [7]}},
    "a post-link script": lambda at: {"members": [(f"bin/.evil-{w}.sh", f"#!/bin/sh\ntouch {at.marker}\n".encode(), 0o755) for w in ("post-link", "pre-link", "pre-unlink", "post-unlink")]},
    "escapes": lambda at: {"members": [(f"share/{PAYLOAD.replace('/', '')}", b"x")], "paths": [row(f"share/{PAYLOAD}", "hardlink"), row(f"share/{PAYLOAD}2", "directory")]},
}  # fmt: skip


def from_package(at: Field, make: Callable[[Field], Made], ending: str) -> str | None:
    base, folder = channel(at), at.work / "evil" / "conda-forge"
    shutil.copytree(base, folder)
    made = make(at)
    other = made.pop("other", None)
    if other:
        write(folder, "evil2", other, ending)
        made["depends"] = ["evil2"]
    write(folder, "evil", made, ending)
    try:
        cc.index(folder)
    except Exception as error:  # noqa: BLE001  # a channel that cannot be made serves nothing
        return None if "not a valid package name" in str(error) else f"no channel: {error}"
    top = {p.name for p in at.folder.iterdir()} | {"cache", "data", "home"}
    argv = (*ASK, "--with", "evil", "--channel", folder, "--no-verify")
    runs = [at.gpuenv("create", ".venv", *argv)]
    told = at.harm(*runs, right=(0, 6, 7)) or strays(at, top)
    if runs[0].code and (at.work / ".venv").exists():
        told = told or "half an environment is left"
    if told or runs[0].code:
        return told
    bits = [p for p in (at.work / ".venv").rglob("*") if not p.is_symlink() and p.stat().st_mode & (stat.S_ISUID | stat.S_ISGID) and p.is_file()]  # fmt: skip
    if bits:
        return f"runs as somebody else: {bits[0].name}"
    for more in (("verify", ".venv", "--device", "cpu", "--quick"), ("repair", ".venv", "--no-verify"), ("create", ".venv", *argv, "--with", "extra"),
                 ("create", ".venv", *argv, "--recreate"), ("remove", ".venv")):  # fmt: skip
        told = at.harm(at.gpuenv(*more), right=CODES) or strays(at, top)
        if told:
            return f"{more[0]}: {told}"
    return None if not (at.work / ".venv").exists() else "it is not removed"


def strays(at: Field, top: set[str]) -> str | None:
    """What came beside the environment."""
    found = {p.name for p in at.folder.iterdir()} - top
    found |= {p.name for p in at.work.iterdir()} - {".venv", "evil"}
    for name in found:
        shutil.rmtree(at.folder / name, ignore_errors=True)
    return f"made outside: {sorted(found)}" if found else None


for what, make in PACKAGES.items():
    for ending in (".conda", ".tar.bz2"):
        case(f"conda packages: {what}: {ending}")(lambda at, m=make, e=ending: from_package(at, m, e))


# --- records ----------------------------------------------------------------------------------------

COMMANDS: dict[str, tuple[object, ...]] = {
    "verify": ("verify", ".venv", "--device", "cpu", "--quick"),
    "verify --locked": ("verify", ".venv", "--device", "cpu", "--locked", "--deep"),
    "repair": ("repair", ".venv", "--no-verify"),
    "create": ("create", ".venv", *ASK, "--no-verify"),
    "create --with": ("create", ".venv", *ASK, "--with", "extra", "--no-verify"),
    "create without": ("create", ".venv", *ASK, "--no-verify"),
    "create --recreate": ("create", ".venv", *ASK, "--recreate", "--no-verify"),
    "remove": ("remove", ".venv"),
    "list": ("list",),
    "export": ("export", ".venv", "--format", "environment.yml"),
    "report": ("report", ".venv"),
}


def made(at: Field, *, extra: bool) -> Path:
    """A conda environment of this case's own, at the path that it was made for."""
    name = "conda-extra" if extra else "conda-plain"
    kept, env = at.folder / "cache" / name, at.work / ".venv"
    if not kept.exists():
        more = ("--with", "extra") if extra else ()
        ran = at.gpuenv("create", ".venv", *ASK, *more, "--channel", channel(at), "--no-verify")
        assert ran.code == 0, ran.err
        shutil.copytree(env, kept, symlinks=True)
        shutil.rmtree(env)
    shutil.copytree(kept, env, symlinks=True)
    own(env, at.gpuenv.env)
    return env


def records(env: Path) -> list[Path]:
    return sorted((env / "conda-meta").glob("*.json"))


def changed(env: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    for path in records(env):
        data = json.loads(path.read_text())
        path.write_text(json.dumps(data | change(data)))
    next(env.glob("lib/python3*/site-packages/jaxlib/__init__.py")).unlink(
        missing_ok=True
    )  # for repair to do


def leading(paths: list[str]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def change(data: dict[str, Any]) -> dict[str, Any]:
        rows = [row(p, size_in_bytes=1, sha256="a" * 64) for p in paths]
        return {"files": data["files"] + paths, "paths_data": data["paths_data"] | {"paths": data["paths_data"]["paths"] + rows}}  # fmt: skip

    return change


def out_of(at: Field, env: Path) -> list[str]:
    near = os.path.relpath(at.outside, env)
    return [f"{near}/precious.txt", f"{near}/sub/keep.txt", f"lib/../{near}/history"]


def through_link(at: Field, env: Path) -> None:
    (env / "share" / "through").parent.mkdir(exist_ok=True)
    (env / "share" / "through").symlink_to(at.outside)
    changed(env, leading(["share/through/precious.txt", "share/through/sub/keep.txt"]))


def elsewhere(at: Field, env: Path) -> None:
    """Where packages came from: what is there is nobody's to write, to link or to remove."""
    (at.outside / "info").mkdir()
    (at.outside / "info" / "index.json").write_text('{"depends": ["x"]}')
    at._before = tree_of(at)
    changed(env, lambda _: {"extracted_package_dir": str(at.outside), "package_tarball_full_path": str(at.outside / "precious.txt"),
                            "link": {"source": str(at.outside), "type": 1}, "python_site_packages_path": "../../outside"})  # fmt: skip


def named_out(at: Field, env: Path) -> None:
    changed(env, lambda _: {"name": "../../outside/x", "version": "1", "fn": "../../../outside/precious.txt",
                            "url": f"file://{at.outside}/precious.txt", "channel": at.evil.url})  # fmt: skip


def shown(at: Field, env: Path) -> None:
    text = PAYLOAD.replace("/", "")
    changed(
        env,
        lambda _: {
            "version": text,
            "requested_spec": text,
            "requested_specs": [text],
            "depends": [text],
            "license": text,
        },
    )
    (env / "conda-meta" / f"{text[:40]}-1.0-0.json").write_text(json.dumps({"name": text, "files": [text], "paths_data": {"paths": [row(text)]}}))  # fmt: skip


def odd(at: Field, env: Path) -> None:
    values: list[Any] = [
        [],
        7,
        None,
        "x",
        {"files": 7, "paths_data": 7},
        {"files": [7, None], "paths_data": {"paths": [7, {"_path": 7}]}},
    ]
    for number, path in enumerate(records(env)):
        path.write_text(json.dumps(values[number % len(values)]))
    (env / "conda-meta" / "x-1-0.json").write_text("[" * 100_000)
    (env / "conda-meta" / "y-1-0.json").write_text('{"files": ["\\u0000"], "paths_data": {"paths": [{"_path": "\\u0000"}]}}')  # fmt: skip


def each(path_of: Callable[[Field, Path], None]) -> Callable[[Field, Path], None]:
    return lambda at, env: (
        [path_of(at, path) for path in (*records(env), env / "conda-meta" / "history")] and None
    )


def as_pipe(_: Field, path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def as_link(at: Field, path: Path) -> None:
    shutil.copy2(path, at.outside / path.name)
    at._before = tree_of(at)
    link(path, at.outside / path.name)


def as_hard_link(at: Field, path: Path) -> None:
    (at.outside / path.name).unlink(missing_ok=True)
    (at.outside / path.name).hardlink_to(path)
    at._before = tree_of(at)


def as_huge(_: Field, path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(300 << 20)


def folder_is_link(at: Field, env: Path) -> None:
    shutil.move(env / "conda-meta", at.outside / "conda-meta")
    (env / "conda-meta").symlink_to(at.outside / "conda-meta")
    at._before = tree_of(at)


def scripts_on_entering(at: Field, env: Path) -> None:
    for name in ("activate.d", "deactivate.d"):
        folder = env / "etc" / "conda" / name
        folder.mkdir(parents=True)
        (folder / "x.sh").write_text(f"touch '{at.marker}'\n")
    (env / "bin" / ".jax-pre-unlink.sh").write_text(f"#!/bin/sh\ntouch '{at.marker}'\n")
    (env / "bin" / ".jax-pre-unlink.sh").chmod(0o755)


RECORDS: dict[str, Callable[[Field, Path], None]] = {
    "files lead out": lambda at, env: changed(env, leading(out_of(at, env))),
    "files are absolute": lambda at, env: changed(env, leading([str(at.outside / "precious.txt"), str(at.outside / "sub" / "keep.txt"), "/etc/hostname"])),
    "files are folders": lambda at, env: changed(env, leading(["..", ".", "/", "", os.path.relpath(at.outside, env), str(at.outside)])),
    "files through a link": through_link, "packages come from elsewhere": elsewhere, "names lead out": named_out, "escapes": shown,
    "odd values": odd, "pipes": each(as_pipe), "links": each(as_link), "hard links": each(as_hard_link),
    "endless": each(lambda _, path: link(path, Path("/dev/zero"))), "huge": each(as_huge), "conda-meta is a link": folder_is_link,
    "scripts of activation": scripts_on_entering,
}  # fmt: skip


def tried(at: Field, make: Callable[[Field, Path], None], command: str) -> str | None:
    env = made(at, extra=command == "create without")
    make(at, env)
    if command == "list":
        entry_ = at.folder / "data" / "gpuenv" / "environments" / "x.json"
        entry_.parent.mkdir(parents=True, exist_ok=True)
        entry_.write_text(json.dumps({"path": str(env)}))
    argv = COMMANDS[command]
    if command.startswith("create"):
        argv = (*argv, "--channel", channel(at))
    problem = at.harm(at.gpuenv(*argv), right=CODES)
    at._mend()
    at._before = tree_of(at)
    return problem


for what, bend in RECORDS.items():
    for one in COMMANDS:
        case(f"conda records: {what}: {one}")(lambda at, m=bend, c=one: tried(at, m, c))


@case("conda records: as they were made")
def _(at: Field) -> str | None:
    """What the cases above bend works as it is."""
    for command in (
        "create --with",
        "create without",
        "create --recreate",
        "repair",
        "list",
        "export",
        "remove",
    ):
        shutil.rmtree(at.work / ".venv", ignore_errors=True)
        made(at, extra=command == "create without")
        argv = (*COMMANDS[command], *(("--channel", channel(at)) if command.startswith("create") else ()))
        if told := at.harm(at.gpuenv(*argv), right=(0,)):
            return f"{command}: {told}"
    return None
