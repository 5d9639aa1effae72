"""ONNX Runtime as a framework: its models, its plans, and a CUDA provider that silently is the CPU."""

import runpy
import subprocess
from pathlib import Path

import pytest
from environment_facts import ok
from framework_envs import venv

from provision.model import FRAMEWORKS
from provision.verify import frameworks, probe, settings

ROOT = Path(__file__).parents[2]
GPU = ("--gpu", "A100", "--glibc", "2.35", "--platform", "linux-x86_64", "--python", "3.12")
STUB = """
import os
__version__ = "1.31.1"

class SessionOptions:
    def add_session_config_entry(self, key, value):
        assert (key, value) == ("session.disable_cpu_ep_fallback", "1")

class InferenceSession:
    def __init__(self, model, options, providers):
        assert providers[0][0] == "CUDAExecutionProvider" and providers[0][1]["use_tf32"] == "1"

    def get_providers(self):
        return ["CPUExecutionProvider"]

def get_available_providers():
    return ["CUDAExecutionProvider", "CPUExecutionProvider"]
"""


def test_the_models_are_those_that_the_script_writes():
    script = runpy.run_path(str(ROOT / "scripts/onnx_models.py"))
    assert script["text"]() == script["FILE"].read_text(encoding="utf-8")
    models = script["models"](runpy.run_path(str(ROOT / "provision/probes/operations.py"))["CASES"])
    assert {name.split()[-2] for name in models} == {"Conv", "ConvTranspose", "Gemm", "MatMul"}
    assert all(50 < len(data) < 200 for data in models.values())


def test_a_number_over_127_takes_two_bytes():
    varint = runpy.run_path(str(ROOT / "scripts/onnx_models.py"))["varint"]
    assert (varint(1), varint(127), varint(300)) == (b"\x01", b"\x7f", b"\xac\x02")


@pytest.mark.parametrize(
    ("driver", "version", "cuda", "package"),
    [("580.65.06", "1.31.1", "13.0", "cu13"), ("550.54.14", "1.26.0", "12.8", "cu12")],
)
def test_the_newest_release_for_the_driver_is_planned_with_its_libraries(
    gpuenv, driver, version, cuda, package
):
    plan = gpuenv("resolve", "--json", "--framework", "onnxruntime", "--driver", driver, *GPU).json
    (build,) = plan["builds"]
    assert (build["framework"], build["version"], build["cuda"]) == ("onnxruntime", version, cuda)
    pins = {pin.partition("==")[0]: pin for pin in build["requirements"]}
    assert pins["onnxruntime-gpu"] == f"onnxruntime-gpu==={version}"
    assert pins[f"nvidia-cudnn-{package}"] and build["cudnn"].startswith("9.")
    (toolkit,) = [pin for pin in build["requirements"] if pin.startswith("cuda-toolkit[")]
    extras = set(toolkit.partition("[")[2].partition("]")[0].split(","))
    assert {"cublas", "cudart", "cufft", "nvrtc"} <= extras, "cuDNN requires cuBLAS, in any release"
    assert toolkit.partition("==")[2].startswith(f"{cuda}.")


def test_a_release_whose_extras_name_no_package_is_objected_to(gpuenv):
    ran = gpuenv("resolve", "--json", "--framework", "onnxruntime==1.27.0", "--driver", "580.65.06", *GPU)
    assert ran.code == 5 and "nvidia-cuda-nvrtc-cu13~=13.0 has no wheel" in ran.out


def test_the_cpu_gets_the_package_without_cuda(gpuenv):
    plan = gpuenv("resolve", "--json", "--framework", "onnxruntime", "--device", "cpu", *GPU[2:]).json
    (build,) = plan["builds"]
    assert build["cuda"] is None
    assert build["requirements"] == [f"onnxruntime==={build['version']}"]


