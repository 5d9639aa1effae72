"""`gpuenv run`: the program notices nothing, and its failure is explained."""

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from environment_facts import refused
from programs import run_program
from rows import rows

from provision import profiles
from provision.cli import read_words


@pytest.fixture
def env(gpuenv):
    """An environment with the running Python behind its own bin/python and one library of its own."""
    root = gpuenv.work / ".venv"
    site = root / "lib" / "python3.11" / "site-packages" / "nvidia" / "cudnn" / "lib"
    site.mkdir(parents=True)
    (site / "libcudnn.so.9").write_bytes(b"")
    (root / "bin").mkdir()
    (root / "bin" / "python").symlink_to(sys.executable)
    (root / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).parent}\n")
    (gpuenv.folder / "other").mkdir()
    (gpuenv.folder / "other" / "libcudnn.so.9").write_bytes(b"")
    return root


def start(gpuenv, *words, **how):
    argv = [sys.executable, "-m", "provision", "run", *words]
    return subprocess.Popen(argv, env=gpuenv.env, cwd=gpuenv.work, **how)


def ran(gpuenv, *words):
    """How a run ended whose streams are files; it is forked, which saves the start of Python."""
    done = gpuenv("run", *words)
    return done.code, done.out.encode(), done.err.encode()


def fed(gpuenv, *words, data):
    child = start(gpuenv, *words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = child.communicate(data, timeout=300)
    return child.returncode, out, err


def test_argv_is_split_at_the_first_dashes():
    assert read_words(["run", "e", "--keep-env", "--", "x", "--", "--json"])[:2] == (
        ["run", "e", "--keep-env"],
        ["x", "--", "--json"],
    )
    assert read_words(["run"])[:2] == (["run"], None)
    assert read_words(["detect", "--", "x"])[:2] == (["detect", "--", "x"], None)


def test_the_program_runs_in_the_environment(gpuenv, env):
    code, out, err = ran(gpuenv, "--", "sh", "-c", "command -v python; echo $VIRTUAL_ENV; exit 7")
    assert (code, out.decode().splitlines()) == (7, [str(env / "bin" / "python"), str(env)])
    assert err == b""
    named = ("run", ".venv", "true")
    ran_named = gpuenv(*named)
    assert (ran_named.code, ran_named.out) == (0, "")
    assert "note: .venv is an environment. true " in ran_named.err
    assert gpuenv("run", "-q", *named[1:]).err == ""


def test_stdin_stdout_and_stderr_are_byte_exact(gpuenv, env):
    data = bytes(range(256)) * 2000
    code, out, err = fed(gpuenv, "--", "sh", "-c", "cat; printf '\\377\\000e' >&2", data=data)
    assert (code, out, err) == (0, data, b"\xff\x00e")


def test_json_is_one_document_and_the_program_s_output_goes_to_stderr(gpuenv, env):
    code, out, err = ran(gpuenv, "--json", "--", "sh", "-c", "echo seen; echo too >&2; exit 7")
    assert code == 7 and err == b"seen\ntoo\n"
    assert json.loads(out) == {
        "schema": "gpuenv.run/1", "env": str(env), "command": ["sh", "-c", "echo seen; echo too >&2; exit 7"],
        "code": 7, "signal": None, "findings": [],
    }  # fmt: skip
    code, out, _ = ran(gpuenv, "--json", "--", "sh", "-c", "kill -9 $$")
    assert code == -signal.SIGKILL
    assert (json.loads(out)["code"], json.loads(out)["signal"]) == (137, "SIGKILL")
    says = "echo 'Could not load library libcudnn_ops_infer.so.8' >&2; exit 1"
    code, out, _ = ran(gpuenv, "--json", "-q", "--", "sh", "-c", says)
    assert code == 1 and "cudnn_not_found" in {f["cause"] for f in json.loads(out)["findings"]}
    code, out, err = ran(gpuenv, "--json", "--", "no-such-program")
    assert code == json.loads(out)["code"] == 127 and b"no-such-program" in err
    code, out, _ = ran(gpuenv, "--json", "--exec", "--", "true")
    assert code == 2 and json.loads(out)["schema"] == "gpuenv.error/1"


@rows(
    ("words", "said"),
    [
        (("echo", "--json", "-q", "--help", "--"), b"--json -q --help --\n"),
        (("sh", "-c", "printf 'b\\na\\n' | sort | head -1"), b"a\n"),
    ],
)
def test_options_and_the_pipeline_of_the_program_stay_its_own(gpuenv, env, words, said):
    assert ran(gpuenv, "--", *words)[:2] == (0, said)


@pytest.mark.parametrize(("argv", "code"), [(("no-such-program",), 127), (("./text",), 126)])
def test_a_program_that_cannot_be_started_is_named(gpuenv, env, argv, code):
    (gpuenv.work / "text").write_text("x")
    got, _, err = ran(gpuenv, "--", *argv)
    assert got == code and argv[0].encode() in err


@pytest.mark.parametrize("words", [(), ("--",), ("nowhere", "--", "true")])
def test_run_refuses_a_command_line_without_meaning(gpuenv, env, words):
    code, _, err = ran(gpuenv, *words)
    assert code == 2 and err.startswith(b"error")


def test_run_dies_by_the_signal_that_killed_the_program(gpuenv, env):
    code, _, _ = ran(gpuenv, "--", "sh", "-c", "kill -TERM $$")
    assert code == -signal.SIGTERM
    code, _, err = ran(
        gpuenv, "--", "sh", "-c", "echo 'OMP: Error #15: Initializing libiomp5' >&2; kill -SEGV $$"
    )
    assert code == -signal.SIGSEGV and b"duplicate_openmp_runtime" in err


@pytest.mark.parametrize(("number", "send"), [(signal.SIGTERM, os.kill), (signal.SIGINT, os.killpg)], ids=str)
def test_a_signal_to_us_and_an_interrupt_of_the_keyboard_reach_it(gpuenv, env, number, send):
    script = f"trap 'echo got; exit 5' {number.name[3:]}; echo ready; while :; do sleep 0.05; done"
    child = start(gpuenv, "--", "sh", "-c", script, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert child.stdout.readline() == "ready\n"
    send(child.pid, number)
    out, _ = child.communicate(timeout=300)
    assert (child.returncode, out) == (5, "got\n")


def test_a_failure_is_explained_on_stderr_alone(gpuenv, env):
    script = "print('result'); raise RuntimeError('CUDA error: invalid device ordinal')"
    code, out, err = ran(gpuenv, "--", "python", "-c", script)
    assert (code, out) == (1, b"result\n")
    text = err.decode()
    assert (
        text.index("Traceback")
        < text.index("gpuenv: python failed (exit code 1)")
        < text.index("visible_devices_invalid")
    )


@rows(("says", "code"), [("KeyError", 4), ("OMP: Error #15: Initializing libiomp5", 0)])
def test_a_failure_that_is_nothing_of_ours_and_a_success_are_left_alone(gpuenv, env, says, code):
    assert ran(gpuenv, "--", "sh", "-c", f"echo '{says}' >&2; exit {code}") == (
        code,
        b"",
        f"{says}\n".encode(),
    )


def test_library_paths_that_would_shadow_are_left_out_and_named_once(gpuenv, env):
    other = str(gpuenv.folder / "other")
    gpuenv.env["LD_LIBRARY_PATH"] = f"/lib:{other}"
    gpuenv.env["LD_PRELOAD"] = ""
    code, out, err = ran(gpuenv, "--", "sh", "-c", "echo $LD_LIBRARY_PATH")
    assert (code, out) == (0, b"/lib\n")
    assert err.decode().count(other) == 1 and "LD_LIBRARY_PATH" in err.decode()
    assert "--keep-env" in err.decode()
    code, out, err = ran(gpuenv, "--keep-env", "--", "sh", "-c", "echo $LD_LIBRARY_PATH")
    assert (code, out, err) == (0, f"/lib:{other}\n".encode(), b"")


def test_entries_of_the_environment_itself_and_of_the_driver_stay(gpuenv, env):
    driver = gpuenv.folder / "driver"
    driver.mkdir()
    for name in ("libcuda.so.1", "libcudnn.so.9"):
        (driver / name).write_bytes(b"")
    own = env / "lib" / "python3.11" / "site-packages" / "nvidia" / "cudnn" / "lib"
    gpuenv.env["LD_LIBRARY_PATH"] = value = f"{own}:{driver}"
    code, out, err = ran(gpuenv, "--", "sh", "-c", "echo $LD_LIBRARY_PATH")
    assert (code, out, err) == (0, f"{value}\n".encode(), b"")


@pytest.fixture
def tensorflow(env):
    """`tensorflow("2.21.0")`: a TensorFlow of that release with the NVIDIA wheels as pip lays them."""
    site = next(env.glob("lib/python*/site-packages"))

    def make(version):
        (site / f"tensorflow-{version}.dist-info").mkdir()
        builds = [b for b in profiles.load().builds if (b.framework, b.version) == ("tensorflow", version)]
        searched = next((b.searched for b in builds if b.cuda and b.platform == "linux-x86_64"), None)
        if searched is not None:
            (site / "tensorflow").mkdir()
            folders = ":".join(f"$ORIGIN/../nvidia/{name}/lib" for name in searched)
            (site / "tensorflow/libtensorflow_framework.so.2").write_bytes(
                f"\x7fELF\0$ORIGIN:{folders}\0".encode()
            )
        for folder in ("cublas", "cuda_runtime", "cudnn", "cufft", "curand", "cusolver", "cusparse", "nccl"):
            lib = site / "nvidia" / folder / "lib"
            lib.mkdir(parents=True, exist_ok=True)
            (lib / f"lib{folder}.so.11").touch()
        (site / "nvidia" / "cudnn" / "lib" / "__init__.py").touch()
        return site / "nvidia"

    return make


ASK = ("--", "sh", "-c", "printf %s $LD_LIBRARY_PATH")


@pytest.mark.parametrize(
    ("version", "missing"),
    [
        ("2.21.0", ["cusolver"]),
        ("2.20.0", []),
        ("2.16.1", ["cublas", "cudnn", "cufft", "cusolver", "cusparse"]),
        ("2.12.1", ["cublas", "cuda_runtime", "cudnn", "cufft", "curand", "cusolver", "cusparse", "nccl"]),
    ],
)
def test_a_tensorflow_that_does_not_search_its_wheels_is_given_their_folders(
    gpuenv, env, tensorflow, version, missing
):
    nvidia = tensorflow(version)
    gpuenv.env.pop("LD_LIBRARY_PATH", None)
    code, out, err = ran(gpuenv, *ASK)
    assert (code, out.decode().split(":")) == (0, [f"{nvidia}/{m}/lib" for m in missing] or [""])
    assert err.decode().count("note:") == bool(missing)
    named = f"{', '.join(missing)} to LD_LIBRARY_PATH, because TensorFlow {version} does not search there"
    assert not missing or named in err.decode()


def test_what_create_linked_or_the_user_set_is_not_set_again(gpuenv, env, tensorflow):
    nvidia = tensorflow("2.21.0")
    gpuenv.env["LD_LIBRARY_PATH"] = f"{nvidia}/cusolver/lib"
    assert ran(gpuenv, *ASK)[1:] == (f"{nvidia}/cusolver/lib".encode(), b"")
    gpuenv.env["LD_LIBRARY_PATH"] = "/somewhere"
    assert ran(gpuenv, *ASK)[1] == f"{nvidia}/cusolver/lib:/somewhere".encode()
    assert ran(gpuenv, "--keep-env", *ASK)[1:] == (b"/somewhere", b"")
    (nvidia / "cublas/lib/libcusolver.so.11").symlink_to("../../cusolver/lib/libcusolver.so.11")
    assert ran(gpuenv, *ASK)[1:] == (b"/somewhere", b"")


def test_the_library_of_a_release_says_what_it_searches(gpuenv, env, tensorflow):
    nvidia = tensorflow("2.99.0")
    library = nvidia.parent / "tensorflow" / "libtensorflow_framework.so.2"
    library.parent.mkdir()
    gpuenv.env.pop("LD_LIBRARY_PATH", None)
    assert ran(gpuenv, *ASK)[1] == b"", "not the wheel of the index"
    library.write_bytes(b"\x7fELF\0$ORIGIN/../nvidia/cublas/lib:$ORIGIN/../nvidia/cudnn/lib\0")
    wanted = [f"{nvidia}/{f}/lib" for f in ("cuda_runtime", "cufft", "cusolver", "cusparse")]
    assert ran(gpuenv, *ASK)[1].decode().split(":") == wanted


def test_memory_growth_is_set_only_when_asked_for(gpuenv, env):
    words = ("--", "sh", "-c", "echo $TF_FORCE_GPU_ALLOW_GROWTH $XLA_PYTHON_CLIENT_PREALLOCATE")
    gpuenv.env["XLA_PYTHON_CLIENT_PREALLOCATE"] = "true"
    assert ran(gpuenv, *words)[1].split() == [b"true"]
    assert ran(gpuenv, "--memory-growth", *words)[1].split() == [b"true", b"false"]


def test_output_of_the_program_is_not_kept_in_memory(gpuenv, env):
    """200 MB of stderr pass at the speed of a pipe, and our own memory stays small."""
    script = "import os\nb = b'x' * 79 + b'\\n'\nfor _ in range(2500): os.write(2, b * 1000)\nos.write(2, b'No CUDA GPUs are available\\n')\nraise SystemExit(3)"
    argv = [sys.executable, "-m", "provision", "run", "--", "python", "-c", script]
    measure = "import resource, subprocess, sys\ncode = subprocess.call(sys.argv[1:], stderr=subprocess.DEVNULL)\nused = resource.getrusage(resource.RUSAGE_CHILDREN)\nprint(code, used.ru_maxrss, int(used.ru_utime + used.ru_stime))"
    done = run_program([sys.executable, "-c", measure, *argv], env=gpuenv.env, cwd=gpuenv.work, check=True)
    code, kilobytes, seconds = map(int, done.stdout.split())
    assert code == 3 and kilobytes < 150_000
    assert seconds < 20  # of processor time


def test_a_terminal_stays_a_terminal_of_its_size(gpuenv, env):
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 101, 0, 0))
    script = "import os, sys\nprint(sys.stdin.isatty(), sys.stdout.isatty(), sys.stderr.isatty(), os.get_terminal_size(2).columns)\nprint('e\\r%', file=sys.stderr)"
    child = start(gpuenv, "--", "python", "-c", script, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen = b""
    while select.select([ours], [], [], 300)[0]:
        try:
            seen += os.read(ours, 4096)
        except OSError:
            break
    os.close(ours)
    assert child.wait(300) == 0
    assert b"True True True 101" in seen and b"e\r%" in seen


def test_its_own_children_may_outlive_it(gpuenv, env):
    started = time.perf_counter()
    code, out, _ = ran(gpuenv, "--", "sh", "-c", "sleep 600 >/dev/null & echo done $!")
    told, number = out.split()
    os.kill(int(number), signal.SIGKILL)  # it is there still
    assert (code, told) == (0, b"done") and time.perf_counter() - started < 300


# --- a GPU is required ---------------------------------------------------------------------------

# Opens and maps a file called dev/nvidia-uvm, as the driver does for a context. Other programs only open it.
_MAPS = "import mmap, os, sys, time; f = open(os.path.abspath('dev/nvidia-uvm'), 'r+b'); m = mmap.mmap(f.fileno(), 9); time.sleep({}); sys.exit({})"
_OPENS = "import time; f = open('dev/nvidia-uvm'); time.sleep(0.3)"
_STARTS = "import subprocess, sys; sys.exit(subprocess.run(['sh', '-c', '{} -c \"$0\" & wait', sys.argv[1]]).returncode)"


@pytest.mark.parametrize(
    ("code", "argument", "expected"),
    [
        (_MAPS.format(0.2, 0), None, 0),
        (_MAPS.format(0.2, 5), None, 5),
        (_STARTS.format(sys.executable), _MAPS.format(0.2, 0), 0),
        (_OPENS, None, 8),
        ("", None, 8),
        ("raise SystemExit(3)", None, 3),
    ],
    ids=[
        "a context",
        "a failure",
        "a context of a grandchild",
        "only opened",
        "nothing",
        "a failure without a GPU",
    ],
)
def test_a_program_that_needs_a_gpu_fails_without_a_context(env, gpuenv, code, argument, expected):
    (gpuenv.work / "dev").mkdir()
    (gpuenv.work / "dev" / "nvidia-uvm").write_bytes(b"123456789")
    words = ["python", "-c", code, *([argument] if argument else [])]
    said = " ".join(refused(gpuenv("run", "--require-gpu", "--", *words), expected).err.split())
    assert ("and did not use the GPU" in said) == (expected == 8)
    ran = gpuenv("--json", "run", "--require-gpu", "--", *words)
    assert [f["cause"] for f in ran.json["findings"]] == ["gpu_not_used"] * (expected == 8)
    assert ran.json["code"] == ran.code == expected


def test_looking_for_a_context_takes_little_time(env, gpuenv):
    """A program with a thousand mappings that opened the device: its list of mappings is long to read."""
    (gpuenv.work / "dev").mkdir()
    (gpuenv.work / "dev" / "nvidia-uvm").write_bytes(b"123456789")
    code = "import mmap, time; f = open('dev/nvidia-uvm'); g = [mmap.mmap(-1, 4096 * (1 + n % 2)) for n in range(1000)]; time.sleep(2)"
    spent = []
    for more in ((), ("--require-gpu",)):
        before = os.times()
        gpuenv("run", *more, "--", "python", "-c", code)
        after = os.times()
        spent.append(
            after.children_user + after.children_system - before.children_user - before.children_system
        )
    assert spent[1] - spent[0] < 0.2, spent


def test_a_required_gpu_and_exec_exclude_each_other(env, gpuenv):
    ran = gpuenv("run", "--require-gpu", "--exec", "--", "true")
    assert ran.code == 2 and "--require-gpu and --exec" in ran.err
