"""--device auto through the command line, on drivers made of C: a GPU server never silently gets a
CPU environment."""

import json
import shutil
import subprocess
import sys

import pytest
from detect_files import program
from environment_facts import ok, refused
from programs import run_program
from rows import sampled

from driver_stub import SCENARIOS, build, scenario


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    return build(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def on(gpuenv, libraries):
    def on(name, *args):
        gpuenv.env |= scenario(libraries, name)
        return gpuenv("resolve", "--framework", "torch", "--json", *args)

    return on


@pytest.mark.parametrize(
    ("name", "cuda_major", "gpus"),
    [
        ("470-k80", "11", ["3.7"]),
        ("535-v100-t4", "12", ["7.0", "7.5"]),
        ("580-h200", "13", ["9.0"]),
        ("590-b200", "13", ["10.0"]),
    ],
)
def test_a_working_driver_with_gpus_means_cuda(on, name, cuda_major, gpus):
    plan = on(name).json
    assert plan["device"] == "cuda" and plan["cuda_major"] == cuda_major
    assert [g["capability"] for g in plan["target"]["gpus"]] == gpus
    assert plan["target"]["driver"].split(".")[0] == name.split("-")[0]


@pytest.mark.parametrize("name", sampled(["mismatch", "no-permission"], 2))
def test_a_driver_that_answers_but_does_not_work_stops_with_cause_and_fix(on, name):
    assert name in SCENARIOS
    error = refused(on(name), 4).json["error"]
    assert error["findings"] and error["findings"][0]["fix"] and "--device cpu" in error["hint"]
    assert on(name, "--device", "cuda").code == 4
    assert on(name, "--device", "cpu").json["device"] == "cpu"


def test_no_driver_at_all_under_cuda_is_exit_4_and_under_auto_a_cpu_environment(on):
    assert on("no-driver").json["device"] == "cpu"
    assert "--driver" in refused(on("no-driver", "--device", "cuda"), 4).json["error"]["hint"]


def test_a_target_on_the_command_line_ignores_the_driver_of_this_machine(on):
    plan = on("no-driver", "--driver", "580.65.06", "--gpu", "9.0").json
    assert plan["device"] == "cuda"
    plan = on("580-h200", "--platform", "linux-aarch64").json
    assert plan["device"] == "cpu", "another platform: nothing is taken from this machine's driver"


def test_gpus_can_be_selected_by_number(on):
    plan = on("535-v100-t4", "--gpus", "1").json
    assert [g["capability"] for g in plan["target"]["gpus"]] == ["7.5"]
    assert "no GPU 2" in refused(on("535-v100-t4", "--gpus", "2"), 2).json["error"]["message"]


def test_a_gpu_hidden_by_cuda_visible_devices_does_not_bind_the_plan_less(on, gpuenv):
    gpuenv.env["CUDA_VISIBLE_DEVICES"] = ""
    assert [g["capability"] for g in on("535-v100-t4").json["target"]["gpus"]] == ["7.0", "7.5"]


def test_only_a_host_of_a_cluster_without_slurmd_is_a_login_node(on, gpuenv, tmp_path):
    program(tmp_path / "bin" / "sinfo", "#!/bin/sh\nexit 0\n")
    gpuenv.env["PATH"] = f"{tmp_path / 'bin'}:{gpuenv.env['PATH']}"
    assert on("no-driver").json["device"] == "cpu", "sinfo alone"
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=c\nNodeName=n1 Gres=gpu:1\n")
    gpuenv.env["SLURM_CONF"] = str(conf)
    assert "--target node.json" in refused(on("no-driver"), 4).json["error"]["hint"]
    slurmd = tmp_path / "bin" / "slurmd"  # a real process of that name, as `ps` would show it
    shutil.copy(shutil.which("sleep"), slurmd)
    running = subprocess.Popen([slurmd, "60"])
    try:
        assert on("no-driver").json["device"] == "cpu", "a node of the cluster"
    finally:
        running.kill()
        running.wait()


def test_the_hint_for_a_login_node_works_under_make(on, gpuenv, libraries, tmp_path):
    """What the hint says is typed: make hands the variable to gpuenv, whatever its rule looks like."""
    (tmp_path / "slurm.conf").write_text("NodeName=n1 Gres=gpu:1\n")
    gpuenv.env["SLURM_CONF"] = str(tmp_path / "slurm.conf")
    command = f"{sys.executable} -m provision resolve --framework torch --json"
    (gpuenv.work / "Makefile").write_text(f"env:\n\t@{command}\n")

    def make(*variables):
        return run_program(["make", "env", *variables], cwd=gpuenv.work, env=gpuenv.env)

    on("no-driver")
    hint = json.loads(make().stdout)["error"]["hint"]
    assert "GPUENV_TARGET=node.json" in hint and "GPUENV_DEVICE=cpu" in hint
    gpuenv.env |= scenario(libraries, "535-v100-t4")
    (gpuenv.work / "node.json").write_text(gpuenv("detect", "--json").out)
    on("no-driver")
    assert json.loads(make("GPUENV_TARGET=node.json").stdout)["target"]["driver"].startswith("535")
    assert json.loads(make("GPUENV_DEVICE=cpu").stdout)["device"] == "cpu"


def test_a_cpu_environment_from_before_the_driver_is_not_in_place_on_a_gpu_machine(gpuenv, index, libraries):
    """It was made by --device auto where no GPU was to be seen; the same command must not call it done."""
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    asked = ("--framework", "jax", "--index", "pypi", "--python", here)
    for device in ("cpu", "cuda"):
        gpu = ("--driver", "580.159.04", "--gpu", "9.0") if device == "cuda" else ()
        index.add_plan(gpuenv("resolve", *asked, *gpu, "--device", device, "--json").json)
    gpuenv.env["PIP_INDEX_URL"] = index.url
    gpuenv.env |= scenario(libraries, "no-driver")
    assert ok(gpuenv("create", *asked, "--no-verify", "--json")).json["plan"]["device"] == "cpu"
    assert gpuenv("create", *asked, "--no-verify").code == 0, "still a machine without a GPU"
    on_gpu = gpuenv("verify", "--device", "cuda", "--json")
    assert not (gpuenv.work / ".venv" / ".gpuenv" / "verdict.json").exists(), "it is for the CPU"
    assert on_gpu.code == 8, "the GPU that was asked for is required"
    assert [s["stage"] for s in on_gpu.json["stages"] if s["status"] == "fail"] == ["driver"]
    gpuenv.env |= scenario(libraries, "580-h200")
    index.add("plain", "1.0")
    added = (*asked, "--with", "plain", "--no-verify", "--json")
    shown = ok(gpuenv("create", *added, "--dry-run"))
    assert shown.json["device"] == "cpu", "as the environment that changes"
    for more in ((), ("--no-verify",), ("--dry-run",)):
        ran = refused(gpuenv("create", *asked, *more, "--json"), 2)
        assert "NVIDIA H200" in ran.json["error"]["message"] and "--recreate" in ran.json["error"]["hint"]
    gpuenv.env |= scenario(libraries, "mismatch")
    assert gpuenv("create", *asked, "--no-verify").code == 4
    gpuenv.env |= scenario(libraries, "580-h200")
    made = gpuenv("create", *asked, "--no-verify", "--recreate", "--json")
    assert made.code == 0 and made.json["plan"]["device"] == "cuda"
    assert gpuenv("create", *asked, "--no-verify").code == 0


def test_a_gpu_environment_stays_one_where_no_gpu_is_found(gpuenv, index, libraries):
    """No option named the device: the machine was judged when it was made, and is another one now."""
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    asked = ("--framework", "jax", "--index", "pypi", "--python", here)
    for device in (("--driver", "580.159.04", "--gpu", "9.0"), ("--device", "cpu")):
        index.add_plan(gpuenv("resolve", *asked, *device, "--json").json)
    index.add("jax", next(iter(index.wheels["jax"])).split("-")[1])
    index.add("more", "1.0")
    gpuenv.env["PIP_INDEX_URL"] = index.url
    gpuenv.env |= scenario(libraries, "580-h200")
    (gpuenv.work / "gpuenv.yaml").write_text("frameworks: [jax]\nindex: pypi\n")
    made = gpuenv("create", "--python", here, "--no-verify", "--json")
    assert made.code == 0 and made.json["plan"]["device"] == "cuda", made.err
    names = {p["name"] for p in made.json["lock"]["packages"]}
    for name in ("no-driver", "mismatch"):
        gpuenv.env |= scenario(libraries, name)
        ran = ok(gpuenv("add", "more", "--no-verify", "--json"))
        assert ran.json["plan"]["device"] == "cuda"
        assert {p["name"] for p in ran.json["lock"]["packages"]} == names | {"more"}
        assert 'device = "cuda"' in (gpuenv.work / "pylock.toml").read_text()
    gpuenv.env |= scenario(libraries, "no-driver")
    for more in ((), ("--dry-run",)):
        ran = gpuenv("create", "--no-verify", "--recreate", "--json", *more)
        assert ran.code == 2 and "--device cpu" in ran.json["error"]["hint"], ran.out
    made = gpuenv("create", "--no-verify", "--recreate", "--device", "cpu", "--json")
    assert made.code == 0 and made.json["plan"]["device"] == "cpu"


def test_a_login_node_plans_with_the_facts_of_the_compute_node(on, gpuenv, libraries):
    """detect --json on the node, resolve --target on the login node: the node's facts decide."""
    gpuenv.env |= scenario(libraries, "535-v100-t4")
    (gpuenv.work / "node.json").write_text(gpuenv("detect", "--json").out)
    there = on("535-v100-t4").json
    here = on("no-driver", "--target", "node.json").json
    assert here["builds"] == there["builds"] and here["target"] == there["target"]
