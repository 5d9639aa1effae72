"""An environment decides what a text leaves open: one and the same text, different answers in different environments.

docs/reference/causes.md lists what an environment decides. The environments are real; the driver is the stub.
"""
# ruff: noqa: F811  # fixtures are imported by their names

import os
import shutil
import sys

import pytest
from diagnosed_env import RELEASE, diagnosed, leading, whole  # noqa: F401
from elf_files import library, module, package
from known import KNOWN
from rows import sampled
from tensorflow_stub import site  # noqa: F401
from verify_stub import cudnn, env, pristine, record  # noqa: F401

from driver_stub import H200, build_runtime, spec

CUDNN = "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"
TAG = f"cpython-{sys.version_info[0]}{sys.version_info[1]}-x86_64-linux-gnu"


def miss_a_part(cudnn, tmp_path):
    (cudnn / "libcudnn_ops.so.9").unlink()
    return {}


def miss_the_package(cudnn, tmp_path):
    shutil.rmtree(cudnn.parent)
    shutil.rmtree(next(cudnn.parents[2].glob("nvidia_cudnn*")))
    return {}


def miss_all(cudnn, tmp_path):
    remove_all(cudnn)
    version = {"torch/__init__.py": "__version__ = '2.9.0'\n", "torch/version.py": "cuda = '12.8'\n"}
    package(cudnn.parents[2], "torch", "2.9.0", [], modules=version)
    return {}


def remove_all(cudnn):
    for path in cudnn.parents[2].glob("nvidia*"):
        shutil.rmtree(path)


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
    install_torch(site, RELEASE[1])
    return {}


def install_torch(site, cudnn):
    torch = {"torch/__init__.py": "", "torch/version.py": "cuda = '12.8'\n"}
    package(site, "torch", "2.9.0", [], modules=torch, requires=[f"nvidia-cudnn-cu12=={cudnn}"])


def have_a_release(cudnn, version):
    """Replace cuDNN by a whole one of another release, beside a torch that requires the first."""
    (row,) = (
        r for r in KNOWN.cudnn if (r.package, r.version, r.platform) == (RELEASE[0], version, RELEASE[2])
    )
    data = (cudnn / "libcudnn.so.9").read_bytes()
    for path in cudnn.iterdir():
        path.unlink()
    for name in row.libraries:
        (cudnn / name).write_bytes(data)
    site = cudnn.parents[2]
    shutil.rmtree(next(site.glob("nvidia_cudnn*")))
    record(site, "nvidia_cudnn_cu12", version, sorted(cudnn.iterdir()))
    install_torch(site, RELEASE[1])
    return {}


def have_an_older_minor(cudnn, tmp_path):
    return have_a_release(cudnn, "9.1.0.70")


def have_another_major(cudnn, tmp_path):
    return have_a_release(cudnn, "8.9.7.29")


def be_for_the_cpu(cudnn, tmp_path):
    remove_all(cudnn)
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
        (have_an_older_minor, "cudnn_older_than_compiled"),
        (have_another_major, "cudnn_major_mismatch"),
        (be_for_the_cpu, "cpu_only_build"),
        (have_a_full_gpu, "gpu_memory_exhausted"),
    ],
)
def test_the_environment_decides_why_cudnn_does_not_start(diagnosed, whole, tmp_path, made, cause):
    findings = diagnosed(CUDNN, **made(whole, tmp_path))
    assert leading(findings) == (cause, "certain"), findings


EXCLUSIVE, PROHIBITED = f"{H200}|mode=3", f"{H200}|mode=2"
HELD = f"free_mib=200|holder={os.getpid()}"


def on(gpu=H200, *, cuda=13000, **codes):
    """A driver 580 with one GPU."""
    return spec(driver="580.159.04", cuda=cuda, gpus=[gpu], **codes)


@pytest.mark.parametrize(
    ("what", "cause"),
    sampled(
        [
            (on(cu_init=34), "cuda_stub_library_loaded"),
            (on(cu_init=803), "driver_library_mismatch"),
            (on(cuda_error=802), "fabricmanager_not_running"),
            (on(cuda_error=804), "forward_compat_unsupported_hw"),
            (on(cuda_error=214), "gpu_hardware_fault"),
            # the CUDA of the runtime, beside the one that the driver speaks
            ("470-k80", "driver_too_old_for_runtime"),
            (on(cuda_error=222, cudart=13010), "driver_too_old_for_runtime"),
            # the compute mode, and who holds the GPU
            (on(f"{EXCLUSIVE}|{HELD}", cuda_error=46), "gpu_busy_exclusive"),
            (on(PROHIBITED, cuda_error=46), "gpu_busy_exclusive"),
            (on(f"{H200}|{HELD}", cuda_error=2), "gpu_memory_exhausted"),
        ],
        3,
        wide=True,
    ),
)
def test_the_code_of_the_environment_s_own_runtime_decides(diagnosed, what, cause):
    driver = "470.256.02" if what == "470-k80" else "580.159.04"
    assert leading(diagnosed(CUDNN, what, driver=driver)) == (cause, "certain")


