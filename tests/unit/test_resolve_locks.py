"""Several frameworks in one environment, locked for real against the index: only metadata is read."""

import os
import re
import sys

import pytest
from command import run_forked
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from rows import sampled

pytestmark = pytest.mark.network

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MACHINE = ("--driver", "580.95.05", "--python", "3.12", "--index", "pypi")


def locked(folder, frameworks, gpu):
    """The packages of the lock by name, and how it was made. Uses the index that this machine uses."""
    named = [word for f in frameworks for word in ("--framework", f)]
    done = run_forked("lock", *named, *MACHINE, "--gpu", gpu, cwd=folder, env=os.environ, timeout=400)
    assert done.returncode == 0, done.stderr
    document = tomllib.loads((folder / "pylock.toml").read_text(encoding="utf-8"))
    return {p["name"]: p["version"] for p in document["packages"]}, document


@pytest.mark.parametrize("framework", sampled(["tensorflow", "tensorflow==2.20.0", "jax", "jax==0.5.3"], 2))
def test_wheels_that_leave_their_libraries_loose_lock_with_one_cuda_release(tmp_path, framework):
    packages, document = locked(tmp_path, [framework], "H200")
    release = packages["cuda-toolkit"]
    built = document["tool"]["gpuenv"]["plan"]["builds"][0]["cuda"]
    assert release.split(".")[0] == built.split(".")[0]
    runtime = next(v for n, v in packages.items() if n.startswith("nvidia-cuda-runtime"))
    assert runtime.split(".")[:2] == release.split(".")[:2]
    assert len([n for n in packages if n.startswith("nvidia-cudnn")]) == 1


@pytest.mark.slow
@pytest.mark.parametrize("gpu", ["H200", "V100"])
@pytest.mark.parametrize(
    "frameworks", [("torch", "jax"), ("torch", "tensorflow"), ("torch", "jax", "tensorflow")], ids="+".join
)
def test_frameworks_lock_together_with_one_cudnn(tmp_path, frameworks, gpu):
    packages, document = locked(tmp_path, frameworks, gpu)
    assert set(frameworks) <= packages.keys()
    cudnn = [name for name in packages if name.startswith("nvidia-cudnn")]
    assert len(cudnn) == 1, cudnn
    majors = {m[1] for name in packages if (m := re.search(r"^nvidia-.*-cu(\d+)$", name))}
    assert len(majors) <= 1, majors
    if gpu == "V100":
        assert packages[cudnn[0]] in SpecifierSet("<9.11"), "cuDNN 9.11 no longer serves Volta"
    plan = document["tool"]["gpuenv"]["plan"]
    for build in plan["builds"]:
        assert build["cudnn"] == packages[cudnn[0]]
        for need in map(Requirement, build["requirements"]):
            if need.name.startswith("nvidia-") and need.name in packages:
                assert packages[need.name] in need.specifier, need
