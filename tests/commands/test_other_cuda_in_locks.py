"""Packages that come along unnamed and are of another CUDA major: the set is refused, else a warning names them."""

import re

import pytest
from environment_facts import ok

GPU = ("--driver", "580.95.05", "--gpu", "H100", "--glibc", "2.35", "--platform", "linux-x86_64")
ASK = ("--framework", "torch", "--index", "pypi", "--python", "3.11", *GPU)
BRINGS = r"brings nvidia-cublas-cu11 11\.11\.3\.6, [^,]*CUDA 11, [^,]*CUDA 13"


@pytest.fixture
def torches(gpuenv, index):
    """`gpuenv` with an index that has torch 2.15.0 and 2.14.0 and all that they require."""
    for version in ("2.15.0", "2.14.0"):
        index.add_plan(gpuenv("resolve", "--json", "--framework", f"torch=={version}", *ASK[2:]).json)
    gpuenv.env |= {"PIP_INDEX_URL": index.url}
    index.uploaded = "2026-10-01T00:00:00Z"
    index.add("nvidia-cublas-cu11", "11.11.3.6")
    return gpuenv


def locked(torches, *more):
    ran = ok(torches("lock", "--json", *more, *ASK))
    return {p["name"]: p["version"] for p in ran.json["packages"]}, ran


def test_a_release_that_brings_another_cuda_is_passed_over(torches, index):
    index.add("serving", "2.0", requires=("torch", "kernels-core"))
    index.add("kernels-core", "1.0", requires=("nvidia-cublas-cu11",))
    index.add("serving", "1.0", requires=("torch",))
    versions, ran = locked(torches, "--with", "serving")
    assert (versions["torch"], versions["serving"]) == ("2.15.0", "1.0")
    assert "nvidia-cublas-cu11" not in versions
    (held,) = ran.json["held_back"]
    assert (held["package"], held["newest"]) == ("serving", "2.0")
    assert re.fullmatch(rf"serving 2\.0 {BRINGS}", held["because"])


def test_the_newest_set_is_taken_with_a_warning_where_all_bring_another_cuda(torches, index):
    for version in ("2.0", "1.0"):
        index.add("serving", version, requires=("torch", "nvidia-cublas-cu11"))
    versions, ran = locked(torches, "--with", "serving")
    assert (versions["torch"], versions["serving"]) == ("2.15.0", "2.0")
    assert re.search(f"warning: serving {BRINGS}", " ".join(ran.err.split()))
    assert "required_by" not in ran.json, "an internal field stays out of the document"


@pytest.mark.parametrize("with_", ["dsl", "dali-cuda120"])
def test_wheels_for_several_cudas_and_what_was_named_are_taken(torches, index, with_):
    index.add("nvidia-dsl-libs-cu12", "1.0")
    index.add("nvidia-dsl-libs-cu13", "1.0")
    index.add("nvidia-nvjpeg2k-cu12", "0.9")
    index.add("dsl", "1.0", requires=("nvidia-dsl-libs-cu12", "nvidia-dsl-libs-cu13"))
    index.add("dali-cuda120", "1.0", requires=("nvidia-nvjpeg2k-cu12",))
    versions, ran = locked(torches, "--with", with_)
    assert with_ in versions and "which is from CUDA" not in ran.err
