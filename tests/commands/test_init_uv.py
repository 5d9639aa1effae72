"""`gpuenv init` in a project of uv: what [tool.uv.sources], uv.lock and .python-version ask for."""

import os
import sys
import textwrap

import pytest
from environment_facts import HERE, ok
from programs import run_program
from uv import find_uv_bin

from provision.config.file import read_config

INDEXES = """
[[tool.uv.index]]
name = "cu126"
url = "https://torch.example/whl/cu126"
explicit = true
[[tool.uv.index]]
name = "cpu"
url = "https://torch.example/whl/cpu/"
explicit = true
"""


def project(folder, dependencies, more=""):
    text = f'[project]\nname = "mine"\nversion = "1"\nrequires-python = ">={HERE}"\ndependencies = {dependencies}\n'
    (folder / "pyproject.toml").write_text(text + textwrap.dedent(more), encoding="utf-8")


def initialised(gpuenv):
    ok(gpuenv("init"))
    return read_config(gpuenv.work / "gpuenv.yaml"), (gpuenv.work / "gpuenv.yaml").read_text(encoding="utf-8")


def test_the_bound_on_python_is_shown_where_it_stays(gpuenv):
    project(gpuenv.work, '["torch"]')
    decisions = {(d["key"], d["value"], d["origin"]) for d in gpuenv("init", "--json").json["decisions"]}
    assert ("python", f">={HERE}", "pyproject.toml line 4") in decisions
    assert ("left open", "python", "") not in decisions


SOURCES = {
    "one index": ('torch = {index = "cu126"}', "12.6", None),
    "the CPU": ('torch = [{index = "cpu", marker = "on monday"}]', None, "cpu"),
    "by system": (
        "torch = [{index = 'cpu', marker = 'sys_platform == \"darwin\"'}, {index = 'cu126', marker = 'os_name == \"posix\"'}]",
        "12.6", None,
    ),
    "a file": ('torch = {url = "https://torch.example/whl/cu118/torch-2.4.1%2Bcu118-cp312-cp312-linux_x86_64.whl"}', "11.8", None),
    "an index without a label": ('torch = {index = "no"}', None, None),
    "another package": ('numpy = {index = "cu126"}', None, None),
}  # fmt: skip


@pytest.mark.parametrize("case", SOURCES)
def test_the_index_of_a_framework_asks_for_its_cuda(gpuenv, case):
    sources, cuda, device = SOURCES[case]
    project(gpuenv.work, ["torch>=2.4", "numpy"], f"{INDEXES}\n[tool.uv.sources]\n{sources}\n")
    found, text = initialised(gpuenv)
    assert (found.frameworks, found.project, found.cuda, found.device) == (("torch",), ".", cuda, device)
    assert ("uv uses torch for cu" in text) == bool(cuda)


@pytest.mark.parametrize(
    ("named", "sources", "says"),
    [
        (["torch"], "torch = [{index = 'cpu', extra = 'cpu'}, {index = 'cu126', extra = 'gpu'}]",
         "[tool.uv.sources] chooses torch by extra"),
        (["torch", "jax[cuda12]"], "torch = {index = 'cu126'}\njax = {index = 'cpu'}", "torch for cu126, jax for cpu: "),
    ],
)  # fmt: skip
def test_a_choice_by_extra_and_different_cuda_are_left_to_the_user(gpuenv, named, sources, says):
    project(gpuenv.work, named, f"{INDEXES}\n[tool.uv.sources]\n{sources}\n")
    found, text = initialised(gpuenv)
    assert (found.cuda, found.device) == (None, None)
    assert says in text


def test_the_default_groups_of_uv_are_those_of_the_environment(gpuenv):
    sources = "torch = [{index = 'cpu', group = 'cpu'}, {index = 'cu126', group = 'gpu'}]"
    groups = "[tool.uv]\ndefault-groups = ['dev', 'gpu']\n[dependency-groups]\ncpu = ['torch<2']\ngpu = ['torch==2.7.1']\n"
    project(gpuenv.work, ["numpy"], f"{groups}dev = ['pytest']\n{INDEXES}\n[tool.uv.sources]\n{sources}\n")
    found, text = initialised(gpuenv)
    assert (found.frameworks, found.groups, found.cuda) == (("torch",), ("gpu",), "12.6")
    assert '"torch"  # pyproject.toml line 10\n' in text


@pytest.fixture
def locked(gpuenv, index):
    """A project that the real uv locked: trainer requires torch, an extra of the project requires tensorflow."""
    index.add("torch", "2.7.1+cu126")
    index.add("tensorflow", "2.19.0")
    index.add("trainer", "1.0", ("torch>=2", 'jax; sys_platform == "darwin"', "helper"))
    index.add("helper", "1.0", ("torch",))
    index.add("jax", "0.5.0")
    project(gpuenv.work, ["trainer"], '[project.optional-dependencies]\nother = ["tensorflow"]\n')
    env = gpuenv.env | {"UV_DEFAULT_INDEX": index.url, "UV_NO_MANAGED_PYTHON": "1"}
    run_program([find_uv_bin(), "lock", "--python", sys.executable], cwd=gpuenv.work, env=env, check=True)
    return gpuenv


def test_a_framework_that_only_uv_lock_names_is_listed(locked):
    (locked.work / ".python-version").write_text("3.12.4\n")
    found, text = initialised(locked)
    assert found.frameworks == ("torch",)  # tensorflow is of an extra, jax of another system
    assert '"torch"  # uv.lock, required by trainer' in text
    assert (found.cuda, found.python, found.project) == ("12.6", "3.12", ".")
    assert "uv.lock has torch 2.7.1; write torch==2.7.1" in text


def test_a_framework_of_a_package_counts_only_where_no_file_names_one(locked):
    text = (locked.work / "pyproject.toml").read_text()
    more = f"{INDEXES}\n[tool.uv.sources]\ntorch = {{index = 'cpu'}}\n"
    (locked.work / "pyproject.toml").write_text(text.replace("['trainer']", "['trainer', 'jax']") + more)
    found, text = initialised(locked)
    assert (found.frameworks, found.cuda, found.device) == (("jax",), None, None)
    assert "uv.lock has torch" not in text


def test_uv_sources_decide_before_uv_lock(locked):
    path = locked.work / "pyproject.toml"
    path.write_text(path.read_text() + INDEXES + "[tool.uv.sources]\ntorch = {index = 'cpu'}\n")
    found, _ = initialised(locked)
    assert (found.cuda, found.device) == (None, "cpu")


@pytest.mark.parametrize(
    "text", ["[[package", "package = 3", "[[package]]\nname = 4\n", "[package]\nname = 'torch'\n"]
)
def test_a_lock_that_cannot_be_read_is_named_or_passed_over(gpuenv, text):
    project(gpuenv.work, ["torch"])
    (gpuenv.work / "uv.lock").write_text(text)
    os.mkfifo(gpuenv.work / ".python-version")
    found, written = initialised(gpuenv)
    assert (found.frameworks, found.cuda, found.python) == (("torch",), None, None)
    assert ("uv.lock is not TOML" in written) == (text == "[[package")
