"""Stage `packages`: the extra, release or wheel that brings what a package was built for, by the measured rows."""

import os
import re
import sys

import pytest
from elf_files import library, module, package
from framework_envs import venv
from rows import rows

from provision.environment.loader import Package
from provision.model import Environment, Profiles, Satellite, ToolkitRelease
from provision.profiles import load
from provision.verify.fixes import (
    Surroundings,
    find_cuda_major,
    find_fitting_release,
    find_wheel,
    read_surroundings,
)
from provision.verify.libraries import PythonPaths
from provision.verify.packages import judge, read_packages

VERSION = "{}.{}.{}".format(*sys.version_info)
PYTHON = "{}.{}".format(*sys.version_info)
TAG = f"cpython-{sys.version_info[0]}{sys.version_info[1]}-x86_64-linux-gnu"
# Majors of CUDA that no machine has
TOOLKITS = (
    ToolkitRelease(version="23.0.0", parts=("cudart nvidia-cuda-runtime==23.0.48.*",)),
    ToolkitRelease(version="22.9.1", parts=("cudart nvidia-cuda-runtime-cu22==22.9.79.*",)),
)


def row(version, cuda, built_for, **parts):
    columns = {
        "pythons": (PYTHON,),
        "glibc": "2.17",
        "form": "wheel",
        "needs": (f"libcudart.so.{cuda}",),
        **parts,
    }
    return Satellite(
        package="ao", version=version, platform="linux-x86_64", cuda=cuda, built_for=built_for, **columns
    )  # fmt: skip


@pytest.fixture
def fixed(tmp_path):
    """The fix for a package `ao` 0.18.0 that needs a library, beside what is installed."""
    env, site = venv(tmp_path / "env")

    def fix(needs, *rows, has=(), torch=None, requires=("torch",)):
        gone = library(tmp_path / "build" / needs)
        mine = module(site / "ao" / f"core.{TAG}.so", needs=[gone])
        gone.unlink()
        package(
            site,
            "ao",
            "0.18.0",
            [mine],
            modules={"ao/__init__.py": "from . import core\n"},
            requires=requires,
        )
        libraries = [library(site / "nvidia" / "lib" / name) for name in has]
        package(site, "nvidia-all", "1", libraries)
        if torch:
            package(site, "torch", torch, [], modules={"torch/__init__.py": ""})
        value = Environment(path=str(env), manager="venv", python=str(env / "bin/python"))
        found = PythonPaths(prefix=str(env), version=VERSION, sites=(str(site),), roots=(str(site),))
        known = Profiles(satellites=rows, toolkits=TOOLKITS)
        reading = read_packages(value, found, dict(os.environ), Profiles())
        _, (finding,) = judge(reading, seconds=None, load_profiles=lambda: known)
        assert finding.cause == "extension_built_for_other_torch_or_cuda"
        return finding.fix

    return fix


CUDA_23 = row("0.18.0", "23", "torch>=2.11")


def test_the_newest_release_that_fits_what_is_installed_is_named(fixed):
    fits = row("0.16.0", "22", "torch==2.10.*")
    others = [
        row("0.17.0", "22", "torch==2.9.1"), row("0.17.1", "23", "torch==2.10.*"),
        row("0.17.2", "22", "torch==2.10.*", form="source"), row("0.17.3", "22", "torch==2.10.*", pythons=("3.5",)),
        row("0.17.4", "22", "torch==2.10.*", glibc="2.99"), row("0.15.0", "22", "torch==2.10.*"),
    ]  # fmt: skip
    fix = fixed("libcudart.so.23", CUDA_23, *others, fits, has=["libcudart.so.22"], torch="2.10.0+cu128")
    built = r" ao==0\.16\.0 \(ao 0\.18\.0 .*torch>=2\.11 and CUDA 23, ao 0\.16\.0 .*torch==2\.10\.\* and CUDA 22\)"
    assert re.search(built, fix)
    assert "install" in fix


def test_an_extra_that_the_release_lacks_is_named(fixed):
    mine = row("0.18.0", "23", None, extras=("cuda", "cudnn"))
    fix = fixed("libcudart.so.23", mine, row("0.17.0", "22", None), has=["libcudart.so.22"])
    assert "'ao[cuda,cudnn]==0.18.0' (" in fix and "libcudart.so.23)" in fix


