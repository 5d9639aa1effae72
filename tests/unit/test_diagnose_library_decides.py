"""The files of an environment decide why a library or a symbol is missing: one text, different certain answers.

docs/reference/causes.md lists what an environment decides. The environments are real; the driver is the stub.
"""
# ruff: noqa: F811  # fixtures are imported by their names

import shutil
import sys

import pytest
from diagnosed_env import diagnosed, leading, whole  # noqa: F401
from elf_files import library, module, package
from tensorflow_stub import shared, site  # noqa: F401
from verify_stub import cudnn, env, pristine, record  # noqa: F401

TAG = f"cpython-{sys.version_info[0]}{sys.version_info[1]}-x86_64-linux-gnu"
NAME = "libcusolver.so.11"
MISSING = f"ImportError: {NAME}: cannot open shared object file: No such file or directory"
SOLVER = f"nvidia/cusolver/lib/{NAME}"


def leave_its_folder_out(site, tmp_path):
    """The RUNPATH of TensorFlow's library names no folder of cuSOLVER's."""


def miss_it(site, tmp_path):
    shutil.rmtree(site / "nvidia" / "cusolver")
    shutil.rmtree(next(site.glob("nvidia_cusolver*")))


def have_another_major(site, tmp_path):
    miss_it(site, tmp_path)
    other = site / "nvidia" / "cusolver" / "lib" / "libcusolver.so.12"
    shared(other, "", f"-Wl,-soname,{other.name}")
    record(site, "nvidia_cusolver", "12.0.4", [other])


def have_it_cut_short(site, tmp_path):
    (site / "nvidia" / "cublas" / "lib" / NAME).symlink_to(f"../../cusolver/lib/{NAME}")
    (site / SOLVER).write_bytes((site / SOLVER).read_bytes()[:5000])


def miss_the_framework(site):
    shutil.rmtree(site / "tensorflow")
    shutil.rmtree(next(site.glob("tensorflow-*")))


def have_an_extension(site, tmp_path):
    """A package whose module needs cuSOLVER and names no folder of it."""
    miss_the_framework(site)
    gone = library(tmp_path / "build" / NAME)
    mine = module(site / "xf" / f"core.{TAG}.so", needs=[gone])
    gone.unlink()
    package(site, "xf", "1.0", [mine], modules={"xf/__init__.py": "from . import core\n"})


def have_an_extension_of_another_cuda(site, tmp_path):
    have_an_extension(site, tmp_path)
    have_another_major(site, tmp_path)


@pytest.mark.parametrize(
    ("made", "cause", "says"),
    [
        (leave_its_folder_out, "nvidia_libs_not_on_loader_path", "TensorFlow does not find"),
        (have_an_extension, "nvidia_libs_not_on_loader_path", "xf 1.0 does not find"),
        (miss_it, "nvidia_libs_not_installed", "not installed"),
        (have_another_major, "cuda_major_mismatch", "libcusolver.so.12"),
        (have_it_cut_short, "package_files_damaged", NAME),
        (have_an_extension_of_another_cuda, "extension_built_for_other_torch_or_cuda", "xf 1.0"),
    ],
)
def test_the_environment_decides_why_a_library_is_missing(diagnosed, site, tmp_path, made, cause, says):
    made(site, tmp_path)
    findings = diagnosed(MISSING)
    assert leading(findings) == (cause, "certain"), findings
    assert says in findings[0]["title"] and findings[0]["fix"]


def test_an_environment_whose_libraries_are_found_proves_nothing_even_where_its_lock_is_damaged(
    diagnosed, site, env, gpuenv
):
    (site / "nvidia" / "cublas" / "lib" / NAME).symlink_to(f"../../cusolver/lib/{NAME}")
    (env / ".gpuenv").mkdir()
    for name in ("plan.json", "lock.json"):
        (env / ".gpuenv" / name).write_text("{")
    assert "certain" not in {f["confidence"] for f in diagnosed(MISSING)}
    assert f"{env}/.gpuenv/lock.json cannot be read" in diagnosed.err


