"""Environments and lists of them that were made to lead out: what is verified, repaired, changed, made anew or removed."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from field import ASK, Field, case

CODES = (0, 2, 3, 4, 5, 6, 7, 8, 9)
COMMANDS: dict[str, tuple[object, ...]] = {
    "verify": ("verify", ".venv", "--device", "cpu"),
    "verify --locked": ("verify", ".venv", "--device", "cpu", "--locked", "--deep"),
    "repair": ("repair", ".venv", "--no-verify"),
    "create": ("create", ".venv", *ASK, "--no-verify"),
    "create --with": ("create", ".venv", *ASK, "--with", "extra", "--no-verify"),
    "create --recreate": ("create", ".venv", *ASK, "--recreate", "--no-verify"),
    "remove": ("remove", ".venv"),
    "list": ("list",),
    "export": ("export", ".venv", "--format", "requirements"),
    "report": ("report", ".venv"),
    "diagnose": ("diagnose", "--env", ".venv"),
}


def link(path: Path, to: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir():
        shutil.rmtree(path)
    path.symlink_to(to)


def info(at: Field, env: Path, name: str = "jaxlib") -> Path:
    return next(at.site(env).glob(f"{name}-*.dist-info"))


def drop_file(at: Field, env: Path) -> None:
    """Something for repair to do."""
    (at.site(env) / "jaxlib" / "__init__.py").unlink()


# --- what is done to them ------------------------------------------------------------------------


def record_out(at: Field, env: Path) -> None:
    rows = [f"{at.outside}/precious.txt,,", "../../../../../../outside/precious.txt,,", f"{os.path.relpath(at.outside, at.site(env))}/sub/keep.txt,,",
            "/etc/hostname,,", "..,,", "../../..,,", ".,,", "/,,"]  # fmt: skip
    for folder in at.site(env).glob("*.dist-info"):
        with (folder / "RECORD").open("a") as file:
            file.write("\n".join(rows) + "\n")
    drop_file(at, env)


def record_through_link(at: Field, env: Path) -> None:
    (at.site(env) / "through").symlink_to(at.outside)
    with (info(at, env) / "RECORD").open("a") as file:
        file.write("through/precious.txt,,\nthrough/sub/keep.txt,,\n")
    drop_file(at, env)


def top_level(at: Field, env: Path) -> None:
    """What uninstallers without a RECORD go by."""
    egg = at.site(env) / "jaxlib-0.1.egg-info"
    egg.mkdir()
    (egg / "top_level.txt").write_text("../../../../../outside\n/\n..\n")
    (egg / "installed-files.txt").write_text("../../../../../../outside/precious.txt\n")
    (at.site(env) / "easy-install.pth").write_text(f"{at.outside}\n")


def package_is_link(at: Field, env: Path) -> None:
    shutil.rmtree(at.site(env) / "jaxlib")
    (at.site(env) / "jaxlib").symlink_to(at.outside)


def lib_is_link(at: Field, env: Path) -> None:
    shutil.move(env / "lib", at.work / "lib")
    (env / "lib").symlink_to(at.work / "lib")
    drop_file(at, env)


def site_is_link(at: Field, env: Path) -> None:
    link(at.site(env), at.outside)


def bin_is_link(at: Field, env: Path) -> None:
    link(env / "bin", at.outside)
    drop_file(at, env)


def activate_is_link(at: Field, env: Path) -> None:
    """The activate script of an interrupted run is written again: here it is somebody's file."""
    text = f"echo .{env.name}.gpuenv-new\n"
    for name in ("activate", "activate.fish", "activate.csh", "pip", "jax"):
        link(env / "bin" / name, at.outside / "activate")
    at.outside.joinpath("activate").write_text(text)
    at._before = tree_of(at)
    drop_file(at, env)


def tree_of(at: Field) -> dict[str, str]:
    from ground import tree

    return tree(at.outside)


