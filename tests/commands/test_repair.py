"""The accident and the way back: what pip did to an environment, told by verify, put back by repair."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from command import Command
from environment_facts import HERE, ok, own, refused
from export_locks import wheel
from loopback import Index, serving
from programs import run_program

from provision.environment import drift
from provision.environment.managers import RepairWork, find_work, join_work
from provision.model import (
    Drift,
    EnvironmentChange,
    Lock,
    LockedPackage,
    Plan,
    RemovedPackage,
    RestoredPackage,
    Target,
    UnlockedPackage,
)
from provision.wheels import pylock as lock

GPU = ("--driver", "580.65.06", "--gpu", "9.0")
CU13, CU12 = "nvidia-cudnn-cu13", "nvidia-cudnn-cu12"
FILE = "nvidia/cudnn/lib/libcudnn.so.9"


class Made:
    """An environment for a GPU of tiny wheels, and what a user does to it."""

    def __init__(self, gpuenv, index, plan):
        self.gpuenv, self.index, self.plan = gpuenv, index, plan
        self.path = gpuenv.work / ".venv"
        self.site = self.path / "lib" / f"python{HERE}" / "site-packages"

    def uv(self, *args):
        """Packages by uv, as the user's own hands would: without gpuenv's knowledge or cache."""
        env = {
            **self.gpuenv.env,
            "UV_DEFAULT_INDEX": self.index.url,
            "UV_CACHE_DIR": str(self.gpuenv.folder / "own"),
        }
        argv = [sys.executable, "-m", "uv", "pip", *args, "--python", self.path / "bin" / "python"]
        run_program(argv, env=env, check=True)

    def installed(self):
        found = (p.name.removesuffix(".dist-info").partition("-") for p in self.site.glob("*.dist-info"))
        return {name.replace("_", "-"): version for name, _, version in found}

    def verify(self, *args):
        ran = self.gpuenv("verify", "--quick", "--device", "cpu", "--json", *args)
        assert "drift" in ran.json, ran.out + ran.err
        return ran.json

    def repair(self, *args, code=0):
        return refused(self.gpuenv("repair", "--no-verify", "--json", *args), code).json

    def everything(self):
        """Every file and what is in it, but for what is written at each look."""
        return {
            str(p.relative_to(self.path)): hashlib.sha256(p.read_bytes()).hexdigest()
            for p in sorted(self.path.rglob("*")) if p.is_file() and p.suffix != ".pyc" and p.name not in ("verdict.json", ".lock")
        }  # fmt: skip


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    """An environment that was just made, with its home and caches, and the index that it came from."""
    gpuenv = Command(tmp_path_factory.mktemp("pristine"))
    with serving(Index()) as index:
        ask = ("--framework", "torch", "--python", HERE, "--index", "pypi", *GPU, "--json")
        plan = gpuenv("resolve", *ask).json
        index.add_plan(plan)
        index.add(
            CU13, plan["builds"][0]["cudnn"], also={FILE: "cuDNN for CUDA 13\n", "nvidia/cudnn/NEWS": "13\n"}
        )
        gpuenv.env["PIP_INDEX_URL"] = index.url
        ok(gpuenv("create", *ask, "--no-verify"))
        yield gpuenv.folder, index, plan, {name: dict(files) for name, files in index.wheels.items()}


@pytest.fixture
def made(pristine, tmp_path):
    """A copy of it: `cp` keeps the links between the environment and the installer's cache."""
    folder, index, plan, wheels = pristine
    subprocess.run(["cp", "-a", folder, tmp_path / "copy"], check=True)
    index.wheels = {name: dict(files) for name, files in wheels.items()}
    index.faults.clear()
    index.stalled, index.released = threading.Event(), threading.Event()
    gpuenv = Command(tmp_path / "copy")
    gpuenv.env["PIP_INDEX_URL"] = index.url
    own(gpuenv.work / ".venv", gpuenv.env)
    return Made(gpuenv, index, plan)


