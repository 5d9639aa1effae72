"""A folder whose setup.py imports torch: its build needs an environment that has torch, and the hint says how."""

import re

import pytest
from environment_facts import ok, refused
from rows import sampled

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


@pytest.mark.parametrize("form", sampled(["./d2", "-e ./d2", "detectron2 @ ./d2"], 3))
def test_the_hint_is_to_build_the_folder_inside_the_environment(gpuenv, folder, form):
    (gpuenv.work / "r.txt").write_text(f"{form}\n")
    ran = refused(gpuenv("lock", "--framework", "torch", "--index", "pypi", "-r", "r.txt", *CPU), 6)
    said = " ".join(ran.err.split())
    assert "the build of its source imports torch" in said
    editable = "-e " if form.startswith("-e") else ""
    assert f"gpuenv run -- python -m pip install --no-build-isolation {editable}{folder}" in said


def test_the_hint_also_builds_the_project_itself(gpuenv, folder):
    ran = refused(gpuenv("lock", "--framework", "torch", "--index", "pypi", "--project", "d2", *CPU), 6)
    assert f"pip install --no-build-isolation -e {folder}" in " ".join(ran.err.split())


def test_a_build_tells_the_requirements_that_code_computes(gpuenv, index, folder):
    (folder / "backend.py").write_text(
        "import pathlib\n"
        "def prepare_metadata_for_build_editable(folder, config_settings=None):\n"
        "    info = pathlib.Path(folder, 'detectron2-0.6.dist-info')\n"
        "    info.mkdir()\n"
        "    info.joinpath('METADATA').write_text('Metadata-Version: 2.1\\nName: detectron2\\nVersion: 0.6\\n'\n"
        "        'Provides-Extra: dev\\nRequires-Dist: plain; extra == \"dev\"\\n')\n"
        "    return info.name\n"
        "prepare_metadata_for_build_wheel = prepare_metadata_for_build_editable\n"
        "def build_editable(*args): raise SystemExit\n"
        "build_wheel = build_editable\n"
    )
    (folder / "setup.py").unlink()
    text = (folder / "pyproject.toml").read_text()
    text = text.partition("[tool.setuptools")[0].replace(
        'version = "0.6"\ndynamic = [', 'dynamic = ["version", '
    )
    (folder / "pyproject.toml").write_text(text)
    index.add("detectron2", "0.5", requires=("torch",))
    (gpuenv.work / "r.txt").write_text("detectron2\n")
    named = ("--project", "d2", "--extra", "dev", "-r", "r.txt")
    for _ in range(2):  # the second lock is near to the first
        ok(gpuenv("lock", "--framework", "torch", "--index", "pypi", *named, *CPU))
    assert {"plain", "detectron2"} <= set(
        re.findall(r'(?m)^name = "(.+)"', (gpuenv.work / "pylock.toml").read_text())
    )
    ran = gpuenv("resolve", "--framework", "torch", "--index", "pypi", "--project", "d2", *CPU)
    assert ran.code == 0 and "detectron2" in ran.err
