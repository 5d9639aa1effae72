"""Each command of a fix is in one class of tests/data/fix_programs.yaml, and is checked as its class says."""

import os
import platform
import re
import shutil
import sys
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from fix_commands import (
    COMMANDS,
    GPUENV,
    QUOTED,
    ROWS,
    TABLES,
    WORDS,
    arguments,
    checked_by,
    is_setting,
    rows_of,
    simple_commands,
)
from known import KNOWN
from packaging.requirements import Requirement
from pip_options import read_pip_options
from programs import run_program
from rows import rows, sampled

CHECKS = ("runs", "options", "deb", "rpm", "pip", "gpuenv", "python")
DEB = {row["package"]: row for row in TABLES["deb"]}
RPM = {row["package"]: row for row in TABLES["rpm"]}
NAMES = ("NAME", "NAME==VERSION")


def named(items):
    return rows(("line", "words", "row"), items)


# --- classes --------------------------------------------------------------------------------------


@rows("command", COMMANDS)
def test_each_part_of_a_command_is_in_one_class(command):
    """A new program in a fix needs a row; a text that is no command needs one in the table of words."""
    parts = simple_commands(command)
    assert parts
    for words in parts:
        assert rows_of(words), f"no row of tests/data/fix_programs.yaml for {' '.join(words)!r}"
        assert rows_of(words)[0]["check"] in CHECKS


def test_an_unknown_program_has_no_class():
    assert not rows_of(["snap", "install", "nvidia"])
    assert simple_commands("sudo A=1 rmmod a && modprobe b 2>/dev/null | tail -1") == [
        ["rmmod", "a"],
        ["modprobe", "b"],
        ["tail", "-1"],
    ]


def test_no_row_is_there_twice_or_for_nothing():
    twice = [c for c, n in Counter(r["command"] for r in ROWS).items() if n > 1]
    used = {rows_of(w)[0]["command"] for c in COMMANDS for w in simple_commands(c) if rows_of(w)}
    assert (twice, {r["command"] for r in ROWS} - used, WORDS - set(QUOTED)) == ([], set(), set())


def test_what_is_not_run_says_why_and_where_its_options_were_read():
    for row in ROWS:
        if row["check"] == "options":
            assert row["source"] and row["reason"], row
    assert all(r["source"] for r in (*TABLES["rpm"], *DEB.values()) if r.get("where") != "debian")


def test_each_setting_in_a_fix_is_a_known_kind_of_variable():
    settings = [q for q in QUOTED if is_setting(q)]
    assert len(settings) > 5
    assert all(re.match(r"(CUDA|TF|TORCH|PYTORCH|TRITON|XLA|NCCL|OMP)_", s) for s in settings), settings


# --- commands that are run --------------------------------------------------------------------------

WHOLE = sorted({c for c, _, _ in checked_by("runs")} - {c for c, _, _ in checked_by(*CHECKS[1:])})


