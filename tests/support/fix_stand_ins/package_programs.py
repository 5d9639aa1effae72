"""Stand-ins for programs of package managers, the CUDA toolkit, WSL and Windows. ldconfig is the real one."""

import os
import re
import shutil

from machine import Parser, refuse


def conda(machine, words):
    """conda 25, conda install and conda list."""
    parser = Parser("conda", wrong=2)
    parser.add_argument("command", choices=("install", "list", "remove"))
    parser.values("-c", "--channel")
    parser.flags("--force-reinstall", "-y")
    parser.add_argument("-n", "--name")
    parser.add_argument("-p", "--prefix")
    parser.add_argument("packages", nargs="*")
    given = parser.parse_intermixed_args(words)
    if given.command == "install" and not given.packages:
        refuse("CondaValueError: too few arguments, must supply command line package specs or --file")
    if given.command == "list" and len(given.packages) > 1:
        refuse("conda list: unrecognized arguments", 2)


def dnf(machine, words):
    """DNF 4 and 5: `install` needs root; `provides` takes paths with * as names."""
    parser = Parser("dnf")
    parser.add_argument("command", choices=("install", "provides"))
    parser.add_argument("names", nargs="+")
    if parser.parse_args(words).command == "install":
        machine.require_root("Error: This command has to be run with superuser privileges.")


def zypper(machine, words):
    parser = Parser("zypper", wrong=2)
    parser.add_argument("command", choices=("install", "in"))
    parser.add_argument("names", nargs="+")
    parser.parse_args(words)
    machine.require_root("Root privileges are required for installing or uninstalling packages.", 5)


def apt_file(machine, words):
    """Debian, apt-file(1)."""
    parser = Parser("apt-file", wrong=2)
    parser.add_argument("action", choices=("search", "list", "update"))
    parser.add_argument("pattern")
    given = parser.parse_args(words)
    print(f"libportaudio2: /usr/lib/x86_64-linux-gnu/{given.pattern}")


def ubuntu_drivers(machine, words):
    parser = Parser("ubuntu-drivers", wrong=2)
    parser.add_argument("command", choices=("install", "devices", "list"))
    parser.parse_args(words)
    machine.require_root("You need to be root to do this.")
    machine.write("driver", ["nvidia-driver-580"])


def ldconfig(machine, words):
    """The real ldconfig, with the configuration and cache of the machine."""
    real = shutil.which("ldconfig", path="/usr/sbin:/sbin")
    files = ["-C", str(machine.folder / "ld.so.cache")]
    if words == ["-p"]:
        os.execv(real, [real, *files, "-p"])
    Parser("ldconfig").parse_args(words)
    machine.require_root("ldconfig: Can't create temporary cache file /etc/ld.so.cache~: Permission denied")
    os.execv(real, [real, *files, "-X", "-f", str(machine.root / "etc" / "ld.so.conf")])


def wsl(machine, words):
    """microsoft/WSL 2.9.4, MessageWslUsage: one argument names the action."""
    forms = (["--install"], ["--update"], ["--shutdown"], ["-l", "-v"], ["--list", "--verbose"])
    if words[:1] == ["--set-default-version"] and len(words) == 2 and words[1] in ("1", "2"):
        machine.write("wsl-version", [words[1]])
    elif words not in forms:
        refuse(f"Invalid command line argument: {words}")
    elif "-l" in words:
        print("  NAME      STATE    VERSION\n* Ubuntu    Running  2")


def where(machine, words):
    """Windows, where: names or patterns of files on PATH, or with /r below a folder."""
    if words[:1] == ["/r"]:
        words = words[2:]
    parser = Parser("where")
    parser.add_argument("patterns", nargs="+")
    print("\n".join(rf"C:\Windows\System32\{p}" for p in parser.parse_args(words).patterns))


def _print_version(text):
    def program(machine, words):
        if words != ["--version"]:
            refuse(f"Unknown option {words}")
        print(text)

    return program


def _takes(*forms, root=False):
    """A program that takes these words and no others, where `root` only as root. * stands for one or more words."""
    patterns = [re.compile(re.escape(form).replace(r"\*", ".+")) for form in forms]

    def program(machine, words):
        if not any(pattern.fullmatch(" ".join(words)) for pattern in patterns):
            refuse(f"unknown words: {words}", 2)
        if root and "--sb-state" not in words:
            machine.require_root("Permission denied")

    return program


PROGRAMS = {
    "akmods": _takes("--force", root=True),
    "ausearch": _takes("-m avc -ts recent", root=True),
    "flatpak": _takes("override --device=all"),
    "gcc": _print_version("gcc (Debian 12.2.0-14) 12.2.0"),
    "kubectl": _takes("describe node"),
    "mokutil": _takes("--sb-state", "--import *", root=True),
    "pacman": _takes("-S *", root=True),
    "pip": _takes("uninstall -y *", "install *", "cache purge"),
    "pixi": _takes("add --pypi *"),
    "setsebool": _takes("-P * on", root=True),
    "snap": _takes("connections"),
    "torchrun": _takes("--nproc_per_node=gpu *"),
    "uv": _takes("add *", "remove *", "pip install *", "python install *", "python install --reinstall"),
    "conda": conda, "dnf": dnf, "zypper": zypper, "apt-file": apt_file, "ubuntu-drivers": ubuntu_drivers,
    "ldconfig": ldconfig, "wsl": wsl, "where": where,
    "nvcc": _print_version("Cuda compilation tools, release 12.8, V12.8.93"),
    "ptxas": _print_version("ptxas: NVIDIA (R) Ptx optimizing assembler, release 12.8"),
}  # fmt: skip
