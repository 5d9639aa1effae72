"""Stand-ins for programs of the kernel, the driver and systemd."""

import os
from pathlib import Path

from machine import AS_ROOT, Parser, refuse

# modinfo -F depends, of the modules of driver 580
DEPENDS = {
    "nvidia": (),
    "nvidia_uvm": ("nvidia",),
    "nvidia_modeset": ("nvidia",),
    "nvidia_drm": ("nvidia_modeset", "nvidia"),
}
# nvidia-smi --help-query-gpu and --help-query-compute-apps
GPU_FIELDS = {"compute_cap", "compute_mode", "name", "driver_version", "memory.free", "uuid"}
PROCESS_FIELDS = {"pid", "process_name", "used_memory", "gpu_uuid"}
UNITS = {"nvidia-fabricmanager", "docker"}
MINOR_OF_CONTROL = 255


def sudo(machine, words):
    """sudo(8): the command runs as root, with the caller's arguments."""
    if not words or words[0].startswith("-"):
        refuse("usage: sudo command")
    os.environ[AS_ROOT] = "1"
    os.execvp(words[0], words)


def modprobe(machine, words):
    """kmod 30, modprobe(8): loads what a module needs first; -r skips one that is not loaded."""
    parser = Parser("modprobe")
    parser.flags("-r")
    parser.add_argument("module")
    parser.add_argument("others", nargs="*")
    given = parser.parse_args(words)
    names = [word.replace("-", "_") for word in (given.module, *(given.others if given.r else ()))]
    if unknown := [name for name in names if name not in DEPENDS]:
        refuse(f"modprobe: FATAL: Module {unknown[0]} not found in directory /lib/modules/6.8.0-45-generic")
    if not given.r and [word for word in given.others if "=" not in word]:
        refuse(f"modprobe: {given.others} are no parameters: without -r only one module is named")
    machine.require_root(f"modprobe: ERROR: '{names[0]}': Operation not permitted")
    if not given.r:
        machine.load(*DEPENDS[names[0]], names[0])
    for name in names if given.r else ():
        loaded = machine.read("modules")
        if any(name in DEPENDS[m] for m in loaded):
            refuse(f"modprobe: FATAL: Module {name} is in use.")
        machine.write("modules", [m for m in loaded if m != name])


def rmmod(machine, words):
    """kmod, rmmod(8): in the given order; one that another needs is in use."""
    parser = Parser("rmmod")
    parser.flags("-f", "-s", "-v")
    parser.add_argument("modules", nargs="+")
    status = 0
    for given in parser.parse_args(words).modules:
        name = given.replace("-", "_")
        loaded = machine.read("modules")
        users = [m for m in loaded if name in DEPENDS[m]]
        if name not in loaded:
            problem = f"Module {name} is not currently loaded"
        elif users:
            problem = f"Module {name} is in use by: {' '.join(users)}"
        elif not machine.is_root:
            problem = f"could not remove '{name}': Operation not permitted"
        else:
            machine.write("modules", [m for m in loaded if m != name])
            continue
        os.write(2, f"rmmod: ERROR: {problem}\n".encode())
        status = 1
    raise SystemExit(status)


def lsmod(machine, words):
    Parser("lsmod").parse_args(words)
    print("Module                  Size  Used by")
    for name in machine.read("modules"):
        print(f"{name:<20} 56717312  {sum(name in DEPENDS[m] for m in machine.read('modules'))}")


def nvidia_modprobe(machine, words):
    """nvidia-modprobe 610, nvidia-modprobe.c: with -u for nvidia_uvm only, without it for nvidia only."""
    parser = Parser("nvidia-modprobe")
    parser.add_argument(
        "-c", "--create-nvidia-device-file", dest="minors", type=int, action="append", default=[]
    )
    parser.flags("-u", "-m", "-s", "-l")
    given = parser.parse_args(words)
    machine.require_root("nvidia-modprobe: Operation not permitted")
    name = "nvidia_uvm" if given.u else "nvidia"
    machine.load(*DEPENDS[name], name)
    for minor in given.minors:
        if given.u:
            machine.create("dev/nvidia-uvm", f"minor {minor}")
            machine.create("dev/nvidia-uvm-tools", f"minor {minor + 1}")
        else:
            file = "nvidiactl" if minor == MINOR_OF_CONTROL else f"nvidia{minor}"
            machine.create(f"dev/{file}", f"minor {minor}")


