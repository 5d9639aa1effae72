"""Environments are compiled where uv's own variable asks for it, and only there."""

import sys
from pathlib import Path

from environment_facts import ok
from made_env import JAX, jax_env


def compiled(env: Path, module: str) -> Path:
    (site,) = env.glob("lib/python3*/site-packages")
    return site / module / "__pycache__" / f"__init__.{sys.implementation.cache_tag}.pyc"


def test_uvs_variable_decides(gpuenv, index):
    jax_env(gpuenv, index)
    more = ("create", *JAX, "--no-verify", "--with")
    ok(gpuenv(*more, "kept"))
    assert not compiled(gpuenv.work / ".venv", "kept").exists()
    gpuenv.env["UV_COMPILE_BYTECODE"] = "1"
    ok(gpuenv(*more, "more"))
    assert compiled(gpuenv.work / ".venv", "more").exists()
