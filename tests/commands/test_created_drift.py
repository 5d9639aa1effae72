"""What `create` says of an environment in which another version of the framework is installed than the lock's."""

import json
import re
import shutil
import subprocess
import sys

import conda_channel as cc
import pytest
from environment_facts import installed, ok
from made_env import JAX, jax_env

CPU = ("create", *JAX)


def words(ran) -> str:
    return " ".join(ran.out.split())


def put(gpuenv, index, wanted):
    """Install another release with an installer of the user's, as `pip install torch==VERSION` does."""
    env = gpuenv.work / ".venv"
    subprocess.run(
        [sys.executable, "-m", "uv", "pip", "install", "-q", "--no-deps", "--python", env / "bin" / "python",
         "--default-index", index.url, wanted],
        check=True, env=gpuenv.env, cwd=gpuenv.work,
    )  # fmt: skip
    return env


# --- a venv with a verdict ---------------------------------------------------------------------------


def test_a_failed_verdict_names_the_drift(gpuenv, index):
    jax_env(gpuenv, index)
    locked = installed(gpuenv.work / ".venv")["jax"]
    index.add("jax", "0.4.1")
    env = put(gpuenv, index, "jax==0.4.1")
    ran = gpuenv(*CPU)
    said = f"jax {locked} in the lock, 0.4.1 installed: gpuenv repair {env}"
    assert ran.code == 8 and "verdict: fails" in ran.out, ran.out + ran.err
    assert words(ran).startswith(said)
    assert f"jax {locked} CPU" not in words(ran)
    made = gpuenv(*CPU, "--json").json
    (change,) = made["verdict"]["drift"]
    assert (change["name"], change["locked"], change["found"]) == ("jax", locked, "0.4.1")


def test_a_kept_verdict_names_the_drift(gpuenv, index):
    jax_env(gpuenv, index)
    locked = installed(gpuenv.work / ".venv")["jax"]
    index.add("jax", "0.4.2", content="devices = lambda kind=None: [] if kind else ['CpuDevice']\n")
    env = put(gpuenv, index, "jax==0.4.2")
    ran = gpuenv("verify", "--quick", "--device", "cpu", "--json")
    assert ran.code == 0 and ran.json["verdict"] == "cpu", ran.out + ran.err
    passed = ran.json
    assert [c["name"] for c in passed["drift"]] == ["jax"]
    gpuenv(*CPU)  # keeps a verdict: it fails, since this jax has no convolutions
    file = env / ".gpuenv" / "verdict.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "verdict": passed}))
    ran = gpuenv(*CPU)
    assert ran.code == 0 and "verifying" not in ran.err, ran.out + ran.err
    assert words(ran).startswith(f"jax {locked} in the lock, 0.4.2 installed: gpuenv repair {env}")
    assert "verdict: " in ran.out and "can be imported on the CPU" in ran.out


# --- conda, whose package has another name -----------------------------------------------------------


@pytest.fixture
def conda(gpuenv, index, tmp_path):
    """`gpuenv create` of a conda environment with the package pytorch 2.8.0, which brings torch's dist-info."""
    folder = shutil.copytree(cc.bare(), tmp_path / "chan" / "conda-forge")
    index.add("torch", "2.8.0")
    index.add("torch", "2.7.1")
    site = tmp_path / "wheels"
    subprocess.run(
        [sys.executable, "-m", "uv", "pip", "install", "-q", "--python", sys.executable, "--target", site,
         "--default-index", index.url, "torch==2.8.0"],
        check=True, env=gpuenv.env,
    )  # fmt: skip
    (torch,) = [cc.PathDistribution(p) for p in site.glob("torch-*.dist-info")]
    cc.wheel_package(folder, torch, f"cpu_generic_{cc.TAG}_h0_0", name="pytorch")
    cc.index(folder)
    gpuenv.env["RATTLER_CACHE_DIR"] = str(tmp_path / "rattler-cache")

    def create(*more):
        return gpuenv("create", "--manager", "conda", "--framework", "torch", "--device", "cpu", "--channel",
                      folder, "--no-verify", *more)  # fmt: skip

    ran = ok(create())
    assert "torch 2.8.0 CPU build" in words(ran)
    return create


def test_a_wheel_over_conda_s_pytorch_heads_the_answer(gpuenv, index, conda):
    env = put(gpuenv, index, "torch==2.7.1")
    ran = ok(conda())
    assert words(ran).startswith(f"torch 2.8.0 in the lock, 2.7.1 installed: gpuenv repair {env}")
    assert "torch 2.8.0 CPU" not in words(ran)
    (change,) = conda("--json").json["environment"]["drift"]
    assert (change["kind"], change["name"], change["found"]) == ("replaced", "pytorch", "2.7.1")


def test_another_conda_pytorch_heads_the_answer(gpuenv, conda):
    env = gpuenv.work / ".venv"
    (record,) = (env / "conda-meta").glob("pytorch-2.8.0-*.json")
    record.rename(record.with_name(record.name.replace("2.8.0", "2.7.1")))
    build = f"cpu_generic_{cc.TAG}_h0_0"
    said = f"torch 2.8.0-{build} in the lock, 2.7.1-{build} installed: gpuenv repair {env}"
    assert words(conda()).startswith(said)
    next((env / "conda-meta").glob("pytorch-*.json")).unlink()
    assert re.match(r"torch 2\.8\.0 .*none installed: gpuenv repair", words(conda()))
