"""Limits and faults of the machine under real commands: none of them is a bug of gpuenv."""

import subprocess
import sys
import tempfile

from programs import run_program
from rows import rows

from provision.cli import exit_codes, system_errors

GPUENV = (sys.executable, "-m", "provision")
DEEP = "/".join(["d" * 200] * 15)
LONG = "n" * 3000
PLAN = ("--framework", "jax", "--device", "cpu", "--python", "3.12")


def ran(gpuenv, argv, *, before="", **env):
    done = run_program(
        ["sh", "-c", f'{before} exec "$@"', "sh", *GPUENV, *argv],
        env=gpuenv.env | env,
        cwd=gpuenv.work,
        stdin=subprocess.DEVNULL,
    )
    assert "Traceback" not in done.stderr and "a bug in gpuenv" not in done.stderr, done.stderr[-3000:]
    return done


def bore(gpuenv, *argv):
    """The run of a command that found no bug of gpuenv."""
    done = gpuenv(*argv)
    assert "Traceback" not in done.err and "a bug in gpuenv" not in done.err, done.err[-3000:]
    return done


@rows("path", [DEEP, LONG])
@rows(
    "argv",
    [
        ("create", "PATH", *PLAN), ("verify", "PATH"), ("remove", "PATH"), ("run", "PATH", "--", "true"), ("repair", "PATH"),
        ("report", "PATH"), ("diagnose", "--env", "PATH"), ("diagnose", "PATH"), ("resolve", "--project", "PATH"),
        ("resolve", *PLAN, "-r", "PATH"), ("resolve", "--framework", "jax", "--target", "PATH"),
        ("profiles", "check", "--profiles", "PATH"), ("lock", *PLAN, "-o", "PATH/pylock.toml"), ("lock", *PLAN, "--find-links", "PATH"),
        ("create", "new", "--bundle", "PATH"), ("export", "--format", "requirements", "--lock", "PATH"), ("bundle", "PATH", *PLAN),
    ],
)  # fmt: skip
def test_a_path_of_3000_characters_is_refused_with_a_hint(gpuenv, argv, path):
    gpuenv.env["PIP_INDEX_URL"] = (
        "http://127.0.0.1:9/simple"  # nothing answers: no case gets as far as to build
    )
    done = bore(gpuenv, *(word.replace("PATH", path) for word in argv))
    assert done.code in (2, 6, 7, 9) and "hint: " in done.err, done.err
    assert not list(gpuenv.work.glob("nnn*"))


