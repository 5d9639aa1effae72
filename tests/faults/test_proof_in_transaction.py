"""The proof is a part of the change: what fails it, or is killed in it, leaves the environment as it was before."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from command import Command
from environment_facts import HERE, own, refused
from loopback import Index, serving
from packaging.requirements import Requirement
from programs import run_program

from provision.environment.managers import get_manager
from provision.errors import BuildError

ASK = ("--framework", "torch", "--device", "cpu", "--python", HERE, "--index", "pypi")
HANGS = """
import os, time
if "HANG" in os.environ:
    open(os.environ["HANG"], "w").close()
    time.sleep(600)
"""


def prepared(gpuenv, index):
    """`gpuenv` with wheels of a torch that fails every proof, or hangs in it, and `aa` in two versions."""
    plan = gpuenv("resolve", "--json", *ASK).json
    index.add_plan(plan)
    pin = Requirement(plan["builds"][0]["requirements"][0])
    (file,) = index.wheels["torch"]
    version = file.split("-")[1]
    assert pin.specifier.contains(version)
    index.add("torch", version, content=HANGS)
    for version in ("1.0", "2.0"):
        index.add("aa", version)
    gpuenv.env["PIP_INDEX_URL"] = index.url
    return gpuenv


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    """The folder of a gpuenv with an environment of this torch and `aa` 1.0, and its index."""
    with serving(Index()) as index:
        gpuenv = prepared(Command(tmp_path_factory.mktemp("pristine")), index)
        assert gpuenv("create", *ASK, "--with", "aa==1.0", "--no-verify").code == 0
        yield gpuenv.folder, index


@pytest.fixture
def index(pristine):
    pristine[1].faults.clear()
    return pristine[1]


@pytest.fixture
def new(gpuenv, index):
    """`gpuenv` without an environment."""
    gpuenv.env["PIP_INDEX_URL"] = index.url
    return gpuenv


@pytest.fixture
def torch(pristine, index, tmp_path):
    """A copy of the environment: `cp` keeps the links between it and the installer's cache."""
    subprocess.run(["cp", "-a", pristine[0], tmp_path / "copy"], check=True)
    gpuenv = Command(tmp_path / "copy")
    gpuenv.env["PIP_INDEX_URL"] = index.url
    own(gpuenv.work / ".venv", gpuenv.env)
    return gpuenv


def state_of(gpuenv, env=".venv"):
    """Version of `aa`, and the inode: which environment it is."""
    path = gpuenv.work / env
    code = "import importlib.metadata as m; print(m.version('aa'))"
    done = run_program([path / "bin" / "python", "-c", code], check=True)
    return done.stdout.strip(), path.stat().st_ino