def settings_are_links(at: Field, env: Path) -> None:
    link(env / "pyvenv.cfg", at.outside / "precious.txt")
    for name in ("_virtualenv.py", "_virtualenv.pth"):
        link(at.site(env) / name, at.outside / "precious.txt")
    (env / "bin" / "activate").write_text(f"# .{env.name}.gpuenv-new\n")
    drop_file(at, env)


def mark_is_link(at: Field, env: Path) -> None:
    shutil.move(env / ".gpuenv", at.outside / "mark")
    (env / ".gpuenv").symlink_to(at.outside / "mark")
    at._before = tree_of(at)


def marks_are_links(at: Field, env: Path) -> None:
    names = ("requirements.txt", "verdict.json", "size.json", "installed.json", "request.json", "plan.json",
             "fetched", ".verdict.json.1")  # fmt: skip
    for name in names:
        path = env / ".gpuenv" / name
        if path.is_file() and name.endswith("json"):
            shutil.copy2(path, at.outside / name)
            at._before = tree_of(at)
            link(path, at.outside / name)
        else:
            link(path, at.outside / ("sub" if name == "fetched" else "precious.txt"))
    drop_file(at, env)


def fetched_is_link(at: Field, env: Path) -> None:
    """A scratch folder that leads out."""
    link(env / ".gpuenv" / "fetched", at.outside)


def hard_links(at: Field, env: Path) -> None:
    """Other names of somebody's files: writing into them changes the file outside."""
    for path in (env / "pyvenv.cfg", env / "bin" / "activate", env / ".gpuenv" / "requirements.txt",
                 env / ".gpuenv" / "verdict.json", at.site(env) / "jaxlib" / "__init__.py"):  # fmt: skip
        path.unlink(missing_ok=True)
        path.hardlink_to(at.outside / "activate")


def siblings(at: Field, env: Path) -> None:
    """Where drafts and what is aside would be: links to somebody's folder, with the mark in it."""
    for end in ("new", "old"):
        env.with_name(f".{env.name}.gpuenv-{end}").symlink_to(at.outside)
    (env / ".gpuenv" / "building").touch()


def planted_mark(at: Field, env: Path) -> None:
    """Somebody's folder with a mark in it."""
    shutil.rmtree(env)
    shutil.copytree(at.outside, env)
    (env / ".gpuenv").mkdir()


def planted_siblings(at: Field, env: Path) -> None:
    """Somebody's folders in the place of drafts, beside an environment."""
    for end in ("new", "old"):
        shutil.copytree(at.outside, env.with_name(f".{env.name}.gpuenv-{end}"))


def cycles(at: Field, env: Path) -> None:
    (env / "lib" / "again").symlink_to(env)
    (at.site(env) / "self").symlink_to("self")
    (env / "lib" / "python3.99").mkdir()
    (env / "lib" / "python3.99" / "site-packages").symlink_to("../../..")
    (env / ".gpuenv" / "self.json").symlink_to("self.json")
    drop_file(at, env)


def deep_and_many(at: Field, env: Path) -> None:
    """Folders in folders, to the longest path that there is."""
    here = Path.cwd()
    try:
        os.chdir(env)
        for _ in range(1200):
            Path("d" * 60).mkdir()
            os.chdir("d" * 60)
    finally:
        os.chdir(here)


def huge_files(at: Field, env: Path) -> None:
    for path in (
        info(at, env) / "RECORD",
        info(at, env) / "METADATA",
        env / "pyvenv.cfg",
        env / ".gpuenv" / "installed.json",
    ):
        with path.open("r+b") as file:
            file.truncate(200 << 20)


def endless_files(at: Field, env: Path) -> None:
    for path in (
        info(at, env) / "RECORD",
        info(at, env) / "METADATA",
        env / ".gpuenv" / "installed.json",
        env / ".gpuenv" / "verdict.json",
    ):
        link(path, Path("/dev/zero"))


