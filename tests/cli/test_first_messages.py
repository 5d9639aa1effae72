"""Messages that a user meets first: each names the value, the reason, and what to type."""

import errno
import json
import os
import shutil
import sys
import sysconfig
from pathlib import Path

import pytest
from environment_facts import ok, refused
from known import KNOWN
from programs import run_program
from rows import rows

from provision.index.refusals import find_failure
from provision.resolve.boards import find_gpu
from provision.system.files import suggest_fix


@rows(
    ("words", "message", "hint"),
    [
        (
            ("create", "--framework", "torch", "--device", "gpu"),
            "--device gpu: not one of auto, cuda, cpu",
            "Did you mean cuda?",
        ),
        (
            ("create", "--framework", "torch", "--device", "gpu0"),
            "--device gpu0: not one of auto, cuda, cpu",
            "Did you mean cuda?",
        ),
        (
            ("create", "--framework", "torch", "--device", "cdua"),
            "--device cdua: not one of auto, cuda, cpu",
            "Did you mean cuda?",
        ),
        (
            ("verify", "--device", "gpu"),
            "--device gpu: expected cpu, all, cuda or cuda:N",
            "Did you mean cuda?",
        ),
        (("create",), "no gpuenv.yaml here, and no --framework given", "name one: --framework torch"),
        (("resolve",), "no gpuenv.yaml here, and no --framework given", "name one: --framework torch"),
        (
            ("resolve", "--with", "onnxruntime"),
            "no gpuenv.yaml here,",
            "of onnxruntime: --framework onnxruntime;",
        ),
        (("run",), "no program given", "gpuenv run python train.py"),
        (("instal",), "unknown command instal", "gpuenv create builds"),
        (("cache", "prun"), "unknown command prun", "Did you mean gpuenv cache prune?"),
        (
            ("create", "--framwork", "torch"),
            "unknown option --framwork. Did you mean --framework?",
            "gpuenv create",
        ),
        (("add",), "the argument PKG... is missing", "gpuenv add --help"),
        (
            ("add", "-r", "requirements.txt"),
            "unknown option -r",
            "write the file under `requirements:` in gpuenv.yaml",
        ),
        (("verify", "-r", "x"), "unknown option -r", "-r is an option of gpuenv create"),
        (
            ("create", "--framework", "jax", "--python", "/opt/bin/python3"),
            "--python /opt/bin/python3: expected a version such as 3.11",
            "gpuenv finds the interpreter itself",
        ),
        (
            ("resolve", "--framework", "torch", "--gpu", "MI300X"),
            "--gpu: MI300X is an AMD GPU; gpuenv supports NVIDIA",
            "gpuenv profiles show gpus",
        ),
        (
            ("resolve", "--framework", "torch", "--gpu", "Radeon RX 7900 XTX"),
            "--gpu: Radeon RX 7900 XTX is an AMD GPU",
            "gpuenv profiles show gpus",
        ),
        (
            ("resolve", "--framework", "torch", "--gpu", "Arc A770"),
            "--gpu: Arc A770 is an Intel GPU",
            "gpuenv profiles show gpus",
        ),
        (("run", "-c", "print(1)"), "unknown option -c", "gpuenv run python -c 'print(1)'"),
        (("run", "-m", "pytest", "-x"), "unknown option -m", "gpuenv run python -m pytest -x"),
        (
            ("create", "--framework", "torch", "--driver", "12.4"),
            "--driver 12.4: this looks like a CUDA version",
            "nvidia-smi shows it as 'Driver Version'",
        ),
        (
            ("create", "--framework", "torch", "--driver", "new"),
            "--driver new: expected a version such as 535.129.03",
            "nvidia-smi shows it as 'Driver Version'",
        ),
    ],
)
def test_a_wrong_command_line_is_answered_with_the_right_one(gpuenv, words, message, hint):
    said = " ".join(refused(gpuenv(*words), 2).err.split())
    assert f"error: {message}" in said
    assert hint in said.partition("hint: ")[2]


@pytest.mark.parametrize(
    ("file", "words"),
    [("gpuenv.yaml", ("create",)), ("requirements.txt", ("create", "-r", "requirements.txt"))],
)
def test_a_file_without_a_framework_is_named(gpuenv, file, words):
    (gpuenv.work / file).write_text("python: '3.11'\n" if file == "gpuenv.yaml" else "# nothing yet\n")
    assert f"error: {file} names no framework" in refused(gpuenv(*words), 2).err


@pytest.mark.parametrize("word", ["train.py", "./train.py", "src/train.py"])
def test_a_python_file_is_not_a_program_of_its_own(gpuenv, venv_here, word):
    (gpuenv.work / "src").mkdir()
    for name in ("train.py", "src/train.py"):
        (gpuenv.work / name).write_text("print(1)\n")
    ran = gpuenv("run", word, "--lr", "0.1")
    assert ran.code in (126, 127)
    assert f"gpuenv: {word}: " in ran.err
    assert f"hint: gpuenv run python {word} --lr 0.1" in ran.err


