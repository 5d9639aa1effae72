"""The stub driver: its answers are those of the real libraries."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from detected_drivers import DATA
from programs import run_program

from driver_stub import B200, T4, build, build_runtime, scenario, spec
from driver_stub.compare import as_spec
from provision.detect.query import PROBES, parse_answer
from provision.system.probes import join_sources


def calls(libraries, what):
    program = Path(__file__).parents[1] / "support" / "driver_stub" / "compare.py"
    env = {**os.environ, **scenario(libraries, what)}
    done = run_program([sys.executable, str(program)], env=env, check=True)
    return json.loads(done.stdout)


def test_the_stub_answers_like_the_spec_that_its_answers_make(tmp_path):
    libraries = build(tmp_path / "driver")
    first = calls(libraries, spec(driver="590.48.01", cuda=13010, gpus=[B200, T4]))
    assert calls(libraries, as_spec(first)) == first
    assert first["libcuda"].endswith("/libcuda.so.580.159.04")


@pytest.mark.parametrize("file", sorted(DATA.glob("calls_*.json")), ids=lambda path: path.stem)
def test_the_stub_answers_as_the_real_libraries_did(tmp_path, file):
    recorded = json.loads(file.read_text())
    said = calls(build(tmp_path / "driver"), as_spec(recorded))
    assert said["calls"] == recorded["calls"]


@pytest.mark.parametrize(
    ("visible", "boards"),
    [
        ("1", ["Tesla T4"]),
        ("1,0", ["Tesla T4", "Tesla V100-SXM2-16GB"]),
        ("GPU-2b3c", ["Tesla T4"]),
        ("0,7,1", ["Tesla V100-SXM2-16GB"]),
    ],
)
def test_the_stubs_libcuda_heeds_cuda_visible_devices(tmp_path, visible, boards):
    env = {
        **os.environ,
        **scenario(build(tmp_path / "driver"), "535-v100-t4"),
        "CUDA_VISIBLE_DEVICES": visible,
        "GPUENV_REPORT": "1",
    }
    program = join_sources(*PROBES)
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, stdin=subprocess.DEVNULL, check=True
    )
    assert [gpu.name for gpu in parse_answer(done.stdout).gpus] == boards


def test_the_stubs_runtime_runs_on_its_driver(tmp_path):
    text = """
import ctypes
rt = ctypes.CDLL("libcudart.so.12")
n, free, total, p = ctypes.c_int(), ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_void_p()
codes = [rt.cudaRuntimeGetVersion(ctypes.byref(n))]
version = n.value
codes += [rt.cudaGetDeviceCount(ctypes.byref(n)), rt.cudaSetDevice(1),
          rt.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)), rt.cudaMalloc(ctypes.byref(p), 64),
          rt.cudaFree(p), rt.cudaDeviceSynchronize(), rt.cudaSetDevice(2)]
print(version, n.value, total.value >> 20, codes)
"""
    libraries = build(tmp_path / "driver")
    build_runtime(libraries, "libcudart.so.12")

    def run(what):
        env = {**os.environ, **scenario(libraries, what)}
        return run_program([sys.executable, "-c", text], env=env, check=True)

    assert run("535-v100-t4").stdout.strip() == "12080 2 15360 [0, 0, 0, 0, 0, 0, 0, 101]"
    assert run("470-k80").stdout.split("[")[1].startswith("0, 35, 35")  # an insufficient driver
    assert run("stub-libcuda").stdout.split("[")[1].startswith("0, 34, 34")