def pipes(at: Field, env: Path) -> None:
    names = (info(at, env) / "RECORD", info(at, env, "jax") / "METADATA", env / ".gpuenv" / "verdict.json", env / ".gpuenv" / "pylock.toml",
             env / "bin" / "activate", env / "pyvenv.cfg", at.site(env) / "jaxlib" / "__init__.py")  # fmt: skip
    for path in names:
        path.unlink(missing_ok=True)
        os.mkfifo(path)


def odd_marks(at: Field, env: Path) -> None:
    """The files of the mark, each of another shape than it should be."""
    odd = [
        [],
        {},
        1,
        "x",
        None,
        {"path": ["/"]},
        {"names": 7, "files": "x", "choices": [], "bytes": {}, "builds": [1, {}], "verdict": [1]},
    ]
    for number, path in enumerate(sorted((env / ".gpuenv").glob("*.json"))):
        path.write_text(json.dumps(odd[number % len(odd)]))
    (env / ".gpuenv" / "size.json").write_text('{"bytes": "x", "measured": 1e999, "files": {}, "shared": []}')


def request_leads_out(at: Field, env: Path) -> None:
    """What `create` was told, which repair and the next create go by."""
    path = env / ".gpuenv" / "request.json"
    data = json.loads(path.read_text())
    data["choices"] |= {"find_links": [str(at.outside), "http://127.0.0.1:9/x"], "index": at.evil.url, "indexes": {"pypi": at.evil.url},
                        "channel": ["/etc"], "cache_dir": str(at.outside), "requirement": ["/dev/zero"]}  # fmt: skip
    data["files"] = {
        "names": ["/dev/zero", str(at.outside / "precious.txt"), "\0", "/" + "x" * 5000],
        "digest": "x",
    }
    path.write_text(json.dumps(data))


MADE: dict[str, Callable[[Field, Path], None]] = {
    "RECORDs lead out": record_out, "a RECORD leads through a link": record_through_link, "an egg-info leads out": top_level,
    "a package is a link": package_is_link, "lib is a link": lib_is_link, "site-packages is a link": site_is_link,
    "bin is a link": bin_is_link, "scripts are links": activate_is_link, "pyvenv.cfg is a link": settings_are_links,
    ".gpuenv is a link": mark_is_link, "files of .gpuenv are links": marks_are_links, "the scratch folder is a link": fetched_is_link,
    "hard links": hard_links, "links where drafts are": siblings, "folders where drafts are": planted_siblings, "cycles": cycles,
    "very deep": deep_and_many, "huge files": huge_files, "endless files": endless_files, "pipes": pipes, "odd values": odd_marks,
}  # fmt: skip


def tried(at: Field, make: Callable[[Field, Path], None], command: str) -> str | None:
    env = at.made()
    at.index.add("extra", "1.0")
    make(at, env)
    if command == "list":
        entry = at.folder / "data" / "gpuenv" / "environments" / "x.json"
        entry.parent.mkdir(parents=True, exist_ok=True)
        entry.write_text(json.dumps({"path": str(env)}))
    kept = {p.name: p for p in at.work.iterdir() if p.name.startswith(".venv.") or p.name == "lib"}
    ran = at.gpuenv(*COMMANDS[command])
    problem = at.harm(ran, right=CODES)
    at._mend()
    at._before = tree_of(at)
    gone = [
        n for n, p in kept.items() if n == "lib" and not (p / "python3.11").exists() and not any(p.iterdir())
    ]
    return problem or (f"emptied {gone}" if gone else None)


for name, function in MADE.items():
    for one in COMMANDS:
        case(f"environments: {name}: {one}")(lambda at, m=function, c=one: tried(at, m, c))


@case("environments: a mark in somebody's folder: create --recreate")
def _(at: Field) -> str | None:
    return planted(at, "create", ".venv", *ASK, "--recreate", "--no-verify")


@case("environments: a mark in somebody's folder: remove")
def _(at: Field) -> str | None:
    return planted(at, "remove", ".venv")


@case("environments: a mark in somebody's folder: create")
def _(at: Field) -> str | None:
    return planted(at, "create", ".venv", *ASK, "--no-verify")


