"""docs/how-to/uv-projects.md, typed as it stands in a project that the real uv locked, between two indexes on 127.0.0.1."""

import os
import re
import sys
from pathlib import Path

import pytest
import tomllib
from environment_facts import HERE
from loopback import Index, serving
from programs import run_program
from uv import find_uv_bin

from provision.config.file import read_config

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "how-to" / "uv-projects.md").read_text(encoding="utf-8")
TO_GPUENV, TO_UV, MACHINES = (
    block.replace("--python 3.12", f"--python {HERE}")
    for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
)
ASK = ("--framework", "torch", "--driver", "550.54.15", "--gpu", "T4", "--python", HERE, "--cuda", "12.6")


@pytest.fixture
def project(gpuenv, index):
    """A project of uv that takes torch for CUDA 12.6 from an index of its own."""
    plan = gpuenv("resolve", *ASK, "--json").json
    version = plan["builds"][0]["requirements"][0].removeprefix("torch===")
    index.add_plan(plan)
    index.add("einops", "0.8.0")
    with serving(Index()) as other:
        other.prefix = "/whl/cu126"
        other.wheels["torch"] = index.wheels.pop("torch")
        (gpuenv.work / "pyproject.toml").write_text(f"""\
[project]
name = "vision"
version = "1"
requires-python = ">={HERE}"
dependencies = ["torch>=2.4", "einops"]
[tool.uv.sources]
torch = {{ index = "cu126" }}
[[tool.uv.index]]
name = "cu126"
url = "{other.url.replace("/simple", "/whl/cu126")}"
explicit = true
""")
        programs = gpuenv.folder / "bin"
        programs.mkdir()
        (programs / "gpuenv").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m provision "$@"\n')
        (programs / "gpuenv").chmod(0o755)
        (programs / "uv").symlink_to(find_uv_bin())
        gpuenv.env |= {
            "PATH": f"{programs}{os.pathsep}{gpuenv.env['PATH']}", "UV_DEFAULT_INDEX": index.url, "PYTHONPATH": str(ROOT),
            "GPUENV_INDEX_PYTORCH": other.url.replace("/simple", "/whl"), "UV_PYTHON": sys.executable,
        }  # fmt: skip
        type_block(gpuenv, "uv lock")
        yield gpuenv, version


def type_block(gpuenv, text):
    done = run_program(["bash", "-e"], input=text, cwd=gpuenv.work, env=gpuenv.env, timeout=300, check=True)
    return done.stdout


def rows(path, key):
    return {r["name"]: r for r in tomllib.loads(path.read_text(encoding="utf-8"))[key]}


def test_a_project_moves_from_uv_to_gpuenv_and_back(project):
    gpuenv, version = project
    type_block(gpuenv, TO_GPUENV)
    found = read_config(gpuenv.work / "gpuenv.yaml")
    assert (found.frameworks, found.project, found.cuda) == (("torch",), ".", "12.6")
    locked = rows(gpuenv.work / "pylock.toml", "packages")
    assert locked["torch"]["version"] == version
    assert "einops" in locked
    shown = type_block(gpuenv, TO_UV)
    assert shown.splitlines()[-1] == "uv sync --project gpu"
    synced = rows(gpuenv.work / "gpu" / "uv.lock", "package")
    wanted = {n: r["wheels"][0]["hashes"]["sha256"] for n, r in locked.items() if n not in ("pip", "vision")}
    assert {
        n: r["wheels"][0]["hash"].removeprefix("sha256:") for n, r in synced.items() if n in wanted
    } == wanted
    assert set(synced) - set(wanted) == {"gpuenv-torch"}
    assert list((gpuenv.work / "gpu" / ".venv").glob(f"lib/python*/site-packages/torch-{version}.dist-info"))


def test_each_machine_of_the_page_gets_its_build(project, index):
    gpuenv, version = project
    with_new = ("--framework", "torch", "--driver", "580.95.05", "--gpu", "H100", "--python", HERE)
    index.add_plan(gpuenv("resolve", *with_new, "--json").json)
    (gpuenv.work / "gpuenv.yaml").write_text("frameworks: [torch]\n")
    type_block(gpuenv, MACHINES)
    assert list(
        (gpuenv.work / "machines" / ".venv").glob(f"lib/python*/site-packages/torch-{version}.dist-info")
    )


def test_the_page_says_what_the_formats_help_says(gpuenv):
    assert "uv," in gpuenv("export", "--help").out