@pytest.mark.parametrize(
    ("soname", "wheel"), [("23", "nvidia-cuda-runtime"), ("22", "nvidia-cuda-runtime-cu22")]
)
def test_the_wheel_of_nvidias_is_named_where_no_other_cuda_is_there(fixed, soname, wheel):
    fix = fixed(f"libcudart.so.{soname}", torch="2.11.0")
    assert f"'{wheel}=={soname}.*' (it includes libcudart.so.{soname} for ao 0.18.0)." in fix


def test_a_wheel_of_another_cuda_is_no_command(fixed):
    fix = fixed("libcudart.so.23", CUDA_23, has=["libcudart.so.22"], torch="2.10.0")
    assert "`" not in fix and "nvidia-cuda-runtime==23.*" in fix and "torch>=2.11 and CUDA 23." in fix


def test_a_framework_that_is_not_installed_is_named(fixed):
    fix = fixed("libtorch_cuda.so", row("0.18.0", "23", "torch==2.15.0"), has=["libcudart.so.23"])
    assert " torch==2.15.0 (ao 0.18.0 was built for torch==2.15.0)." in fix


# --- built for another release of a framework ------------------------------------------------------


@pytest.fixture
def scattered(tmp_path):
    """What the stage says of `ao` 0.18.0, which finds all its libraries, beside a release of torch."""
    env, site = venv(tmp_path / "env")

    def judged(row_, torch, *, init="", more=(), quick=False):
        # A library that the package loads itself, as torch-scatter does
        mine = library(site / "ao" / "_scatter.so")
        package(site, "ao", "0.18.0", [mine], modules={"ao/__init__.py": init})
        if torch:
            package(site, "torch", torch, [], modules={"torch/__init__.py": "here = True\n"})
        value = Environment(path=str(env), manager="venv", python=str(env / "bin/python"))
        found = PythonPaths(prefix=str(env), version=VERSION, sites=(str(site),), roots=(str(site),))
        known = Profiles(satellites=(row_, *more), toolkits=TOOLKITS)
        reading, seconds = read_packages(value, found, dict(os.environ), known), None if quick else 300.0
        return judge(reading, seconds=seconds, load_profiles=lambda: known, list_wanted=lambda _: {"ao"})

    return judged


SYMBOL = "raise OSError('ao/_scatter.so: undefined symbol: _ZN3c10')\n"


def test_a_package_for_another_torch_is_imported_and_named(scattered):
    mine, other = (
        row("0.18.0", None, "torch==2.9.*", needs=(), abi="exact"),
        row("0.16.0", None, "torch==2.15.*", needs=()),
    )
    after = f"import sys\nassert 'torch' in sys.modules, 'torch comes first'\n{SYMBOL}"
    stage, (finding,) = scattered(mine, "2.15.0+cu130", init=after, more=[other])
    assert (stage.status, finding.cause) == ("fail", "extension_built_for_other_torch_or_cuda")
    assert "torch==2.9.*" in stage.detail and "torch 2.15.0+cu130" in stage.detail
    built = r"ao==0\.16\.0 \(ao 0\.18\.0 .*torch==2\.9\.\*, ao 0\.16\.0 .*torch==2\.15\.\*\)"
    assert re.search(built, finding.fix)
    assert any("undefined symbol" in e.text for e in finding.evidence)


def test_quick_warns_of_another_build_without_importing_it(scattered):
    mine = row("0.18.0", None, "torch==2.9.*", needs=(), abi="exact", extras=("more",))
    stage, (finding,) = scattered(mine, "2.15.0", quick=True)
    assert stage.status == "warn" and finding.confidence == "likely"
    assert "`" not in finding.fix and "ao 0.18.0 was built for torch==2.9.*" in finding.fix


def test_what_imports_beside_another_torch_passes(scattered):
    stage, findings = scattered(row("0.18.0", None, "torch==2.9.*", needs=(), abi="exact"), "2.15.0")
    assert (stage.status, findings) == ("pass", ())


@pytest.mark.parametrize(
    ("mine", "torch"),
    [
        (row("0.18.0", None, "torch==2.15.*", needs=(), abi="exact"), "2.15.0+cu130"),
        (row("0.18.0", None, "torch>=2.11", needs=(), abi="stable"), "2.15.0"),
        (row("0.18.0", None, "torch==2.9.*", needs=()), "2.15.0"),  # its code calls no framework
        (row("0.18.0", None, "torch==2.9.*", needs=(), abi="exact", form="source"), "2.15.0"),
        (row("0.17.0", None, "torch==2.9.*", needs=(), abi="exact"), "2.15.0"),
        (row("0.18.0", None, "torch==2.9.*", needs=(), abi="exact"), None),
    ],
)
def test_a_package_that_fits_its_framework_is_not_imported(scattered, mine, torch):
    stage, _ = scattered(mine, torch, init=SYMBOL, quick=True)
    assert stage.status == "pass"


