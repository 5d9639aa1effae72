"""The command `gpuenv diagnose`: files, JSON, one screen, a machine from a file."""

import json
import re
import subprocess
import sys

import pytest
from environment_facts import ok, refused

from driver_stub import H200, build, scenario, spec

OMP = "OMP: Error #15: Initializing libiomp5md.dll, but found libiomp5md.dll already initialized."
FULL = "RuntimeError: CUDA error: CUDA out of memory. Tried to allocate 20.00 MiB"


def test_the_command_reads_files_and_answers_in_json(gpuenv):
    (gpuenv.work / "a.log").write_text("nothing\n")
    (gpuenv.work / "b.log").write_text(f"x\n{OMP}\n")
    done = ok(gpuenv("diagnose", "a.log", "b.log", "--no-machine", "--json"))
    assert done.json["schema"] == "gpuenv.findings/1"
    [finding] = done.json["findings"]
    assert finding["cause"] == "duplicate_openmp_runtime" and finding["confidence"] == "certain"
    assert finding["evidence"][0] == {"text": OMP, "source": "b.log", "line": 2}


RUN_IT = "gpuenv run python PROGRAM  # also sees signals, limits and the environment"


def test_the_command_has_nothing_to_say_about_what_it_does_not_know(gpuenv):
    (gpuenv.work / "a.log").write_text("KeyError: 'x'\n")
    done = ok(gpuenv("diagnose", "a.log", "--no-machine"))
    assert done.out == f"no known GPU failure in this log\n{RUN_IT}\n"


@pytest.mark.parametrize("of_project", [True, False])
def test_the_environment_that_could_be_verified_too_is_named_by_its_path(gpuenv, of_project, tmp_path):
    env = gpuenv.work / ".venv" if of_project else tmp_path / "active"
    (env / "bin").mkdir(parents=True)
    (env / "bin" / "python").symlink_to(sys.executable)
    (env / "pyvenv.cfg").write_text("home = /usr/bin\n")
    if not of_project:
        gpuenv.env["VIRTUAL_ENV"] = str(env)
    shown = ".venv" if of_project else env
    said = " ".join(gpuenv("diagnose").err.split())
    assert f"to verify {shown} as well: gpuenv diagnose --env {shown}" in said


STACK = """Fatal Python error: Segmentation fault

Current thread 0x00007fe5543d0b80 (most recent call first):
  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at
  File "/home/u/proj/train.py", line 5 in <module>
"""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("epoch 1\nSegmentation fault (core dumped)\n", "line 2 shows a crash without a stack: `gpuenv run -- CMD`"),
        ("train.sh: line 4:  4711 Segmentation fault      (core dumped) python train.py\n", "or `python -X faulthandler PROGRAM`, shows where"),
        ("zsh: segmentation fault  python train.py\n", "a crash without a stack"),
        ("Process finished with exit code 139\n", "line 1 shows a crash without a stack"),
        (STACK, "the program crashed in string_at (ctypes/__init__.py, line 519), called at /home/u/proj/train.py, line 5, outside of known packages: `gpuenv run -- gdb"),
    ],
)  # fmt: skip
def test_a_crash_without_a_cause_says_what_decides(gpuenv, text, says):
    (gpuenv.work / "a.log").write_text(text)
    done = gpuenv("diagnose", "a.log", "--no-machine")
    assert done.out == "no known GPU failure in this log\n"
    assert says in done.err and "gpuenv run python PROGRAM" not in done.err


@pytest.mark.parametrize(
    "text", ["epoch 139 loss 0.2", "This release fixes a segmentation fault in parser", "code 1390"]
)
def test_a_text_without_a_crash_says_nothing_of_one(gpuenv, text):
    (gpuenv.work / "a.log").write_text(text)
    done = gpuenv("diagnose", "a.log", "--no-machine")
    assert RUN_IT in done.out and "crash" not in done.err


def test_people_get_one_screen(gpuenv):
    (gpuenv.work / "a.log").write_text("RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED\n")
    done = gpuenv("diagnose", "a.log", "--no-machine")
    assert done.code == 0 and "other possible causes:" in done.out
    assert len(done.out.splitlines()) <= 40


def test_the_process_that_holds_the_gpu_memory_is_named(gpuenv, tmp_path):
    """NVML is a stub that names a real process."""
    libraries = build(tmp_path / "driver")
    (gpuenv.work / "a.log").write_text(FULL)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as holder:
        gpu = f"{H200}|free_mib=200|holder={holder.pid}"
        gpuenv.env |= scenario(libraries, spec(driver="580.159.04", cuda=13000, gpus=[gpu]))
        done = gpuenv("diagnose", "a.log", "--json")
        silent = gpuenv("diagnose", "a.log", "--no-machine", "--json")
        holder.communicate(b"\n")
    first = done.json["findings"][0]
    assert re.match(
        rf"End process {holder.pid} \(python[\d.]*\), which holds 1\d+ MiB of GPU 0", first["fix"]
    )
    assert str(holder.pid) not in silent.out


NO_DRIVER = "RuntimeError: Found no NVIDIA driver on your system.\n"


def test_a_log_that_this_machine_contradicts_is_from_elsewhere_or_from_before(gpuenv, tmp_path):
    (gpuenv.work / "a.log").write_text(NO_DRIVER)
    without = gpuenv("diagnose", "a.log")
    gpuenv.env |= scenario(
        build(tmp_path / "driver"), spec(driver="580.159.04", cuda=13000, gpus=[H200, H200])
    )
    there = gpuenv("diagnose", "a.log")
    said = " ".join(there.err.split())
    assert "on this machine driver 580.159.04 works, with NVIDIA H200" in said
    assert there.out == without.out, "the causes of the log are the same"
    assert "on this machine" not in without.err
    assert "on this machine" not in gpuenv("diagnose", "a.log", "--no-machine").err
    (gpuenv.work / "b.log").write_text(FULL)
    assert "on this machine" not in gpuenv("diagnose", "b.log").err


def test_a_machine_can_be_given_as_a_file(gpuenv):
    machine = {"schema": "gpuenv.machine/1", "target": {"platform": "linux-x86_64", "driver": "535.129.03"}}
    (gpuenv.work / "m.json").write_text(json.dumps(machine))
    (gpuenv.work / "a.log").write_text("AssertionError: Torch not compiled with CUDA enabled\n")
    done = ok(gpuenv("diagnose", "a.log", "--machine", "m.json", "--json"))
    assert " runs on driver 535.129.03" in done.json["findings"][0]["fix"]


@pytest.mark.parametrize(
    "words",
    [
        ("missing.log",),
        ("--no-machine",),
        ("x", "--machine", "missing.json"),
        ("--machine", "bad.json"),
        ("-", "--no-machine", "--machine", "m"),
    ],
)
def test_what_cannot_be_read_is_a_usage_error(gpuenv, words):
    (gpuenv.work / "bad.json").write_text('{"x": 1}')
    (gpuenv.work / "x").write_text("")
    assert refused(gpuenv("diagnose", *words), 2).err.startswith("error")


@pytest.mark.parametrize("log", ["missing.log", ".", "/dev/zero"])
def test_a_log_that_cannot_be_read_is_named_before_an_environment_is_verified(gpuenv, log):
    assert refused(gpuenv("diagnose", "--env", "no-environment", log), 2).err.startswith(f"error: {log}: ")
