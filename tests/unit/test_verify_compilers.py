"""What packages need that compile when they run: each lack is a warning with the package and the fix."""

import dataclasses
import sys
from pathlib import Path

import pytest
from elf_files import package
from framework_envs import venv
from rows import rows

from provision import model
from provision.model import Environment, RuntimeCompiler, Target, TargetGpu
from provision.profiles import load
from provision.verify import compilers
from provision.verify.libraries import PythonPaths
from provision.verify.packages import judge, read_packages

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
ALL = ("gcc", "g++", "ninja", "Python.h", "nvcc", "ptxas")


class Machine:
    """A machine with an environment, and the tools that a case leaves it."""

    def __init__(self, folder: Path) -> None:
        env, self.site = venv(folder / "env")
        self.bin, self.include, self.home = folder / "bin", folder / "include", folder / "home"
        self.cuda = folder / "cuda"
        for each in (self.bin, self.include, self.home, self.cuda / "bin", self.cuda / "include"):
            each.mkdir(parents=True)
        (self.site / "torch").mkdir()
        (self.site / "torch/version.py").write_text("cuda: 'str | None' = '13.0'\n")
        self.env = Environment(path=str(env), manager="venv", python=str(env / "bin/python"))
        self.environ = {"PATH": str(self.bin), "HOME": str(self.home), "CUDA_HOME": str(self.cuda)}

    def provide(self, *tools, cuda="13.0", gcc="13"):
        for tool in tools:
            if tool == "Python.h":
                (self.include / tool).touch()
                continue
            file = (self.cuda if tool in ("nvcc", "ptxas") else self.bin.parent) / "bin" / tool
            if tool in ("gcc", "g++"):
                file, link = self.bin.parent / f"x86_64-linux-gnu-{tool}-{gcc}", file
                link.symlink_to(file)
            file.write_text("#!/bin/sh\nexit 99\n")  # nothing is started
            file.chmod(0o755)
        major, minor = cuda.split(".")
        (self.cuda / "include/cuda.h").write_text(f"#define CUDA_VERSION {major}0{minor}0\n")

    def judge(self, name, host=None, profiles=None):
        profiles = profiles or load()
        package(self.site, name, "1.0", [], modules={f"{name.replace('-', '_')}/__init__.py": ""})
        paths = PythonPaths(
            prefix=self.env.path, version=f"{PYTHON}.0", sites=(str(self.site),), roots=(str(self.site),),
            include=str(self.include), frameworks={"torch": str(self.site / "torch/__init__.py")},
        )  # fmt: skip
        reading = read_packages(self.env, paths, self.environ, profiles)
        return judge(reading, seconds=300.0, load_profiles=lambda: profiles, machine=host)


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


# package, the tools that are missing, what the finding says, words of the fix
LACKS = [
    ("triton", "gcc", "needs a C compiler", "install gcc"),
    ("triton", "Python.h", f"needs Python.h of Python {PYTHON}", f"python{PYTHON}-dev"),
    ("triton", "ptxas", "needs ptxas", "triton==1.0"),
    ("flashinfer-python", "g++", "needs a C++ compiler", "install gcc"),
    ("flashinfer-python", "nvcc", "needs nvcc of CUDA 13.0", "CUDA_HOME"),
    ("flashinfer-python", "ninja", "needs ninja", " ninja."),
    ("deepspeed", "nvcc", "needs nvcc of CUDA 13.0", "(13.0)"),
]
if not Path("/usr/local/cuda").exists():
    LACKS += [
        ("cupy-cuda13x", "", "needs cuda_fp16.h", "cupy-cuda13x[ctk]==1.0"),
        ("numba-cuda", "", "needs libnvvm.so", "numba-cuda[cu13]==1.0"),
    ]


@pytest.mark.parametrize(
    ("name", "missing", "says", "fix"), LACKS, ids=[f"{r[0]} without {r[1]}" for r in LACKS]
)
def test_a_lack_is_a_warning_with_the_package_and_the_fix(machine, name, missing, says, fix):
    machine.provide(*(t for t in ALL if t != missing))
    if name == "triton" and missing != "ptxas":
        machine.environ["TRITON_PTXAS_PATH"] = str(machine.cuda / "bin/ptxas")
    stage, (finding,) = machine.judge(name)
    assert (stage.status, stage.detail) == ("warn", finding.title)
    assert finding.title.startswith(f"{name} 1.0 (") and says in finding.title
    assert fix in finding.fix and "{" not in finding.fix