@pytest.fixture
def place(tmp_path):
    """A home and a conda environment that a command may read and change; find and grep look only there."""
    (tmp_path / ".nv" / "ComputeCache").mkdir(parents=True)
    (tmp_path / "program.py").write_text("import os\nos.fork()\n")
    folders = f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin"
    return {"HOME": str(tmp_path), "CONDA_PREFIX": str(tmp_path), "PATH": folders, "LC_ALL": "C",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1"}  # fmt: skip


@pytest.mark.parametrize("command", sampled(WHOLE, 4))
def test_a_command_that_reads_ends_well(command, place):
    """It ends with 0, or with 1 where it searches and finds nothing. A file can be missing here, an option cannot."""
    home = place["HOME"]
    line = command.replace("find / ", f"find {home} ").replace("PROGRAM", f"{home}/program.py")
    line = line.replace("-n 65536", "-n $(ulimit -H -n)")  # more needs root
    done = run_program(["bash", "-c", line], env=place, cwd=home)
    absent = ("No such file or directory", "no packages found matching")
    missing = [said for said in done.stderr.splitlines() if any(words in said for words in absent)]
    assert done.stderr.splitlines() == missing
    assert done.returncode == 0 or missing or (done.returncode == 1 and "grep" in line), done


def test_most_commands_that_read_are_run():
    assert len(WHOLE) > 40


@named(checked_by("runs"))
def test_a_program_that_a_pipe_starts_is_on_every_linux(line, words, row):
    builtin = ("export", "ulimit", "unset")
    inside = Path(sys.executable).parent / words[0]
    assert (
        words[0] in builtin or inside.exists() or shutil.which(words[0], path="/usr/sbin:/usr/bin:/sbin:/bin")
    )


# --- options ------------------------------------------------------------------------------------------


@named(checked_by("options", "deb", "rpm"))
def test_options_and_words_are_those_of_the_program(line, words, row):
    options, others = arguments(row, words)
    assert set(options) <= set(row["options"]), row["source"]
    if row["check"] == "options":
        assert set(others) <= set(row["words"]), row["source"]


@pytest.mark.parametrize("row", [r for r in ROWS if r.get("help")], ids=lambda r: r["command"])
def test_the_program_that_is_here_has_these_options(row):
    command = row["help"].split()
    if not (program := shutil.which(command[0], path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")):
        pytest.skip(f"{command[0]} is not installed here")
    done = run_program([program, *command[1:]], timeout=30)
    text = done.stdout + done.stderr
    named = [*row["options"], *row["command"].split()[1:]]
    assert [o for o in named if not re.search(rf"(?<![\w-]){re.escape(o)}\b", text)] == []


def test_options_of_docker_in_the_text_are_in_its_row():
    (row,) = (r for r in ROWS if r["command"] == "docker run")
    alone = [w["text"] for w in TABLES["words"] if w["is"] == "an option of docker run"]
    assert len(alone) > 3
    assert {re.split(r"[= ]", text)[0] for text in alone} <= set(row["options"])


def test_python_in_a_text_compiles():
    for word in TABLES["words"]:
        if word["is"] == "Python":
            compile(word["text"], "fix", "eval")


# --- packages -----------------------------------------------------------------------------------------


def in_list(name, known):
    """A name or pattern with a package of the list. X stands for a minor version of Python."""
    return any(fnmatchcase(package, re.sub(r"\.X\b", ".*", name)) for package in known)


@named(checked_by("deb", "rpm"))
def test_a_package_is_in_the_list_of_its_system(line, words, row):
    _, packages = arguments(row, words)
    known = DEB if row["check"] == "deb" else RPM
    assert packages
    assert [p for p in packages if not in_list(p, known)] == []


def candidates(names):
    """Whether apt can install each package. Skips where this is no Debian 12 with package lists."""
    release = platform.freedesktop_os_release() if sys.platform == "linux" else {}
    if (release.get("ID"), release.get("VERSION_ID")) != ("debian", "12"):
        pytest.skip("the list is of Debian 12")
    if not shutil.which("apt-cache") or not list(Path("/var/lib/apt/lists").glob("*_main_*Packages*")):
        pytest.skip("apt has no package lists here: run apt-get update")
    text = run_program(["apt-cache", "policy", *names], check=True).stdout
    return {
        m[1]: m[2] != "(none)"
        for m in re.finditer(r"^(\S+):\n  Installed: .*\n  Candidate: (.*)$", text, re.MULTILINE)
    }


def test_debian_has_the_packages_of_fixes():
    names = [name for name, row in DEB.items() if row["where"] == "debian"]
    assert [name for name, there in candidates(names).items() if not there] == []
    assert set(names) == set(candidates(names))


def test_debian_has_the_packages_of_system_libraries():
    names = sorted({row.deb for row in KNOWN.system_libraries if row.deb})
    there = candidates(names)
    assert len(names) > 60 and [n for n in names if not there.get(n)] == []


# --- pip and gpuenv -----------------------------------------------------------------------------------


def requirements(words):
    """The requirements of a pip command, without placeholders."""
    given = [w for w in words if w not in ("python", "-m", "pip", "install", "download")]
    address = given.index("--index-url") if "--index-url" in given else len(given)
    return [w for w in given[:address] if not w.startswith("-") and w not in NAMES]


PIP = [*{tuple(r): (w, r) for _, w, _ in checked_by("pip") if (r := requirements(w))}.values()]


@rows(("words", "wanted"), PIP, ids=[" ".join(w) for w, _ in PIP])
def test_the_index_has_what_pip_is_asked_for(words, wanted):
    """An older Python is tried too: an old release has wheels for no newer one."""
    assert all(Requirement(text) for text in wanted)
    uv = str(Path(sys.executable).parent / "uv")
    tried = []
    for python in ("3.12", "3.8"):
        command = [
            uv,
            "pip",
            "compile",
            "--no-deps",
            "--no-header",
            "--python",
            sys.executable,
            "--python-version",
            python,
            "-",
        ]
        done = run_program(command, input="\n".join(wanted))
        if done.returncode == 0:
            assert "does not have an extra" not in done.stderr
            return
        tried.append(done.stderr)
    raise AssertionError(tried)


@pytest.fixture(scope="module")
def pip_options():
    """What pip reads in each of its command lines."""
    lines = [words[words.index("pip") + 1 :] for _, words, _ in checked_by("pip")]
    refused = [["install", "--no-such-option", "torch"]]
    *read, none = read_pip_options([*lines, *refused])
    assert none is None
    return dict(zip(map(tuple, lines), read, strict=True))


@named(checked_by("pip"))
def test_pip_has_the_options(line, words, row, pip_options):
    read = pip_options[tuple(words[words.index("pip") + 1 :])]
    assert read is not None and read["names"]


@named(checked_by("gpuenv"))
def test_gpuenv_s_commands_are_those_that_are_tried(line, words, row):
    assert line in GPUENV


@named(checked_by("python"))
def test_a_line_of_python_names_a_program_or_compiles(line, words, row):
    if "-c" in words:
        compile(words[words.index("-c") + 1], "fix", "exec")
    else:
        assert words[1:] in (["program.py"], ["..."], ["-X", "faulthandler", "PROGRAM"])