# --- the shipped rows ------------------------------------------------------------------------------


@rows(
    ("library", "cuda", "wheel"),
    [
        ("libcudart.so.13", None, "nvidia-cuda-runtime==13.*"),
        ("libcudart.so.12", "13", "nvidia-cuda-runtime-cu12==12.*"),
        ("libcudart.so.11.0", None, "nvidia-cuda-runtime-cu11==11.*"),
        ("libcublasLt.so.13", None, "nvidia-cublas==13.*"),
        ("libcufft.so.11", None, "nvidia-cufft-cu12==11.*"),
        ("libcufft.so.12", None, "nvidia-cufft==12.*"),
        ("libcusparse.so.12", "12", "nvidia-cusparse-cu12==12.*"),
        ("libcusparse.so.12", None, "nvidia-cusparse==12.*"),
        ("libcusolver.so.11", "12", "nvidia-cusolver-cu12==11.*"),
        ("libcurand.so.10", "12", "nvidia-curand-cu12==10.*"),
        ("libnvJitLink.so.13", None, "nvidia-nvjitlink==13.*"),
        ("libnvrtc.so.12", None, "nvidia-cuda-nvrtc-cu12==12.*"),
        ("libnvjpeg.so.13", None, "nvidia-nvjpeg==13.*"),
        ("libcufile.so.0", "12", "nvidia-cufile-cu12"),
        ("libcufile.so.0", "13", "nvidia-cufile"),
        ("libcudnn.so.9", "12", "nvidia-cudnn-cu12"),
        ("libcusparseLt.so.0", "13", "nvidia-cusparselt-cu13"),
        ("libnccl.so.2", None, "nvidia-nccl-cu13"),
        ("libGL.so.1", "13", None),
        ("cv2.abi3.so", "13", None),
    ],
)
def test_a_library_is_brought_by_its_wheel(library, cuda, wheel):
    assert find_wheel(library, load().toolkits, cuda) == wheel


def test_measured_releases_of_real_packages_fit_their_framework_and_cuda():
    rows = load().satellites
    ao = Package("torchao", "0.18.0", "/site", ())
    here = Surroundings(
        python="3.12", versions={"torch": "2.10.0+cu128"}, libraries=frozenset({"libcudart.so.12"}),
        platform="linux-x86_64", glibc="2.36",
    )  # fmt: skip
    found = find_fitting_release(ao, rows, here)
    assert found and (found.version, found.cuda) == ("0.16.0", "12")
    cu13 = Surroundings(
        python="3.12", versions={"torch": "2.15.0"}, libraries=frozenset({"libcudart.so.13"}),
        platform="linux-x86_64", glibc="2.36",
    )  # fmt: skip
    newest = find_fitting_release(Package("torchao", "0.16.0", "/site", ()), rows, cu13)
    assert newest and newest.cuda == "13"
    assert find_fitting_release(Package("torchao", newest.version, "/site", ()), rows, cu13) is None


def test_packages_and_libraries_of_an_environment_are_read(tmp_path):
    (tmp_path / "env" / "lib").mkdir(parents=True)
    (tmp_path / "env" / "lib" / "libcufft.so.11").touch()
    packages = [Package("nvidia-x", "1.2", "/site", ("/site/nvidia/lib/libcudart.so.12",))]
    found = read_surroundings(packages, "3.12.4", str(tmp_path / "env"), tmp_path)
    assert (found.python, found.versions) == ("3.12", {"nvidia-x": "1.2"})
    assert found.libraries == {"libcufft.so.11", "libcudart.so.12"}
    assert read_surroundings([], "3.12.4", str(tmp_path / "gone"), tmp_path).libraries == frozenset()


def test_the_cuda_version_is_read_from_library_names():
    assert find_cuda_major(["libcudart.so.12", "libcublasLt.so.12", "libcufft.so.11"]) == "12"
    assert find_cuda_major(["libcudart.so.12", "libcudart.so.13"]) is None
    assert find_cuda_major(["libcufft.so.12"]) is None
