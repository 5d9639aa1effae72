"""Projects that are not meant to be built: their dependencies are taken, and they are not installed."""

import re
import sys

import pytest
import tomllib
from environment_facts import ok, refused
from loopback import wheel_bytes
from rows import sampled

from provision.config.file import read_config

SETUPTOOLS = '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
DETECTOR = f'{SETUPTOOLS}[project]\nname = "detector"\nversion = "7"\ndependencies = ["torch", "plain<2"]\n'


@pytest.fixture
def gpuenv(gpuenv, index):
    """gpuenv on an index that has torch for the CPU, plain and more."""
    plan = gpuenv("resolve", "--json", "--framework", "torch", "--index", "pypi", "--device", "cpu")
    gpuenv.env |= {"PIP_INDEX_URL": index.url, "GPUENV_INDEX_PYTORCH": "http://127.0.0.1:9/whl"}
    index.add_plan(plan.json)
    for name, version in (("plain", "1.0"), ("plain", "2.0"), ("more", "1.0"), ("other", "1.0")):
        index.add(name, version)
    return gpuenv


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def created(gpuenv, verb="create", *more):
    own = ("--no-verify",) if verb == "create" else ()
    return gpuenv(verb, "--index", "pypi", "--device", "cpu", *own, *more)


def locked(gpuenv):
    data = tomllib.loads((gpuenv.work / "pylock.toml").read_text())
    return {p["name"]: p["version"] for p in data["packages"]}


@pytest.fixture
def detector(gpuenv):
    """A checkout with programs at its top, several folders, and a pyproject.toml that setuptools refuses."""
    write(
        gpuenv.work,
        {
            "pyproject.toml": DETECTOR, "requirements.txt": "torch\nplain>=1\n", "train.py": "import torch, plain\n",
            "detect.py": "import torch\n", "models/net.py": "import torch\n", "data/images.yaml": "a: 1\n",
            "segment/train.py": "from models import net\n",
        },
    )  # fmt: skip
    return gpuenv


def test_init_lock_add_and_export_take_the_dependencies_alone_and_see_a_change(detector):
    ran = ok(detector("init", "--json"))
    why = "only its dependencies: setuptools refuses several top-level packages: data, models, segment"
    assert {"key": "project", "value": ".", "origin": why} in ran.json["decisions"]
    config = read_config(detector.work / "gpuenv.yaml")
    assert (config.project, config.install, config.requirements) == (".", False, ("requirements.txt",))
    file = detector.work / "gpuenv.yaml"
    file.write_text(f"{file.read_text()}index: pypi\ndevice: cpu\n")
    ok(created(detector, "lock"))
    ok(created(detector, "lock", "--check"))
    have = locked(detector)
    assert have["plain"] == "1.0" and "torch" in have and "detector" not in have
    ok(detector("add", "more"))
    assert 'project: {path: ".", install: false}' in file.read_text()
    assert locked(detector) == {**have, "more": "1.0"}
    for form in ("requirements", "dockerfile", "pixi"):
        ok(detector("export", "--format", form, "--output", f"out.{form}"))
        text = (detector.work / f"out.{form}").read_text()
        assert "-e " not in text and str(detector.work) not in text
        assert ("plain" in text) == (form != "dockerfile")
    # a changed dependency makes the lock out of date
    pyproject = detector.work / "pyproject.toml"
    pyproject.write_text(DETECTOR.replace("plain<2", "plain<2', 'other").replace("'", '"'))
    assert created(detector, "lock", "--check").code == 6
    ran = ok(created(detector, "create", "--dry-run"))
    assert "pylock.toml is for other requirements: solving again" in ran.err and "  other 1.0, " in ran.err


