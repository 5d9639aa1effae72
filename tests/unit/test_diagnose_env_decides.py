"""An environment decides what a text leaves open: one and the same text, different answers in different environments.

docs/diagnose.md lists what an environment decides. The environments are real; the driver is the stub.
"""
# ruff: noqa: F811  # fixtures are imported by their names

import os
import shutil
import sys

import pytest
from diagnosed import KNOWN
from elf_files import library, module, package
from tensorflow_stub import site  # noqa: F401
from verify_stub import cudnn, env, healthy, pristine, record  # noqa: F401

from driver_stub import H200, build, build_runtime, scenario, spec

CUDNN = "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"
RELEASE = ("nvidia-cudnn-cu12", "9.14.0.64", "linux-x86_64")
TAG = f"cpython-{sys.version_info[0]}{sys.version_info[1]}-x86_64-linux-gnu"


@pytest.fixture
def whole(cudnn):
    """The folder of a cuDNN with every library that this release consists of."""
    site = cudnn.parents[2]
    (row,) = (r for r in KNOWN.cudnn if (r.package, r.version, r.platform) == RELEASE)
    for name in row.libraries:
        if not (cudnn / name).exists():
            shutil.copy(cudnn / "libcudnn.so.9", cudnn / name)
    shutil.rmtree(next(site.glob("nvidia_cudnn*")))
    record(site, "nvidia_cudnn_cu12", row.version, sorted(cudnn.iterdir()))
    return cudnn


@pytest.fixture
def diagnosed(gpuenv, env, whole, tmp_path):
    """The findings for a text beside `env`, under a driver that answers as a spec says."""

    def run(text, what="580-h200", **variables):
        (gpuenv.work / "a.log").write_text(text)
        alone = gpuenv("diagnose", "a.log", "--no-machine", "--json").json["findings"]
        assert alone and "certain" not in {f["confidence"] for f in alone}
        driver = variables.pop("driver", "580.159.04")
        answers = dict(scenario(build(tmp_path / "driver", driver), what))
        gpuenv.env |= {**answers, **variables}
        done = gpuenv("diagnose", "a.log", "--env", str(env), "--json")
        assert done.code == 0, done.err
        return done.json["findings"]

    return run


def leading(findings):
    return findings[0]["cause"], findings[0]["confidence"]


def miss_a_part(cudnn, tmp_path):
    (cudnn / "libcudnn_ops.so.9").unlink()
    return {}


def miss_the_package(cudnn, tmp_path):
    shutil.rmtree(cudnn.parent)
    shutil.rmtree(next(cudnn.parents[2].glob("nvidia_cudnn*")))
    return {}


def miss_all(cudnn, tmp_path):
    for path in cudnn.parents[2].glob("nvidia*"):
        shutil.rmtree(path)
    return {}


def be_cut_short(cudnn, tmp_path):
    file = cudnn / "libcudnn_graph.so.9"
    file.write_bytes(file.read_bytes()[:5000])
    return {}


def preload_another_copy(cudnn, tmp_path):
    return {"LD_PRELOAD": str(build_runtime(tmp_path / "other", "libcudnn.so.9"))}


def install_two_packages(cudnn, tmp_path):
    files = sorted(cudnn.iterdir())
    for file in files:
        file.write_bytes(file.read_bytes() + b"of another release")
    site = cudnn.parents[2]
    record(site, "nvidia_cudnn_cu13", "9.15.0.57", files)
    torch = {"torch/__init__.py": "", "torch/version.py": "cuda = '12.8'\n"}
    package(site, "torch", "2.9.0", [], modules=torch, requires=["nvidia-cudnn-cu12==9.14.0.64"])
    return {}


def be_for_the_cpu(cudnn, tmp_path):
    miss_all(cudnn, tmp_path)
    torch = "import types\n__version__ = '2.9.0+cpu'\nversion = types.SimpleNamespace(cuda=None, hip=None)\n"
    package(cudnn.parents[2], "torch", "2.9.0+cpu", [], modules={
        "torch/__init__.py": torch, "torch/version.py": "cuda = None\n"})  # fmt: skip
    return {}


def have_a_full_gpu(cudnn, tmp_path):
    gpu = f"{H200}|free_mib=200|holder={os.getpid()}"
    return {"what": spec(driver="580.159.04", cuda=13000, gpus=[gpu], cudnn_create=1001)}


