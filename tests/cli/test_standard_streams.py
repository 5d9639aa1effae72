"""Standard output and error that are closed, full or no longer read, under real commands."""

import json
import os
import subprocess
import sys

from programs import run_program
from rows import rows

GPUENV = (sys.executable, "-m", "provision")
PLAN = ("resolve", "--framework", "torch", "--driver", "550.54.15", "--gpu", "7.5", "--python", "3.12")
COMMANDS = {
    "version": (("--version",), 0),
    "help": (("--help",), 0),
    "plan": (PLAN, 0),
    "document": ((*PLAN, "--json"), 0),
    "wrong usage": (("nonsense",), 2),
    "no plan": (("resolve", "--framework", "torch==99", *PLAN[3:]), 5),
}


def redirected(gpuenv, argv, redirection):
    done = run_program(
        ["sh", "-c", f'exec "$@" {redirection}', "sh", *GPUENV, *argv],
        env=gpuenv.env,
        cwd=gpuenv.work,
        stdin=subprocess.DEVNULL,
    )
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr, done.stderr
    return done


@rows("redirection", [">&-", "2>&-", "<&- >&- 2>&-", "2>/dev/full"])
@rows("command", ["version", "plan", "wrong usage"])
def test_closed_streams_and_lost_messages_do_not_change_the_exit_code(gpuenv, command, redirection):
    argv, code = COMMANDS[command]
    assert redirected(gpuenv, argv, redirection).returncode == code


@rows("command", COMMANDS)
def test_a_result_that_cannot_be_written_is_an_error_with_its_cause(gpuenv, command):
    argv, code = COMMANDS[command]
    done = redirected(gpuenv, argv, ">/dev/full")
    assert done.returncode == (code or 7)
    assert "hint: " in done.stderr
    if code != 2:  # wrong usage has no result
        assert "standard output: No space left on device" in done.stderr
    assert redirected(gpuenv, argv, ">/dev/full 2>&1").returncode == (code or 7)


@rows("both", [False, True])
@rows("command", ["plan", "no plan"])
def test_a_reader_that_went_away_does_not_change_the_exit_code(gpuenv, command, both):
    """As with `| head -1`, after which scripts under `set -o pipefail` look at the code."""
    argv, code = COMMANDS[command]
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        done = subprocess.run(
            [*GPUENV, *argv], env=gpuenv.env, cwd=gpuenv.work, stdin=subprocess.DEVNULL, stdout=pipe,
            stderr=pipe if both else subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == code
    assert both or "Traceback" not in done.stderr


def test_a_slow_reader_of_a_pipe_that_does_not_block_gets_everything(gpuenv):
    """node and some terminals leave their end of a pipe non-blocking, for all that share it."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    argv = [*GPUENV, "profiles", "show", "--json"]
    with subprocess.Popen(argv, env=gpuenv.env, cwd=gpuenv.work, stdout=writing) as child:
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            text = pipe.read()
    assert child.returncode == 0 and len(text) > 1 << 18  # more than a pipe holds
    assert json.loads(text)["schema"] == "gpuenv.profiles/1"


def test_a_program_sees_a_closed_stream_as_without_gpuenv(gpuenv):
    look = "[ -e /proc/self/fd/1 ] && echo open >&2 || echo closed >&2"
    done = redirected(gpuenv, ("run", sys.prefix, "--", "sh", "-c", look), ">&-")
    assert done.returncode == 0 and done.stderr.split()[-1] == "closed"