def test_only_the_key_install_decides_whether_the_folder_is_installed(detector):
    """The installing of the folder is left out by the key alone: without it, it is asked for."""
    write(
        detector.work, {"gpuenv.yaml": 'project: {path: ".", install: false}\n', "requirements.txt": "-e .\n"}
    )
    lock = detector.work / "pylock.toml"
    assert created(detector, "lock").code == 0
    assert "directory" not in lock.read_text()
    write(
        detector.work,
        {"gpuenv.yaml": 'project: {path: ".", install: false}\nrequirements: [requirements.txt]\n'},
    )
    ran = created(detector, "lock", "--json")
    assert ran.code == 0 and "directory" not in lock.read_text()
    assert any("(requirements.txt line 1) is ignored" in note for note in ran.json["plan"]["notes"])
    write(detector.work, {"gpuenv.yaml": 'project: {path: ".", install: true}\n'})
    assert created(detector, "lock").code == 0
    assert "directory" in lock.read_text()


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        (
            {"pyproject.toml": "[tool.ruff]\n[dependency-groups]\ntest = ['more']\n", "requirements.txt": "torch\nplain<2\n"},
            "its files contain only settings of tools",
        ),
        (
            {"pyproject.toml": f"{DETECTOR}[tool.uv]\npackage = false\n"},
            "pyproject.toml sets package = false in [tool.uv]",
        ),
        (
            {
                "pyproject.toml": '[tool.poetry]\npackage-mode = false\n[tool.poetry.dependencies]\n'
                'torch = "*"\nplain = "<2"\n'
            },
            "pyproject.toml sets package-mode = false in [tool.poetry]",
        ),
        (
            {"setup.py": "from setuptools import setup\nsetup(install_requires=['torch', 'plain<2'])\n",
             "nets/a.py": "", "data/b.py": ""},
            "setuptools refuses several top-level packages: data, nets",
        ),
    ],
)  # fmt: skip
def test_init_writes_the_key_for_every_kind_of_unbuildable_project(gpuenv, files, reason):
    write(gpuenv.work, {"train.py": "import torch\n", **files})
    ok(gpuenv("init"))
    file = gpuenv.work / "gpuenv.yaml"
    assert f"the project is not installed: {reason}\n" in file.read_text()
    assert read_config(file).install is False
    ok(created(gpuenv, "lock"))
    lock = (gpuenv.work / "pylock.toml").read_text()
    assert 'name = "plain"\nversion = "1.0"' in lock and "directory" not in lock


def test_settings_of_tools_alone_are_not_read(gpuenv):
    write(
        gpuenv.work,
        {"pyproject.toml": "[tool.ruff]\n", "setup.cfg": "[flake8]\n", "requirements.txt": "torch\n"},
    )
    assert gpuenv("init").code == 0
    config = read_config(gpuenv.work / "gpuenv.yaml")
    assert (config.project, config.requirements) == (None, ("requirements.txt",))


@pytest.mark.parametrize("itself", sampled(["", ".\n", "-e .\n"], 2))
def test_a_folder_of_tool_settings_is_locked_with_all_that_it_asks_for(gpuenv, itself):
    """Also where its requirements file names the folder, which would be built as a package without a name."""
    write(
        gpuenv.work,
        {
            "pyproject.toml": "[tool.ruff]\nline-length = 99\n", "train.py": "import torch\n", "data/b.py": "",
            "requirements.txt": f"torch\n{itself}plain<2\n", "models/a.py": "import torch\n",
        },
    )  # fmt: skip
    assert gpuenv("init").code == 0
    config = read_config(gpuenv.work / "gpuenv.yaml")
    assert (config.project, config.install) == (("." if itself else None), not itself)
    assert config.requirements == ("requirements.txt",) and config.frameworks == ("torch",)
    locked = {p["name"]: p["version"] for p in ok(created(gpuenv, "lock", "--json")).json["packages"]}
    assert locked.keys() == {"torch", "triton", "pip", "plain"} and locked["plain"] == "1.0"


def test_a_folder_of_tool_settings_that_is_named_as_the_project_hints_at_the_key(gpuenv):
    text = "frameworks: [torch]\nproject: .\n"
    write(gpuenv.work, {"pyproject.toml": "[tool.ruff]\n", "gpuenv.yaml": text})
    ran = created(gpuenv)
    assert ran.code == 2 and "error: pyproject.toml has no [project] table" in ran.err
    assert "install: false" in ran.err


_REFUSED = "Multiple top-level packages discovered in a flat-layout: ['data', 'models']."
_BACKEND = f"import sys\n\ndef build_editable(*given):\n    print({'error: ' + _REFUSED!r}, file=sys.stderr)\n    sys.exit(1)\n"
_OWN = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


