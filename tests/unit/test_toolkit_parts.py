"""Parts of the CUDA toolkit that are asked for by name: always of the plan's CUDA release."""

import dataclasses
import io
import os
import re
import zipfile

import pytest
from known import KNOWN
from packaging.requirements import Requirement
from resolve_questions import R580, ask
from rows import rows

from provision.index.config import pip_settings
from provision.index.http import Http
from provision.index.places import default_index
from provision.model import RequirementLine
from provision.profiles.measure.reader import Reader
from provision.system import process

H100 = {**R580, "gpus": ["H100"], "index": "pypi"}
R550 = {"driver": "550.54.15", "gpus": ["T4"], "index": "pypi"}


def lines(plan):
    return {Requirement(p).name: str(Requirement(p).specifier) for p in plan.packages}


def of_file(*texts):
    return tuple(
        RequirementLine(text=t, origin=f"asked.txt line {n}", name=Requirement(t).name)
        for n, t in enumerate(texts, 1)
    )


def parts_of(release, *extras):
    rows = {r.version: r.parts for r in KNOWN.toolkits}
    texts = [t for part in rows[release] if part.split(" ")[0] in extras for t in part.split(" ")[1:]]
    return {Requirement(t).name: str(Requirement(t).specifier) for t in texts}


def test_nvcc_is_the_compiler_of_the_plans_cuda_with_all_that_compiling_needs():
    plan = ask("torch==2.15.0", **H100, packages=("nvcc",))
    assert lines(plan) == parts_of("13.2.2", "nvcc", "cccl")
    assert lines(plan).keys() >= {"nvidia-cuda-nvcc", "nvidia-nvvm", "nvidia-cuda-crt", "nvidia-cuda-cccl"}
    assert any(n.startswith("nvcc is from CUDA 13.2.2: ") for n in plan.notes)
    older = ask("torch==2.11.0", **H100, packages=("nvcc",))
    assert lines(older)["nvidia-cuda-nvcc"].startswith("==13.0.")


def test_nvcc_is_left_out_where_no_toolkit_fits():
    plan = ask("torch==2.15.0", **H100, packages=("nvcc",), known=dataclasses.replace(KNOWN, toolkits=()))
    assert plan.builds and not lines(plan)
    assert any(note.startswith("nvcc is left out: no CUDA toolkit") for note in plan.notes)


@rows(
    ("text", "framework", "target", "package", "bounds"),
    [
        ("nvidia-cuda-nvcc-cu12", "torch==2.15.0", H100, "nvidia-cuda-nvcc", "==13.2.86.*"),
        ("nvidia-cuda-nvcc", "torch==2.15.0", H100, "nvidia-cuda-nvcc", "==13.2.86.*"),
        ("nvidia-cuda-nvcc-cu13", "torch==2.15.0", H100, "nvidia-cuda-nvcc", "==13.2.86.*"),
        ("NVIDIA_npp_cu12==12.4", "torch==2.15.0", H100, "nvidia-npp", "==13.1.0.59.*"),
        ("cuda-toolkit[nvcc]", "torch==2.15.0", H100, "cuda-toolkit", "==13.2.2"),
        ("nvidia-cuda-nvcc", "torch==2.10.0", R550, "nvidia-cuda-nvcc-cu12", "==12.8.93.*"),
        ("nvidia-cuda-nvcc-cu12", "torch==2.10.0", R550, "nvidia-cuda-nvcc-cu12", "==12.8.93.*"),
    ],
)
@rows("file", [False, True])
def test_a_part_that_is_named_gets_the_plans_cuda(text, framework, target, package, bounds, file):
    asked = {"stack": of_file(text)} if file else {"packages": (text,)}
    plan = ask(framework, **target, **asked)
    assert lines(plan)[package] == bounds
    taken = [n for n in plan.notes if n.startswith(text.replace("NVIDIA_npp_cu12", "NVIDIA_npp_cu12"))]
    written_so = Requirement(text).name == package and not Requirement(text).specifier
    assert len(taken) == (1 if file or not written_so else 0), plan.notes


def test_nvcc_comes_with_the_parts_of_its_own_release():
    plan = ask("torch==2.15.0", **H100, packages=("nvidia-cuda-nvcc",))
    assert lines(plan)["nvidia-nvvm"] == lines(plan)["nvidia-cuda-crt"] == "==13.2.86.*"


def test_what_the_framework_brings_is_left_to_it():
    plan = ask(
        "torch==2.15.0", **H100, stack=of_file("nvidia-cublas-cu12==12.1", "triton==2", "nvidia-nccl-cu12")
    )
    assert plan.packages == ()


def test_a_part_that_a_cuda_release_lacks_is_left_out_with_a_note():
    plan = ask("torch==2.10.0", **R550, packages=("nvidia-nvvm",))
    assert plan.packages == () and any("nvidia-nvvm is left out: CUDA 12.8" in n for n in plan.notes)


def test_other_packages_of_nvidia_are_not_parts():
    plan = ask("torch==2.15.0", **H100, packages=("nvidia-ml-py", "nvidia-dali-cuda130"))
    assert plan.packages == ("nvidia-ml-py", "nvidia-dali-cuda130") and plan.builds


def test_no_wheel_has_nvcc_for_cuda_12():
    plan = ask("torch", **R550, packages=("nvcc",))
    assert not plan.builds
    assert any("no wheel has nvcc for CUDA 12.8" in x.text for r in plan.rejected for x in r.reasons)
    assert "remove nvcc and install the system's" in plan.hint
    assert ask("torch", **R550).builds


def test_on_the_cpu_nvcc_is_left_out():
    plan = ask("jax", device="cpu", packages=("nvcc",))
    assert plan.builds and plan.packages == ()
    assert any(note.startswith("nvcc is left out: ") and "CPU" in note for note in plan.notes)


def test_frameworks_together_get_parts_of_one_release():
    plan = ask("torch==2.15.0", "jax", **H100)
    of_jax = plan.builds[1].requirements
    assert [p for p in of_jax if p.startswith("cuda-toolkit[") and p.endswith("==13.2.2")], of_jax


def test_every_compiler_row_is_of_a_release_of_the_toolkit():
    minors = {".".join(r.version.split(".")[:2]) for r in KNOWN.toolkits}
    assert {c.cuda for c in KNOWN.compilers} == minors
    for row in KNOWN.compilers:
        assert bool(row.extras) == (int(row.cuda.split(".")[0]) >= 13), row


@pytest.mark.network
@pytest.mark.parametrize("cuda", ["13.0", "13.2", "13.4"])
def test_the_newest_gcc_is_what_the_header_of_that_cuda_takes(cuda):
    (row,) = [c for c in KNOWN.compilers if c.cuda == cuda]
    environ = process.environ()
    http = Http(pip_settings(environ))
    index = os.environ.get("GPUENV_INDEX_PYPI") or default_index(environ)
    wheels = Reader(http, index, None).wheels("nvidia-cuda-crt")  # 130 kB each
    wheel = next(w for w in wheels if str(w.version).startswith(f"{cuda}.") and w.platform == "linux-x86_64")
    with zipfile.ZipFile(io.BytesIO(http.get(wheel.file.url).body)) as archive:
        name = next(n for n in archive.namelist() if n.endswith("crt/host_config.h"))
        header = archive.read(name).decode()
    assert re.search(r"#if __GNUC__ > (\d+)", header)[1] == row.gcc
