"""Ctrl-C at any moment ends without a traceback: while Python still imports, and in what `make env` runs."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from framework_envs import write_python3
from programs import run_program

ROOT = Path(__file__).resolve().parents[2]
INTERRUPTED_AT = """
import os, signal, sys
from provision.__main__ import main

left = int(sys.argv.pop(1))

def on_event(event, _):
    global left
    if event == "import":
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGINT)

sys.addaudithook(on_event)
main()
"""


@pytest.mark.parametrize("imports", [1, 2, 5, 20, 60, 120, 200])
def test_an_interrupt_while_modules_are_imported_ends_without_a_traceback(gpuenv, imports):
    ran = run_program(
        [sys.executable, "-c", INTERRUPTED_AT, str(imports), "profiles", "list"], env=gpuenv.env, cwd=ROOT
    )
    assert ran.returncode == 130, ran.stderr
    assert ran.stderr.startswith("interrupted") and "Traceback" not in ran.stderr


def interrupt_group(argv, after, **options):
    """Run a program as a shell's foreground job, and press Ctrl-C once `after` says so. Return code and output."""
    child = subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, **options
    )
    end = time.monotonic() + 60
    while not after() and child.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    os.killpg(child.pid, signal.SIGINT)
    return child.communicate(timeout=60)[0], child.returncode


@pytest.mark.parametrize("moment", ["making the venv", "installing"])
def test_an_interrupt_in_the_script_that_make_env_runs_ends_without_a_traceback(gpuenv, tmp_path, moment):
    """pip is told of an index that never answers, so that the second moment lasts."""
    folder = tmp_path / "tool"
    gpuenv.env |= {"PIP_INDEX_URL": "http://192.0.2.1/simple", "PIP_RETRIES": "0", "PIP_TIMEOUT": "50"}
    reached = {
        "making the venv": (folder / "pyvenv.cfg").exists,
        "installing": (folder / "bin" / "pip").exists,
    }[moment]
    said, code = interrupt_group(
        [sys.executable, ROOT / "scripts" / "private_venv.py", folder], reached, env=gpuenv.env
    )
    assert code in (130, -signal.SIGINT) and "Traceback" not in said, said


def test_an_interrupt_in_make_env_of_a_project_ends_without_a_traceback(gpuenv):
    assert gpuenv("init", "--framework", "jax", "--gpuenv-from", ROOT).code == 0
    write_python3(gpuenv.folder / "programs" / "python3")
    gpuenv.env["PATH"] = f"{gpuenv.folder / 'programs'}:/usr/bin:/bin"
    made = gpuenv.work / ".gpuenv-tool" / "pyvenv.cfg"
    said, code = interrupt_group(["make", "env"], made.exists, env=gpuenv.env, cwd=gpuenv.work)
    assert code != 0 and "Traceback" not in said, said
