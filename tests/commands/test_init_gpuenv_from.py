"""`make env` in a clone, on a machine that may have no gpuenv: a real make, venv and pip, and a small gpuenv."""

import hashlib
import json
import os
import re
import shutil
import sys

import export_locks as el
import pytest
from environment_facts import ok
from framework_envs import write_python3
from loopback import wheel_bytes
from programs import run_program
from rows import rows

from provision.bundle import wheels
from provision.export.source import choose_recorded_source

WHEEL = "gpuenv-0.1.0-py3-none-any.whl"
INLINE = ".RECIPEPREFIX = >\nall:\n> @echo all\n"
CRLF = "all: one\r\n\r\none:\r\n\t@echo one\r\n"


def small_gpuenv(folder):
    """A wheel named gpuenv whose program says how it was called, and one that it was released with."""
    needed = wheel_bytes("needed", "1.0", content="WORD = 'private'\n")
    folder.mkdir(exist_ok=True)
    (folder / "needed-1.0-py3-none-any.whl").write_bytes(needed)
    info = "gpuenv-0.1.0.dist-info"
    texts = {
        "small_gpuenv.py": "import needed, sys\ndef main(): print(needed.WORD + ': gpuenv', *sys.argv[1:])\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: gpuenv\nVersion: 0.1.0\nRequires-Dist: needed\n",
        "provision/release/requirements.txt": f"needed==1.0 --hash=sha256:{hashlib.sha256(needed).hexdigest()}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\ngpuenv = small_gpuenv:main\n",
    }
    wheels.write(folder, WHEEL, {name: text.encode() for name, text in texts.items()}, info)


@pytest.fixture
def project(gpuenv):
    small_gpuenv(gpuenv.work / "tools")
    return gpuenv


def program(folder, name, code):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{code}\n")
    (folder / name).chmod(0o755)


def make(folder, *args, gpuenv=None, ready=False):
    """make with a python3 on PATH, with `gpuenv` there only where its code is given, and with no index."""
    tools = folder.parent / "programs"
    shutil.rmtree(tools, ignore_errors=True)
    if ready:
        write_python3(tools / "python3")
    else:
        program(tools, "python3", f'exec "{sys.executable}" "$@"')
    if gpuenv:
        program(tools, "gpuenv", gpuenv)
    path = [p for p in os.environ["PATH"].split(os.pathsep) if not shutil.which("gpuenv", path=p)]
    env = {
        "PATH": os.pathsep.join([str(tools), *path]),
        "LC_ALL": "C",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(folder / "tools"),
        "HOME": str(tools),
    }
    return run_program(["make", *args], cwd=folder, env=env, timeout=300)


def clone(gpuenv, name="clone"):
    """What another user has of the project."""
    return shutil.copytree(gpuenv.work, gpuenv.work.parent / name)


def test_a_clone_installs_gpuenv_from_the_recorded_wheel(project):
    ran = ok(project("init", "--framework", "jax", "--gpuenv-from", f"tools/{WHEEL}"))
    folder = clone(project)
    assert "a path on this machine" not in ran.out and "WARNING" not in (folder / "Makefile").read_text()
    done = make(folder, "-s", "env", ready=True)
    assert (done.returncode, done.stdout) == (0, "private: gpuenv create\n"), done.stderr
    tool = folder / ".gpuenv-tool"
    assert (tool / ".gitignore").read_text() == "*\n"
    before = (tool / "pyvenv.cfg").stat().st_mtime_ns
    done = make(folder, "-s", "verify", "lock")
    assert done.stdout == "private: gpuenv verify\nprivate: gpuenv lock\n"
    assert (tool / "pyvenv.cfg").stat().st_mtime_ns == before, "it is made once"


def test_a_package_with_another_hash_is_not_installed_into_the_tool(project):
    assert project("init", "--framework", "jax", "--gpuenv-from", f"tools/{WHEEL}").code == 0
    other = wheel_bytes("needed", "1.0", content="WORD = 'evil'\n")
    (project.work / "tools" / "needed-1.0-py3-none-any.whl").write_bytes(other)
    done = make(clone(project), "-s", "env", ready=True)
    assert done.returncode == 2 and "DO NOT MATCH THE HASHES" in done.stderr and "evil" not in done.stdout
    assert not (project.work.parent / "clone" / ".gpuenv-tool").exists(), (
        "half of it would be used by the next make"
    )


def test_a_gpuenv_on_path_or_a_given_one_is_used_first(project):
    assert project("init", "--framework", "jax", "--gpuenv-from", f"tools/{WHEEL}").code == 0
    folder = clone(project)
    on_path = 'echo "on PATH: gpuenv $*"'
    assert make(folder, "-s", "env", gpuenv=on_path).stdout == "on PATH: gpuenv create\n"
    program(folder, "mine", 'echo "mine: $*"')
    assert make(folder, "-s", "env", "GPUENV=./mine", gpuenv=on_path).stdout == "mine: create\n"
    assert make(folder, "-s", "env", "GPUENV=./mine").stdout == "mine: create\n"
    assert not (folder / ".gpuenv-tool").exists()


