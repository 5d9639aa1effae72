"""Results are short: one line for what has one cause, tables that fit the terminal."""

import contextlib
import fcntl
import io
import os
import pty
import struct
import subprocess
import sys
import termios

import pytest
from environment_facts import ok

from provision.model import StageResult, Verdict
from provision.show import Screen
from provision.show.terminal import show_table
from provision.show.verdict import show_verdict

GPU = ("--driver", "535.129.03", "--gpu", "V100", "--python", "3.11")


def shown(show, *values, columns=80, **how):
    environ = {"COLUMNS": str(columns)}
    screen = Screen(out=io.StringIO(), err=io.StringIO(), environ=environ, **how.pop("screen", {}))
    show(screen, *values, **how)
    return screen.out.getvalue().splitlines()


def verdict(*stages):
    made = [
        StageResult(
            stage=name, status=status, detail=detail, framework=None, device=None, seconds=0.0, evidence=()
        )
        for name, status, detail in stages
    ]
    return Verdict(env="/e", python="3.11", verdict="fails", stages=tuple(made))


FAILED = verdict(
    ("driver", "fail", "no driver"),
    *(
        (name, "skip", "the driver stage failed")
        for name in ("runtime", "libraries", "cudnn", "framework", "loaded")
    ),
    ("packages", "skip", "another reason"),
)


def test_neighbours_that_were_skipped_for_one_reason_take_one_line(monkeypatch):
    rows = shown(show_verdict, FAILED)
    assert rows[1:3] == [
        "  skip  runtime, libraries, cudnn, framework, loaded: the driver stage failed",
        "  skip  packages                 another reason",
    ]
    assert "  skip  runtime to loaded: the driver stage failed" in shown(show_verdict, FAILED, columns=60)


def test_every_stage_is_shown_with_verbose(monkeypatch):
    rows = shown(show_verdict, FAILED, screen={"verbose": True})
    assert sum(row.startswith("  skip  ") for row in rows) == 6


@pytest.mark.parametrize("columns", [40, 60, 80, 120, 200])
def test_a_table_fits_and_loses_no_word(monkeypatch, columns):
    rows = [("torch", "2.15.0", "a sentence of many words about it " * 4), ("jax", "0.1", "")]
    found = shown(show_table, ("NAME", "VERSION", "WHY"), rows, columns=columns)
    assert found[0].split() == ["NAME", "VERSION", "WHY"] and max(map(len, found)) <= columns
    words = " ".join(" ".join(found).split())
    assert words.count("sentence") == 4 and words.count("words") == 4 and "jax" in words


def test_columns_without_room_are_named(monkeypatch):
    rows = [("a", "x" * 900, "b")]
    found = shown(show_table, ("ONE", "LONG", "TWO"), rows)
    assert found[:-1] == ["ONE", "a"] and found[-1].startswith("hidden columns: LONG, TWO;")
    found = shown(show_table, ("ONE", "LONG", "TWO"), rows, columns=400)
    assert found[0].split() == ["ONE", "LONG", "TWO"]


def test_no_row_of_a_command_is_wider_than_the_terminal(gpuenv):
    gpuenv.env["COLUMNS"] = "80"
    commands = [
        ("profiles", "list"), ("profiles", "show"), ("list",), ("resolve", "--framework", "torch", *GPU, "--explain"),
    ]  # fmt: skip
    for words in commands:
        ran = ok(gpuenv(*words))
        wide = [row for row in ran.out.splitlines() if len(row) > 80 and len(row.split()) > 1]
        assert not wide, wide[:3]


def test_tables_have_heads(gpuenv):
    gpuenv.env["COLUMNS"] = "80"
    rows = gpuenv("profiles", "list").out.splitlines()
    assert rows[2].split() == ["NAME", "ROWS", "UPDATED", "TABLES"]
    assert "gpuenv profiles show" in rows[0] + rows[1]
    explained = gpuenv("resolve", "--framework", "torch", *GPU, "--explain").out
    assert "  FRAMEWORK  VERSION  CUDA  INDEX    RESULT" in explained and "chosen" in explained
    gpuenv.env["COLUMNS"] = "200"
    builds = gpuenv("profiles", "show", "torch").out
    assert "KERNELS" in builds and "CUDNN" in builds
    assert "Tesla V100" in gpuenv("profiles", "show", "gpus").out


def test_the_profiles_are_checked_in_one_line(gpuenv):
    ran = gpuenv("profiles", "check")
    assert ran.code == 0 and ran.out.startswith("the profiles are valid: ") and ran.out.count("\n") == 1


LONG = ("resolve", "--framework", "torch", "--driver", "550.54.15", "--gpu", "T4", "--python", "3.12")
NOTE = "note: torch 2.14.1 is built with CUDA 12.6; driver 550.54.15 supports CUDA 12.4 and runs it by minor-version compatibility"


def on_terminal(gpuenv, columns, *words):
    """What a command writes to a terminal of so many columns, both streams together."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    done = subprocess.run(
        [sys.executable, "-m", "provision", *words], stdin=follower, stdout=follower, stderr=follower,
        env=gpuenv.env | {"NO_COLOR": "1", "TERM": "xterm"}, cwd=gpuenv.work, check=False,
    )  # fmt: skip
    os.close(follower)
    text = b""
    with contextlib.suppress(OSError):
        while part := os.read(leader, 65536):
            text += part
    os.close(leader)
    return done.returncode, text.decode().replace("\r\n", "\n").splitlines()


def test_a_pipe_gets_whole_lines_and_a_terminal_its_own_width(gpuenv):
    assert NOTE in [line.strip() for line in gpuenv(*LONG).out.splitlines()]
    code, rows = on_terminal(gpuenv, 60, *LONG)
    assert code == 0 and NOTE in " ".join(map(str.strip, rows))
    first = next(i for i, row in enumerate(rows) if "note: " in row)
    assert 40 < max(map(len, rows[first:-1])) <= 60
    gpuenv.env["COLUMNS"] = "100"
    assert NOTE not in gpuenv(*LONG).out, "COLUMNS is what the user wants"


def test_errors_have_the_width_of_the_terminal_too(gpuenv):
    code, rows = on_terminal(gpuenv, 50, "resolve", "--framework", "torch", "--target", "nothing.json")
    assert code == 2 and any(row.startswith("error: ") for row in rows)
    assert max(map(len, rows)) <= 50