def test_a_python_file_that_can_be_executed_runs(gpuenv, venv_here):
    file = gpuenv.work / "train.py"
    file.write_text("#!/bin/sh\necho ran\n")
    file.chmod(0o755)
    assert gpuenv("run", "./train.py").out == "ran\n"


@pytest.fixture
def venv_here(gpuenv):
    programs = gpuenv.work / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "python").symlink_to(sys.executable)
    (programs.parent / "pyvenv.cfg").write_text("")


def test_a_folder_without_python_is_told_from_a_missing_one(gpuenv):
    (gpuenv.work / "e").mkdir()
    for words in (("verify", "e"), ("run", "e", "--", "python")):
        ran = refused(gpuenv(*words), 2)
        assert f"error: {gpuenv.work}/e has no Python: bin/python is missing" in ran.err
        assert "Did you mean" not in ran.err
    assert f"error: {gpuenv.work}/missing does not exist" in refused(gpuenv("verify", "missing"), 2).err


def test_diagnose_without_a_finding_names_the_next_step(gpuenv):
    (gpuenv.work / "train.log").write_text("all is well\n")
    ran = ok(gpuenv("diagnose", "train.log", "--no-machine"))
    assert ran.out.startswith("no known GPU failure in this log\n")
    assert "gpuenv run python PROGRAM" in ran.out
    assert json.loads(gpuenv("diagnose", "train.log", "--no-machine", "--json").out)["findings"] == []


def test_report_names_an_environment_of_another_tool(gpuenv, venv_here):
    ran = ok(gpuenv("report"))
    assert "not made by gpuenv" in ran.out and "there is no .venv" not in ran.out


def test_report_says_that_there_is_no_environment(gpuenv):
    assert "no environment: .venv is missing" in gpuenv("report").out


@rows(
    ("text", "name", "capability"),
    [
        ("4090", "GeForce RTX 4090", "8.9"),
        ("3080", "GeForce RTX 3080", "8.6"),
        ("A6000", "RTX A6000", "8.6"),
        ("1080", "GeForce GTX 1080", "6.1"),
    ],
)
def test_a_number_names_a_board_where_one_capability_has_it(text, name, capability):
    found = find_gpu(text, KNOWN.gpus)
    assert (found.name, found.capability) == (name, capability)


@rows("text", ["5000", "Orin", "RTX", "GeForce", ""])
def test_a_name_of_several_capabilities_is_refused(text):
    with pytest.raises(ValueError, match="unknown GPU name"):
        find_gpu(text, KNOWN.gpus)


UV_LOG = """error: Request failed after 3 retries in 7.4s
  cause: Failed to fetch: https://index.example/simple/packaging/
  cause: error sending request for url (https://index.example/simple/packaging/)
  cause: client error (Connect)
  cause: {tunnel}tcp connect error
  cause: {last}
"""


@rows(
    ("tunnel", "last", "reason", "hint"),
    [
        ("", "Connection refused (os error 111)", "refuses the connection", "index-url"),
        (
            "tunnel error: failed\n  cause: ",
            "Connection refused",
            "cannot be reached through the proxy",
            "HTTPS_PROXY",
        ),
        (
            "",
            "invalid peer certificate: UnknownIssuer",
            "has a certificate that is not trusted",
            "SSL_CERT_FILE",
        ),
    ],
)
def test_an_index_that_cannot_be_reached_is_named_with_the_reason(tunnel, last, reason, hint):
    failure = find_failure(UV_LOG.format(tunnel=tunnel, last=last))
    assert f"the package index https://index.example/simple {reason}" in failure.message
    assert hint in failure.hint and failure.address and failure.index_unavailable


def test_a_full_disk_is_not_a_question_of_permissions():
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/data/gpuenv.yaml")
    assert suggest_fix(full, "check the folder's permissions").endswith("disk of /data/gpuenv.yaml")
    refused = OSError(errno.EACCES, os.strerror(errno.EACCES), "/data/gpuenv.yaml")
    assert suggest_fix(refused, "check the folder's permissions") == "check the folder's permissions"


def test_a_warning_is_said_once(gpuenv):
    """As an event on standard error, and as a note of the plan."""
    ran = gpuenv("lock", "--framework", "jax", "--offline")
    assert "building for the CPU" in ran.err
    assert (ran.out + ran.err).count("building for the CPU") == 1


def test_a_wrong_pythonhome_is_named_and_not_pythonpath(gpuenv, tmp_path):
    """A copy of this Python's library without one module."""
    library = tmp_path / "home" / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    shutil.copytree(
        sysconfig.get_path("stdlib"),
        library,
        ignore=lambda *_: ["difflib.py", "__pycache__", "test", "site-packages"],
    )
    done = run_program(
        [
            sys.executable,
            "-c",
            "import sys; sys.path.append(sys.argv.pop(1)); from provision.__main__ import main; main()",
            Path(__file__).parents[2],
            "detect",
        ],
        env=gpuenv.env | {"PYTHONHOME": str(tmp_path / "home")},
    )
    assert "unset PYTHONHOME" in done.stderr and "PYTHONPATH" not in done.stderr, done.stderr
