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


def test_an_environment_whose_libraries_are_found_proves_nothing(diagnosed, site):
    (site / "nvidia" / "cublas" / "lib" / NAME).symlink_to(f"../../cusolver/lib/{NAME}")
    assert "certain" not in {f["confidence"] for f in diagnosed(MISSING)}
