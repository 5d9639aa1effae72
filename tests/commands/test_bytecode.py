"""Environments are compiled where uv's own variable asks for it, and only there."""

import sys
from pathlib import Path

import pytest
from environment_facts import HERE

GPU = ("--driver", "580.65.06", "--gpu", "9.0")


def compiled(env: Path, module: str) -> Path:
    (site,) = env.glob("lib/python3*/site-packages")
    return site / module / "__pycache__" / f"__init__.{sys.implementation.cache_tag}.pyc"


@pytest.mark.parametrize("asked", [True, False])
def test_uvs_variable_decides(gpuenv, index, asked):
    args = ("--framework", "torch", "--python", HERE, "--index", "pypi", *GPU)
    index.add_plan(gpuenv("resolve", "--json", *args).json)
    gpuenv.env |= {"PIP_INDEX_URL": index.url} | ({"UV_COMPILE_BYTECODE": "1"} if asked else {})
    assert gpuenv("create", "one", *args, "--no-verify").code == 0
    assert compiled(gpuenv.work / "one", "torch").exists() is asked
