"""Commands of fixes that change a machine run on a made one: each program gets the intended words, and works."""

import json
import os
import re
import shlex
import sys
from pathlib import Path

import pytest
from debian import need_programs
from elf_files import library
from fix_commands import COMMANDS, QUOTED, TABLES, checked_by, split_line
from fix_machine import EXAMPLES, SYSTEM, FixMachine, make_apt, put_examples, stand_in_names
from programs import run_program
from rows import sampled

RUNS = {row["line"]: row for row in TABLES["runs"]}
DEBIAN = sorted({line for line, _, _ in checked_by("deb")})
UV = "uv python install --reinstall 3.11"
LINES = sorted({line for line, _, _ in checked_by("options", "rpm")} - {UV})
STAND_INS = stand_in_names()
TOOLS = Path(sys.executable).parent


@pytest.fixture(scope="module")
def apt(tmp_path_factory):
    need_programs("apt-get", packages="apt")
    return make_apt(tmp_path_factory.mktemp("apt"))


@pytest.fixture
def machine(tmp_path):
    return FixMachine(tmp_path, STAND_INS)


def complete(line):
    """A command as a person types it, with the words that the text leaves open."""
    return RUNS.get(line, {}).get("as") or put_examples(line)


def intended_calls(line):
    """What the stand-ins of a line get, where the shell leaves its words as they are."""
    if "calls" in RUNS.get(line, {}):
        return RUNS[line]["calls"]
    calls = []
    for words in split_line(complete(line)):
        is_root = words[0] == "sudo"
        if words[is_root] in STAND_INS:
            calls.append(f"{'#' if is_root else '$'} {shlex.join(words[is_root:])}")
    return calls


def names_installed(text):
    return sorted(re.findall(r"^(?:Inst|Purg|Remv) \S+|^.* set on hold\.$", text, re.MULTILINE))


# --- each command ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", sampled(LINES, 4))
def test_each_program_gets_the_intended_words(machine, line):
    row = RUNS.get(line, {})
    if "before" in row:
        assert machine.run(row["before"]).returncode == 0
    earlier = len(machine.calls())
    done = machine.run(complete(line))
    assert (done.returncode, done.stderr) == (row.get("ends", 0), "")
    assert machine.calls()[earlier:] == intended_calls(line)
    assert intended_calls(line), "no program of this line has a stand-in"
    assert "grep" not in line or done.stdout, "the search finds what the fix looks for"


@pytest.mark.parametrize("line", sampled(DEBIAN, 4))
def test_apt_finds_the_packages(tmp_path, apt, line):
    """apt itself, with package lists of its own; it only simulates."""
    machine = FixMachine(tmp_path, ["sudo"], apt)
    done = machine.run(complete(line))
    assert done.returncode == 0, done.stderr
    kernel = os.uname().release
    packages = split_line(complete(line).replace("$(uname -r)", kernel))[0][3:]
    says = RUNS.get(line, {}).get("says", [f"Inst {name}" for name in packages])
    assert names_installed(done.stdout) == sorted(says)


def test_a_package_of_another_repository_would_stop_apt(tmp_path, apt):
    """One unknown name, and nothing is removed: fixes name no package of NVIDIA's own repository."""
    machine = FixMachine(tmp_path, ["sudo"], apt)
    done = machine.run("sudo apt purge 'nvidia-utils-*' cuda-drivers")
    assert done.returncode == 100 and "Unable to locate package cuda-drivers" in done.stderr
    assert names_installed(done.stdout) == []


def test_uv_reads_the_command(tmp_path):
    """uv itself, without a network: it fails at the download, not at an option."""
    assert UV in COMMANDS
    env = {"PATH": f"{TOOLS}:{SYSTEM}", "HOME": str(tmp_path), "UV_OFFLINE": "1", "UV_NO_CONFIG": "1"}
    env |= {"UV_CACHE_DIR": str(tmp_path / "cache"), "UV_PYTHON_INSTALL_DIR": str(tmp_path / "pythons")}
    done = run_program(["bash", "-c", put_examples(UV)], env=env, timeout=60)
    assert done.returncode == 1 and "Network connectivity is disabled" in done.stderr, done.stderr