def planted(at: Field, *argv: object) -> str | None:
    env = at.made()
    planted_mark(at, env)
    ran = at.gpuenv(*argv)
    return at.harm(ran, right=(2, 7)) or (
        None if (env / "precious.txt").exists() else "somebody's folder is gone"
    )


@case("environments: somebody's folder in the place of a draft stays")
def _(at: Field) -> str | None:
    env = at.made()
    planted_siblings(at, env)
    runs = [at.gpuenv(*COMMANDS[c]) for c in ("create --recreate", "repair", "remove")]
    left = all((at.work / f".{env.name}.gpuenv-{e}" / "precious.txt").exists() for e in ("new", "old"))
    return at.harm(*runs) or (None if left else "somebody's folder is gone")


@case("environments: ENV is a link")
def _(at: Field) -> str | None:
    env = at.made("real")
    (at.work / ".venv").symlink_to(env)
    runs = [
        at.gpuenv(*COMMANDS[c]) for c in ("remove", "create --recreate", "create", "repair", "verify", "list")
    ]
    return at.harm(*runs) or (None if (env / "bin").is_dir() else "what the link names is gone")


@case("environments: ENV is a link to somebody's folder")
def _(at: Field) -> str | None:
    (at.work / ".venv").symlink_to(at.outside)
    return at.harm(*(at.gpuenv(*COMMANDS[c]) for c in COMMANDS if c not in ("list", "report", "diagnose")))


@case("environments: the list names / and the home folder")
def _(at: Field) -> str | None:
    home = at.folder / "home"
    (home / "keep.txt").write_text("keep")
    (home / ".gpuenv").mkdir(exist_ok=True)
    (home / ".gpuenv" / "plan.json").write_text("{}")
    folder = at.folder / "data" / "gpuenv" / "environments"
    folder.mkdir(parents=True, exist_ok=True)
    for number, path in enumerate(
        ["/", str(home), "/etc", "", "..", "\0", "/proc/self/root", "/" + "x" * 5000, 7, None]
    ):
        (folder / f"{number}.json").write_text(json.dumps({"path": path}))
    runs = [at.gpuenv("list"), at.gpuenv("list", "--json"), at.gpuenv("remove", home), at.gpuenv("remove", "/"),
            at.gpuenv("create", home, *ASK, "--recreate", "--no-verify"), at.gpuenv("create", "/", *ASK, "--recreate", "--no-verify")]  # fmt: skip
    kept = (home / "keep.txt").exists()
    shutil.rmtree(home / ".gpuenv", ignore_errors=True)
    return at.harm(*runs, right=CODES) or (None if kept else "the home folder was emptied")


@case("environments: the list's folder is a link, its entries are pipes and huge")
def _(at: Field) -> str | None:
    folder = at.folder / "data" / "gpuenv" / "environments"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    os.mkfifo(folder / "a.json")
    (folder / "b.json").symlink_to("/dev/zero")
    (folder / "c.json").write_text('{"path": ' * 100_000)
    (folder / "d.json").symlink_to(at.outside / "precious.txt")
    try:
        return at.harm(at.gpuenv("list"), right=CODES)
    finally:
        shutil.rmtree(folder)


@case("environments: another environment inside, and this folder inside")
def _(at: Field) -> str | None:
    env = at.made()
    (env / "work").mkdir()
    at.gpuenv.work, before = env / "work", at.gpuenv.work
    try:
        ran = at.gpuenv("remove", "..")
    finally:
        at.gpuenv.work = before
    return at.harm(ran, right=(2,)) or (None if env.is_dir() else "it is gone with the folder that we are in")


@case("environments: what create was told before leads out")
def _(at: Field) -> str | None:
    env = at.made()
    request_leads_out(at, env)
    drop_file(at, env)
    return at.harm(at.gpuenv("create", ".venv", *ASK, "--no-verify"), at.gpuenv("list"), right=CODES)


# --- what starts with Python -----------------------------------------------------------------------