@pytest.mark.usefixtures("real_uv")
def test_a_framework_that_was_replaced_is_named_and_put_back(made):
    before, files = made.installed(), made.everything()
    made.index.add("torch", "2.0.1")
    made.index.add("nice", "1.0")
    made.uv("install", "torch==2.0.1", "nice")
    told = made.verify()
    assert [(c["name"], c["locked"], c["found"]) for c in told["drift"]] == [
        ("torch", before["torch"], "2.0.1")
    ]
    # The index's libcudnn is a text, and its triton has no ptxas.
    finding, triton, text_file = told["findings"]
    assert triton["cause"] == "toolchain_missing"
    assert text_file["cause"] == "package_files_damaged" and "libcudnn.so.9" in text_file["title"]
    assert f"torch {before['torch']} was replaced by 2.0.1" in finding["title"]
    assert f"gpuenv repair {made.path}" in finding["fix"]
    assert [(s["stage"], s["status"]) for s in told["stages"][-2:]] == [
        ("lock", "warn"),
        ("packages", "warn"),
    ]
    asked = sum(made.index.requests.values())
    done = made.repair()
    assert sum(made.index.requests.values()) == asked, "the cache had it"
    assert done["schema"] == "gpuenv.repair/1" and done["environment"]["changed"] is True
    assert [(p["name"], p["had"], p["now"]) for p in done["packages"]] == [
        ("torch", "2.0.1", before["torch"])
    ]
    assert done["removed"] == [] and done["left"] == [{"name": "nice", "version": "1.0"}]
    assert made.installed() == {**before, "nice": "1.0"}
    made.uv("uninstall", "nice")
    assert made.everything() == files
    assert [p.name for p in made.gpuenv.work.iterdir()] == [".venv"]


def test_nothing_to_repair_touches_nothing(made):
    inode, files = made.path.stat().st_ino, made.everything()
    ran = made.gpuenv("repair")
    assert ran.code == 0 and "nothing to repair" in ran.out and "verifying" not in ran.err
    assert made.path.stat().st_ino == inode and made.everything() == files
    assert made.repair()["packages"] == []


def test_a_package_that_writes_over_a_locked_one_is_taken_out(made):
    """pip brings an older torch's cuDNN for CUDA 12 into the folder of the one for CUDA 13."""
    files = made.everything()
    made.index.add(CU12, "9.1.0.70", also={FILE: "cuDNN for CUDA 12\n"})
    made.index.add("nvidia-nvtx-cu12", "12.1.105")
    made.index.add("torch", "2.4.0", (f"{CU12}==9.1.0.70", "nvidia-nvtx-cu12"))
    made.uv("install", "torch==2.4.0")
    told = made.verify()
    assert {c["name"]: c["kind"] for c in told["drift"]} == {"torch": "replaced", CU13: "overwritten"}
    assert any(f"{CU12} 9.1.0.70" in c["text"] for c in told["drift"])
    done = made.repair()
    assert {p["name"] for p in done["packages"]} == {"torch", CU13}
    assert {r["name"]: r["version"] for r in done["removed"]} == {
        CU12: "9.1.0.70",
        "nvidia-nvtx-cu12": "12.1.105",
    }
    assert done["left"] == [] and made.everything() == files


def test_what_another_package_of_the_user_needs_stays(made):
    made.index.add("nvidia-nvtx-cu12", "12.1.105")
    made.index.add("nvidia-npp-cu12", "12.1.1")
    made.index.add("mine", "1.0", ("nvidia-nvtx-cu12",))
    made.uv("install", "mine", "nvidia-npp-cu12")
    done = made.repair()
    assert [r["name"] for r in done["removed"]] == ["nvidia-npp-cu12"] and done["packages"] == []
    assert [p["name"] for p in done["left"]] == ["mine", "nvidia-nvtx-cu12"]


def test_after_the_intruder_was_uninstalled_its_gaps_are_filled(made):
    files = made.everything()
    made.index.add(CU12, "9.1.0.70", also={FILE: "cuDNN for CUDA 12\n"})
    made.uv("install", CU12)
    made.uv("uninstall", CU12)
    shallow = drift.find_drift(made.path, lock.read_env_lock(made.path / ".gpuenv"))
    assert not (made.site / FILE).exists()
    assert [(c.kind, c.name) for c in shallow.changes] == [("modified", CU13)], "though no RECORD has changed"
    quick = (
        made.verify()
    )  # imports the framework, which is none here: with a broken one every file is looked at
    assert quick["verdict"] == "fails" and [c["kind"] for c in quick["drift"]] == ["modified"]
    (change,) = made.verify("--locked")["drift"]
    assert change["name"] == CU13 and FILE in change["text"]
    assert [p["name"] for p in made.repair()["packages"]] == [CU13]
    assert made.everything() == files


