"""`--with nvcc`: the machine's gcc is compared with what nvcc of the plan's CUDA takes."""

import re

import pytest
from environment_facts import ok

GPU = ("--driver", "580.65.06", "--gpu", "9.0", "--python", "3.12")
TORCH = ("--framework", "torch==2.15.0", *GPU)


@pytest.fixture
def go(gpuenv):
    """`gpuenv resolve` on a machine whose only compilers are these, by name and version; its notes on them."""
    bin_ = gpuenv.folder / "compilers"

    def run(compilers, *more, **variables):
        bin_.mkdir(exist_ok=True)
        for old in bin_.iterdir():
            old.unlink()
        for name, version in compilers.items():
            real = bin_ / f"x86_64-linux-gnu-{name.partition('-')[0]}-{version}"
            real.touch(0o755)
            (bin_ / name).symlink_to(real)
        gpuenv.env |= {"PATH": str(bin_), **variables}
        ran = ok(gpuenv("resolve", *(more or (*TORCH, "--with", "nvcc")), "--json"))
        return [n for n in ran.json["notes"] if "nvcc of CUDA" in n]

    return run


def test_a_gcc_that_nvcc_accepts_gives_no_warning(go):
    assert go({"gcc": "12", "g++": "12"}) == []
    assert go({"gcc": "15", "g++": "15"}) == []


def test_a_missing_compiler_is_named_with_what_installs_it(go):
    (said,) = go({})
    assert said.startswith("gcc is missing ") and "CUDA 13.2" in said and "apt install g++" in said
    (said,) = go({"gcc": "12"})
    assert said.startswith("g++ is missing on this machine"), "nvcc compiles C++"


def test_a_newer_gcc_is_named_with_the_one_to_use(go):
    (said,) = go({"gcc": "16", "g++": "16"})
    assert re.match(r"gcc 16 .*newer .*CUDA 13\.2 .*\(gcc 15\)", said)
    assert "install g++-15, then NVCC_CCBIN=g++-15" in said
    (said,) = go({"gcc": "16", "g++": "16", "gcc-14": "14", "g++-14": "14"})
    assert "supports (gcc 15): NVCC_CCBIN=g++-14 CC=gcc-14 CXX=g++-14" in said


def test_the_compiler_that_the_user_chose_is_the_one_compared(go):
    both = {"gcc": "16", "g++": "16", "g++-15": "15", "clang-21": "21"}
    assert go(both, NVCC_CCBIN="g++-15") == []
    assert go(both, NVCC_CCBIN="clang-21") == [], "nvcc itself judges other compilers"


def test_an_environment_without_nvcc_and_another_machine_are_not_compared(go):
    assert go({}, *TORCH) == []
    assert len(go({}, *TORCH, "--with", "nvidia-cuda-nvcc-cu12")) == 1, "the package's own name means it too"
    assert go({}, *TORCH, "--platform", "linux-aarch64", "--with", "nvcc") == []


def test_lock_and_create_warn_of_a_missing_gcc(gpuenv, index, tmp_path):
    plan = gpuenv("resolve", *TORCH, "--with", "nvcc", "--json").json
    index.add_plan(plan)
    for text in plan["packages"]:
        name, _, version = text.partition("==")
        index.add(name, version.removesuffix(".*"))
    gpuenv.env |= {"PIP_INDEX_URL": index.url, "PATH": str(tmp_path)}
    here = [o for o in TORCH if o not in ("--python", "3.12")]
    ran = ok(gpuenv("lock", *here, "--with", "nvcc"))
    assert "warning: gcc is missing on this machine" in ran.err
    ran = gpuenv("create", *here, "--with", "nvcc", "--no-verify")
    assert ran.code == 0 and "warning: gcc is missing on this machine" in ran.err, ran.err


def test_a_version_of_nvcc_is_refused_in_favour_of_cuda(gpuenv):
    ran = gpuenv("resolve", *TORCH, "--with", "nvcc==12.4", "--json")
    assert ran.code == 2 and "--cuda" in ran.json["error"]["hint"]
