"""A made machine for the programs of fixes: who calls, which modules are loaded, which files exist.

Each program beside this file's folder `bin` is a small one of its own. It reads its options as the real one does, refuses
what the real one refuses, and writes its call into the file `calls`. The machine is a folder: `root` is its root folder.
"""

import argparse
import os
import shlex
import sys
from pathlib import Path

AS_ROOT = "STAND_IN_AS_ROOT"


class Parser(argparse.ArgumentParser):
    """Reads options as the real program: no shortened names, and its own exit status for a wrong one."""

    def __init__(self, name, *, wrong=1):
        super().__init__(prog=name, allow_abbrev=False, add_help=False)
        self.wrong = wrong

    def error(self, message):
        refuse(f"{self.prog}: {message}", self.wrong)

    def flags(self, *names):
        for name in names:
            self.add_argument(name, action="store_true")

    def values(self, *names):
        for name in names:
            self.add_argument(name, action="append", default=[])


class Machine:
    def __init__(self, folder):
        self.folder = Path(folder)
        self.root = self.folder / "root"
        self.is_root = os.environ.get(AS_ROOT) == "1"

    def record(self, words):
        """Write a call: # for root, $ for a user, as in a prompt."""
        with (self.folder / "calls").open("a", encoding="utf-8") as file:
            file.write(f"{'#' if self.is_root else '$'} {shlex.join(words)}\n")

    def require_root(self, text, status=1):
        if not self.is_root:
            refuse(text, status)

    def read(self, name):
        """The lines of a file of the machine's state."""
        path = self.folder / name
        return path.read_text(encoding="utf-8").split() if path.exists() else []

    def write(self, name, words):
        (self.folder / name).write_text("\n".join(words) + "\n", encoding="utf-8")

    def load(self, *modules):
        """Load kernel modules that are not loaded yet."""
        loaded = self.read("modules")
        self.write("modules", [*loaded, *(m for m in modules if m not in loaded)])

    def create(self, path, text=""):
        """Write a file below the root folder. A path that is there already begins with it."""
        inside = self.root / path.removeprefix(str(self.root)).lstrip("/")
        inside.parent.mkdir(parents=True, exist_ok=True)
        inside.write_text(text, encoding="utf-8")


def refuse(text, status=1):
    print(text, file=sys.stderr)
    raise SystemExit(status)


def main(name, folder):
    """Run the stand-in `name` on the machine of `folder`."""
    import container_programs
    import driver_programs
    import package_programs

    for programs in (driver_programs, container_programs, package_programs):
        if name in programs.PROGRAMS:
            machine = Machine(folder)
            words = sys.argv[1:]
            if name != "sudo":
                machine.record([name, *words])
            programs.PROGRAMS[name](machine, words)
            return
    refuse(f"{name}: no stand-in")