def test_missing_truncated_and_changed_files_are_put_back(made):
    """The cache's files are the environment's: what is changed in place is changed there too."""
    files = made.everything()
    torch, triton = made.site / "torch" / "__init__.py", made.site / "triton" / "__init__.py"
    (made.site / FILE).unlink()
    os.truncate(torch, 3)
    changed = triton.read_bytes()
    with triton.open("r+b") as file:
        file.write(bytes(reversed(changed)))
    os.utime(triton, (time.time() + 5,) * 2)
    cached = [
        p for p in (made.gpuenv.folder / "uv-cache").rglob("torch/__init__.py") if p.stat().st_size == 3
    ]
    ran = ok(made.gpuenv("repair", "--no-verify", "--json"))
    assert {p["name"] for p in ran.json["packages"]} == {"torch", "triton", CU13}
    assert made.everything() == files
    if cached:  # where uv links: on file systems that share blocks it does not
        assert "cache" in ran.err and "torch" in ran.err
        assert not cached[0].exists(), "nobody else gets it"
    assert triton.read_bytes() == changed
    in_cache = (made.gpuenv.folder / "uv-cache").rglob("triton/__init__.py")
    assert {p.read_bytes() for p in in_cache} <= {changed}, "the next environment gets what was locked"


def test_a_package_without_its_record_or_metadata_is_put_back(made):
    files = made.everything()
    next(made.site.glob("torch-*")).joinpath("RECORD").unlink()
    shutil.rmtree(next(made.site.glob("triton-*")))
    assert {c["name"]: c["kind"] for c in made.verify()["drift"]} == {
        "torch": "modified",
        "triton": "removed",
    }
    done = made.repair()
    assert {p["name"]: p["had"] is None for p in done["packages"]} == {"torch": False, "triton": True}
    assert made.everything() == files


@pytest.mark.parametrize("fault", ["404", "tampered"])
def test_a_repair_that_fails_leaves_everything_as_it_was(made, fault):
    made.index.add("torch", "2.0.1")
    made.uv("install", "torch==2.0.1")
    (made.site / FILE).unlink()
    files, inode = made.everything(), made.path.stat().st_ino
    shutil.rmtree(made.gpuenv.env["UV_CACHE_DIR"])
    made.index.faults[f"nvidia_cudnn_cu13-{made.plan['builds'][0]['cudnn']}-py3-none-any.whl"] = fault
    error = made.repair(code=7)["error"]
    assert CU13 in error["message"] + (error["log"] or "")
    assert made.everything() == files and made.path.stat().st_ino == inode
    assert [p.name for p in made.gpuenv.work.iterdir()] == [".venv"]
    made.index.faults.clear()
    assert {p["name"] for p in made.repair()["packages"]} == {"torch", CU13}


def test_offline_without_the_cache_is_refused_and_leaves_everything(made):
    (made.site / FILE).unlink()
    files = made.everything()
    shutil.rmtree(made.gpuenv.env["UV_CACHE_DIR"])
    assert made.repair("--offline", code=7)["error"]["log"]
    assert made.everything() == files


def test_packages_come_from_the_index_that_create_was_given(made):
    """An index that only an option of `create` named."""
    path, gpuenv = made.path / ".gpuenv/request.json", made.gpuenv
    request = json.loads(path.read_text())
    for options in (request["given"], request["choices"]):
        options["index"] = gpuenv.env.pop("PIP_INDEX_URL", made.index.url)
    path.write_text(json.dumps(request))
    own(made.path, gpuenv.env)
    shutil.rmtree(gpuenv.env["UV_CACHE_DIR"])
    (made.site / FILE).unlink()
    assert [p["name"] for p in made.repair()["packages"]] == [CU13] and (made.site / FILE).exists()


def test_the_work_of_two_rounds_has_each_package_once():
    def work(*names, removed):
        return RepairWork(
            packages=tuple(wheel(n, "1") for n in names),
            restored=tuple(RestoredPackage(name=n, had=None, now="1", why=names[-1]) for n in names),
            removed=tuple(RemovedPackage(name=n, version="1", why=names[-1]) for n in removed),
        )

    both = join_work(work("a", removed=["x"]), work("a", "b", removed=["x", "y"]))
    assert [p.name for p in both.packages] == ["a", "b"]
    assert [(t.name, t.why) for t in (*both.restored, *both.removed)] == [
        ("a", "a"), ("b", "b"), ("x", "a"), ("y", "b"),
    ]  # fmt: skip


