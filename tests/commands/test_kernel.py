"""`create --kernel`: Jupyter finds the kernel, starts it, interrupts it and ends it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import uv
from environment_facts import installed, ok, own, refused
from framework_envs import venv
from made_env import JAX, jax_env
from programs import run_program

from provision.environment import kernel
from provision.errors import BuildError

# What a notebook does: start by name, run a cell, interrupt one that runs, end; printed as JSON.
CLIENT = """
import json, os, sys, time
from jupyter_client.manager import KernelManager
from jupyter_client.kernelspec import KernelSpecManager

name, folder = sys.argv[1:3]
manager = KernelManager(kernel_name=name)
manager.start_kernel(cwd=folder)
client = manager.client()
client.start_channels()
client.wait_for_ready(timeout=300)

def cell(code, after=None):
    asked, said = client.execute(code), []
    while True:
        message = client.get_iopub_msg(timeout=300)
        if message["parent_header"].get("msg_id") != asked:
            continue
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            said.append(content["text"])
            if after and content["name"] == "stdout":
                after()
                after = None
        elif kind == "error":
            said.append(content["ename"])
        elif kind == "status" and content["execution_state"] == "idle":
            return "".join(said)

answer = {"specs": KernelSpecManager().find_kernel_specs()}
answer["pid"] = manager.provisioner.pid
answer["prefix"] = cell("import sys; print(sys.prefix)").strip()
answer["told"] = json.loads(cell(
    "import json, os; print(json.dumps([os.getpid(), os.getcwd(), os.environ.get('LD_LIBRARY_PATH'), "
    "os.environ.get('VIRTUAL_ENV'), os.environ['PATH'].split(':')[0]]))"
))
start = time.monotonic()
answer["interrupted"] = cell("import time\\nprint('go', flush=True)\\ntime.sleep(600)", manager.interrupt_kernel)
answer["seconds"] = time.monotonic() - start
answer["alive"] = cell("print(6 * 7)").strip()
if sys.argv[3:] == ["leave"]:
    print(json.dumps(answer), flush=True)
    os.kill(os.getpid(), 9)
client.stop_channels()
manager.shutdown_kernel()
answer["ended"] = not manager.is_alive()
print(json.dumps(answer))
"""


@pytest.fixture
def made(gpuenv, index):
    """An environment without a kernel, and `create` of the same."""
    jax_env(gpuenv, index, "", "--with", "ipykernel")
    return gpuenv, lambda *more: gpuenv("create", *JAX, "--with", "ipykernel", "--no-verify", *more)


def kernels(gpuenv):
    return gpuenv.folder / "home" / ".local" / "share" / "jupyter" / "kernels"


def spec(gpuenv, name):
    return json.loads((kernels(gpuenv) / name / "kernel.json").read_text())


# --- a real Jupyter client -------------------------------------------------------------------------


@pytest.fixture
def jupyter(gpuenv, monkeypatch):
    """A venv with the real ipykernel, registered as a kernel, in a folder with every kind of letter; and what starts
    jupyter_client in it."""
    project = gpuenv.work / "Jürgen's GPU {x}"
    python = venv(project / ".venv")[0] / "bin" / "python"
    env = {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "PYTHONPATH")}
    subprocess.run(
        [uv.find_uv_bin(), "pip", "install", "-q", "--python", python, "ipykernel>=7", "jupyter-client"],
        env=env, check=True,
    )  # fmt: skip
    monkeypatch.setenv("HOME", gpuenv.env["HOME"])
    assert kernel.register(project / ".venv", str(python), "") == "jurgen-s-gpu-x"

    def start(*words):
        # Jupyter runs from another place, with a folder that shadows the environment's library.
        argv = [python, "-c", CLIENT, "jurgen-s-gpu-x", project, *words]
        return subprocess.Popen(
            argv, env=gpuenv.env, cwd=gpuenv.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    start.env = project / ".venv"
    return start


@pytest.mark.network
def test_jupyter_starts_interrupts_and_ends_the_kernel(gpuenv, jupyter):
    other = gpuenv.folder / "other"
    other.mkdir()
    (other / "libcudnn.so.9").write_bytes(b"")
    own = next(jupyter.env.glob("lib/python3*/site-packages")) / "nvidia" / "cudnn" / "lib"
    own.mkdir(parents=True)
    (own / "libcudnn.so.9").write_bytes(b"")
    gpuenv.env["LD_LIBRARY_PATH"] = f"/lib:{other}"
    (jupyter.env.parent / "json.py").write_text(
        "raise SystemExit('a file of the notebook was imported by gpuenv')"
    )
    client = jupyter()
    out, err = client.communicate(timeout=300)
    assert client.returncode == 0, err
    answer = json.loads(out.splitlines()[-1])
    assert answer["prefix"] == str(jupyter.env)
    pid, cwd, path, venv, first = answer["told"]
    assert pid == answer["pid"], "a process stands between Jupyter and the kernel"
    assert (cwd, path, venv) == (str(jupyter.env.parent), "/lib", str(jupyter.env))
    assert first == str(jupyter.env / "bin")
    assert "KeyboardInterrupt" in answer["interrupted"] and answer["seconds"] < 300
    assert answer["alive"] == "42" and answer["ended"]
    assert str(other) in err, "that an entry is left out is not in Jupyter's log"


@pytest.mark.network
@pytest.mark.slow
def test_a_kernel_whose_server_was_killed_ends(gpuenv, jupyter):
    """ipykernel sees that its parent is gone: a process in between would keep it, and the GPU's memory."""
    client = jupyter("leave")
    answer = json.loads(client.stdout.readline())
    assert client.wait(60) == -signal.SIGKILL
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and Path(f"/proc/{answer['pid']}").exists():
        time.sleep(0.2)
    if running := Path(f"/proc/{answer['pid']}").exists():
        os.kill(answer["pid"], signal.SIGKILL)
    client.communicate()
    assert not running