def killed_in_the_proof(gpuenv, *words):
    """Run a command until the framework is imported, and kill it."""
    mark = gpuenv.folder / "hangs"
    mark.unlink(missing_ok=True)
    child = subprocess.Popen(
        [sys.executable, "-m", "provision", *words], env=gpuenv.env | {"HANG": str(mark)}, cwd=gpuenv.work,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    until = time.monotonic() + 120
    while not mark.exists():
        assert child.poll() is None and time.monotonic() < until
        time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    child.wait(30)


def no_index(gpuenv, index):
    """The index is off, and the installer has nothing in its cache."""
    shutil.rmtree(gpuenv.env["UV_CACHE_DIR"])
    index.faults |= {file: "500" for files in index.wheels.values() for file in files}


def test_a_change_that_fails_its_proof_needs_no_index_to_leave_the_old_environment(torch, index):
    before = state_of(torch)
    shutil.rmtree(torch.env["UV_CACHE_DIR"])
    index.faults["aa-1.0-py3-none-any.whl"] = "500"
    ran = torch("create", *ASK, "--with", "aa==2.0", "--json")
    assert ran.code == 8 and "Its previous packages were restored" in ran.err, ran.err
    assert ran.json["verdict"]["verdict"] == "fails" and ran.json["environment"] is None
    assert state_of(torch) == before and before[0] == "1.0"
    assert "gpuenv-new" not in ran.out + ran.err
    assert [p.name for p in torch.work.iterdir()] == [".venv"]
    no_index(torch, index)
    ran = torch("create", *ASK, "--with", "aa==1.0", "--no-verify", "--json")
    assert ran.code == 0 and ran.json["environment"]["changed"] is False


def test_a_first_environment_is_killed_in_its_proof(new):
    killed_in_the_proof(new, "create", *ASK, "--with", "aa==1.0")
    assert not (new.work / ".venv").exists()
    assert "its files are removed" in refused(new("verify"), 2).err
    assert not list(new.work.iterdir())


@pytest.mark.parametrize("option", [None, "--recreate"], ids=["changed", "recreated"])
def test_an_environment_is_killed_in_the_proof_of_its_successor(torch, index, option):
    before = state_of(torch)
    killed_in_the_proof(torch, "create", *ASK, "--with", "aa==2.0", *([option] if option else []))
    assert state_of(torch) == before
    no_index(torch, index)
    ran = torch("verify", "--quick", "--device", "cpu", "--json")
    assert "the environment is restored" in ran.err and ran.json["verdict"] == "fails"
    assert state_of(torch) == before and [p.name for p in torch.work.iterdir()] == [".venv"]


def test_a_repair_is_killed_in_its_proof_and_keeps_what_it_put_back_without_one(torch):
    (info,) = (torch.work / ".venv").glob("lib/*/site-packages/aa")
    shutil.rmtree(info)
    before = (torch.work / ".venv").stat().st_ino
    killed_in_the_proof(torch, "repair")
    assert not info.exists() and (torch.work / ".venv").stat().st_ino == before
    ran = torch("repair", "--json")
    assert ran.code == 8 and [p["name"] for p in ran.json["packages"]] == ["aa"]
    assert ran.json["verdict"]["verdict"] == "fails" and info.exists()
    kept = json.loads((torch.work / ".venv" / ".gpuenv" / "verdict.json").read_text())
    assert kept["verdict"]["verdict"] == "fails" and "gpuenv-new" not in ran.out + ran.err + json.dumps(kept)
    assert torch("repair", "--json").json["packages"] == []


def test_a_verdict_and_bytecode_of_a_draft_are_those_of_its_place(new):
    """What is kept and shown names the place; the first program finds the bytecode that the proof made."""
    ran = new("create", *ASK, "--with", "aa==1.0", "--json")
    assert ran.code == 8 and ran.json["environment"]["changed"] is True
    kept = (new.work / ".venv" / ".gpuenv" / "verdict.json").read_text()
    assert "gpuenv-new" not in kept + ran.out + ran.err
    assert str(new.work / ".venv") in kept
    assert list((new.work / ".venv").rglob("torch/__pycache__/*.pyc"))


def test_options_are_recorded_after_what_they_lead_to(torch):
    """A change of options alone writes in the place: killed in it, the next `create` compares what is there."""
    mark = torch.work / ".venv" / ".gpuenv"
    assert torch("create", *ASK, "--with", "aa==1.0,<2", "--no-verify").code == 0
    asked = (mark / "request.json").stat().st_mtime_ns
    assert asked == max(p.stat().st_mtime_ns for p in mark.iterdir() if p.name != "verdict.json")


@pytest.mark.parametrize("name", ["venv", "conda"])
@pytest.mark.parametrize("copied", [False, True], ids=["anew", "changed"])
@pytest.mark.parametrize(
    "error", [KeyboardInterrupt, BuildError("refused"), OSError("full"), ZeroDivisionError]
)
def test_whatever_ends_the_block_the_environment_is_as_it_was(tmp_path, name, copied, error):
    env = tmp_path / "env"
    (env / ".gpuenv").mkdir(parents=True)
    (env / ".gpuenv" / "plan.json").write_text("{}")
    (env / "file").write_text("old")
    was = env.stat().st_ino

    def run():
        with get_manager(name).transaction(env, copied=copied) as prefix:
            assert (prefix / "file").exists() == copied
            (prefix / "file").unlink(missing_ok=True)
            (prefix / "file").write_text("new")
            raise error

    with pytest.raises(error if isinstance(error, type) else type(error)):
        run()
    assert (env / "file").read_text() == "old" and env.stat().st_ino == was
    assert os.listdir(tmp_path) == ["env"]
