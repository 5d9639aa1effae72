"""Fixtures and settings of all tests. What tests and the scripts of tests/faults import is in tests/support."""

import gc
import json
import os
import signal
import sys

import hypothesis
import pytest
import uv_answers
from command import KEPT, Command
from fork_server import ForkServers
from golden import Golden
from hypothesis import HealthCheck
from in_process import read_once
from loopback import LIVE, Index, serving
from once import run_folder

from provision import profiles
from provision.index import uv
from provision.system import process

_ANSWERS = uv_answers.Answers(process, None)

# The same examples in each run, whatever the speed of the machine. tests/faults/properties.py draws others, and more.
_SLOW_OR_FIXTURE = (HealthCheck.too_slow, HealthCheck.function_scoped_fixture)
hypothesis.settings.register_profile(
    "fixed",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=_SLOW_OR_FIXTURE,
    max_examples=25,
)
hypothesis.settings.register_profile(
    "explore",
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
    max_examples=300,
)
hypothesis.settings.load_profile("fixed")


def pytest_xdist_auto_num_workers(config):
    """One more than there are processors: tests wait for servers and the network, and each worker collects all tests."""
    return (os.cpu_count() or 1) + 1


def pytest_configure(config):
    """Profiles that were changed since gpuenv was installed are parsed once, not by each run of it. A shell's
    `make test &` begins with interrupts ignored, `nohup make test` with hangups, and so would all that tests start."""
    os.environ.pop("MAKELEVEL", None)  # of `make test`; hints would be those for a user of make
    os.environ.pop(
        "PYTHONDONTWRITEBYTECODE", None
    )  # without bytecode each worker compiles all tests for 10 s
    if "SSL_CERT_FILE" in os.environ:
        os.environ.pop("SSL_CERT_DIR", None)  # uv reads its hundreds of files at each start
    sys.dont_write_bytecode = False
    run_folder()
    if not config.getoption("answers"):
        _ANSWERS.recorded = uv_answers.read()
    if not hasattr(config, "workerinput"):
        profiles.prepare()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_finish():
    """The tests themselves are never garbage: without this each collection looks at all of them again."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter, config):
    """What uv was asked beside the recorded questions: written down, or told if it is more than what never is the same."""
    asked = uv_answers.collect(run_folder())
    if config.getoption("answers"):
        uv_answers.write(asked)
    elif len(asked) > uv_answers.NEVER_THE_SAME:
        terminalreporter.write_line(
            f"uv answered {len(asked)} questions that are not recorded: `make answers` does it"
        )


def pytest_addoption(parser):
    parser.addoption(
        "--answers", action="store_true", help="let uv answer, and write what it says into tests/data"
    )
    parser.addoption("--no-fork", action="store_true", help="start Python anew for every run of gpuenv")
    parser.addoption("--fork", action="store_true", help="fork a process for every run of gpuenv")
    parser.addoption("--golden", action="store_true", help="write what tests say into tests/golden")


@pytest.fixture(scope="session", autouse=True)
def _forking(request):
    """Runs of gpuenv are calls, but where `own_process` is asked for. Without a function to call before `exec` Python
    starts a program with vfork, which does not copy the page tables of a process with all tests in its memory (30 ms)."""
    process.die_with_parent = lambda: None
    read_once()
    uv.process = _ANSWERS
    Command.inside = not request.config.getoption("fork") and not request.config.getoption("no_fork")
    if not request.config.getoption("no_fork"):
        Command.servers = ForkServers({name: os.environ[name] for name in KEPT if name in os.environ})
    yield Command.servers
    if Command.servers:
        Command.servers.close()
    (run_folder() / f"answers-{os.getpid()}.json").write_text(json.dumps(_ANSWERS.asked))


@pytest.fixture
def own_process(monkeypatch):
    """Each run of gpuenv starts Python: for what only a process of its own has."""
    monkeypatch.setattr(Command, "inside", False)
    monkeypatch.setattr(Command, "servers", None)


@pytest.fixture
def real_uv(monkeypatch):
    """uv itself answers: for what is about uv, or counts what is read of an index."""
    monkeypatch.setattr(_ANSWERS, "off", True)
    for running in LIVE.values():
        running.answered = False


@pytest.fixture
def gpuenv(tmp_path):
    return Command(tmp_path)


@pytest.fixture
def index():
    with serving(Index()) as running:
        yield running


@pytest.fixture
def golden(request):
    """Compare sentences with tests/golden: `golden("create", ran.err, {str(gpuenv.work): "WORK"})`."""
    return Golden(request.node.name, renew=request.config.getoption("golden"))
