"""Gives every path option of every command paths that cannot be read: `unreadable_walk.py FOLDER COUNT`, one JSON line a run.

It is a program of its own, because root reads everything: `start` runs it without the capabilities for that.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import fork_server

ARGUMENTS = {
    "create": ["--offline"], "sync": ["--offline"], "verify": [], "detect": [], "lock": ["--framework", "torch", "--offline"],
    "resolve": ["--framework", "torch"], "diagnose": ["--no-machine"], "run": ["--", "true"], "init": [],
    "add": ["einops", "--offline"], "drop": ["einops", "--offline"], "repair": ["--offline"], "export": ["--format", "uv"],
    "bundle": ["bundle", "--framework", "torch", "--offline"], "report": [], "remove": ["--yes"],
}  # fmt: skip
"""What a command needs beside the option: words that lead to no request."""


def make_places(folder: Path) -> dict[str, Path]:
    """Five places that this user cannot read, by the reason."""
    closed, file, loop = folder / "closed", folder / "file", folder / "loop"
    (closed / "inside").mkdir(parents=True)
    file.write_text("text\n")
    loop.symlink_to(loop)
    closed.chmod(0)
    return {
        "closed folder": closed, "below a closed folder": closed / "inside" / "x", "below a file": file / "x",
        "link to itself": loop, "missing": folder / "missing" / "x",
    }  # fmt: skip


def list_path_options() -> list[tuple[str, str | None]]:
    """Every command with every option or argument that is a path; None is an argument."""
    from provision.cli.verbs import COMMANDS, load_command
    from provision.model.declare import iterate_options

    found = []
    for name in COMMANDS:
        for _, field, declaration in iterate_options(load_command(name)[0]):
            if "Path" in str(field.type):
                flags = [flag for flag in declaration.flags if flag.startswith("--")]
                flag = (
                    None
                    if declaration.is_argument
                    else (flags or [f"--{field.name.strip('_').replace('_', '-')}"])[0]
                )
                found.append((name, flag))
    return found


def run_in_fork(words: list[str], folder: Path) -> dict[str, object]:
    """Run a command line in a fork, and return its exit code and what it said."""
    out = folder / "said"
    child = os.fork()
    if child == 0:
        from provision.cli import run

        code = 99
        with contextlib.suppress(BaseException), out.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            code = run(words)
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    status = os.waitpid(child, 0)[1]
    return {"words": words, "code": os.waitstatus_to_exitcode(status), "said": out.read_text()}


def walk(folder: Path, count: int) -> None:
    """Run every command with every path option in some of the places, then in a folder that was removed."""
    fork_server.prepare()
    places = make_places(folder)
    for number, (name, flag) in enumerate(list_path_options()):
        for reason, place in [*places.items(), *places.items()][number % 5 : number % 5 + count]:
            shutil.rmtree(folder / "missing", ignore_errors=True)  # a run may have made it
            before, _, after = " ".join(ARGUMENTS.get(name, [])).partition("-- ")
            rest = ["--", after] if after else []
            words = [*name.split(), *before.split(), *([flag] if flag else []), str(place), *rest]
            print(json.dumps({"place": reason, **run_in_fork(words, folder)}), flush=True)
    removed = folder / "removed"
    removed.mkdir()
    os.chdir(removed)
    removed.rmdir()
    for name, words in ARGUMENTS.items():
        print(json.dumps({"place": "removed folder", **run_in_fork([name, *words], folder)}), flush=True)


def start(folder: Path, env: dict[str, str], count: int) -> list[dict[str, object]]:
    """Walk in a new process that may read no more than any user. Raises FileNotFoundError for root without setpriv."""
    prefix = []
    if os.geteuid() == 0:
        if not shutil.which("setpriv"):
            raise FileNotFoundError("setpriv")
        rights = "-dac_override,-dac_read_search"
        prefix = ["setpriv", f"--bounding-set={rights}", f"--inh-caps={rights}"]
    argv = [*prefix, sys.executable, __file__, str(folder), str(count)]
    work = folder / "work"
    done = subprocess.run(argv, cwd=work, env=env, text=True, stdout=subprocess.PIPE, check=True, timeout=900)
    return [json.loads(line) for line in done.stdout.splitlines()]


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    walk(Path(sys.argv[1]), int(sys.argv[2]))