NMS = "RuntimeError: operator torchvision::nms does not exist"
SYMBOLS = ("_ZN2at4_ops5eventE", "_ZNK3c105Error4whatEv")


def install_torchvision(site, tmp_path, exported=()):
    """Torch with a library that exports some symbols, and torchvision whose library requires two of them."""
    source = "".join(f"void {name}(void) {{}}\n" for name in (*exported, "_ZN3c104initEv"))
    lib = library(site / "torch" / "lib" / "libc10.so", source=source)
    torch = {
        "torch/__init__.py": "raise ImportError('not this one')\n",
        "torch/version.py": "cuda = '12.8'\n",
    }
    package(site, "torch", "2.9.0", [lib], modules=torch)
    source = "".join(f"extern void {name}(void);\nvoid *p{i} = {name};\n" for i, name in enumerate(SYMBOLS))
    mine = library(site / "torchvision" / "_C.so", source=source, needs=[lib], runpath="$ORIGIN/../torch/lib")
    package(
        site, "torchvision", "0.24.0", [mine], requires=["torch"], modules={"torchvision/__init__.py": ""}
    )
    miss_the_framework(site)
    return mine


def have_another_torch(site, tmp_path):
    install_torchvision(site, tmp_path)


def have_a_torch_without_one_symbol(site, tmp_path):
    install_torchvision(site, tmp_path, exported=SYMBOLS[:1])


def have_its_library_cut_short(site, tmp_path):
    mine = install_torchvision(site, tmp_path, exported=SYMBOLS)
    mine.write_bytes(mine.read_bytes()[:5000])


@pytest.mark.parametrize(
    ("made", "cause", "says"),
    [
        (have_another_torch, "extension_built_for_other_torch_or_cuda", SYMBOLS[0]),
        (have_a_torch_without_one_symbol, "extension_built_for_other_torch_or_cuda", SYMBOLS[1]),
        (have_its_library_cut_short, "package_files_damaged", "_C.so"),
    ],
)
def test_the_environment_decides_why_a_package_s_code_does_not_load(
    diagnosed, site, tmp_path, made, cause, says
):
    made(site, tmp_path)
    findings = diagnosed(NMS)
    assert leading(findings) == (cause, "certain"), findings
    assert "torchvision 0.24.0" in findings[0]["title"] and says in str(findings[0]["evidence"])
    assert NMS in [e["text"] for e in findings[0]["evidence"]]


def test_a_torch_that_exports_the_symbols_proves_nothing(diagnosed, site, tmp_path):
    install_torchvision(site, tmp_path, exported=SYMBOLS)
    assert "certain" not in {f["confidence"] for f in diagnosed(NMS)}


def test_a_text_about_another_package_proves_nothing(diagnosed, site, tmp_path):
    install_torchvision(site, tmp_path)
    first = diagnosed("ImportError: cannot import name '_C' from 'xformers'")[0]
    assert (first["cause"], first["confidence"]) == ("extension_built_for_other_torch_or_cuda", "likely")


CUDA_SYMBOL = "ImportError: libx.so: undefined symbol: cudaGetDriverEntryPointByVersion"
SPARSE = "nvidia/cusparse/lib/libcusparse.so.12"


def have_a_library_of_another_release(site, tmp_path):
    (site / SPARSE).write_bytes((site / SPARSE).read_bytes() + b"of another release")


def have_a_library_cut_short(site, tmp_path):
    (site / SPARSE).write_bytes((site / SPARSE).read_bytes()[:5000])


@pytest.mark.parametrize(
    ("made", "cause"),
    [
        (have_a_library_of_another_release, "nvidia_lib_symbol_mismatch"),
        (have_a_library_cut_short, "package_files_damaged"),
    ],
)
def test_the_environment_decides_why_a_symbol_of_cuda_is_undefined(diagnosed, site, tmp_path, made, cause):
    made(site, tmp_path)
    findings = diagnosed(CUDA_SYMBOL)
    assert leading(findings) == (cause, "certain"), findings