# --- what is written -------------------------------------------------------------------------------


def test_ipykernel_is_locked_along_and_the_kernel_is_described_and_kept(gpuenv, index):
    jax_env(gpuenv, index)
    ran = ok(gpuenv("create", *JAX, "--no-verify", "--kernel", "--json"))
    assert "ipykernel" in {p["name"] for p in ran.json["lock"]["packages"]} & {
        *installed(gpuenv.work / ".venv")
    }
    assert "Jupyter kernel: work" in ran.err
    made = spec(gpuenv, "work")
    version = ran.json["plan"]["builds"][0]["version"]
    assert made["display_name"] == f"work (jax {version})" and made["language"] == "python"
    assert made["metadata"]["gpuenv"] == {"environment": str(gpuenv.work / ".venv")}
    assert made["argv"][-7:] == [
        str(gpuenv.work / ".venv"), "--", str(gpuenv.work / ".venv" / "bin" / "python"), "-m", "ipykernel_launcher",
        "-f", "{connection_file}",
    ]  # fmt: skip
    # a later create with or without the option keeps it
    before = (gpuenv.work / ".venv").stat().st_ino
    for more in (("--kernel",), ()):
        shutil.rmtree(kernels(gpuenv))
        assert not ok(gpuenv("create", *JAX, "--no-verify", "--json", *more)).json["environment"]["changed"]
        assert [p.name for p in kernels(gpuenv).iterdir()] == ["work"]
    assert (gpuenv.work / ".venv").stat().st_ino == before
    assert "  ipykernel 7.4.0, " in ok(gpuenv("create", *JAX, "--recreate", "--dry-run")).err


def test_names_of_others_are_never_taken(made):
    gpuenv, jax = made
    foreign = kernels(gpuenv) / "work"
    foreign.mkdir(parents=True)
    (foreign / "kernel.json").write_text('{"argv": ["mine"]}')
    shutil.copytree(gpuenv.work / ".venv", gpuenv.work / "python3", symlinks=True)
    own(gpuenv.work / "python3", gpuenv.env)
    assert jax("--kernel", "-q").code == jax("--kernel", "-q", "python3").code == 0
    assert json.loads((foreign / "kernel.json").read_text()) == {"argv": ["mine"]}
    names = sorted(p.name for p in kernels(gpuenv).iterdir())
    assert len(names) == 3 and names[0].startswith("python3-") and names[2].startswith("work-")
    ran = gpuenv("remove", ".venv", "python3", "--json")
    assert ran.code == 0
    assert sorted(k for e in ran.json["removed"] for k in e["kernels"]) == [names[0], names[2]]
    assert [p.name for p in kernels(gpuenv).iterdir()] == ["work"]