@rows("variable", ["HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "TMPDIR", "PIP_CONFIG_FILE"])
@rows("path", [f"/{DEEP}", f"/{LONG}"])
def test_a_long_path_in_a_variable_is_no_bug(gpuenv, variable, path):
    before = dict(gpuenv.env)
    gpuenv.env[variable] = path
    try:
        done = bore(gpuenv, "resolve", *PLAN)
    finally:
        gpuenv.env = before
    assert done.code == 0 or "hint: " in done.err, done.err


def test_the_limit_on_open_files_is_named(gpuenv):
    (gpuenv.work / "log").write_text("x")
    for most in (24, 16, 8):
        done = ran(gpuenv, ("verify", sys.prefix, "--quick", "--device", "cpu"), before=f"ulimit -n {most};")
        assert most > 16 or done.returncode == 4
        if done.returncode == 4:
            assert f"Too many open files; the limit is {most}" in done.stderr
            assert "ulimit -n 1024" in done.stderr


def test_the_limit_that_an_installer_met_is_named():
    """Its own last words are about an allocation or a file; where there is no limit they are left alone."""
    code = (
        "import resource, sys\n"
        "from provision.cli import system_errors\n"
        "from provision.errors import LockError\n"
        "if sys.argv[1:]:\n"
        "    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, resource.RLIM_INFINITY))\n"
        "    resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24))\n"
        "for log in ('memory allocation of 2097152 bytes failed', 'Caused by: Too many open files (os error 24)', 'a dead index'):\n"
        "    error = LockError('the packages could not be solved: ', log=log, hint='x', unreachable='index')\n"
        "    system_errors.add_limits(error)\n"
        "    print(error.message, '|', error.hint, '|', error.unreachable)\n"
    )
    limited = run_program([sys.executable, "-c", code, "limited"], check=True)
    memory, files, other = limited.stdout.splitlines()
    assert "2097152 bytes" in memory and "4096 MiB | raise" in memory
    assert memory.endswith("| None") and files.endswith("| None"), "no index is at fault"
    assert "Too many open files" in files and " 24 | raise" in files
    assert other == "the packages could not be solved:  | x | index"
    free = run_program(
        ["sh", "-c", 'ulimit -v unlimited; exec "$@"', "sh", sys.executable, "-c", code], check=True
    )
    assert free.stdout.splitlines()[0] == other


def test_the_limit_on_memory_is_named():
    """In a process of its own: the error of an allocation that the limit refuses, and of a thread."""
    code = (
        "import resource, threading\n"
        "from provision.cli import exit_codes, system_errors\n"
        "resource.setrlimit(resource.RLIMIT_AS, (500 << 20, resource.RLIM_INFINITY))\n"
        "for fails in (lambda: bytearray(1 << 30), lambda: [threading.Thread(target=threading.Event().wait, daemon=True).start() for _ in range(999)]):\n"
        "    try:\n"
        "        fails()\n"
        "    except (MemoryError, RuntimeError) as error:\n"
        "        told = system_errors.explain(error)\n"
        "        print(exit_codes.get_error_code(told), told.message, told.hint, flush=True)\n"
        "import os; os._exit(0)\n"
    )
    done = run_program([sys.executable, "-c", code], check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 2, done.stdout
    for line in lines:
        assert line.startswith("4 memory is exhausted") and "the limit is 500 MiB" in line
        assert "ulimit -v" in line


@rows(
    ("error", "code", "word"),
    [
        (MemoryError(), 4, "memory"),
        (OSError(12, "Cannot allocate memory"), 4, "memory"),
        (RuntimeError("can't start new thread"), 4, "thread"),
        (ImportError("/x/libtorch.so: failed to map segment from shared object"), 4, "libtorch"),
        (OSError(24, "Too many open files", "/x"), 4, "open files"),
        (OSError(36, "File name too long", "/x" * 2000), 2, "4000 characters"),
        (OSError(28, "No space left on device", "/x"), 7, "/x: No space"),
        (OSError(30, "Read-only file system", "/x"), 7, "/x: Read-only"),
        (BlockingIOError(11, "Resource temporarily unavailable"), 4, "no process"),
        (ModuleNotFoundError("No module named 'yaml'", name="yaml"), 7, "yaml"),
    ],
    ids=str,
)
def test_what_the_machine_caused_is_explained(error, code, word):
    told = system_errors.explain(error)
    assert told is not None and exit_codes.get_error_code(told) == code and word in told.message and told.hint
    assert "None" not in told.message
    wrapped = ValueError("x")
    wrapped.__cause__ = error
    again = system_errors.explain(wrapped)
    assert again is not None and again.message == told.message


@rows(
    "error", [ValueError("x"), RuntimeError("x"), KeyError("MemoryError"), FileNotFoundError(2, "No such file or directory", "/elsewhere"),
              BrokenPipeError(32, "Broken pipe"), ModuleNotFoundError("No module named 'provision.x'", name="provision.x")],
    ids=repr,
)  # fmt: skip
def test_other_errors_stay_bugs(error):
    assert system_errors.explain(error) is None


def test_a_temporary_folder_that_is_taken_away_is_no_bug_of_ours(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    told = system_errors.explain(
        FileNotFoundError(2, "No such file or directory", str(tmp_path / "gone" / "x"))
    )
    assert told is not None and exit_codes.get_error_code(told) == 7 and "TMPDIR" in (told.hint or "")
