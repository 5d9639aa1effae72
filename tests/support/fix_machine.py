"""A made machine on which the commands of fixes run: stand-ins on PATH, a root folder, and apt with packages of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

from fix_commands import TABLES

STAND_INS = Path(__file__).parent / "fix_stand_ins"
SYSTEM = "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PLACES = ("/etc/", "/dev/", "/usr/lib/wsl")
LOADED = ["nvidia", "nvidia_modeset", "nvidia_drm", "nvidia_uvm"]
INSTALLED = ("nvidia-driver-580", "nvidia-utils-580", "libnvidia-compute-580")
# In place of the words that a person replaces. PROGRAM and FOLDER are in the machine's folder.
EXAMPLES = {
    "NAME==VERSION": "torch==2.8.0", "NAME": "Ubuntu", "NUMBER": "44", "GID": "44", "PROGRAM": "program.py",
    "FOLDER": "/opt/cuda/lib64", "3.X": "3.12", "ENV": ".venv", "FILE": "node.json", "CMD": "python",
}  # fmt: skip


def put_examples(line):
    """A command with an example in place of each word that a person replaces."""
    for word, example in EXAMPLES.items():
        line = re.sub(rf"(?<![\w-]){re.escape(word)}(?!\w)", example, line)
    return re.sub(r"\b3\.X\b|(?<=python)3\.X", "3.12", line)


def stand_in_names():
    """The names of all stand-ins."""
    listed = "import sys; sys.path.insert(0, sys.argv[1])\n" + "".join(
        f"import {m}; print(*{m}.PROGRAMS)\n"
        for m in ("driver_programs", "container_programs", "package_programs")
    )
    done = subprocess.run(
        [sys.executable, "-c", listed, str(STAND_INS)], capture_output=True, text=True, check=True
    )
    return done.stdout.split()


class FixMachine:
    """A machine with driver 580, all its modules loaded, no device files and no container runtime."""

    def __init__(self, folder, names, apt=None):
        self.folder, self.root = folder, folder / "root"
        (folder / "bin").mkdir()
        for name in names:
            program = folder / "bin" / name
            program.write_text(
                f"#!{sys.executable} -IS\nimport sys\nsys.path.insert(0, {str(STAND_INS)!r})\n"
                f"from machine import main\nmain({name!r}, {str(folder)!r})\n"
            )
            program.chmod(0o755)
        (folder / "modules").write_text("\n".join(LOADED) + "\n")
        (folder / "program.py").write_text("pass\n")
        self.wsl = self.root / "usr" / "lib" / "wsl" / "lib"
        for path in (self.root / "etc" / "ld.so.conf.d", self.root / "dev", self.wsl):
            path.mkdir(parents=True)
        (self.root / "etc" / "ld.so.conf").write_text(f"include {self.root}/etc/ld.so.conf.d/*.conf\n")
        self.env = {"HOME": str(folder), "PATH": f"{folder}/bin:{SYSTEM}", "LC_ALL": "C", "USER": "ada"}
        if apt:
            self.env["APT_CONFIG"] = str(apt)

    def run(self, line):
        """Run a command line in a shell, with the machine's folders in place of those of this one."""
        for place in PLACES:
            line = re.sub(rf"(?<![\w.]){place}(?!null)", f"{self.root}{place}", line)
        return subprocess.run(
            ["bash", "-c", line], env=self.env, cwd=self.folder, capture_output=True, text=True, check=False, timeout=60
        )  # fmt: skip

    def calls(self):
        """The calls of stand-ins: # for root, $ for a user. Folders are those of a real machine."""
        path = self.folder / "calls"
        text = path.read_text() if path.exists() else ""
        return text.replace(str(self.root), "").splitlines()

    def state(self, name):
        path = self.folder / name
        return path.read_text().split() if path.exists() else []


def make_apt(folder):
    """Return the configuration of an apt with the packages of Debian and Ubuntu that fixes name, which only simulates.

    NVIDIA's own repository is not configured, and the driver of Ubuntu is installed.
    """
    names = {row["package"] for row in TABLES["deb"] if row["where"] in ("debian", "ubuntu")}
    names |= {f"linux-headers-{os.uname().release}", "python3.12-dev", *INSTALLED}
    needs = {"nvidia-driver-580": "nvidia-utils-580", "nvidia-utils-580": "libnvidia-compute-580"}
    about = {
        n: f"Package: {n}\nVersion: 1.0\nArchitecture: all\nMaintainer: m <m@localhost>\nDescription: d\n"
        + (f"Depends: {needs[n]}\n" if n in needs else "")
        for n in sorted(names)
    }
    for path in (
        "repo",
        "etc/apt.conf.d",
        "etc/preferences.d",
        "state/lists/partial",
        "cache/archives/partial",
        "log",
    ):
        (folder / path).mkdir(parents=True)
    (folder / "repo" / "Packages").write_text(
        "".join(f"{text}Filename: ./{n}.deb\nSize: 1\nSHA256: {'0' * 64}\n\n" for n, text in about.items())
    )
    (folder / "status").write_text("".join(f"{about[n]}Status: install ok installed\n\n" for n in INSTALLED))
    (folder / "sources.list").write_text(f"deb [trusted=yes] file:{folder}/repo ./\n")
    settings = {
        "Dir::Etc": f"{folder}/etc", "Dir::Etc::sourcelist": f"{folder}/sources.list", "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State": f"{folder}/state", "Dir::State::status": f"{folder}/status", "Dir::Cache": f"{folder}/cache",
        "Dir::Log": f"{folder}/log", "APT::Sandbox::User": "", "Debug::NoLocking": "true", "APT::Architecture": "amd64",
        "APT::Architectures": "amd64",
    }  # fmt: skip
    config = folder / "apt.conf"
    config.write_text("".join(f'{k} "{v}";\n' for k, v in settings.items()))
    environ = {"APT_CONFIG": str(config), "PATH": SYSTEM, "LC_ALL": "C"}
    subprocess.run(["apt-get", "-qq", "update"], env=environ, check=True, capture_output=True)
    config.write_text(config.read_text() + 'APT::Get::Simulate "true";\nAPT::Mark::Simulate "true";\n')
    return config