LIE = """
import json, os
def said():
    fd = int(os.environ.get("GPUENV_REPORT", "1"))
    rows = [dict(kind="where", at=0, version="3.11.7", executable="x", prefix="/", base_prefix="/", path=[], sites=[], user_site=None,
                 frameworks={"jax": {"origin": "/x/jax/__init__.py", "folders": ["/x/jax"]}}),
            dict(kind="begin", at=0, stage="framework", doing="x"),
            dict(kind="framework", at=0, version="VERSION", file="FILE", cuda=None, cudnn=None, devices=[], names=[]),
            dict(kind="stage", at=1, stage="framework"),
            dict(kind="convolution", at=1, device=0, case="conv2d", dtype="float32", which="forward", ok=True, error=0.0,
                 tolerance=1.0, reason="x", name="cpu", uuid=None),
            dict(kind="stage", at=2, stage="convolution"),
            dict(kind="mapped", at=3, files=[], order=[]), dict(kind="stage", at=3, stage="loaded")]
    for row in rows:
        text = (json.dumps(row) + "\\n").encode()
        os.write(fd, text)
        os.write(1, text)
"""
STARTS = {
    "prints": "import sys; print('{\"kind\": \"convolution\"}\\x1b]0;x\\x07' * 50); sys.stderr.write('\\x1b[2Jgarbage\\n')",
    "writes garbage to the report": "import os\nfor d in range(3, 20):\n    try: os.write(d, b'{\"kind\": \"stage\"}\\n{\"kind\": 7}\\n[]\\nnull\\n\\xff\\xff{\"kind\"' + b'x' * 100000 + b'\\n')\n    except OSError: pass",
    "lies": LIE + "said()",
    "lies and exits": LIE + "said(); os._exit(0)",
    "lies and sleeps": LIE + "said()\nimport time; time.sleep(60)",
    "exits well": "import os; os._exit(0)",
    "raises SystemExit": "raise SystemExit(0)",
    "exits badly": "import os; os._exit(3)",
    "kills itself": "import os; os.kill(os.getpid(), 9)",
    "sleeps": "import time; time.sleep(60)",
    "closes everything": "import os; os.closerange(0, 256)",
    "fills the pipe": "import os\nfor d in range(3, 9):\n    try:\n        for i in range(64): os.write(d, b'x' * 1048576)\n    except OSError: pass",
    "forks": "import os, time\nif os.fork() == 0:\n    time.sleep(40)\n    os._exit(0)",
    "takes json away": "import sys; sys.modules['json'] = None",
    "turns write around": "import os; w = os.write; os.write = lambda fd, data: len(data)",
}  # fmt: skip


def started(at: Field, code: str, how: str) -> str | None:
    env = at.made()
    version = next(at.site(env).glob("jax-*.dist-info")).name.split("-")[1].removesuffix(".dist")
    code = code.replace("VERSION", version).replace("FILE", str(at.site(env) / "jax" / "__init__.py"))
    if how == ".pth":
        (at.site(env) / "aa.pth").write_text(f"import sys; exec({code!r})\n")
    else:
        (at.site(env) / f"{how}.py").write_text(code)
    if how == "usercustomize":
        home = (
            at.folder
            / "home"
            / ".local"
            / "lib"
            / f"python{sys.version_info[0]}.{sys.version_info[1]}"
            / "site-packages"
        )
        home.mkdir(parents=True, exist_ok=True)
        shutil.copy(at.site(env) / f"{how}.py", home)
    ran = at.gpuenv("verify", ".venv", "--device", "cpu", "--timeout", "8", timeout=60)
    shutil.rmtree(at.folder / "home" / ".local", ignore_errors=True)
    # jax is an empty module here: whatever starts before it, no verdict but a bad one is right.
    return at.harm(ran, right=(2, 8))


for what, text in STARTS.items():
    for way in ("sitecustomize", ".pth"):
        case(f"start: {way} {what}")(lambda at, t=text, w=way: started(at, t, w))