@pytest.mark.parametrize("line", [c for c in LINES if c.startswith("docker run")])
def test_docker_itself_reads_the_options(tmp_path, line):
    """It reads all options before it looks for its daemon."""
    need_programs("docker", packages="docker.io")
    env = {"PATH": SYSTEM, "HOME": str(tmp_path), "DOCKER_HOST": f"unix://{tmp_path}/none"}
    done = run_program(["bash", "-c", complete(line)], env=env, timeout=60)
    assert re.search(r"Cannot connect to the Docker daemon|not a TTY", done.stderr), done.stderr


def test_gdb_shows_the_stack_of_a_crash(tmp_path):
    (line,) = {c.partition(" -- ")[2] for c in COMMANDS if " gdb " in c and " -- " in c}
    assert {c.split(" gdb ")[1] for c in COMMANDS if " gdb " in c} == {line.removeprefix("gdb ")}
    need_programs("gdb", packages="gdb")
    (tmp_path / "program.py").write_text(
        "import ctypes, sys\nprint(sys.prefix, flush=True)\nctypes.string_at(0)\n"
    )
    env = {"PATH": f"{TOOLS}:{SYSTEM}", "HOME": str(tmp_path)}
    done = run_program(["bash", "-c", put_examples(line)], env=env, cwd=tmp_path, timeout=60)
    assert sys.prefix in done.stdout, "the program runs in the environment"
    assert "SIGSEGV" in done.stdout and "#0 " in done.stdout, done


# --- what the tables hold -------------------------------------------------------------------------------


def test_no_placeholder_is_left():
    """A word in capitals that a person replaces has an example here."""
    for command in COMMANDS:
        assert not re.search(r"[{<]\w+[}>]|\[\[|\]\]", command), command
        assert not [w for w in EXAMPLES if re.search(rf"(?<![\w-]){w}\b(?!=)", put_examples(command))], (
            command
        )


def test_each_command_runs_in_one_way():
    """Lines of stand-ins, apt and uv here; the other classes are run or read in test_fix_commands.py."""
    elsewhere = {line for line, _, _ in checked_by("runs", "pip", "gpuenv", "python")}
    assert {*LINES, *DEBIAN, UV} | elsewhere == set(COMMANDS)
    assert set(RUNS) <= {*LINES, *DEBIAN}
    assert {
        r["line"] for r in TABLES["runs"] if not {"as", "before", "calls", "says", "ends"} & set(r)
    } == set()


# --- what commands change -------------------------------------------------------------------------------


def propose(*parts):
    """The one command of a fix that has these words."""
    (command,) = (c for c in QUOTED if all(p in c for p in parts))
    return command


def test_all_modules_are_loaded_again(machine):
    command = propose("modprobe -r", "&& sudo modprobe nvidia")
    assert machine.run(command).returncode == 0
    assert machine.state("modules") == ["nvidia"]


def test_a_module_that_is_not_loaded_does_not_stop_the_reload(machine):
    """A machine without a screen: rmmod would end with 1 here, and nothing would be loaded again."""
    (machine.folder / "modules").write_text("nvidia\nnvidia_uvm\n")
    assert machine.run(
        "sudo rmmod nvidia_drm nvidia_modeset nvidia_uvm nvidia && sudo modprobe nvidia"
    ).returncode
    assert machine.state("modules") == []
    (machine.folder / "modules").write_text("nvidia\nnvidia_uvm\n")
    assert machine.run(propose("modprobe -r", "&& sudo modprobe nvidia")).returncode == 0
    assert machine.state("modules") == ["nvidia"]


