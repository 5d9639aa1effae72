"""diagnose: the fix fits the place where the program ran."""

import dataclasses

from diagnosed import KNOWN, found
from rows import rows

from provision.model import HostContext, Machine, Target

NO_DRIVER = "RuntimeError: Found no NVIDIA driver on your system."
DOCKER = Machine(target=Target(platform="linux-x86_64"), context=HostContext(container="docker"))
PLAIN = dataclasses.replace(DOCKER, context=HostContext())


def fix_of(cause, *lines, machine=None):
    return next(f.fix for f in found(*lines, machine=machine) if f.cause == cause)


@rows(
    ("lines", "machine"),
    [
        ((NO_DRIVER, "$ docker run -it ubuntu bash"), None),
        ((NO_DRIVER,), DOCKER),
        ((NO_DRIVER, "in the container"), PLAIN),
    ],
)
def test_in_a_container_the_driver_is_of_the_host(lines, machine):
    for finding in found(*lines, machine=machine):
        assert "ubuntu-drivers" not in finding.fix, finding
    assert "On the host" in fix_of("driver_missing", *lines, machine=machine)


def test_on_a_host_the_driver_is_installed():
    assert "ubuntu-drivers" in fix_of("driver_missing", NO_DRIVER)
    assert "ubuntu-drivers" in fix_of("driver_missing", NO_DRIVER, machine=PLAIN)


def test_on_windows_no_command_of_linux_is_proposed():
    lines = (r'File "C:\Users\u\train.py", line 3', NO_DRIVER)
    for cause in ("driver_missing", "driver_module_not_loaded"):
        fix = fix_of(cause, *lines)
        assert "sudo" not in fix and "Windows" in fix


HOSTS_COMMANDS = ("ubuntu-drivers", "modprobe", "rmmod", "systemctl")


@rows("cause", KNOWN.causes, ids=lambda c: c.cause)
def test_a_container_s_fix_says_where_a_command_of_the_host_runs(cause):
    fix = cause.in_container or cause.fix
    for command in HOSTS_COMMANDS:
        if command in fix:
            assert "host" in fix, fix
