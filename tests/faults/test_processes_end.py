"""No process that gpuenv started outlives it: after a normal end, a signal, or SIGKILL."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from environment_facts import HERE, ok
from programs import run_program

pytestmark = pytest.mark.usefixtures("own_process")  # in the tests' process gpuenv adopts no orphans
# A daemon as daemons are made: a session of its own, its parent gone, and none of the parent's pipes.
DAEMON = """
import os, subprocess, sys
started = subprocess.run(
    [sys.executable, "-c", '''
import os, subprocess, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        draft = sys.argv[1] + ".new"
        open(draft, "w").write(str(os.getpid()))
        os.rename(draft, sys.argv[1])
        time.sleep(600)
''', MARK], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
import time
while not os.path.exists(MARK):
    time.sleep(0.01)
"""


def running(pid):
    """Whether a process runs; one that has ended and that nobody asked about does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def ends(pid):
    """Whether a process ends within some seconds."""
    deadline = time.monotonic() + 20
    while running(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not running(pid)


@pytest.fixture
def mark(tmp_path):
    """The file in which a daemon notes its process; what still runs at the end goes."""
    file = tmp_path / "daemon.pid"
    yield file
    if file.exists():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(file.read_text()), signal.SIGKILL)


def daemon(mark):
    return DAEMON.replace("MARK", repr(str(mark)))


def environment_that_starts(folder, text):
    """A venv whose torch is this text."""
    env = folder / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", env], check=True)
    package = next(env.glob("lib/python*/site-packages")) / "torch"
    package.mkdir()
    (package / "__init__.py").write_text(text)
    return env


def test_a_daemon_of_a_verified_package_ends_with_verify(gpuenv, tmp_path, mark):
    env = environment_that_starts(tmp_path, daemon(mark))
    ran = gpuenv("verify", env, "--device", "cpu", "--quick")
    assert mark.exists(), ran.err
    assert not running(int(mark.read_text()))


def source_that_starts(folder, text):
    """A folder to be installed whose build runs this text."""
    source = folder / "source"
    source.mkdir()
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    (source / "backend.py").write_text(
        f"{text}\n"
        "def prepare_metadata_for_build_wheel(folder, config_settings=None):\n"
        "    os.makedirs(os.path.join(folder, 'mine-1.dist-info'))\n"
        "    with open(os.path.join(folder, 'mine-1.dist-info', 'METADATA'), 'w') as file:\n"
        "        file.write('Metadata-Version: 2.1\\nName: mine\\nVersion: 1\\n')\n"
        "    return 'mine-1.dist-info'\n"
        "def build_wheel(folder, config_settings=None, metadata_directory=None):\n"
        "    raise SystemExit('not now')\n"
    )
    return source


@pytest.mark.parametrize("verb", ["lock", "create"])
def test_a_daemon_of_a_build_ends_with_the_command(verb, gpuenv, index, tmp_path, mark):
    asked = ("--framework", "jax", "--device", "cpu", "--python", HERE)
    index.add_plan(gpuenv("resolve", "--json", *asked).json)
    gpuenv.env["PIP_INDEX_URL"] = index.url
    source = source_that_starts(tmp_path, daemon(mark))
    ran = gpuenv(verb, *asked, "--with", f"mine @ {source.as_uri()}", *(["--no-verify"] * (verb == "create")))
    assert mark.exists(), ran.err
    assert not running(int(mark.read_text()))


@contextlib.contextmanager
def begun(gpuenv, mark, *words):
    """A run of gpuenv, as soon as the process that it started noted itself."""
    argv = [sys.executable, "-m", "provision", *words]
    with subprocess.Popen(
        argv, env=gpuenv.env, cwd=gpuenv.work, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as run:
        while run.poll() is None and not (mark.exists() and mark.read_text()):
            time.sleep(0.02)
        yield run


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
    ids=str,
)
def test_a_daemon_ends_with_a_run_that_a_signal_ends(number, code, gpuenv, tmp_path, mark):
    env = environment_that_starts(tmp_path, f"{daemon(mark)}\ntime.sleep(600)")
    with begun(gpuenv, mark, "verify", env, "--device", "cpu") as run:
        run.send_signal(number)
        assert run.wait(60) == code
    assert not running(int(mark.read_text()))


@pytest.mark.parametrize("verb", ["verify", "run"])
def test_a_child_ends_after_its_gpuenv_was_killed(gpuenv, tmp_path, mark, verb):
    text = f"import os, time\nopen({str(mark)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    env = environment_that_starts(tmp_path, text if verb == "verify" else "")
    more = ("--device", "cpu") if verb == "verify" else ("--", env / "bin" / "python", "-c", text)
    with begun(gpuenv, mark, verb, env, *more) as run:
        run.kill()
    assert ends(int(mark.read_text()))


def test_what_a_program_of_gpuenv_run_leaves_running_stays(gpuenv, tmp_path, mark):
    env = environment_that_starts(tmp_path, "")
    ok(gpuenv("run", env, "--", env / "bin" / "python", "-c", daemon(mark)))
    assert running(int(mark.read_text()))


def test_what_a_shell_started_before_it_became_gpuenv_stays(gpuenv, mark):
    script = 'sleep 600 & echo $! > "$1"; shift; exec "$@"'
    argv = ["bash", "-c", script, "bash", mark, sys.executable, "-m", "provision", "detect", "--json"]
    done = subprocess.run(
        argv, env=gpuenv.env, cwd=gpuenv.work, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert running(int(mark.read_text()))


def test_a_program_that_imports_gpuenv_adopts_nothing(tmp_path, mark):
    code = (
        "import ctypes, sys\nfrom provision.system import process\n"
        f"process.run([sys.executable, '-c', {daemon(mark)!r}])\n"
        "flag = ctypes.c_int(-1)\nctypes.CDLL(None).prctl(37, ctypes.byref(flag), 0, 0, 0)\nprint(flag.value)\n"
    )
    done = run_program([sys.executable, "-c", code], timeout=300, check=True)
    assert done.stdout == "0\n"  # PR_GET_CHILD_SUBREAPER, prctl(2)
    assert running(int(mark.read_text()))


def test_what_holds_the_pipes_of_a_child_that_ended_is_not_waited_for(mark):
    from provision.system import process

    holding = daemon(mark).replace(
        "stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL", ""
    )
    began = time.monotonic()
    done = process.run([sys.executable, "-c", f"print('out')\n{holding}"])
    assert (done.ok, done.stdout) == (True, "out\n")
    assert time.monotonic() - began < 120 and running(int(mark.read_text()))
