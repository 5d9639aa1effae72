"""A folder whose setup.py imports torch: its build needs an environment that has torch, and the hint says how."""

import pytest

CPU = ("--device", "cpu", "--python", "3.11")
SETUP = "import torch\nfrom setuptools import setup\nsetup(name='detectron2', version='0.6', install_requires=['plain'])\n"


@pytest.fixture
def folder(gpuenv, index):
    plan = gpuenv("resolve", "--json", "--framework", "torch", "--index", "pypi", *CPU)
    gpuenv.env |= {"PIP_INDEX_URL": index.url, "GPUENV_INDEX_PYTORCH": "http://127.0.0.1:9/whl"}
    index.add_plan(plan.json)
    index.add("plain", "1.0")
    path = gpuenv.work / "d2"
    path.mkdir()
    (path / "setup.py").write_text(SETUP)
    # The build backend lies in the project, so that no index is needed for it.
    (path / "backend.py").write_text("import torch\n")
    (path / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "detectron2"\nversion = "0.6"\ndynamic = ["dependencies"]\n'
        '[tool.setuptools.dynamic]\ndependencies = {file = ["deps.txt"]}\n'
    )
    (path / "deps.txt").write_text("plain\n")
    return path


@pytest.mark.parametrize("form", ["./d2", "-e ./d2", "detectron2 @ ./d2"])
def test_the_hint_is_to_build_the_folder_inside_the_environment(gpuenv, folder, form):
    (gpuenv.work / "r.txt").write_text(f"{form}\n")
    ran = gpuenv("lock", "--framework", "torch", "--index", "pypi", "-r", "r.txt", *CPU)
    assert ran.code == 6
    said = " ".join(ran.err.split())
    assert "the build of its source imports torch" in said
    editable = "-e " if form.startswith("-e") else ""
    assert f"gpuenv run -- python -m pip install --no-build-isolation {editable}{folder}" in said


def test_the_hint_also_builds_the_project_itself(gpuenv, folder):
    ran = gpuenv("lock", "--framework", "torch", "--index", "pypi", "--project", "d2", *CPU)
    assert ran.code == 6
    assert f"pip install --no-build-isolation -e {folder}" in " ".join(ran.err.split())