NO_GPUS = "RuntimeError: No CUDA GPUs are available"


@pytest.mark.parametrize(
    ("what", "variables", "cause"),
    [
        (on(), {"CUDA_VISIBLE_DEVICES": ""}, "visible_devices_invalid"),
        (on(), {"CUDA_VISIBLE_DEVICES": "-1"}, "visible_devices_invalid"),
        (on(), {"CUDA_VISIBLE_DEVICES": "7"}, "visible_devices_invalid"),
        (on(cu_init=803), {}, "driver_library_mismatch"),
        (on(cu_init=304, nvml_init=4), {}, "gpu_device_access_denied"),
        (on(cuda_error=35, cudart=14000), {}, "driver_too_old_for_runtime"),
        (on(cuda_error=802), {}, "fabricmanager_not_running"),
    ],
)
def test_the_environment_decides_why_no_gpu_is_seen(diagnosed, what, variables, cause):
    assert leading(diagnosed(NO_GPUS, what, **variables)) == (cause, "certain")


def test_a_variable_that_names_a_gpu_proves_nothing(diagnosed):
    findings = diagnosed(NO_GPUS, on(), CUDA_VISIBLE_DEVICES="0")
    assert "certain" not in {f["confidence"] for f in findings}


@pytest.mark.parametrize(
    ("what", "cause"),
    [
        (on(EXCLUSIVE, cuda_error=46), "gpu_busy_exclusive"),
        (on(cuda_error=2), "gpu_memory_exhausted"),
        (on(cuda_error=209), "arch_not_in_wheel_too_new"),
        (on(cudnn_create=1008), "cudnn_not_found"),
    ],
)
def test_a_code_without_a_fact_beside_it_stays_likely(diagnosed, what, cause):
    """One code can have another reason besides."""
    assert leading(diagnosed(CUDNN, what)) == (cause, "likely")


@pytest.mark.parametrize(
    ("what", "excluded"),
    [
        (on(cuda_error=46), "gpu_busy_exclusive"),
        (on(cuda_error=35), "driver_too_old_for_runtime"),
        (on(cuda_error=222), "driver_too_old_for_runtime"),
    ],
)
def test_a_fact_against_the_code_leaves_it_open(diagnosed, what, excluded):
    """The GPU is in default mode; the driver speaks a newer CUDA than the runtime's."""
    findings = diagnosed(CUDNN, what)
    assert excluded not in {f["cause"] for f in findings if f["confidence"] != "possible"}
    assert "certain" not in {f["confidence"] for f in findings}


@pytest.mark.parametrize("version", ["9.14.0.64", "9.10.2.21"])
def test_a_cudnn_that_serves_the_framework_proves_nothing(diagnosed, whole, version):
    """The one that it was compiled with, and one with a newer minor."""
    install_torch(whole.parents[2], version)
    assert not {"cudnn_major_mismatch", "cudnn_older_than_compiled"} & {
        f["cause"] for f in diagnosed(CUDNN) if f["confidence"] == "certain"
    }


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


OTHER = "ImportError: libcublas.so.11: cannot open shared object file: No such file or directory"


@pytest.mark.parametrize(
    ("text", "extension", "confidence"),
    [(EXTENSION, True, "certain"), (OTHER, True, "likely"), (EXTENSION, False, None)],
)
def test_the_environment_decides_whose_library_is_missing(
    diagnosed, site, tmp_path, text, extension, confidence
):
    """Nothing is imported where a framework fails: the package's files say what it needs, the text what was loaded.
    A text that misses another library proves nothing of this package."""
    (site / "nvidia/cublas/lib/libcusolver.so.11").symlink_to("../../cusolver/lib/libcusolver.so.11")
    if extension:
        be_of_another_cuda(site, tmp_path)
    findings = diagnosed(text)
    decided = [(f["cause"], f["confidence"]) for f in findings if f["confidence"] != "possible"]
    expected = ("extension_built_for_other_torch_or_cuda", confidence)
    assert decided[:1] == ([expected] if extension else [])
    assert not extension or "xf" in findings[0]["title"]
    assert (confidence == "certain") == any(e["text"] == text for e in findings[0]["evidence"] if extension)