def test_remove_takes_the_kernel_of_an_environment_deleted_by_hand(made):
    gpuenv, jax = made
    assert jax("--kernel").code == 0
    shutil.rmtree(gpuenv.work / ".venv")
    assert "work" in ok(gpuenv("remove", ".venv")).out and not list(kernels(gpuenv).iterdir())
    assert gpuenv("remove", ".venv").code == 2


def test_a_jupyter_folder_that_cannot_be_written_gives_a_warning(made):
    gpuenv, jax = made
    gpuenv.env["JUPYTER_DATA_DIR"] = "/proc/nowhere"
    ran = jax("--kernel", "--json")
    assert ran.code == 7 and ran.json["schema"] == "gpuenv.create/1"
    assert "warning: no Jupyter kernel was made" in ran.err and "/proc/nowhere" in ran.err


def test_a_lock_without_ipykernel_says_how_to_get_it(gpuenv, index):
    jax_env(gpuenv, index)
    shutil.copy(gpuenv.work / ".venv" / ".gpuenv" / "pylock.toml", gpuenv.work / "pylock.toml")
    ran = gpuenv("create", "--locked", "--no-verify", "--kernel")
    assert ran.code == 2 and "gpuenv lock --with ipykernel" in " ".join(ran.err.split())
    assert not kernels(gpuenv).exists()


def test_a_dry_run_makes_no_kernel(made):
    gpuenv, jax = made
    assert jax("--kernel", "--dry-run").code == 0 and not kernels(gpuenv).exists()


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/a/project/.venv", "project"), ("/a/envs/tf", "tf"), ("/a/Übung 3/env", "ubung-3"), ("/a/日本/venv", "gpuenv"),
        ("/a/..weird../.venv", "weird"), ("/.venv", "venv"),
    ],
)  # fmt: skip
def test_a_kernel_is_named_after_its_folder(tmp_path, path, name):
    assert kernel._find_free_name(tmp_path, Path(path)) == name


def test_the_logo_of_ipykernel_comes_along_and_a_kernel_behind_a_link_stays(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path))
    env, kernels = tmp_path / "env", tmp_path / "kernels"
    (env / "share/jupyter/kernels/python3").mkdir(parents=True)
    (env / "share/jupyter/kernels/python3/logo-64x64.png").write_bytes(b"png")
    spec = {"metadata": {"gpuenv": {"environment": str(env)}}}
    kernel._write(kernels / "mine", spec, env)
    assert (kernels / "mine" / "logo-64x64.png").read_bytes() == b"png"
    (tmp_path / "real").mkdir()
    (kernels / "mine").rename(tmp_path / "real" / "mine")
    (kernels / "mine").symlink_to(tmp_path / "real" / "mine")
    assert kernel.list_registered(env) == ["mine"]
    with pytest.raises(BuildError, match="mine"):
        kernel.forget(env)
    assert (tmp_path / "real" / "mine" / "kernel.json").exists()


def test_a_user_without_a_home_folder_has_no_kernels(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "relative")
    for name in ("JUPYTER_DATA_DIR", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(BuildError, match="no home folder"):
        kernel.folder(os.environ)
    assert kernel.list_registered(tmp_path) == []


# --- run --exec ------------------------------------------------------------------------------------


def test_exec_leaves_one_process_with_its_own_signals(made):
    """The same process before and after; and SIGPIPE, which Python ignores, ends a program again."""
    gpuenv, _ = made
    argv = [sys.executable, "-m", "provision", "run", "--exec", ".venv", "--"]
    child = subprocess.Popen(
        [*argv, "sh", "-c", "echo $$ $VIRTUAL_ENV"],
        env=gpuenv.env,
        cwd=gpuenv.work,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.communicate(timeout=300)[0].split() == [str(child.pid), str(gpuenv.work / ".venv")]
    ignored = "awk '/^SigIgn/ {print $2}' /proc/self/status"
    told = run_program([*argv, "sh", "-c", ignored], env=gpuenv.env, cwd=gpuenv.work, check=True)
    # Python ignores these two by itself; what our own parents ignored is not ours to mend.
    assert int(told.stdout, 16) & (1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1)) == 0
    assert "no-such-program" in refused(gpuenv("run", "--exec", ".venv", "--", "no-such-program"), 127).err
