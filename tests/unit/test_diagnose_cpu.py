"""diagnose for an environment that was made for the CPU: no cause is a driver, a GPU or a container."""

import json
import sys
from pathlib import Path

import pytest
from diagnosed import findings_of
from known import KNOWN
from rows import rows

from provision.actions.explain import explain_log
from provision.diagnose import Ran
from provision.model import Driver, Evidence, Finding, Gpu, Machine, Target, TargetGpu

ABOUT_GPU = {c.cause for c in KNOWN.causes if c.about_gpu}
NO_GPU = Finding(
    cause="container_without_gpu",
    title="This container has no GPU",
    evidence=(Evidence(text="no /dev/nvidia*"),),
    confidence="certain",
)
CONTAINER = Machine(target=Target(platform="linux-x86_64", glibc="2.36"), findings=(NO_GPU,))
H200 = Machine(
    target=Target(
        platform="linux-x86_64", driver="580.159.04", gpus=(TargetGpu(capability="9.0", name="H200"),)
    ),
    driver=Driver(library="580.159.04"),
    gpus=(Gpu(index=0, name="H200", capability="9.0"),),
)
TENSORFLOW = (
    (
        "2026-11-20 10:00:00.1 I external/local_xla/xla/tsl/cuda/cudart_stub.cc:31] Could not find cuda drivers on your "
        "machine, GPU will not be used."
    ),
    "E0000 00:00:1732 cuda_dnn.cc:8310] Unable to register cuDNN factory: Attempting to register factory for plugin",
    (
        "2026-11-20 10:00:00.2 E external/local_xla/xla/stream_executor/cuda/cuda_platform.cc:51] failed call to cuInit: "
        "INTERNAL: CUDA error: Failed call to cuInit: UNKNOWN ERROR (303)"
    ),
    (
        "W tensorflow/stream_executor/platform/default/dso_loader.cc:64] Could not load dynamic library 'libcudart.so.11.0'; "
        "dlerror: libcudart.so.11.0: cannot open shared object file: No such file or directory"
    ),
    (
        "I tensorflow/stream_executor/cuda/cudart_stub.cc:29] Ignore above cudart dlerror if you do not have a GPU set up "
        "on your machine."
    ),
)
JAX = (
    (
        "WARNING:2026-11-20 10:00:00,1:jax._src.xla_bridge:864: An NVIDIA GPU may be present on this machine, but a "
        "CUDA-enabled jaxlib is not installed. Falling back to cpu."
    ),
)
TORCH = (
    (
        "/env/lib/python3.11/site-packages/torch/cuda/__init__.py:129: UserWarning: CUDA initialization: Found no NVIDIA "
        "driver on your system. Please check that you have an NVIDIA GPU and installed a driver from "
        "http://www.nvidia.com/Download/index.aspx (Triggered internally at ../c10/cuda/CUDAFunctions.cpp:108.)"
    ),
    (
        "/env/lib/python3.11/site-packages/torch/amp/autocast_mode.py:250: UserWarning: User provided device_type of "
        "'cuda', but CUDA is not available. Disabling"
    ),
)


def found(*lines, device="cpu", machine=CONTAINER):
    text = "\n".join(lines).encode()
    return findings_of([("log", [text])], KNOWN, machine, ran=Ran(), device=device)


@rows("notices", [TENSORFLOW, JAX, TORCH], ids=["tensorflow", "jax", "torch"])
@rows(
    "failure",
    [
        "ModuleNotFoundError: No module named 'utils'",
        "KeyError: 'learning_rate'",
        "FileNotFoundError: [Errno 2] No such file or directory: 'train.csv'",
    ],
)
def test_what_a_framework_prints_without_a_gpu_is_no_cause(notices, failure):
    for machine in (CONTAINER, H200, None):
        assert found(*notices, failure, machine=machine) == ()
    assert found(*notices, failure, device="cuda")[0].cause == "container_without_gpu"


@rows("notices", [TENSORFLOW, JAX, TORCH], ids=["tensorflow", "jax", "torch"])
def test_a_missing_package_after_the_notices_is_the_cause(notices):
    for machine in (CONTAINER, H200, None):
        [finding] = found(*notices, "ModuleNotFoundError: No module named 'tensorboard'", machine=machine)
        assert finding.cause == "python_package_missing" and "tensorboard" in finding.fix


@rows("rule", KNOWN.failures, ids=lambda r: r.name)
def test_no_cause_about_a_gpu_is_certain_or_first(rule):
    findings = found(rule.example)
    for finding in findings:
        if finding.cause in ABOUT_GPU:
            assert finding.title.startswith("This environment is for the CPU, but")
            assert finding.confidence == "likely"