def test_a_pin_of_the_package_for_the_cpu_holds_for_the_one_for_the_gpu(gpuenv, index):
    gpuenv.env |= {"PIP_INDEX_URL": index.url}
    for version in ("1.28.0", "1.31.1"):
        ask = ("--framework", f"onnxruntime=={version}", "--driver", "580.65.06", *GPU)
        index.add_plan(gpuenv("resolve", "--json", *ask).json)
    (gpuenv.work / "requirements.txt").write_text("onnxruntime==1.28.0\n")
    ran = gpuenv(
        "resolve", "--json", "-f", "onnxruntime", "-r", "requirements.txt", "--driver", "580.65.06", *GPU
    )
    (build,) = ran.json["builds"]
    assert build["version"] == "1.28.0" and build["cuda"], ran.err


def test_a_lock_for_the_gpu_does_not_decide_the_build_for_the_cpu(gpuenv, index):
    gpuenv.env |= {"PIP_INDEX_URL": index.url}
    for device in (("--driver", "580.65.06", *GPU), ("--device", "cpu", *GPU[2:])):
        ask = ("--framework", "onnxruntime==1.28.0", *device)
        index.add_plan(gpuenv("resolve", "--json", *ask).json)
        ran = gpuenv("lock", "--json", *ask)
    assert "onnxruntime" in {p["name"] for p in ran.json["packages"]}, ran.err


@pytest.mark.parametrize(
    ("framework", "there", "left_out"),
    [("onnxruntime", {"embeds", "onnxruntime-gpu"}, {"onnxruntime"}), ("jax", {"onnxruntime"}, set())],
)
def test_the_package_for_the_cpu_is_left_out_only_beside_the_one_for_the_gpu(
    gpuenv, index, framework, there, left_out
):
    gpuenv.env |= {"PIP_INDEX_URL": index.url}
    ask = ("--framework", framework, "--driver", "580.65.06", *GPU)
    index.add_plan(gpuenv("resolve", "--json", *ask).json)
    index.add("onnxruntime", "1.32.0")
    index.add("embeds", "1.0", requires=("onnxruntime>=1.17",))
    ran = ok(gpuenv("lock", "--json", "--with", "embeds", *ask))
    names = {p["name"] for p in ran.json["packages"]}
    assert there <= names and not left_out & names


@pytest.fixture
def falls_back(tmp_path):
    """A venv whose onnxruntime has a CUDA provider that misses a library, and falls back to the CPU."""
    env, site = venv(tmp_path / "env")
    capi = site / "onnxruntime" / "capi"
    capi.mkdir(parents=True)
    (capi.parent / "__init__.py").write_text(STUB)
    (capi / "__init__.py").touch()
    (capi / "build_and_package_info.py").write_text("cuda_version = '13.0'\n")
    missing = tmp_path / "libcublasLt.so.13"
    for library, needs in ((missing, []), (capi / "libonnxruntime_providers_shared.so", []),
                           (capi / "libonnxruntime_providers_cuda.so", [missing])):  # fmt: skip
        command = [
            "gcc",
            "-shared",
            "-Wl,--no-as-needed",
            f"-Wl,-soname,{library.name}",
            "-o",
            library,
            *needs,
        ]
        subprocess.run([*command, "-x", "c", "/dev/null"], check=True)
    missing.unlink()
    return env


def test_a_cuda_provider_that_silently_is_the_cpu_fails_with_the_loaders_words(falls_back):
    request = {
        "framework": "onnxruntime",
        "device": "cuda",
        "ordinals": [0],
        "cases": ["conv2d"],
        "pattern": "^libcu",
        "models": frameworks.read_models(["onnxruntime"]),
    }
    report = probe.run_probe(str(falls_back / "bin/python"), ("report", "framework_onnxruntime", "framework"), request, environ={"PATH": "/usr/bin"}, timeout=60)  # fmt: skip
    (failed,) = report.all("failed")
    assert failed["stage"] == "framework"
    assert (
        "Failed to create CUDAExecutionProvider: libcublasLt.so.13: cannot open shared object"
        in failed["text"]
    )
    assert not report.all("convolution")


def test_every_framework_has_variables_that_steer_it():
    for framework in FRAMEWORKS:
        assert isinstance(settings.list_suspects({"CUDNN_X": "1"}, [], None, framework), list)
