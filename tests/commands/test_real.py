"""The main job for real: environments of torch, TensorFlow, JAX and ONNX Runtime from the index, on the CPU.

Everything is as a user has it: pip's and uv's own configuration and cache. torch and TensorFlow, which take longest, are
left to `make test-slow`; tests/unit/test_verify.py verifies torch in `make test`. Where no CPU build of torch is available
the test with the gigabytes of the CUDA build does it.
"""

import json
import os
import shutil
import subprocess
import sys

import pytest
from programs import run_program

from provision.verify.state import FRAMEWORK_STAGES, LAYERS

pytestmark = pytest.mark.network

STAGES = [*LAYERS, *FRAMEWORK_STAGES, "packages"]


def gpuenv(folder, *args):
    argv = [sys.executable, "-m", "provision", *map(str, args)]
    env = {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "PYTHONPATH")}
    return run_program(argv, cwd=folder, env=env, stdin=subprocess.DEVNULL)


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("torch", "tensorflow")]


@pytest.fixture(scope="session", params=["jax", "onnxruntime", *SLOW])
def made(request, tmp_path_factory):
    """(framework, folder, JSON of create)."""
    framework, folder = request.param, tmp_path_factory.mktemp(request.param)
    plan = json.loads(gpuenv(folder, "resolve", "--framework", framework, "--device", "cpu", "--json").stdout)
    if plan["builds"][0]["cuda"] and framework == "torch":
        pytest.skip("no CPU build of torch at hand; `make test-slow` takes the CUDA build")
    done = gpuenv(folder, "create", "--framework", framework, "--device", "cpu", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    return framework, folder, json.loads(done.stdout)


def test_create_ends_with_a_graded_convolution(made):
    framework, folder, result = made
    verdict = result["verdict"]
    assert verdict["verdict"] == "cpu"
    assert [s["stage"] for s in verdict["stages"]] == STAGES
    status = {s["stage"]: s["status"] for s in verdict["stages"]}
    assert [status[s] for s in STAGES[:4]] == ["skip"] * 4
    assert status["framework"] == status["convolution"] == "pass"
    (mine,) = verdict["frameworks"]
    assert mine["name"] == framework
    assert mine["version"].partition("+")[0] == result["plan"]["builds"][0]["version"]
    graded = [c for d in mine["devices"] for c in d["convolutions"]]
    assert len(graded) >= 9
    no_weights = {"grad_weight"} if framework == "onnxruntime" else set()  # it has no operator for them
    assert {c["pass"] for c in graded} == {"forward", "grad_input", "grad_weight"} - no_weights
    grouped = (
        [] if framework == "tensorflow" else ["conv2d_grouped"]
    )  # on the CPU it has no gradient of these
    for case in ("conv1d", "conv2d", "conv3d", "conv2d_transposed", *grouped):
        assert {"forward", "grad_input", "grad_weight"} - no_weights <= {
            c["pass"] for c in graded if c["case"] == case
        }
    assert all(c["ok"] and 0 < c["max_error"] < c["tolerance"] / 10 for c in graded), (
        "a zero error is no measurement"
    )
    assert (folder / ".venv" / "bin" / "python").exists()


def test_nothing_of_nvidia_is_brought_to_the_cpu_unasked(made):
    framework, _, result = made
    names = [p["name"] for p in result["lock"]["packages"]]
    if result["plan"]["builds"][0]["cuda"] is None or framework == "tensorflow":
        assert not [n for n in names if n.startswith("nvidia-")]


def test_create_again_rebuilds_and_verifies_nothing(made):
    framework, folder, first = made
    done = gpuenv(folder, "create", "--framework", framework, "--device", "cpu", "--json")
    again = json.loads(done.stdout)
    assert done.returncode == 0
    assert again["environment"]["changed"] is False
    assert again["verdict"] == first["verdict"], "the standing verdict is shown, seconds and all"
    assert "verifying" not in done.stderr and "nothing changed since; to verify again: " in done.stderr


@pytest.mark.parametrize("made", ["onnxruntime"], indirect=True)  # the rule knows no framework
def test_verify_alone_gives_the_same_verdict(made):
    _, folder, first = made
    done = gpuenv(folder, "verify", "--json")
    verdict = json.loads(done.stdout)
    assert done.returncode == 0 and verdict["verdict"] == "cpu"
    assert [s["status"] for s in verdict["stages"]] == [s["status"] for s in first["verdict"]["stages"]]


@pytest.mark.parametrize("made", ["onnxruntime"], indirect=True)  # the rule knows no framework
def test_a_package_replaced_by_hand_takes_the_standing_verdict_away(made):
    framework, folder, _ = made
    record = next((folder / ".venv").glob("lib/python3*/site-packages/numpy-*.dist-info/RECORD"))
    os.utime(record)
    done = gpuenv(folder, "create", "--framework", framework, "--device", "cpu", "--json")
    assert "verifying" in done.stderr


def test_pip_works_in_a_made_environment(made):
    _, folder, _ = made
    run_program([folder / ".venv/bin/pip", "check"], check=True)


@pytest.mark.parametrize("made", ["onnxruntime", *SLOW], indirect=True)
def test_the_same_packages_of_another_tool_work_on_the_cpu_unless_their_build_is_for_cuda(made, tmp_path):
    framework, folder, _ = made
    python = folder / ".venv" / "bin" / "python"
    site = run_program([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], check=True).stdout.strip()  # fmt: skip
    foreign = tmp_path / "foreign"
    base = run_program([python, "-c", "import sys; print(sys._base_executable)"], check=True).stdout.strip()
    subprocess.run([base, "-m", "venv", "--without-pip", foreign], check=True)
    (next(foreign.glob("lib/python3*/site-packages")) / "all.pth").write_text(site + "\n")
    device = [] if framework == "tensorflow" else ["--device", "cuda"]  # its wheel is one for CUDA
    done = gpuenv(tmp_path, "verify", "--quick", foreign, *device, "--json")
    verdict = json.loads(done.stdout)
    if [s for s in verdict["stages"] if s["stage"] == "driver" and s["status"] == "pass"]:
        pytest.skip("this machine has a GPU")
    assert done.returncode == 8 and verdict["verdict"] == "fails"
    assert verdict["stages"][0]["status"] == "fail" and verdict["stages"][0]["stage"] == "driver"
    assert {s["status"] for s in verdict["stages"][1:]} == {"skip"}
    assert verdict["findings"] and verdict["hint"]
    device = ["--device", "cpu"] if framework == "tensorflow" else []
    done = gpuenv(tmp_path, "verify", "--quick", foreign, *device, "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["verdict"] == "cpu"


@pytest.mark.slow
def test_torch_with_cuda_from_the_default_index_works_on_the_cpu(tmp_path):
    args = ("create", "--framework", "torch", "--index", "pypi", "--device", "cpu", "--json")
    done = gpuenv(tmp_path, *args)
    result = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert result["plan"]["builds"][0]["cuda"] and result["verdict"]["verdict"] == "cpu"
    assert [p for p in result["lock"]["packages"] if p["name"].startswith("nvidia-cudnn")]


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("python3.8"), reason="torch 1.6 needs a Python 3.8")
def test_the_oldest_torch_with_a_row_works_on_the_cpu(tmp_path):
    args = (
        "create",
        "--framework",
        "torch==1.6.0",
        "--index",
        "pypi",
        "--device",
        "cpu",
        "--python",
        "3.8",
        "--json",
    )
    done = gpuenv(tmp_path, *args, "--with", "numpy")
    assert done.returncode == 0 and json.loads(done.stdout)["verdict"]["verdict"] == "cpu", done.stderr
