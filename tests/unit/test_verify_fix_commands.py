"""Commands that verify writes for an environment and a machine: programs read them, also for an odd path."""

import os
import re
import shlex
import sys
from pathlib import Path

import pytest
from debian import need_programs
from fix_machine import SYSTEM, FixMachine, make_apt, stand_in_names
from framework_envs import venv
from pip_options import read_pip_options
from programs import run_program

from provision.model import Environment, Profiles, SystemLibrary
from provision.verify.disk import explain_damaged
from provision.verify.fixes import (
    LinuxDistribution,
    describe_missing,
    make_pip_command,
    make_reinstall_command,
    read_distribution,
)
from provision.verify.libraries import LibraryPackage, PythonPaths

ODD = "it's one; env"
CLOSED = "http://127.0.0.1:9"
WHEEL = "nvidia-cusparse-cu12<13.0,>=12.5.1.3"
PACKAGE = LibraryPackage(name="nvidia-cudnn-cu12", version="9.19.0.56")
ROWS = Profiles(
    system_libraries=(
        SystemLibrary(soname="libGL.so.1", deb="libgl1", rpm="mesa-libGL"),
        SystemLibrary(soname="libsndfile.so.1", deb="libsndfile1", rpm="libsndfile"),
    )
)


@pytest.fixture
def env(tmp_path):
    path = tmp_path / ODD
    return Environment(path=str(path), manager="venv", python=str(path / "bin" / "python"))


@pytest.fixture
def machine(tmp_path):
    (tmp_path / "machine").mkdir()
    return FixMachine(tmp_path / "machine", stand_in_names())


def install_line(here, *sonames):
    return re.findall(r"`([^`]+)`", describe_missing({"opencv-python": sonames}, ROWS, here))[0]


# --- packages of Python -----------------------------------------------------------------------------------


@pytest.mark.parametrize("again", [False, True])
def test_uv_reads_the_command_for_an_odd_path(tmp_path, env, again):
    """uv itself, in a real environment and with an index that is closed: it reads all options before it asks."""
    tools = Path(sys.executable).parent
    venv(env.path)
    command = make_pip_command(env, [], [WHEEL], again=again)
    environ = {"PATH": f"{tools}:{SYSTEM}", "HOME": str(tmp_path), "UV_DEFAULT_INDEX": f"{CLOSED}/simple",
               "UV_HTTP_RETRIES": "0", "UV_NO_CONFIG": "1",
               "UV_CACHE_DIR": str(tmp_path / "cache")}  # fmt: skip
    done = run_program(["sh", "-c", command], env=environ)
    assert f"{CLOSED}/simple/nvidia-cusparse-cu12/" in done.stderr, done.stderr


@pytest.mark.parametrize("again", [False, True])
def test_pip_reads_the_command_for_an_odd_path(tmp_path, env, again):
    (tmp_path / "site" / "pip").mkdir(parents=True)
    words = shlex.split(make_pip_command(env, [str(tmp_path / "site")], [WHEEL], again=again))
    assert words[:4] == [env.python, "-m", "pip", "install"]
    assert read_pip_options([words[3:]]) == [{"names": [WHEEL], "force_reinstall": again}]


def test_conda_installs_into_the_environment_that_was_verified(machine, tmp_path):
    """Without --prefix it changes the active environment."""
    env = Environment(
        path=str(tmp_path / ODD), manager="conda", python=str(tmp_path / ODD / "bin" / "python")
    )
    command = make_reinstall_command(env, LibraryPackage(name="cudnn", version="9.10.1"))
    assert machine.run(command).returncode == 0
    (call,) = machine.calls()
    assert shlex.split(call)[1:] == [
        "conda", "install", "--prefix", env.path, "--force-reinstall", "cudnn=9.10.1"
    ]  # fmt: skip


def test_gpuenv_repairs_the_environment_of_an_odd_path(tmp_path):
    path = str(tmp_path / ODD)
    env = Environment(path=path, manager="venv", python=f"{path}/bin/python", made_by_gpuenv=True)
    refused = explain_damaged(
        "torch",
        "/lib/libodd.so: file too short",
        env,
        PythonPaths(prefix=path, version="3.11.0", sites=(), roots=()),
    )
    for command in (refused.fix, make_reinstall_command(env, PACKAGE)):
        assert shlex.split(command) == ["gpuenv", "repair", path]


# --- packages of the system --------------------------------------------------------------------------------


@pytest.mark.parametrize("needs_sudo", [False, True])
def test_dnf_gets_the_packages(machine, needs_sudo):
    here = LinuxDistribution(family="rpm", needs_sudo=needs_sudo)
    line = install_line(here, "libGL.so.1", "libsndfile.so.1")
    assert machine.run(line).returncode == (0 if needs_sudo else 1), "this user is not root"
    assert machine.calls() == [f"{'#' if needs_sudo else '$'} dnf install mesa-libGL libsndfile"]
    machine.run(install_line(here, "libodd.so.3"))
    assert machine.calls()[1:] == [f"{'#' if needs_sudo else '$'} dnf install 'libodd.so.3()(64bit)'"]


def test_apt_gets_the_packages(tmp_path):
    need_programs("apt-get", packages="apt")
    for name in ("apt", "machine"):
        (tmp_path / name).mkdir()
    machine = FixMachine(tmp_path / "machine", ["sudo"], make_apt(tmp_path / "apt"))
    line = install_line(LinuxDistribution(family="deb", needs_sudo=True), "libGL.so.1", "libsndfile.so.1")
    done = machine.run(line)
    assert done.returncode == 0 and line.startswith("sudo "), done.stderr
    assert re.findall(r"^Inst (\S+)", done.stdout, re.MULTILINE) == ["libgl1", "libsndfile1"]


def test_this_user_needs_sudo_unless_it_is_root():
    assert read_distribution().needs_sudo == (os.geteuid() != 0)
