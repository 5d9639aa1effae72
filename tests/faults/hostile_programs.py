"""Programs and modules that lie in wait, names of folders that end in scripts, and homes of somebody else."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

from field import ASK, Field, case

CODES = (0, 2, 3, 4, 5, 6, 7, 8, 9)
FAKES = ("nvidia-smi", "uv", "python", "python3", f"python{sys.version_info[0]}.{sys.version_info[1]}", "python3.12", "git", "ldconfig", "conda", "mamba",
         "micromamba", "pip", "bash", "sh", "env", "virtualenv", "ssh", "lspci", "uname", "id", "which", "file", "cc", "gcc", "make", "cudnn", "nvcc")  # fmt: skip
MODULES = ("typing", "json", "torch", "jax", "re", "os", "socket", "rich", "typer", "yaml", "virtualenv", "uv", "packaging", "rattler", "sitecustomize",
           "usercustomize", "encodings", "numpy", "conda_lock", "filelock", "platformdirs", "tomli", "click", "site")  # fmt: skip
EVERYDAY: tuple[tuple[object, ...], ...] = (
    ("detect",), ("resolve", *ASK), ("lock", *ASK), ("create", "made-env", *ASK, "--no-verify"), ("list",), ("repair", "made-env", "--no-verify"),
    ("export", "made-env", "--format", "requirements"), ("init", "--framework", "jax"), ("report", "made-env"), ("remove", "made-env"),
)  # fmt: skip


def fakes(at: Field, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in FAKES:
        (folder / name).write_text(
            f"#!/bin/sh\necho {name} \"$@\" >> '{at.marker}'\necho '9.9, GPU-x, fake'\n"
        )
        (folder / name).chmod(0o755)
    return folder


def everyday(at: Field, *more: tuple[object, ...]) -> str | None:
    runs = [at.gpuenv(*argv, timeout=60) for argv in (*EVERYDAY, *more)]
    names = at.marker.read_text()[:200] if at.marker.exists() else ""
    problem = at.harm(*runs, right=CODES)
    return f"{problem}: {names}" if problem and names else problem


@case("programs: fakes in a PATH entry that everybody may write to")
def _(at: Field) -> str | None:
    folder = fakes(at, at.folder / "public")
    folder.chmod(0o777)
    at.gpuenv.env["PATH"] = f"{folder}:{at.gpuenv.env['PATH']}"
    try:
        return everyday(at)
    finally:
        shutil.rmtree(folder)


@case("programs: fakes that everybody may write to")
def _(at: Field) -> str | None:
    folder = fakes(at, at.folder / "own")
    for path in folder.glob("py*"):
        path.unlink()
    for path in folder.iterdir():
        path.chmod(0o777)
    at.gpuenv.env["PATH"] = f"{folder}:{at.gpuenv.env['PATH']}"
    try:
        return everyday(at)
    finally:
        shutil.rmtree(folder)


@case("programs: fakes of another user")
def _(at: Field) -> str | None:
    if os.geteuid() != 0:
        return None  # only root can make them
    folder = fakes(at, at.folder / "theirs")
    for path in folder.glob("py*"):
        path.unlink()  # whose Python is first on PATH is the user's to say: clusters have them of an installer's
    for path in (folder, *folder.iterdir()):
        os.chown(path, 12345, 12345)
    at.gpuenv.env["PATH"] = f"{folder}:{at.gpuenv.env['PATH']}"
    try:
        return everyday(at)
    finally:
        shutil.rmtree(folder)


@case("programs: modules in this folder")
def _(at: Field) -> str | None:
    for name in MODULES:
        (at.work / f"{name}.py").write_text(f"open({str(at.marker)!r}, 'a').write({name!r} + ' ')\n")
    return everyday(
        at,
        ("verify", sys.executable, "--device", "cpu"),
        ("lock", *ASK, "--manager", "conda", "--channel", "http://127.0.0.1:9/c", "-o", "c.yml"),
    )


@case("programs: a framework in this folder is not the environment's")
def _(at: Field) -> str | None:
    at.made()
    for name in MODULES:
        (at.work / f"{name}.py").write_text(f"open({str(at.marker)!r}, 'a').write({name!r} + ' ')\n")
    return at.harm(at.gpuenv("verify", ".venv", "--device", "cpu"), right=(8,))


@case("programs: PYTHONSTARTUP, PYTHONINSPECT and other variables")
def _(at: Field) -> str | None:
    code = at.folder / "start.py"
    code.write_text(f"open({str(at.marker)!r}, 'a').write('x')\n")
    at.gpuenv.env |= {"PYTHONSTARTUP": str(code), "BASH_ENV": str(code), "ENV": str(code), "VIRTUALENV_CONFIG_FILE": str(at.outside / "precious.txt"),
                      "GIT_SSH_COMMAND": f"touch {at.marker}", "PAGER": str(at.program), "EDITOR": str(at.program), "BROWSER": str(at.program)}  # fmt: skip
    return everyday(at)


@case("programs: modules on PYTHONPATH are kept from what gpuenv starts to look at a machine")
def _(at: Field) -> str | None:
    # gpuenv's own process starts as the user has it (PYTHONPATH is his); its helpers do not.
    folder = at.folder / "path"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(
        f"import sys\nif 'gpuenv' not in sys.orig_argv[1:2][0:1].__repr__(): open({str(at.marker)!r}, 'a').write(repr(sys.orig_argv)[:200])\n"
    )
    at.gpuenv.env["PYTHONPATH"] = str(folder)
    runs = [at.gpuenv("detect"), at.gpuenv("resolve", *ASK)]
    told = at.marker.read_text() if at.marker.exists() else ""
    problem = at.harm(*runs, right=CODES)
    return f"{problem}: {told}" if problem else None


# --- names ------------------------------------------------------------------------------------------

NAMES = {
    "an option": "-rf", "a long option": "--index-url=x", "a shell": "$(touch MARKED)", "backticks": "`touch MARKED`", "quotes": "a'b\"c", "a semicolon": "a;touch MARKED;b",
    "a blank": "a b", "a newline": "a\ntouch MARKED\nb", "escapes": "a\x1b]0;owned\x07b\x1b[2J", "a tab": "a\tb", "a star": "*", "a tilde": "~", "a variable": "${HOME}",
    "a brace": "{a,b}", "a hash": "a#b", "an exclamation": "a!b!!", "a percent": "a%s%n", "a backslash": "a\\b", "bidi": "a\u202eb", "a github expression": "${{ secrets.X }}",
    "a make variable": "$(shell touch MARKED)", "no text": os.fsdecode(b"a\xff\xfeb"), "an umlaut": "für", "very long": "n" * 200,
}  # fmt: skip


def marked(at: Field, name: str) -> str:
    return name.replace("MARKED", "marked")  # a name has no slash: what runs makes a file in this folder


def ran(at: Field) -> str | None:
    made = [p for folder in (at.work, at.folder) for p in folder.rglob("marked") if p.is_file()]
    for path in made:
        path.unlink()
    return "what the name says was run" if made else None


def called(at: Field, name: str) -> str | None:
    """An environment of that name: made, entered, verified, exported, listed, removed."""
    name = marked(at, name)
    env = at.work / name
    first = at.gpuenv("create", "--no-verify", *ASK, "--", env if name.startswith("~") else name)
    problem = at.harm(first, right=(0, 2)) or ran(at)
    if problem or first.code == 2:
        return problem or (None if not os.path.lexists(env) else "refused, and yet there")
    if not env.is_dir():
        return "it is elsewhere"
    line = first.out.strip().splitlines()[-1]
    done = subprocess.run(
        ["bash", "-c", f'{line}\necho "$VIRTUAL_ENV"'],
        cwd=at.work,
        env=at.gpuenv.env,
        capture_output=True,
        check=False,
        timeout=30,
    )
    if os.fsdecode(done.stdout.rstrip(b"\n")) != str(env):
        return f"the activate line does not enter it: {line!r} {done.stdout!r} {done.stderr[-200:]!r}"
    runs = [
        at.gpuenv(*c, "--", env)
        for c in (("verify", "--device", "cpu"), ("repair", "--no-verify"), ("report",))
    ] + [at.gpuenv("list")]
    forms = ("sbatch", "dockerfile", "github", "devcontainer", "apptainer")
    scripts = {form: at.gpuenv("export", "--format", form, "--", env) for form in forms}
    runs += scripts.values()
    if scripts["sbatch"].code == 0:
        fake = at.folder / "slurm"
        fake.mkdir(exist_ok=True)
        for program in ("srun", "gpuenv"):
            (fake / program).write_text("#!/bin/sh\nexit 0\n")
            (fake / program).chmod(0o755)
        # what the shell would run, as the node does
        subprocess.run(["bash", "-c", scripts["sbatch"].out], cwd=at.work, env={**at.gpuenv.env, "PATH": f"{fake}:{at.gpuenv.env['PATH']}"},
                       capture_output=True, check=False, timeout=30)  # fmt: skip
    runs.append(at.gpuenv("remove", "--", env))
    problem = at.harm(*runs, right=CODES) or ran(at)
    return problem or ("it is still there" if env.exists() else None)


for what, value in NAMES.items():
    case(f"names: ENV: {what}")(lambda at, v=value: called(at, v))


def in_project(at: Field, name: str) -> str | None:
    """A project in a folder of that name: init, the Makefile, and what is exported there."""
    folder = at.work / marked(at, name)
    folder.mkdir()
    at.gpuenv.work, before = folder, at.gpuenv.work
    try:
        runs = [at.gpuenv("init", "--framework", "jax"), at.gpuenv("lock", *ASK)]
        runs += [
            at.gpuenv("export", "--lock", "pylock.toml", "--format", f)
            for f in ("dockerfile", "sbatch", "github", "devcontainer", "apptainer")
        ]
    finally:
        at.gpuenv.work = before
    made = next((p for p in folder.iterdir() if p.name == "Makefile"), None)
    if made and shutil.which("make"):
        subprocess.run(
            ["make", "-n", "env"], cwd=folder, env=at.gpuenv.env, capture_output=True, check=False, timeout=30
        )
    return at.harm(*runs, right=CODES) or ran(at)


for what in (
    "an option",
    "a shell",
    "quotes",
    "a newline",
    "escapes",
    "a github expression",
    "a make variable",
    "no text",
):
    case(f"names: a project: {what}")(lambda at, v=NAMES[what]: in_project(at, v))


@case("names: a lock of a hostile name in a Dockerfile and a workflow")
def _(at: Field) -> str | None:
    runs = []
    at.gpuenv("lock", *ASK, "-o", "pylock.toml")
    for name in (
        "pylock.x y.toml",
        "pylock.a\nRUN touch marked.toml",
        "pylock.$(touch marked).toml",
        "pylock.'${{ secrets.X }}'.toml",
        "pylock.\x1b]0;x\x07.toml",
    ):
        shutil.copy(at.work / "pylock.toml", at.work / name)
        for form in ("dockerfile", "github", "sbatch", "apptainer", "devcontainer"):
            one = at.gpuenv("export", "--lock", name, "--format", form)
            runs.append(one)
            if any(r.startswith("RUN touch") for r in one.out.splitlines()):
                return f"a line more in {form}"
            if form == "github" and one.code == 0 and "${{ secrets" in one.out:
                return "an expression in the workflow"
    return at.harm(*runs, right=CODES) or ran(at)


# --- whose home it is ---------------------------------------------------------------------------------


@case(
    "homes: root in the home of another user writes nothing there (as pip: no cache where it is not root's)"
)
def _(at: Field) -> str | None:
    if os.geteuid() != 0:
        return None
    home = at.folder / "theirs"
    home.mkdir()
    os.chown(home, 12345, 12345)
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "UV_CACHE_DIR"):
        at.gpuenv.env.pop(name, None)
    at.gpuenv.env |= {"HOME": str(home), "TMPDIR": str(at.folder / "tmp")}
    (at.folder / "tmp").mkdir(exist_ok=True)
    try:
        problem = everyday(at, ("profiles", "list"))
        left = [str(p.relative_to(home)) for p in home.rglob("*") if p.lstat().st_uid == 0]
        return problem or (f"files of root in it: {left[:5]}" if left else None)
    finally:
        shutil.rmtree(home)


@case("homes: another effective user id is told, and nothing is done with it")
def _(at: Field) -> str | None:
    if os.geteuid() != 0:
        return None
    code = "import os, sys; os.setresuid(12345, 0, 0); os.execv(sys.argv[1], sys.argv[1:])"
    at.folder.chmod(0o755)
    script = Path(sys.executable).with_name("gpuenv")
    argv = [sys.executable, "-c", code, str(script), "create", "env", *ASK, "--no-verify"]
    done = subprocess.run(
        argv, env=at.gpuenv.env, cwd=at.work, capture_output=True, text=True, check=False, timeout=60
    )
    if done.returncode != 2 or "another user's rights" not in done.stderr:
        return f"exit {done.returncode}: {done.stderr[-300:]}"
    return None if not (at.work / "env").exists() else "it was made"


@case("homes: a temporary folder of ours that somebody else has made")
def _(at: Field) -> str | None:
    temporary = at.folder / "tmp2"
    temporary.mkdir(exist_ok=True)
    trap = temporary / f"gpuenv-{os.getuid()}"
    trap.symlink_to(at.outside)
    at.gpuenv.env |= {"TMPDIR": str(temporary), "HOME": "/nonexistent"}
    at.gpuenv.env.pop("XDG_CACHE_HOME")
    problem = at.harm(at.gpuenv("resolve", *ASK), right=CODES)
    shutil.rmtree(temporary)
    return problem


@case("homes: files that are kept are nobody else's to write")
def _(at: Field) -> str | None:
    at.gpuenv("create", "env", *ASK, "--no-verify")
    loose = [str(p) for folder in (at.work / "env" / ".gpuenv", at.folder / "data", at.folder / "cache") for p in folder.rglob("*")
             if not p.is_symlink() and p.stat().st_mode & (stat.S_IWOTH | stat.S_ISUID)]  # fmt: skip
    return f"writable for all: {loose[:3]}" if loose else at.harm()


@case("names: kernels")
def _(at: Field) -> str | None:
    folder = at.folder / "home" / ".local" / "share" / "jupyter" / "kernels"
    env = at.made()
    at.gpuenv.env.pop("XDG_DATA_HOME")
    (folder / "theirs").mkdir(parents=True)
    (folder / "theirs" / "kernel.json").write_text(
        json.dumps({"metadata": {"gpuenv": {"environment": "/somewhere/else"}}})
    )
    (folder / "mine").symlink_to(at.outside)
    (at.outside / "kernel.json").write_text(json.dumps({"metadata": {"gpuenv": {"environment": str(env)}}}))
    from ground import tree

    at._before = tree(at.outside)
    problem = at.harm(at.gpuenv("remove", ".venv"), right=CODES)
    kept = (folder / "theirs" / "kernel.json").exists()
    shutil.rmtree(folder)
    (at.outside / "kernel.json").unlink(missing_ok=True)
    at._mend()
    at._before = tree(at.outside)
    return problem or (None if kept else "another environment's kernel is gone")