def nvidia_smi(machine, words):
    """nvidia-smi(1): the compute mode needs root; the driver model is a setting of Windows."""
    parser = Parser("nvidia-smi", wrong=2)
    parser.flags("-L", "-q")
    parser.add_argument("-i")
    parser.add_argument("-c", "--compute-mode", choices=("0", "2", "3"))
    parser.add_argument("-dm", "--driver-model", choices=("0", "1"))
    parser.add_argument("--query-gpu")
    parser.add_argument("--query-compute-apps")
    parser.add_argument("--format", choices=("csv", "csv,noheader"))
    given = parser.parse_args(words)
    for query, known in ((given.query_gpu, GPU_FIELDS), (given.query_compute_apps, PROCESS_FIELDS)):
        if query and (not given.format or set(query.split(",")) - known):
            refuse(f'Field "{query}" is not a valid field to query, or --format is missing.', 2)
        if query:
            print(", ".join(query.split(",")))
    if given.compute_mode is not None:
        machine.require_root("Unable to set the compute mode: Insufficient Permissions", 4)
        machine.write("compute-mode", [given.compute_mode])
    if given.driver_model is not None:
        machine.write("driver-model", [given.driver_model])
    if given.q:
        print("    Fabric\n        State : Completed\n        Status : Success")
    if given.L:
        print("GPU 0: Tesla T4 (UUID: GPU-0)")


def dmesg(machine, words):
    """util-linux, dmesg(1), with kernel.dmesg_restrict=1."""
    Parser("dmesg").parse_args(words)
    machine.require_root("dmesg: read kernel buffer failed: Operation not permitted")
    print("NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.")
    print("oom-kill:constraint=CONSTRAINT_MEMCG,task=python")


def journalctl(machine, words):
    parser = Parser("journalctl")
    parser.flags("-b", "-k", "-e")
    parser.parse_args(words)
    print("systemd-sleep[1]: Entering sleep state 'suspend'...")


def systemctl(machine, words):
    """systemd, systemctl(1): a change needs root, or asks for a password, which no fix can answer."""
    parser = Parser("systemctl")
    parser.add_argument("verb", choices=("enable", "restart", "status"))
    parser.add_argument("units", nargs="+")
    parser.flags("--now")
    given = parser.parse_args(words)
    if unknown := set(given.units) - UNITS:
        refuse(f"Unit {unknown} could not be found.", 4)
    if given.verb == "status":
        print(
            f"{given.units[0]}.service: {'active' if given.units[0] in machine.read('active') else 'inactive'}"
        )
        raise SystemExit(0 if given.units[0] in machine.read("active") else 3)
    machine.require_root("Failed: Interactive authentication required.")
    if given.verb == "enable":
        machine.write("enabled", [*machine.read("enabled"), *given.units])
    if given.verb == "restart" or given.now:
        machine.write("active", [*machine.read("active"), *given.units])


def dkms(machine, words):
    """dkms(8)."""
    parser = Parser("dkms")
    parser.add_argument("action", choices=("autoinstall", "status"))
    given = parser.parse_args(words)
    if given.action == "autoinstall":
        machine.require_root("You must be root to use this command.")
    print("nvidia/580.65.06, 6.8.0-45-generic, x86_64: installed")


def usermod(machine, words):
    """shadow, usermod(8): -a is allowed with -G alone."""
    parser = Parser("usermod", wrong=2)
    parser.flags("-a")
    parser.add_argument("-G", dest="groups")
    parser.add_argument("login")
    given = parser.parse_args(words)
    if given.a and not given.groups:
        refuse("usermod: -a flag is only allowed with the -G flag", 2)
    machine.require_root("usermod: Permission denied.")
    machine.write("groups", [f"{given.groups}:{given.login}"])


def fuser(machine, words):
    """psmisc, fuser(1): the processes of others are shown to root only."""
    parser = Parser("fuser")
    parser.flags("-v", "-k", "-m")
    parser.add_argument("names", nargs="+")
    if missing := [n for n in parser.parse_args(words).names if not Path(n).exists()]:
        refuse(f"Specified filename {missing[0]} does not exist.")


def lspci(machine, words):
    Parser("lspci").parse_args(words)
    print("01:00.0 3D controller: NVIDIA Corporation TU104GL [Tesla T4] (rev a1)")


def reboot(machine, words):
    Parser("reboot").parse_args(words)
    machine.require_root("Failed to reboot: Interactive authentication required.")


def ip(machine, words):
    """iproute2, ip(8)."""
    parser = Parser("ip", wrong=255)
    parser.flags("-br")
    parser.add_argument("object", choices=("link", "addr"))
    parser.parse_args(words)
    print("eth0             UP")


PROGRAMS = {
    "sudo": sudo, "modprobe": modprobe, "rmmod": rmmod, "lsmod": lsmod, "nvidia-modprobe": nvidia_modprobe,
    "nvidia-smi": nvidia_smi, "dmesg": dmesg, "journalctl": journalctl, "systemctl": systemctl, "dkms": dkms,
    "usermod": usermod, "fuser": fuser, "lspci": lspci, "reboot": reboot, "ip": ip,
}  # fmt: skip