def test_the_module_of_unified_memory_is_loaded_again(machine):
    assert machine.run(propose("sudo rmmod nvidia_uvm &&")).returncode == 0
    assert sorted(machine.state("modules")) == ["nvidia", "nvidia_drm", "nvidia_modeset", "nvidia_uvm"]


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("sudo nvidia-modprobe -c 255", ["nvidiactl"]),
        ("sudo nvidia-modprobe -u -c 0", ["nvidia-uvm", "nvidia-uvm-tools"]),
        (
            "sudo nvidia-modprobe -c 0 -c 255 && sudo nvidia-modprobe -u -c 0",
            ["nvidia-uvm", "nvidia-uvm-tools", "nvidia0", "nvidiactl"],
        ),
    ],
)
def test_device_files_that_a_fix_creates(machine, command, files):
    assert command in COMMANDS
    assert machine.run(command).returncode == 0
    assert sorted(p.name for p in (machine.root / "dev").iterdir()) == files


def test_a_stale_device_file_is_replaced(machine):
    stale = machine.root / "dev" / "nvidia-uvm"
    stale.write_text("stale")
    assert machine.run(propose("rm -f /dev/nvidia-uvm")).returncode == 0
    assert stale.read_text() == "minor 0"


def test_the_loader_finds_the_driver_of_windows(machine):
    """The real ldconfig, with a configuration and a cache of the machine."""
    library(machine.wsl / "libcuda.so.1")
    assert machine.run(propose("tee /etc/ld.so.conf.d")).returncode == 0
    (written,) = (machine.root / "etc" / "ld.so.conf.d").iterdir()
    assert written.read_text() == f"{machine.wsl}\n" and written.name == "ld.wsl.conf"
    assert f"=> {machine.wsl}/libcuda.so.1\n" in machine.run("ldconfig -p | grep libcuda").stdout


def test_podman_needs_the_specification_that_the_fix_writes(machine):
    start = RUNS[propose("podman run --device")]["as"]
    assert machine.run(start).returncode == 126
    assert machine.run("nvidia-ctk cdi generate").returncode == 0
    assert machine.run(start).returncode == 126, "it is only printed"
    assert machine.run(propose("nvidia-ctk cdi generate")).returncode == 0
    assert machine.run(start).returncode == 0


def test_docker_gets_the_runtime_of_nvidia(machine):
    assert machine.run(propose("nvidia-ctk runtime")).returncode == 0
    daemon = json.loads((machine.root / "etc" / "docker" / "daemon.json").read_text())
    assert "nvidia" in daemon["runtimes"] and machine.state("active") == ["docker"]
    key, _, value = propose("native.cgroupdriver").partition(": ")
    assert json.loads(f"{{{key}: {value}}}") == {"exec-opts": ["native.cgroupdriver=cgroupfs"]}


def test_the_state_of_the_machine_changes(machine):
    for command in ("sudo nvidia-smi -c 0", "sudo systemctl enable --now nvidia-fabricmanager",
                    "sudo usermod -aG video $USER", "wsl --set-default-version 2", "nvidia-smi -dm 0"):  # fmt: skip
        assert command in COMMANDS
        assert machine.run(put_examples(command)).returncode == 0
    states = ("compute-mode", "enabled", "active", "groups", "wsl-version", "driver-model")
    assert [machine.state(s) for s in states] == [
        ["0"], ["nvidia-fabricmanager"], ["nvidia-fabricmanager"], ["video:ada"], ["2"], ["0"]
    ]  # fmt: skip


def test_a_line_of_a_script_allocates_a_gpu(machine):
    (machine.folder / "job.sh").write_text(f"#!/bin/sh\n{propose('#SBATCH --gpus=1')}\nnvidia-smi\n")
    assert machine.run("sbatch job.sh").returncode == 0
    assert machine.state("job")[0] == "gpus=1"


@pytest.mark.parametrize("line", sampled([c for c in LINES if c.startswith("sudo ")], 4))
def test_a_command_as_root_would_fail_without_root(machine, line):
    """The text says sudo only where it is needed. fuser needs it to show processes of others."""
    done = machine.run(complete(line).replace("sudo ", ""))
    assert done.returncode != 0, done


def test_apt_is_run_as_root():
    """apt only simulates here, which needs no root."""
    assert [line for line in DEBIAN if not line.startswith("sudo ")] == []
