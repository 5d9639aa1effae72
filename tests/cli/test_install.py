"""gpuenv installed as users install it: the wheel carries its profiles and works from anywhere."""

import functools
import json
import os
import sys
import zipfile
from pathlib import Path

import conda_channel
import pytest
from programs import run_program

from provision import detect
from provision.index import uv
from provision.system.toml import tomllib

pytestmark = pytest.mark.network

ROOT = Path(__file__).resolve().parents[2]
ASK = ("resolve", "--framework", "jax", "--driver", "580.65.06", "--gpu", "9.0", "--python", "3.12", "--json")


def run(*argv, **more):
    env = {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "PYTHONPATH")} | more.pop(
        "env", {}
    )
    return run_program([*map(str, argv)], check=True, env=env, **more)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    run(uv.program(), "build", "--wheel", "--out-dir", folder, ROOT)
    return next(folder.glob("gpuenv-*.whl"))


def test_the_wheel_holds_profiles_probes_and_the_command(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    shipped = {Path(n).name for n in names if n.startswith("provision/profiles_data/")}
    assert shipped == {p.name for p in (ROOT / "profiles").glob("*.yaml")}
    assert {Path(n).name for n in names if n.startswith("provision/probes/")} == {
        p.name for p in (ROOT / "provision" / "probes").iterdir() if p.is_file()
    }
    templates = {p.name for p in (ROOT / "provision" / "templates").iterdir() if p.is_file()}
    assert {Path(n).name for n in names if n.startswith("provision/templates/")} == templates
    assert not [n for n in names if n.startswith(("tests/", "scripts/"))]


def test_a_tool_of_uv_answers_as_the_checkout_does(wheel, tmp_path):
    places = {"UV_TOOL_DIR": str(tmp_path / "tools"), "UV_TOOL_BIN_DIR": str(tmp_path / "bin")}
    run(uv.program(), "tool", "install", "--python", sys.executable, wheel, env=places)
    command = tmp_path / "bin" / "gpuenv"
    first = {"env": {"XDG_CACHE_HOME": str(tmp_path / "cache")}, "cwd": tmp_path}
    assert run(command, "--version", **first).stdout.startswith("gpuenv ")
    installed = run(command, *ASK, **first)
    assert not list(tmp_path.glob("cache/**/profiles-*")), "the profiles come parsed"
    checkout = run(sys.executable, "-m", "provision", *ASK, cwd=tmp_path)
    assert json.loads(installed.stdout) == json.loads(checkout.stdout)
    python = tmp_path / "tools" / "gpuenv" / "bin" / "python"
    where = run(python, "-c", "import provision; print(provision.__file__)", cwd=tmp_path)
    assert str(tmp_path) in where.stdout, "the test must not have asked the checkout"


def test_the_lowest_versions_that_pyproject_allows_are_enough(wheel, tmp_path):
    """Python is the lowest one too, where the machine has it."""
    python = tmp_path / "venv" / "bin" / "python"
    bounds = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    oldest = detect.find_python(bounds["requires-python"].removeprefix(">="), None, None)
    run(uv.program(), "venv", "--python", oldest or sys.executable, tmp_path / "venv")
    lowest = (*bounds["dependencies"], *bounds["optional-dependencies"]["conda"])
    install = (uv.program(), "pip", "install", "--python", python)
    run(*install, "--resolution", "lowest-direct", *lowest)
    run(*install, "--no-deps", wheel)
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text(
        '[project]\nname = "small"\nversion = "0"\ndependencies = ["numpy"]\n'
        '[tool.gpuenv]\nframeworks = ["onnxruntime"]\n'
    )
    gpuenv = functools.partial(run, python, "-m", "provision", cwd=project)
    gpuenv("create", "--device", "cpu")
    gpuenv("add", "idna", "--no-verify")
    verdict = json.loads(gpuenv("verify", "--locked", "--json").stdout)
    assert verdict["verdict"] == "cpu" and (project / "pylock.toml").exists()
    assert "idna" in (project / "pyproject.toml").read_text()
    with conda_channel.serving(conda_channel.small()) as server:
        conda = ("--manager", "conda", "--framework", "jax", "--device", "cpu", "--channel", server.url)
        gpuenv("lock", *conda, "-o", "conda-lock.yml", cwd=tmp_path)
    assert "jaxlib" in (tmp_path / "conda-lock.yml").read_text()