def test_a_repair_that_is_killed_leaves_the_environment_as_it_was(made):
    made.index.add("torch", "2.0.1")
    made.uv("install", "torch==2.0.1")
    files = made.everything()
    shutil.rmtree(made.gpuenv.env["UV_CACHE_DIR"])
    made.index.faults[f"torch-{made.plan['builds'][0]['version']}-py3-none-any.whl"] = "stalled"
    argv = [sys.executable, "-m", "provision", "repair", "--no-verify", "-q"]
    running = subprocess.Popen(argv, env=made.gpuenv.env, cwd=made.gpuenv.work, start_new_session=True)
    assert made.index.stalled.wait(30)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    made.index.released.set()
    assert made.everything() == files
    made.index.faults.clear()
    assert [p["name"] for p in made.repair()["packages"]] == ["torch"]
    assert [p.name for p in made.gpuenv.work.iterdir()] == [".venv"]


@pytest.fixture
def room():
    """A folder that others may enter, which pytest's own is not."""
    with tempfile.TemporaryDirectory(prefix="gpuenv-repair-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_a_folder_of_another_user_is_named_before_anything_is_changed(room):
    """What `sudo pip install` leaves: a folder that its user could not remove afterwards."""
    env = room / "env"
    (env / ".gpuenv").mkdir(parents=True)
    (env / "lib").mkdir()
    (env / "lib" / "mine.py").write_text("mine")
    (env / "lib" / "theirs").mkdir(mode=0o555)
    code = """
import os, sys
from pathlib import Path
from provision.environment import transaction
from provision.errors import BuildError
env = Path(sys.argv[1])
if os.geteuid() == 0:  # root may write everywhere: become somebody else
    for path in (env.parent, env, env / ".gpuenv", env / "lib"):
        os.chown(path, 65534, 65534)
    os.setuid(65534)
try:
    with (transaction.build_in_place if sys.argv[2] == "conda" else transaction.build_in_draft)(env, copied=True):
        print("worked")
except BuildError as error:
    print(error.message)
"""
    for manager in ("venv", "conda"):
        argv = [sys.executable, "-c", code, env, manager]
        done = run_program(argv)
        assert str(env) in done.stdout and "lib/theirs" in done.stdout, done.stdout + done.stderr
        assert [p.name for p in env.parent.iterdir()] == ["env"], "the environment is as it was"
        assert (env / "lib" / "mine.py").read_text() == "mine"


def test_repair_refuses_an_environment_of_another_tool(gpuenv):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", gpuenv.work / "theirs"], check=True)
    for args in (("repair", "theirs"), ("verify", "theirs", "--locked"), ("repair", "nowhere")):
        assert "gpuenv create" in refused(gpuenv(*args, "--json"), 2).json["error"]["hint"]


@pytest.mark.parametrize("whole", [True, False])
def test_another_python_cannot_be_repaired_in_place(made, whole):
    if not whole:
        (made.site / FILE).unlink()
    python = made.path / "bin" / "python"
    python.unlink()
    assert "--recreate" in made.repair(code=8)["error"]["hint"]
    python.symlink_to("/nowhere/python")
    assert "bin/python is a link to /nowhere/python," in made.repair(code=8)["error"]["message"]
    for words in (("verify",), ("run", "python")):
        ran = refused(made.gpuenv(*words), 8)
        assert f"rebuild it: gpuenv create {made.path} --recreate" in " ".join(ran.err.split())


def test_repair_names_what_it_restored_and_why(made):
    made.index.add("torch", "2.0.1")
    made.uv("install", "torch==2.0.1")
    (made.site / FILE).unlink()
    ran = made.gpuenv("repair", "--no-verify")
    assert f"restored  torch 2.0.1 -> {made.plan['builds'][0]['version']}" in ran.out
    assert f"{CU13} {made.plan['builds'][0]['cudnn']}: 1 file is missing" in " ".join(ran.out.split())
    assert "2 packages restored" in ran.out


def test_a_link_to_an_environment_is_followed(made):
    real = made.gpuenv.folder / "elsewhere"
    made.path.rename(real)
    made.path.symlink_to(real)
    own(real, made.gpuenv.env)
    (made.site / FILE).unlink()
    assert [p["name"] for p in made.repair(".venv")["packages"]] == [CU13]
    assert made.path.is_symlink() and (real / made.site.relative_to(made.path) / FILE).exists()


# --- conda ---------------------------------------------------------------------------------------------


def test_conda_packages_are_put_back_by_the_engine(gpuenv):
    import conda_channel as cc

    gpuenv.env["RATTLER_CACHE_DIR"] = str(gpuenv.folder / "rattler")
    channel = ("--channel", cc.small())
    args = ("--manager", "conda", "--framework", "jax", "--device", "cpu", "--no-verify", *channel)
    assert gpuenv("create", *args).code == 0
    env = gpuenv.work / ".venv"
    inside = env / "lib" / "python3.11" / "site-packages" / "jaxlib" / "__init__.py"
    script = (env / "bin" / "python").read_bytes()
    inside.unlink()
    os.utime(env / "bin" / "python", (time.time() + 5,) * 2)
    next((env / "conda-meta").glob("jax-0*.json")).unlink()
    (env / "keep me.txt").write_text("mine")
    ran = ok(gpuenv("repair", "--no-verify", "--json", *channel))
    assert {p["name"]: p["had"] for p in ran.json["packages"]} == {"jax": None, "jaxlib": "0.7.0"}
    assert inside.exists() and (env / "bin" / "python").read_bytes() == script
    assert (env / "keep me.txt").read_text() == "mine"
    assert len(list((env / "conda-meta").glob("*.json"))) == 3
    (env / "lib" / "python3.11" / "site-packages" / "jaxlib" / "__init__.py").unlink()
    ran = gpuenv("repair", "--no-verify", "--json")  # the channel is the one that create was told
    assert [p["name"] for p in ran.json["packages"]] == ["jaxlib"]
    assert gpuenv("repair", "--no-verify", "--json").json["packages"] == []
    assert sorted(p.name for p in gpuenv.work.iterdir()) == [".venv"]


# --- for real --------------------------------------------------------------------------------------------


@pytest.mark.network
@pytest.mark.slow
def test_repair_restores_a_real_framework_after_pip_replaced_it(gpuenv):
    """`pip install jax==OLD` into an environment of jax: the numbers are right, and it is not what was
    built. Then a file of it is lost."""
    for name in ("UV_CACHE_DIR", "PIP_CONFIG_FILE", "XDG_CACHE_HOME"):
        gpuenv.env.pop(name)  # as the user has it
    gpuenv.env |= {k: v for k, v in os.environ.items() if k.startswith(("PIP_", "UV_", "XDG_CACHE"))}
    gpuenv.env["HOME"] = os.environ["HOME"]
    made = ok(gpuenv("create", "--framework", "jax>=0.7", "--device", "cpu", "--python", HERE, "--json"))
    version = made.json["plan"]["builds"][0]["version"]
    env = gpuenv.work / ".venv"
    argv = [
        sys.executable,
        "-m",
        "uv",
        "pip",
        "install",
        "-q",
        "--python",
        env / "bin" / "python",
        f"jax<{version}",
    ]
    run_program(argv, env=gpuenv.env, check=True)
    ran = ok(gpuenv("verify"))
    older = json.loads((env / ".gpuenv" / "verdict.json").read_text())["verdict"]["frameworks"][0]["version"]
    words = " ".join(ran.out.split())
    assert f"jax {version} was replaced by {older}" in words and f"gpuenv repair {env}" in words
    assert gpuenv("verify", "--locked", "--quick").code == 8
    lost = next(env.glob("lib/python*/site-packages/jax/_src/core.py"))
    lost.unlink()
    ran = gpuenv("verify", "--json")
    assert ran.code == 8 and "repair" in ran.json["hint"]
    assert {"jax", "jaxlib"} <= {c["name"] for c in ran.json["drift"]}
    ran = ok(gpuenv("repair", "--json"))
    assert {p["name"]: (p["had"], p["now"]) for p in ran.json["packages"]}["jax"] == (older, version)
    assert ran.json["verdict"]["verdict"] == "cpu" and ran.json["verdict"]["drift"] == []
    assert gpuenv("verify", "--locked", "--quick").code == 0


def test_a_package_comes_back_that_shares_files_with_one_that_goes():
    """Removing the other one removes the files, though none of them differs yet."""
    wheel = LockedPackage(name="a", version="1", url="https://host/a-1-py3-none-any.whl", sha256="0" * 64)
    conda = LockedPackage(name="b", version="2", url="https://host/linux-64/b-2-h1_0.conda", sha256="0" * 64)
    target = Target(platform="linux-x86_64", driver=None, gpus=())
    plan = Plan(
        builds=(), python="3.12", platform=target.platform, manager="conda", device="cpu", target=target
    )
    lock = Lock(manager="conda", target=target, plan=plan, packages=(wheel, conda))
    changed = EnvironmentChange(kind="replaced", name="b", found="2-h2_0", locked="2", text="another build")
    work = find_work(
        lock, Drift(changes=(changed,), strangers=(UnlockedPackage(name="c", version="3", over=("a",)),))
    )
    assert [(r.name, r.had, r.now) for r in work.restored] == [("a", "1", "1"), ("b", "2-h2_0", "2-h1_0")]
    assert "c 3 contains the same files" in work.restored[0].why
    assert [r.name for r in work.removed] == ["c"]