@pytest.mark.parametrize(
    ("dependencies", "code"), [('dependencies = ["torch"]\n', 7), ('dynamic = ["dependencies"]\n', 6)]
)
def test_a_build_of_the_project_that_fails_names_its_reason_and_the_key(gpuenv, dependencies, code):
    """At installing (7), and already at locking (6) where only the build tells what the project requires."""
    write(
        gpuenv.work,
        {
            "pyproject.toml": f'{_OWN}[project]\nname = "detector"\nversion = "7"\n{dependencies}'
            '[tool.setuptools.dynamic]\ndependencies = {file = ["deps.txt"]}\n',
            "backend.py": _BACKEND + "\nget_requires_for_build_editable = get_requires_for_build_wheel = build_editable\n",
            "deps.txt": "torch\n", "app/x.py": "",
        },
    )  # fmt: skip
    assert gpuenv("init").code == 0
    ran = refused(created(gpuenv), code)
    errors = [line for line in ran.err.splitlines() if line.startswith(("error:", "hint:"))]
    assert errors[0] == f"error: detector could not be built: {_REFUSED}"
    assert errors[-1].startswith("hint: write project: {path: ., install: false} into")
    text = (gpuenv.work / "gpuenv.yaml").read_text()
    assert 'project: "."\n' in text
    write(gpuenv.work, {"gpuenv.yaml": text.replace('project: "."', "project: {path: ., install: false}")})
    ok(created(gpuenv, "lock"))


def test_another_python_is_one_of_this_machine_if_it_fits(gpuenv, index):
    """As uv chooses: a newer one would be downloaded."""
    here = gpuenv.folder / "pyenv" / "versions" / "3.12.9" / "bin" / "python3"
    here.parent.mkdir(parents=True)
    here.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    here.chmod(0o755)
    gpuenv.env["PYENV_ROOT"] = str(here.parents[3])
    index.wheels["vision"] = {
        f"vision-4.2-{tag}-{tag}-manylinux1_x86_64.whl": wheel_bytes("vision", "4.2")
        for tag in ("cp312", "cp313", "cp314")
    }
    ran = ok(
        gpuenv(
            "lock",
            "--json",
            "--framework",
            "torch",
            "--with",
            "vision==4.2",
            "--device",
            "cpu",
            "--index",
            "pypi",
        )
    )
    assert ran.json["plan"]["python"] == "3.12"


def test_a_pin_that_has_wheels_for_another_python_alone_gets_that_python(gpuenv, index):
    """A project's pin of an old release without a source archive, as opencv-python 4.2: uv names no missing source."""
    ask = ("--framework", "torch", "--with", "vision==4.2", "--device", "cpu", "--index", "pypi")
    planned = gpuenv("resolve", "--json", *ask[:2], *ask[4:]).json["python"]
    other = next(minor for minor in ("3.11", "3.12") if minor != planned)
    tag = f"cp{other.replace('.', '')}"
    name = f"vision-4.2-{tag}-{tag}-manylinux1_x86_64.whl"
    index.wheels["vision"] = {name: wheel_bytes("vision", "4.2")}
    ran = ok(gpuenv("lock", "--json", *ask))
    assert ran.json["plan"]["python"] == other
    assert re.search(rf"Python {planned} is not possible: .*vision==4\.2 ", ran.err)
    ran = refused(gpuenv("lock", "--python", planned, *ask), 6)
    assert "has no wheels with a matching Python" in ran.err and "source archive" not in ran.err


def test_a_machine_whose_pythons_are_unknown_gets_one_for_the_newest_releases(gpuenv, index):
    """torch has wheels for the newest Python months before vllm has, and an old vllm has an archive for any."""
    ask = (
        "--framework",
        "torch",
        "--index",
        "pypi",
        "--platform",
        "linux-aarch64",
        "--driver",
        "580.95.05",
        "--gpu",
        "GB10",
    )
    plan = gpuenv("resolve", "--json", *ask).json
    assert plan["python"] not in ("3.11", "3.12")
    for python in (plan["python"], "3.12"):
        index.add_plan(gpuenv("resolve", "--json", *ask, "--python", python).json)
    wheels = ("vision-2.0-cp312-cp312-manylinux_2_28_aarch64.whl", "vision-1.0-py3-none-any.whl")
    index.wheels["vision"] = {name: wheel_bytes("vision", name.split("-")[1]) for name in wheels}
    ran = gpuenv("resolve", "--json", "--with", "vision", *ask)
    assert (ran.code, ran.json["python"], ran.json["held_back"]) == (0, "3.12", []), ran.err
    assert f"Python 3.12 in place of {plan['python']}: vision 2.0 has no wheel for Python" in ran.err
    older = gpuenv("resolve", "--json", "--with", "vision<2", *ask)
    assert older.json["python"] == plan["python"]
