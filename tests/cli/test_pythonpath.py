"""PYTHONPATH: it applies to what runs in the environment, not to gpuenv itself."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from programs import run_program

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(sys.executable).parent / "gpuenv"
STARTS = {"script": [str(SCRIPT)], "module": [sys.executable, "-m", "provision"]}
BROKEN = ("typing", "packaging", "typer", "yaml", "subprocess", "tempfile", "json", "signal")
"""Modules that gpuenv imports and that Python itself does not need to start."""


@pytest.fixture
def folder(gpuenv):
    """A folder on PYTHONPATH whose modules break every program that imports them."""
    place = gpuenv.folder / "broken"
    place.mkdir()
    for name in BROKEN:
        (place / f"{name}.py").write_text(f"raise RuntimeError('the {name} of PYTHONPATH')\n")
    gpuenv.env["PYTHONPATH"] = str(place)
    return place


def ran(gpuenv, argv, **env):
    return run_program(argv, env=gpuenv.env | env, cwd=gpuenv.work, timeout=120, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize(
    "argv", [("--version",), ("--help",), ("resolve", "--framework", "jax", "--device", "cpu")]
)
def test_modules_on_pythonpath_do_not_break_gpuenv(gpuenv, folder, start, argv):
    done = ran(gpuenv, [*STARTS[start], *argv])
    assert done.returncode == 0 and "gpuenv" in done.stdout, done.stderr


def test_a_run_in_the_environment_sees_pythonpath_and_the_variables_as_they_were(gpuenv, folder):
    code = "import os, sys; print(os.environ['PYTHONPATH'], sys.path[1], sys.flags.ignore_environment)"
    done = ran(gpuenv, [SCRIPT, "run", sys.prefix, "--", "python", "-c", code])
    assert done.stdout.split() == [str(folder), str(folder), "0"], done.stderr


SEEN = """
import atexit, sys
from provision.__main__ import main

@atexit.register
def show():
    flags = sys.flags
    print(flags.ignore_environment, flags.dont_write_bytecode, flags.no_user_site, flags.utf8_mode, sys.pycache_prefix)
    print(sys.orig_argv.count("-E"), sys.argv[1:])

main()
"""


def test_gpuenv_restarts_itself_once_and_keeps_the_other_variables(gpuenv, folder):
    done = ran(
        gpuenv, [sys.executable, "-c", SEEN, "--version"], PYTHONDONTWRITEBYTECODE="1", PYTHONNOUSERSITE="1",
        PYTHONUTF8="1", PYTHONPYCACHEPREFIX="/nowhere/cache",
    )  # fmt: skip
    assert done.stdout.splitlines()[-2:] == ["1 1 1 1 /nowhere/cache", "1 ['--version']"], done.stderr


def test_without_pythonpath_nothing_is_started_again(gpuenv):
    for value in ({}, {"PYTHONPATH": ""}):
        done = ran(gpuenv, [sys.executable, "-c", SEEN, "--version"], **value)
        assert done.stdout.splitlines()[-1] == "0 ['--version']", done.stderr


@pytest.mark.parametrize("spelled", [str(ROOT), f"/nowhere:{ROOT}/tests/..", os.path.relpath(ROOT, "/")])
def test_a_gpuenv_that_pythonpath_supplies_runs(gpuenv, spelled):
    """`pip install --target`, or a checkout beside an interpreter that has the requirements."""
    gpuenv.env["PYTHONPATH"] = spelled
    gpuenv.work = Path("/")
    done = ran(gpuenv, [sys.executable, "-c", SEEN, "--version"])
    assert done.stdout.splitlines()[-1] == "0 ['--version']", done.stderr


def test_a_call_from_another_program_does_not_replace_that_program(gpuenv):
    gpuenv.env["PYTHONPATH"] = str(gpuenv.folder)
    code = "import sys; sys.argv[1:] = ['--version']; print('begun', flush=True)" + SEEN
    done = ran(gpuenv, [sys.executable, "-c", code, "its", "own"])
    assert done.stdout.splitlines()[0] == "begun" and done.stdout.count("begun") == 1, done.stderr
    assert done.stdout.splitlines()[-1] == "0 ['--version']"


def test_a_requirement_that_only_pythonpath_supplies_is_named(gpuenv, folder):
    """Where `pip install gpuenv` ran with PYTHONPATH set and took packages there for installed ones."""
    bare = gpuenv.folder / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    site = next(bare.glob("lib/python3*/site-packages"))
    (site / "provision").symlink_to(ROOT / "provision")
    done = ran(
        gpuenv, [bare / "bin" / "python", "-c", "from provision.__main__ import main; main()", "detect"]
    )
    assert done.returncode == 7 and "requires the module typer" in done.stderr and "hint:" in done.stderr
