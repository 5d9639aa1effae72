"""uv's program: several threads look it up at once, and gpuenv knows the platforms that it can solve for."""

import os
import re
import sys

import pytest
from programs import run_program

from provision.actions.profiles import ProfilesUpdateOptions, update
from provision.errors import BuildError, LockError
from provision.index import uv
from provision.lock.compile import UV_GLIBC, uv_platform

THREADS = """
import sysconfig, threading, time
fill = sysconfig._init_posix
def fill_slowly(table):
    time.sleep(0.2)  # as on a busy machine
    fill(table)
sysconfig._init_posix, sysconfig._CONFIG_VARS = fill_slowly, None
from provision.index import uv
found, start = [], threading.Barrier(8)
def look():
    start.wait()
    found.append(uv.program())
threads = [threading.Thread(target=look) for _ in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
assert len(found) == 8 and len(set(found)) == 1, found
"""


def test_many_threads_find_the_program():
    run_program([sys.executable, "-c", THREADS], check=True)


@pytest.fixture
def without_index(monkeypatch):
    """No index is configured, and nothing is known of uv."""
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    for name in ("GPUENV_INDEX_PYPI", "PIP_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX"):
        monkeypatch.delenv(name, raising=False)
    for name in ("program", "own_index"):
        monkeypatch.setattr(uv, name, getattr(uv, name).__wrapped__)


def test_a_missing_uv_is_named(without_index, monkeypatch):
    def find():
        raise FileNotFoundError("Could not find the uv binary in any of the following locations")

    monkeypatch.setattr("uv.find_uv_bin", find)
    for run in (uv.program, lambda: update(ProfilesUpdateOptions(names=["jax"]))):
        with pytest.raises(BuildError, match="the program uv, which is missing in") as error:
            run()
        assert error.value.hint == "reinstall gpuenv"


def test_a_uv_that_states_no_index_is_named(without_index, monkeypatch):
    monkeypatch.setattr("uv.find_uv_bin", lambda: "/bin/false")
    with pytest.raises(BuildError, match="no index is configured, and /bin/false states none"):
        update(ProfilesUpdateOptions(names=["jax"]))


def test_platforms_are_those_of_uv():
    words = [uv.program(), "pip", "compile", "--help"]
    said = run_program(words, check=True).stdout
    assert {int(minor) for minor in re.findall(r"x86_64-manylinux_2_(\d+)", said)} == {*UV_GLIBC}


@pytest.mark.parametrize(
    ("platform", "glibc", "name"),
    [
        ("linux-x86_64", "2.41", "x86_64-manylinux_2_40"),
        ("linux-aarch64", "2.30", "aarch64-manylinux_2_28"),
        ("linux-x86_64", None, "x86_64-manylinux_2_17"),
        ("windows-x86_64", None, "x86_64-pc-windows-msvc"),
    ],
)
def test_platform_has_the_newest_glibc_that_both_know(platform, glibc, name):
    assert uv_platform(platform, glibc) == name


def test_glibc_that_uv_does_not_know_is_refused():
    with pytest.raises(LockError, match=r"glibc 2\.12 is too old"):
        uv_platform("linux-x86_64", "2.12")
