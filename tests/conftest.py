"""What tests share: the command as a user runs it, in a home of its own."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import hypothesis
import pytest
from hypothesis import HealthCheck
from loopback import Index, serving

from provision import profiles

KEPT = (
    "PATH",
    "LANG",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "TMPDIR",
    "PYTHONDONTWRITEBYTECODE",
    "LD_LIBRARY_PATH",
)


# The same examples in each run, whatever the speed of the machine. tests/faults/properties.py draws others.
_SLOW_OR_FIXTURE = (HealthCheck.too_slow, HealthCheck.function_scoped_fixture)
hypothesis.settings.register_profile(
    "fixed", derandomize=True, database=None, deadline=None, suppress_health_check=_SLOW_OR_FIXTURE
)
hypothesis.settings.register_profile(
    "explore", database=None, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck)
)
hypothesis.settings.load_profile("fixed")


class Ran:
    """How a `gpuenv` run ended."""

    def __init__(self, done):
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr

    @property
    def json(self):
        return json.loads(self.out)


def pytest_xdist_auto_num_workers(config):
    """One more than there are processors: a quarter of the time tests wait for servers and the network."""
    return (os.cpu_count() or 1) + 1


def pytest_configure(config):
    """Profiles that were changed since gpuenv was installed are parsed once, not by each run of it. A shell's
    `make test &` begins with interrupts ignored, and so would all that tests start and interrupt."""
    if not hasattr(config, "workerinput"):
        profiles.prepare()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class Command:
    """`gpuenv` in a folder, home, cache and configuration of its own. `env` may be changed."""

    def __init__(self, folder):
        self.folder = folder
        self.env = {k: v for k, v in os.environ.items() if k in KEPT}
        self.env |= {
            "HOME": str(folder / "home"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "UV_CACHE_DIR": str(folder / "uv-cache"),
            "PIP_CONFIG_FILE": os.devnull,
            "PYENV_ROOT": os.environ.get("PYENV_ROOT", str(Path("~/.pyenv").expanduser())),
        }
        self.work = folder / "work"
        for path in (self.work, folder / "home"):
            path.mkdir(parents=True, exist_ok=True)

    def __call__(self, *args, timeout=600):
        argv = [sys.executable, "-m", "provision", *map(str, args)]
        done = subprocess.run(
            argv, env=self.env, cwd=self.work, capture_output=True, text=True, timeout=timeout,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        return Ran(done)


@pytest.fixture
def gpuenv(tmp_path):
    return Command(tmp_path)


@pytest.fixture
def index():
    with serving(Index()) as running:
        yield running
