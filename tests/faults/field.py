"""What the cases of hostile.py share: `gpuenv` among things that must stay as they are, and what would show harm."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from ground import ASK, Command, Ran, differences, own, tree
from loopback import Index, serving

__all__ = ["ASK", "CASES", "PAYLOAD", "Field", "case", "field"]
SCRIPT = Path(sys.executable).with_name("gpuenv")
MEMORY = 4 << 30
"""Bytes of address space: who reads an endless device into memory fails for it."""
LONGEST = 60
# What nobody may send to a terminal: everything but line ends, tabs and printable characters.
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
OURS = re.compile(r"\x1b\[(0|1|2|31|32|33)m|\r(?=\n)|\r\x1b\[2K")
"""What gpuenv itself sends to a terminal: its colours, and what takes a line of progress away."""
PAYLOAD = "\x1b]0;owned\x07\x1b[2J\x1b]8;;http://h/\x07x\x1b]52;c;AAAA\x07\x9b31m\u202eesrever\x08\x7f"

Case = Callable[["Field"], str | None]
CASES: dict[str, Case] = {}


def case(name: str) -> Callable[[Case], Case]:
    """Enter a case: a function that says what is broken, None where nothing is."""

    def entered(function: Case) -> Case:
        CASES[name] = function
        return function

    return entered


class Run(Command):
    """The installed command, in a session of its own, with bounded time and memory."""

    def __call__(self, *args: object, timeout: float = LONGEST, **more: object) -> Ran:
        argv = [str(SCRIPT), *map(str, args)]
        bound = (MEMORY, MEMORY)
        try:
            done = subprocess.run(
                argv, env=self.env, cwd=self.work, capture_output=True, timeout=timeout, check=False,
                stdin=subprocess.DEVNULL, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, bound),
                **more,
            )  # fmt: skip
        except subprocess.TimeoutExpired as late:
            done = subprocess.CompletedProcess(
                argv, 124, late.stdout or b"", (late.stderr or b"") + b"\nhung"
            )
        done.stdout, done.stderr = (x.decode("utf-8", "replace") for x in (done.stdout, done.stderr))
        return Ran(done)

    def on_terminal(self, *args: object) -> Ran:
        """The same where stdout and stderr are a terminal."""
        ours, theirs = pty.openpty()
        kept = bytearray()

        def read() -> None:
            with contextlib.suppress(OSError):
                while piece := os.read(ours, 65536):
                    kept.extend(piece)

        env = {**self.env, "TERM": "xterm-256color"}
        argv = [str(SCRIPT), *map(str, args)]
        child = subprocess.Popen(
            argv, env=env, cwd=self.work, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        try:
            child.wait(LONGEST)
        except subprocess.TimeoutExpired:
            child.kill()
        thread.join(5)
        os.close(ours)
        text = OURS.sub("", kept.decode("utf-8", "replace"))
        return Ran(subprocess.CompletedProcess(argv, child.returncode, text, ""))


class Field:
    """A folder with `gpuenv`, an index, a second index that nobody may ask, and things that must stay."""

    def __init__(self, folder: Path, index: Index, evil: Index, plan: dict | None = None) -> None:
        self.folder, self.index, self.evil = folder, index, evil
        self.gpuenv = Run(folder)
        self.work = self.gpuenv.work
        self.marker = folder / "ran"
        self.outside = folder / "outside"
        (self.outside / "sub").mkdir(parents=True, exist_ok=True)
        for name in ("precious.txt", "sub/keep.txt", "activate", "history"):
            (self.outside / name).write_text(f"{name}: precious\n")
        self.program = folder / "program"
        self.program.write_text(f"#!/bin/sh\necho ran >> '{self.marker}'\nexit 0\n")
        self.program.chmod(0o755)
        self.gpuenv.env |= {
            "PIP_INDEX_URL": index.url, "UV_HTTP_TIMEOUT": "4", "PIP_TIMEOUT": "4",
            "XDG_DATA_HOME": str(folder / "data"),
        }  # fmt: skip
        index.add_plan(plan or self.gpuenv("resolve", "--json", *ASK).json)
        self._before = tree(self.outside)
        self._env, self._own = None, dict(self.gpuenv.env)

    def fresh(self) -> None:
        """Take away what a case left."""
        self.gpuenv.env = dict(self._own)
        self.index.faults = {}
        # Folders may be deeper than Python can remove, or than a path can name.
        subprocess.run(["rm", "-rf", "--", *map(str, self.work.iterdir())], check=True)
        self.marker.unlink(missing_ok=True)
        self.evil.requests.clear()

    def made(self, name: str = ".venv") -> Path:
        """An environment that gpuenv made, of its own files."""
        if self._env is None:
            self._env = self.folder / "made"
            ran = self.gpuenv("create", self._env, *ASK, "--no-verify")
            assert ran.code == 0, ran.err
        env = self.work / name
        shutil.copytree(self._env, env, symlinks=True)
        own(env, self.gpuenv.env)
        return env

    def site(self, env: Path) -> Path:
        return next(env.glob("lib/python3*/site-packages"))

    def harm(self, *runs: Ran, right: tuple[int, ...] = (), raw: bool = True) -> str | None:
        """What of these runs is wrong: a bug, a wrong exit code, something raw on the screen, something outside
        that changed, a program that ran, a server that was asked."""
        changed = differences(self._before, tree(self.outside))
        if changed:
            self._mend()
            return f"changed outside: {', '.join(changed)}"
        if self.marker.exists():
            return "a program ran that nobody asked for"
        if self.evil.requests:
            return f"asked another server: {next(iter(self.evil.requests))}"
        for ran in runs:
            if "this is a bug in gpuenv" in ran.err or ran.code == 1:
                return f"a bug: {(ran.err or ran.out).strip().splitlines()[-3:]}"
            if ran.code == 124:
                return "it hangs"
            if right and ran.code not in right:
                return f"exit code {ran.code}: {(ran.err or ran.out)[-300:]!r}"
            if raw and (found := RAW.search(ran.out + ran.err)):
                near = (ran.out + ran.err)[max(0, found.start() - 60) : found.end() + 20]
                return f"raw on the screen: {near!r}"
        return None

    def _mend(self) -> None:
        shutil.rmtree(self.outside, ignore_errors=True)
        (self.outside / "sub").mkdir(parents=True)
        for name in ("precious.txt", "sub/keep.txt", "activate", "history"):
            (self.outside / name).write_text(f"{name}: precious\n")


@contextlib.contextmanager
def field() -> Iterator[Field]:
    """A Field with its two servers running."""
    folder = Path(tempfile.mkdtemp(prefix="gpuenv-hostile-"))
    try:
        with serving(Index()) as index, serving(Index()) as evil:
            yield Field(folder, index, evil)
    finally:
        subprocess.run(["rm", "-rf", "--", str(folder)], check=False)
