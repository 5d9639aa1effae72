"""Every command under each condition of the machine that gpuenv cannot choose.

    python tests/faults/conditions.py [--condition 'stdout full'] [--command 'lock']

Standard streams closed, full or without a reader, few descriptors, little memory, broken modules on PYTHONPATH.
A case holds when the command ends as it does without the condition, or with its own exit code and a hint; never
with a traceback or as a bug of gpuenv. A changing command is followed by a plain `create`, which succeeds. Some
six minutes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass

from ground import ASK, Report, parser_of
from runs import VENV, Site, site

GPUENV = (sys.executable, "-m", "provision")
BROKEN = ("typing", "packaging", "typer", "yaml", "subprocess", "tempfile", "json", "signal")


@dataclass(frozen=True)
class Condition:
    """What a shell does before or around the command. `unread` are the streams whose reader is gone, `lost`
    says that a result cannot arrive, `limited` that the machine may refuse the command."""

    before: str = ""
    redirection: str = ""
    unread: tuple[str, ...] = ()
    lost: bool = False
    limited: bool = False
    broken_modules: bool = False


CONDITIONS = {
    "none": Condition(),
    "stdout closed": Condition(redirection=">&-"),
    "stderr closed": Condition(redirection="2>&-"),
    "all closed": Condition(redirection="<&- >&- 2>&-"),
    "stdout full": Condition(redirection=">/dev/full", lost=True),
    "stderr full": Condition(redirection="2>/dev/full"),
    "both full": Condition(redirection=">/dev/full 2>&1", lost=True),
    "stdout unread": Condition(unread=("stdout",)),
    "both unread": Condition(unread=("stdout", "stderr")),
    **{f"ulimit -n {n}": Condition(before=f"ulimit -n {n};", limited=True) for n in (24, 16, 8)},
    **{f"ulimit -v {n}": Condition(before=f"ulimit -v {n};", limited=True) for n in (500_000, 150_000)},
    "PYTHONPATH": Condition(broken_modules=True),
}


def commands(at: Site) -> dict[str, tuple[str, ...]]:
    """Every command, in an order in which each finds what it needs."""
    show = ("run", "--", "python", "-c", "pass")
    return {
        "version": ("--version",), "help": ("--help",), "wrong": ("nonsense",), "detect": ("detect",), "detect json": ("detect", "--json"),
        "resolve": ("resolve", *ASK, "--explain"), "lock": ("lock", *ASK), "lock check": ("lock", *ASK, "--check"),
        "create": ("create", "new", *VENV), "create again": ("create", *VENV), "recreate": ("create", *VENV, "--recreate"),
        "change": ("create", *VENV, "--with", "bb"), "verify": ("verify", "--device", "cpu"), "verify quick": ("verify", "--quick", "--device", "cpu"),
        "list": ("list",), "report": ("report", ".venv"), "init": ("init", "--framework", "jax"), "diagnose": ("diagnose", "log"),
        "diagnose env": ("diagnose", "--env", ".venv"), "run": show, "run exec": ("run", "--exec", *show[1:]), "run json": ("run", "--json", *show[1:]),
        "add": ("add", "aa"), "repair": ("repair",), "export": ("export", "--format", "requirements"),
        "bundle": ("bundle", "out", *ASK), "profiles show": ("profiles", "show"), "profiles check": ("profiles", "check"),
        "profiles update": ("profiles", "update", "jax", "--index", at.index.url), "remove": ("remove", ".venv"),
    }  # fmt: skip


CHANGING = ("create", "recreate", "change", "add", "repair", "bundle", "remove", "init")


def ready(at: Site) -> None:
    """An environment, its lock and a log."""
    at.swept()
    for name in ("new", "out", ".venv"):
        shutil.rmtree(at.work / name, ignore_errors=True)
    for name in ("pylock.toml", "gpuenv.yaml", "Makefile", ".gitignore"):
        (at.work / name).unlink(missing_ok=True)
    (at.work / "log").write_text("ImportError: libGL.so.1: cannot open shared object file\n")
    for argv in (("create", *VENV), ("lock", *ASK)):
        ran = at.gpuenv(*argv)
        assert ran.code == 0, ran.err


def started(at: Site, argv: tuple[str, ...], under: Condition) -> tuple[int, str, str]:
    """The exit code and what could be read of stdout and stderr."""
    reading, writing = os.pipe()
    os.close(reading)
    streams = {name: writing if name in under.unread else subprocess.PIPE for name in ("stdout", "stderr")}
    env = dict(at.gpuenv.env)
    if under.broken_modules:
        folder = at.folder / "cache" / "broken"
        folder.mkdir(parents=True, exist_ok=True)
        for name in BROKEN:
            (folder / f"{name}.py").write_text(f"raise RuntimeError('the {name} of PYTHONPATH')\n")
        env["PYTHONPATH"] = str(folder)
    try:
        done = subprocess.run(
            ["sh", "-c", f'{under.before} exec "$@" {under.redirection}', "sh", *GPUENV, *argv], env=env, cwd=at.work,
            stdin=subprocess.DEVNULL, text=True, check=False, timeout=300, **streams,
        )  # fmt: skip
    finally:
        os.close(writing)
    return done.returncode, done.stdout or "", done.stderr or ""


def wrong(ended: tuple[int, str, str], usual: int, under: Condition, *, of_program: bool) -> str | None:
    """What must not be so of an end (None where nothing is)."""
    code, _, err = ended
    if "a bug in gpuenv" in err or (not of_program and ("Traceback" in err or "Exception ignored" in err)):
        return err[-400:]
    if code == usual or of_program:
        return None
    if under.lost and (code, usual) == (7, 0):
        return None
    if under.limited and code in (2, 4, 6, 7, 8) and "hint:" in err:
        return None
    return f"exit code {code} instead of {usual}: {err[-300:]}"


def tried(at: Site, name: str, argv: tuple[str, ...], under: Condition, usual: int) -> tuple[str | None, str]:
    """A case: the command, and the plain one after it."""
    ended = started(at, argv, under)
    # A broken module breaks the user's program too, and so does a full disk: its own code counts there.
    problem = wrong(ended, usual, under, of_program=name.startswith("run") and not under.limited)
    if name in CHANGING:
        after = at.gpuenv("create", *VENV)
        if after.code != 0:
            problem = problem or f"the next create fails ({after.code}): {after.err[-300:]}"
    last = next((x for x in ended[2].splitlines() if x.startswith("error")), "")
    return problem, f"exit {ended[0]} {last[:110]}"


def main() -> int:
    """All commands under all conditions."""
    parser = parser_of(__doc__)
    parser.add_argument("--condition", choices=CONDITIONS)
    parser.add_argument("--command")
    options = parser.parse_args()
    report = Report()
    with site("venv") as at:
        usual: dict[str, int] = {}
        for condition, under in CONDITIONS.items():
            if options.condition not in (None, condition) and condition != "none":
                continue
            ready(at)
            for name, argv in commands(at).items():
                if options.command not in (None, name):
                    continue
                if condition == "none":
                    usual[name] = started(at, argv, under)[0]
                else:
                    report.case(f"{condition}: {name}", *tried(at, name, argv, under, usual[name]))
                if name in CHANGING:
                    ready(at)
    return report.end("conditions")


if __name__ == "__main__":
    sys.exit(main())