@pytest.mark.parametrize(
    ("made", "cause"),
    [
        (miss_a_part, "cudnn_not_found"),
        (miss_the_package, "cudnn_not_found"),
        (miss_all, "nvidia_libs_not_installed"),
        (be_cut_short, "package_files_damaged"),
        (preload_another_copy, "cudnn_shadowed_by_other_copy"),
        (install_two_packages, "cudnn_shadowed_by_other_copy"),
        (be_for_the_cpu, "cpu_only_build"),
        (have_a_full_gpu, "gpu_memory_exhausted"),
    ],
)
def test_the_environment_decides_why_cudnn_does_not_start(diagnosed, whole, tmp_path, made, cause):
    findings = diagnosed(CUDNN, **made(whole, tmp_path))
    assert leading(findings) == (cause, "certain"), findings


@pytest.mark.parametrize(
    ("what", "cause"),
    [
        ("470-k80", "driver_too_old_for_runtime"),
        (healthy(cuda_error=46), "gpu_busy_exclusive"),
        (healthy(cuda_error=214), "gpu_hardware_fault"),
        (healthy(cudnn_create=1008), "cudnn_not_found"),
    ],
)
def test_the_code_of_the_environment_s_own_runtime_decides(diagnosed, what, cause):
    """One code can have another reason besides, so that these answers are likely."""
    driver = "470.256.02" if what == "470-k80" else "580.159.04"
    assert leading(diagnosed(CUDNN, what, driver=driver)) == (cause, "likely")


def test_a_whole_environment_proves_none_of_them(diagnosed):
    assert "certain" not in {f["confidence"] for f in diagnosed(CUDNN)}


DLOPEN = "W gpu_device.cc:2365] Cannot dlopen some GPU libraries. Skipping registering GPU devices..."


def leave_a_folder_out(site, tmp_path):
    """Its RUNPATH names no folder of cuSOLVER's."""


def miss_a_library(site, tmp_path):
    shutil.rmtree(site / "nvidia" / "cusparse")
    shutil.rmtree(next(site.glob("nvidia_cusparse*")))


def have_a_damaged_library(site, tmp_path):
    file = site / "nvidia" / "cublas" / "lib" / "libcublas.so.12"
    file.write_bytes(file.read_bytes()[:5000])


def have_no_nvidia_libraries(site, tmp_path):
    for path in site.glob("nvidia*"):
        shutil.rmtree(path)


@pytest.mark.parametrize(
    ("made", "cause"),
    [
        (leave_a_folder_out, "nvidia_libs_not_on_loader_path"),
        (miss_a_library, "nvidia_libs_not_installed"),
        (have_a_damaged_library, "package_files_damaged"),
        (have_no_nvidia_libraries, "nvidia_libs_not_installed"),
    ],
)
def test_the_environment_decides_why_tensorflow_opens_no_library(diagnosed, site, tmp_path, made, cause):
    made(site, tmp_path)
    findings = diagnosed(DLOPEN)
    assert leading(findings) == (cause, "certain"), findings


EXTENSION = "ImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory"


def be_of_another_cuda(site, tmp_path):
    other = library(tmp_path / "build" / "libcudart.so.11.0")
    mine = module(site / "xf" / f"core.{TAG}.so", needs=[other])
    package(site, "xf", "1.0", [mine], modules={"xf/__init__.py": "from . import core\n"})
    other.unlink()


@pytest.mark.parametrize("extension", [True, False])
def test_the_environment_decides_whose_library_is_missing(diagnosed, site, tmp_path, extension):
    """Nothing is imported where a framework fails, so that the package's files say it, and not the loader."""
    (site / "nvidia/cublas/lib/libcusolver.so.11").symlink_to("../../cusolver/lib/libcusolver.so.11")
    if extension:
        be_of_another_cuda(site, tmp_path)
    findings = diagnosed(EXTENSION)
    decided = [f for f in findings if f["confidence"] != "possible"]
    assert [f["cause"] for f in decided[:1]] == (
        ["extension_built_for_other_torch_or_cuda"] if extension else []
    )
    assert not extension or "xf" in findings[0]["title"]