@pytest.mark.parametrize("makefile", ["", INLINE, CRLF], ids=["new", "inline", "crlf"])
def test_without_a_source_one_line_says_how_to_get_gpuenv(project, makefile):
    if makefile:
        (project.work / "Makefile").write_bytes(makefile.encode())
    assert project("init", "--framework", "jax", "--gpuenv-from", f"tools/{WHEEL}").code == 0
    (project.work / "gpuenv").mkdir()  # a folder of this name makes a package's name no path
    for source in ("", "gpuenv", "gpuenv==0.1", "./missing.whl", "/missing/gpuenv")[
        : 2 if makefile else None
    ]:
        done = make(project.work, "-s", "env", f"GPUENV_FROM={source}", ready=True)
        assert done.returncode == 2 and done.stdout == ""
        (told,) = done.stderr.splitlines()
        assert "gpuenv is not on PATH" in told and "run make env GPUENV_FROM=ADDRESS" in told
        assert source in done.stderr and "Successfully" not in done.stderr
        assert not (project.work / ".gpuenv-tool").exists()


@rows(
    ("text", "words"),
    [
        ("gpuenv", "expected an address, a wheel or a checkout"),
        ("missing/gpuenv.whl", "expected an address, a wheel or a checkout"),
        ("git+https://me:tok-EN@git.example/gpuenv", "credentials"),
        ("https://h.example/$(id).whl", "expected a URL"),
        ("it's.whl", "a Makefile cannot contain this path"),
    ],
)
def test_what_names_no_source_is_refused_and_nothing_is_written(project, text, words):
    (project.work / "it's.whl").write_bytes(b"")
    before = sorted(project.work.iterdir())
    ran = project("init", "--framework", "jax", "--gpuenv-from", text)
    assert ran.code == 2 and words in " ".join(ran.err.split()) and "tok-EN" not in ran.err
    assert sorted(project.work.iterdir()) == before


def test_paths_of_any_letters_reach_pip_through_any_makefile(project):
    odd = project.work.parent / "späce and #hash"
    small_gpuenv(odd)
    (project.work / "Makefile").write_text(INLINE)
    assert project("init", "--framework", "jax", "--gpuenv-from", str(odd / WHEEL)).code == 0
    assert "WARNING: only this machine has this path" in (project.work / "Makefile").read_text()
    done = make(project.work, "-s", "env", ready=True)
    assert (done.returncode, done.stdout) == (0, "private: gpuenv create\n"), done.stderr


def installed_from(tmp_path, monkeypatch, origin):
    """A gpuenv that was installed from there, before the real one on the path."""
    info = tmp_path / "site" / "gpuenv-9.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gpuenv\nVersion: 9\n")
    if origin is not None:
        (info / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.syspath_prepend(info.parent)


GIT = {"vcs": "git", "commit_id": el.COMMIT}


@pytest.mark.parametrize(
    ("origin", "recorded"),
    [
        (None, ""),
        (
            {"url": "https://git.example/gpuenv", "vcs_info": GIT},
            f"git+https://git.example/gpuenv@{el.COMMIT}",
        ),
        (
            {"url": "https://me:tok-EN@git.example/gpuenv", "vcs_info": GIT, "subdirectory": "a"},
            f"git+https://git.example/gpuenv@{el.COMMIT}#subdirectory=a",
        ),
        (
            {"url": f"https://h.example/{WHEEL}", "archive_info": {"hashes": {"sha256": "0" * 64}}},
            f"https://h.example/{WHEEL}#sha256={'0' * 64}",
        ),
        ({"url": f"file:///missing/{WHEEL}", "archive_info": {}}, ""),
        ({"url": "https://h.example/$(id).whl", "archive_info": {}}, ""),
    ],
)
def test_init_records_what_gpuenv_was_installed_from(tmp_path, monkeypatch, origin, recorded):
    installed_from(tmp_path, monkeypatch, origin)
    assert choose_recorded_source(None, tmp_path) == recorded


def test_a_wheel_in_the_project_is_recorded_by_its_path_from_there(tmp_path, monkeypatch):
    (tmp_path / "p").mkdir()
    small_gpuenv(tmp_path / "p" / "tools")
    installed_from(
        tmp_path, monkeypatch, {"url": (tmp_path / "p/tools" / WHEEL).as_uri(), "archive_info": {}}
    )
    assert choose_recorded_source(None, tmp_path / "p") == f"./tools/{WHEEL}"
    assert choose_recorded_source(None, tmp_path / "elsewhere") == str(tmp_path / "p/tools" / WHEEL)


def test_init_says_what_a_clone_will_lack(project):
    ran = project("init", "--framework", "jax")
    told = " ".join(ran.out.split())
    assert re.search("gpuenv lock # [^:]*pylock.toml [^:]*: gpuenv create", told)
    assert "Makefile installs gpuenv from a path" in told, "this gpuenv runs from a checkout"
