"""Named parts of NVIDIA's toolkit have the plan's CUDA in a lock, whatever newer releases the index has."""

import pytest
from loopback import version_for
from packaging.requirements import Requirement
from rows import sampled

from provision.profiles import load

GPU = ("--driver", "580.95.05", "--gpu", "H100", "--glibc", "2.35", "--platform", "linux-x86_64")
ASK = ("--framework", "torch", "--index", "pypi", "--python", "3.11", *GPU)
OLD_TORCH = ("--framework", "torch==2.14.0", *ASK[2:])


def nvcc_of(*cudas):
    """What the toolkit's package requires for the compiler and its headers, in all releases of some CUDA minors."""
    for release in load().toolkits:
        if release.version.rpartition(".")[0] in cudas:
            parts = (p.split() for p in release.parts)
            yield from (Requirement(n) for name, *needs in parts for n in needs if name in ("cccl", "nvcc"))


@pytest.fixture
def torches(gpuenv, index):
    """`gpuenv` with an index that has two torches, their CUDA parts with the compiler, and newer parts of another CUDA."""
    for ask in (ASK, OLD_TORCH):
        index.add_plan(gpuenv("resolve", "--json", *ask).json)
    gpuenv.env |= {"PIP_INDEX_URL": index.url}
    for need in nvcc_of("13.0", "13.2"):
        index.add(need.name, version_for(need))
    for name in ("nvidia-cuda-nvcc", "nvidia-cublas", "nvidia-cuda-crt"):
        index.add(name, "13.9.1")
    index.uploaded = "2026-10-01T00:00:00Z"
    index.uploads = {f"{name}-13.9.1-py3-none-any.whl": "2026-11-01T00:00:00Z" for name in index.wheels}
    index.add("plain", "1.0")
    return gpuenv


def named(torches, part, way, file):
    if way == "file":
        file.write_text(f"{part}\n")
        return ("-r", str(file))
    return ("--with", part)


@pytest.mark.parametrize("way", ["option", "file"])
@pytest.mark.parametrize("part", sampled(["nvidia-cuda-nvcc", "nvidia-cuda-nvcc-cu12", "nvidia-cublas"], 2))
def test_a_named_part_has_the_plans_cuda_and_holds_no_framework_back(torches, tmp_path, part, way):
    alone = torches("lock", "--json", "--with", "plain", "-o", "alone.toml", *ASK)
    ran = torches(
        "lock", "--json", "--with", "plain", *named(torches, part, way, tmp_path / "needs.txt"), *ASK
    )
    assert ran.code == alone.code == 0, ran.err
    versions = {p["name"]: p["version"] for p in ran.json["packages"]}
    assert versions["torch"] == "2.15.0"
    plans = {"nvidia-cuda-nvcc": "13.2.", "nvidia-cublas": "13.4.1."}  # of CUDA 13.2
    name = part.removesuffix("-cu12")
    assert versions[name].startswith(plans[name])
    before = {p["name"]: p["version"] for p in alone.json["packages"]}
    assert before.items() <= versions.items(), "nothing else moves"
