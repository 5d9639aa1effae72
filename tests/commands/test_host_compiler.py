"""`--with nvcc`: the machine's gcc is compared with what nvcc of the plan's CUDA takes."""

import re

import pytest
from environment_facts import ok, refused
from resolve_questions import R580, ask

from provision.actions.resolve import find_compiler_problem
from provision.config.options import Choices

TORCH = ("--framework", "torch==2.15.0", "--driver", "580.65.06", "--gpu", "9.0", "--python", "3.12")
H100 = {**R580, "gpus": ["H100"], "index": "pypi"}


@pytest.fixture
def go(tmp_path, monkeypatch):
    """What is said of a plan with nvcc on a machine whose only compilers are these, by name and version."""

    def run(compilers, *packages, platform="linux-x86_64", **variables):
        for old in tmp_path.iterdir():
            old.unlink()
        for name, version in compilers.items():
            real = tmp_path / f"x86_64-linux-gnu-{name.partition('-')[0]}-{version}"
            real.touch(0o755)
            (tmp_path / name).symlink_to(real)
        for name, value in {"PATH": str(tmp_path), **variables}.items():
            monkeypatch.setenv(name, value)
        plan = ask("torch==2.15.0", **H100, platform=platform, packages=packages or ("nvcc",))
        return find_compiler_problem(plan, Choices())

    return run


def test_a_gcc_that_nvcc_accepts_gives_no_warning(go):
    assert go({"gcc": "12", "g++": "12"}) is None
    assert go({"gcc": "15", "g++": "15"}) is None


def test_a_missing_compiler_is_named_with_what_installs_it(go):
    said = go({})
    assert said.startswith("gcc is missing ") and "CUDA 13.2" in said and "apt install g++" in said
    said = go({"gcc": "12"})
    assert said.startswith("g++ is missing on this machine"), "nvcc compiles C++"


def test_a_newer_gcc_is_named_with_the_one_to_use(go):
    said = go({"gcc": "16", "g++": "16"})
    assert re.match(r"gcc 16 .*newer .*CUDA 13\.2 .*\(gcc 15\)", said)
    assert "install g++-15, then NVCC_CCBIN=g++-15" in said
    said = go({"gcc": "16", "g++": "16", "gcc-14": "14", "g++-14": "14"})
    assert "supports (gcc 15): NVCC_CCBIN=g++-14 CC=gcc-14 CXX=g++-14" in said


def test_the_compiler_that_the_user_chose_is_the_one_compared(go):
    both = {"gcc": "16", "g++": "16", "g++-15": "15", "clang-21": "21"}
    assert go(both, NVCC_CCBIN="g++-15") is None
    assert go(both, NVCC_CCBIN="clang-21") is None, "nvcc itself judges other compilers"


def test_an_environment_without_nvcc_and_another_machine_are_not_compared(go):
    assert go({}, "numpy") is None
    assert go({}, "nvidia-cuda-nvcc-cu12"), "the package's own name means it too"
    assert go({}, platform="linux-aarch64") is None


def test_resolve_lock_and_create_warn_of_a_missing_gcc(gpuenv, index, tmp_path):
    words = (*TORCH, "--with", "nvcc")
    index.add_plan(gpuenv("resolve", *TORCH, "--json").json)
    for text in ask("torch==2.15.0", **H100, packages=("nvcc",)).packages:
        name, _, version = text.partition("==")
        index.add(name, version.removesuffix(".*"))
    gpuenv.env |= {"PIP_INDEX_URL": index.url, "PATH": str(tmp_path), "PYENV_ROOT": "/nowhere"}
    (said,) = (n for n in ok(gpuenv("resolve", *words, "--json")).json["notes"] if "nvcc of CUDA" in n)
    assert said.startswith("gcc is missing on this machine")
    assert f"warning: {said}" in ok(gpuenv("lock", *words)).err
    gpuenv.env["UV_PYTHON_INSTALL_MIRROR"] = "file:///nowhere"
    ran = refused(gpuenv("create", *words, "--no-verify"), 7)  # it has no Python 3.12 to build with
    assert f"warning: {said}" in ran.err


def test_a_version_of_nvcc_is_refused_in_favour_of_cuda(gpuenv):
    ran = gpuenv("resolve", *TORCH, "--with", "nvcc==12.4", "--json")
    assert ran.code == 2 and "--cuda" in ran.json["error"]["hint"]