@pytest.mark.parametrize("name", ["triton", "flashinfer-python", "deepspeed", "jax-cuda13-plugin", "numpy"])
def test_what_has_all_that_it_needs_is_no_warning(machine, name):
    machine.provide(*ALL)
    machine.environ["TRITON_PTXAS_PATH"] = str(machine.cuda / "bin/ptxas")
    if name == "jax-cuda13-plugin":
        (machine.bin / "ptxas").symlink_to(machine.cuda / "bin/ptxas")
    assert machine.judge(name)[0].status == "skip"


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({"cuda": "12.8"}, "is of CUDA 12.8, and torch was built for CUDA 13.0"),
        ({"cuda": "13.4"}, None),  # a minor version is no obstacle
        ({"gcc": "16"}, "is gcc 16; nvcc of CUDA 13.0 accepts gcc 15 at most"),
        ({"gcc": "15"}, None),
    ],
)
def test_nvcc_is_compared_with_torch_and_the_host_compiler(machine, facts, says):
    machine.provide(*ALL, **facts)
    stage, findings = machine.judge("deepspeed")
    assert [e.text.endswith(says) for f in findings for e in f.evidence] == ([True] if says else [])
    assert stage.status == ("warn" if says else "skip")


@rows(("text", "version"), [('{"cuda": {"name": "CUDA SDK", "version": "12.6.3"}}', "12.6"), ("{}", None)])
def test_the_version_of_a_toolkit_is_that_of_its_json_or_unknown(tmp_path, text, version):
    (tmp_path / "version.json").write_text(text)
    assert compilers._read_cuda_version(tmp_path) == version


def test_an_nvcc_of_an_unknown_version_is_no_lack(machine):
    machine.provide(*ALL)
    (machine.cuda / "include/cuda.h").unlink()
    assert machine.judge("deepspeed")[0].status == "skip"


def test_a_cache_that_cannot_be_written_is_named_with_its_variable(machine):
    machine.provide(*ALL)
    taken = machine.home / "a file"
    taken.touch()
    machine.environ |= {
        "TRITON_PTXAS_PATH": str(machine.cuda / "bin/ptxas"),
        "TRITON_CACHE_DIR": f"{taken}/triton",
    }
    _, (finding,) = machine.judge("triton")
    assert "needs a folder that it can write to" in finding.title
    assert finding.fix.startswith("Set TRITON_CACHE_DIR to a folder ")
    row = RuntimeCompiler(package="mine", does="its kernels", cache=("$NOT_SET",))  # as a user may write one
    stage, _ = machine.judge("mine", profiles=dataclasses.replace(load(), runtime_compilers=(row,)))
    assert stage.status == "skip", "no folder is known"


@pytest.mark.parametrize(
    ("capability", "board", "said"),
    [("12.0", "RTX 5070", True), ("12.0", "RTX PRO 6000", False), ("9.0", "H100", False)],
)
def test_a_release_with_a_known_fault_is_named_on_the_gpus_of_its_row(machine, capability, board, said):
    package(machine.site, "nvidia-cublas", "13.5.1.27", [], modules={"nvidia/x.py": ""})
    gpus = (TargetGpu(capability=capability, name=f"NVIDIA GeForce {board}"),)
    host = model.Machine(target=Target(platform="linux-x86_64", gpus=gpus))
    stage, findings = machine.judge("numpy", host)
    assert [f.cause for f in findings] == ["framework_bug_upgrade"] * said
    assert stage.status == ("warn" if said else "skip")


def test_prebuilt_kernels_need_no_compiler(machine):
    package(machine.site, "flashinfer-jit-cache", "1.0", [], modules={"flashinfer_jit_cache/__init__.py": ""})
    assert machine.judge("flashinfer-python")[0].status == "skip"