def test_the_causes_about_gpus_are_those_of_driver_container_and_gpu():
    layers = {c.cause: c.layer for c in KNOWN.causes}
    assert {c for c, layer in layers.items() if layer in "123"} - ABOUT_GPU == {"container_shm_too_small"}
    assert not ABOUT_GPU & {
        "numpy_abi",
        "system_libs_too_old",
        "duplicate_openmp_runtime",
        "framework_bug_upgrade",
    }


def test_a_real_cause_still_leads():
    numpy = "A module that was compiled using NumPy 1.x cannot be run in NumPy 2.0.0 as it may crash."
    assert found(*TENSORFLOW, numpy)[0].cause == "numpy_abi"
    shm = "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. insufficient shared memory (shm)"
    assert found(shm)[0].cause == "container_shm_too_small"


@rows(
    "line",
    [
        "AssertionError: Torch not compiled with CUDA enabled",
        "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU",
        "RuntimeError: Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False.",
    ],
)
def test_a_program_that_asks_for_a_gpu_gets_the_environment_as_its_cause(line):
    (finding,) = found(line)
    assert finding.title.startswith("This environment is for the CPU")
    assert finding.evidence[0].text == line
    assert "device='cpu'" in finding.fix and "--device cuda" in finding.fix


def test_a_package_for_cuda_is_named_by_the_library_that_it_lacks():
    lines = (
        "Traceback (most recent call last):",
        '  File "/env/lib/python3.11/site-packages/torchaudio/_extension/utils.py", line 56, in _load_lib',
        "OSError: libcudart.so.13: cannot open shared object file: No such file or directory",
    )
    (finding,) = found(*lines)
    assert "a package in it requires libcudart.so.13" in finding.title
    assert finding.evidence[0].line == 3
    assert "CPU build of the package" in finding.fix
    unresolved = found("OSError: libavutil.so.58: cannot open shared object file: No such file or directory")
    assert not {f.cause for f in unresolved} & ABOUT_GPU


# --- the solver's words ---------------------------------------------------------------------------


SOLVER = """  x No solution found when resolving dependencies:
  `-> Because numpy==1.21.0 has no wheels with a matching Python ABI tag (e.g., `cp313`) and you require
      numpy==1.21.0, we can conclude that your requirements are unsatisfiable.
"""


def test_a_solver_that_finds_no_wheel_of_numpy_says_nothing_of_gpus():
    assert explain_log(SOLVER) == ()
    of_torch = SOLVER.replace("numpy", "torch")
    assert explain_log(of_torch)[0].cause == "no_gpu_build_for_platform"
    assert explain_log(of_torch, "cpu") == ()
    assert (
        explain_log("ERROR: numpy-1.21-cp38-cp38-win_amd64.whl is not a supported wheel on this platform.")
        == ()
    )


# --- the commands ---------------------------------------------------------------------------------


@pytest.fixture
def env(gpuenv):
    """An environment of gpuenv's for the CPU, as far as `run` and `diagnose` read it."""
    root = gpuenv.work / ".venv"
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "python").symlink_to(sys.executable)
    (root / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).parent}\n")
    (root / ".gpuenv").mkdir()
    return root


def made(env, device):
    plan = {
        "schema": "gpuenv.plan/1", "builds": [], "python": "3.11", "platform": "linux-x86_64", "manager": "venv",
        "device": device, "target": {"platform": "linux-x86_64"},
    }  # fmt: skip
    (env / ".gpuenv" / "plan.json").write_text(json.dumps(plan))


def test_run_says_nothing_of_gpus_where_the_environment_is_for_the_cpu(gpuenv, env):
    program = gpuenv.work / "train.py"
    said = [*TENSORFLOW, "RuntimeError: Found no NVIDIA driver on your system."]
    program.write_text(f"import sys\nsys.exit({chr(10).join(said[:-1])!r} + '\\n' + 'KeyError: 3')\n")
    made(env, "cpu")
    ran = gpuenv("run", "--json", "--", str(env / "bin" / "python"), str(program))
    assert (ran.code, ran.json["findings"]) == (1, [])
    program.write_text(f"import sys\nsys.exit({chr(10).join(said)!r})\n")
    ran = gpuenv("run", "--json", "--", str(env / "bin" / "python"), str(program))
    assert [f["cause"] for f in ran.json["findings"]] == ["cpu_only_build"]
    made(env, "cuda")
    ran = gpuenv("run", "--json", "--", str(env / "bin" / "python"), str(program))
    assert ran.json["findings"] and ran.json["findings"][0]["cause"] != "cpu_only_build"
