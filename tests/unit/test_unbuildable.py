"""Which projects `init` takes for not meant to be built. The answers for setuptools are compared with setuptools."""

import json
import subprocess
import sys
import textwrap

import pytest
from hypothesis import given, settings, strategies as st
from programs import run_program

from provision.requirements.layout import find_reason

SETUPTOOLS = '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
PROJECT = f'{SETUPTOOLS}[project]\nname = "thing"\nversion = "1"\n'
SCM = PROJECT.replace('version = "1"', 'dynamic = ["version"]').replace(
    '["setuptools"]', '["setuptools", "setuptools_scm[toml]"]'
)
VCS = (
    SCM.replace("setuptools_scm[toml]", "hatch-vcs").replace("setuptools.build_meta", "hatchling.build")
    + '[tool.hatch.version]\nsource = "vcs"\n'
)
SETUP = "from setuptools import setup\nsetup(name='thing'{more})\n"
SEVERAL = {"data/a.yaml": "", "models/yolo.py": ""}


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return folder


# Each layout, and whether setuptools refuses it for its several packages or modules
LAYOUTS = [
    ({"pyproject.toml": PROJECT, **SEVERAL}, True),
    ({"pyproject.toml": PROJECT.replace('build-backend = "setuptools.build_meta"\n', ""), **SEVERAL}, True),
    ({"pyproject.toml": PROJECT, "models/a.py": ""}, False),
    ({"pyproject.toml": PROJECT, "models/a.py": "", "tests/b.py": "", "utils/c.py": "", "docs/d.md": ""}, False),
    ({"pyproject.toml": PROJECT, "a-b/x.py": "", ".github/y.yml": "", "_own/z.py": "", "one/w.py": ""}, False),
    ({"pyproject.toml": PROJECT, "one/w.py": "", "one-stubs/w.pyi": ""}, False),
    ({"pyproject.toml": PROJECT, "a.py": "", "b.py": ""}, True),
    ({"pyproject.toml": PROJECT, "a.py": "", "setup.py": SETUP.format(more=""), "conftest.py": ""}, False),
    ({"pyproject.toml": PROJECT, "one/x.py": "", "a.py": "", "b.py": ""}, False),
    ({"pyproject.toml": PROJECT, "src/x/y.py": "", **SEVERAL}, False),
    ({"pyproject.toml": PROJECT + "[tool.setuptools]\npackages = []\n", **SEVERAL}, False),
    ({"pyproject.toml": PROJECT + "[tool.setuptools]\npy-modules = []\n", **SEVERAL}, False),
    ({"pyproject.toml": PROJECT + "[tool.setuptools.packages.find]\n", **SEVERAL}, False),
    ({"pyproject.toml": PROJECT + '[tool.setuptools.package-dir]\nthing = "data"\n', **SEVERAL}, False),
    ({"pyproject.toml": PROJECT + '[tool.setuptools.package-dir]\n"" = "models"\n', **SEVERAL}, False),
    ({"setup.py": SETUP.format(more=""), **SEVERAL}, True),
    ({"setup.py": SETUP.format(more=", packages=[]"), **SEVERAL}, False),
    ({"setup.py": SETUP.format(more=", py_modules=['a']"), **SEVERAL, "a.py": ""}, False),
    ({"setup.py": "import setuptools\n" + SETUP.format(more=", packages=setuptools.find_packages()"), **SEVERAL}, False),
    ({"setup.py": SETUP.format(more=", **{'packages': []}"), **SEVERAL}, False),
    ({"setup.py": SETUP.format(more=", package_dir={'': 'models'}"), **SEVERAL}, False),
    ({"setup.py": SETUP.format(more=", ext_modules=[]"), **SEVERAL}, False),
    ({"pyproject.toml": PROJECT, "setup.py": SETUP.format(more=", ext_modules=[]"), **SEVERAL}, True),
    ({"setup.py": SETUP.format(more=""), "setup.cfg": "[options]\npackages = find:\n", **SEVERAL}, False),
    ({"setup.py": SETUP.format(more=""), "setup.cfg": "[options]\npackage_dir =\n  = models\n", **SEVERAL}, False),
    ({"setup.py": SETUP.format(more=""), "setup.cfg": "[flake8]\nmax-line-length = 99\n", **SEVERAL}, True),
]  # fmt: skip

# Asks setuptools for its build requirements in each folder, for which it collects the packages
ASK = """
import contextlib, io, json, os, sys
from setuptools import build_meta
refused = []
for folder in sys.argv[1:]:
    os.chdir(folder)
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            build_meta.get_requires_for_build_wheel()
        refused.append(False)
    except BaseException as error:
        if "Multiple top-level" not in f"{error}{said.getvalue()}":
            raise
        refused.append(True)
print(json.dumps(refused))
"""


def asked(folders):
    done = run_program([sys.executable, "-c", ASK, *map(str, folders)], check=True)
    return json.loads(done.stdout.splitlines()[-1])


def test_every_layout_is_judged_as_setuptools_judges_it(tmp_path):
    folders = [write(tmp_path / str(i), files) for i, (files, _) in enumerate(LAYOUTS)]
    ours = ["setuptools refuses several top-level" in (find_reason(folder) or "") for folder in folders]
    assert ours == [refused for _, refused in LAYOUTS]
    assert asked(folders) == ours


_NAMES = st.sampled_from(
    [
        *("a", "b", "c-d", "data", "models", "tests", "test", "doc", "docs", "examples", "scripts", "tools", "util"),
        *("utils", "python", "build", "dist", "requirements", "tasks", "benchmarks", "exercises", "_x", "x.y"),
        *("conftest", "noxfile", "manage", "conanfile", "SConstruct", "1a", "bin", "ci", "env", "a-stubs", "ez_setup"),
    ]
)  # fmt: skip


JUDGE = """
import sys
from setuptools import Distribution
from setuptools.errors import PackageDiscoveryError

for line in sys.stdin:
    try:
        Distribution({"src_root": line.rstrip("\\n")}).set_defaults(name=False)
    except PackageDiscoveryError:
        print("refused", flush=True)
    else:
        print("fine", flush=True)
"""


@pytest.fixture(scope="module")
def setuptools():
    """setuptools in a process of its own: it replaces distutils, which another test may have imported."""
    with subprocess.Popen(
        [sys.executable, "-c", JUDGE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        yield child
        child.stdin.close()


@settings(max_examples=40)
@given(folders=st.sets(_NAMES, max_size=4), modules=st.sets(_NAMES, max_size=3))
def test_any_top_level_is_judged_as_setuptools_judges_it(setuptools, tmp_path_factory, folders, modules):
    files = {f"{name}/x.txt": "" for name in folders} | {f"{name}.py": "" for name in modules}
    folder = write(tmp_path_factory.mktemp("p"), {"pyproject.toml": PROJECT, **files})
    print(folder, file=setuptools.stdin, flush=True)
    refused = {"refused": True, "fine": False}[setuptools.stdout.readline().strip()]
    assert (find_reason(folder) is not None) == refused


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"pyproject.toml": "[tool.black]\nline-length = 99\n"}, "its files contain only settings of tools"),
        ({"setup.cfg": "[flake8]\n"}, "its files contain only settings of tools"),
        (
            {"pyproject.toml": f"{PROJECT}[tool.uv]\npackage = false\n", "thing/a.py": ""},
            "pyproject.toml sets package = false in [tool.uv]",
        ),
        (
            {"pyproject.toml": '[tool.poetry]\npackage-mode = false\n[tool.poetry.dependencies]\npython = "*"\n'},
            "pyproject.toml sets package-mode = false in [tool.poetry]",
        ),
        (
            {"pyproject.toml": PROJECT, **SEVERAL, "segment/a.py": "", "classify/b.py": ""},
            "setuptools refuses several top-level packages: classify, data, models and 1 more",
        ),
        ({"pyproject.toml": PROJECT, "a.py": "", "b.py": ""}, "setuptools refuses several top-level modules: a, b"),
        ({"pyproject.toml": SCM, "thing/a.py": ""}, "its version is that of a git repository, and this folder is none"),
        ({"pyproject.toml": VCS, "thing/a.py": ""}, "its version is that of a git repository, and this folder is none"),
        ({"setup.py": "from torch.utils import cpp_extension\n"}, "setup.py imports torch, which a build does not have"),
    ],
)  # fmt: skip
def test_an_unbuildable_project_has_its_reason(tmp_path, files, reason):
    assert find_reason(write(tmp_path, files)) == reason


@pytest.mark.parametrize(
    "files",
    [
        {"pyproject.toml": PROJECT, "thing/a.py": ""},
        {"pyproject.toml": PROJECT.replace("setuptools.build_meta", "own.build"), **SEVERAL},
        {"pyproject.toml": SETUPTOOLS.replace('meta"', 'meta"\nbackend-path = ["."]'), **SEVERAL},
        {"pyproject.toml": "[tool.black]\n", "setup.py": SETUP.format(more=", packages=['a']")},
        {"pyproject.toml": "[tool.black]\n", "setup.cfg": "[metadata]\nname = thing\n"},
        {"pyproject.toml": "[project]\nname = 'thing'\n", **SEVERAL},
        {"setup.py": "from own import build\nbuild()\n", **SEVERAL},
        {"setup.py": "def (", **SEVERAL},
        {"pyproject.toml": "[project", **SEVERAL},
        {"pyproject.toml": SCM, "thing/a.py": "", ".git/HEAD": ""},
        {"pyproject.toml": f'{SCM}[tool.setuptools_scm]\nfallback_version = "1"\n', "thing/a.py": ""},
        {"pyproject.toml": SCM.replace('dynamic = ["version"]', 'version = "1"'), "thing/a.py": ""},
        {"pyproject.toml": VCS.replace("hatch-vcs", "hatchling"), "thing/a.py": ""},
        {"pyproject.toml": SETUPTOOLS.replace('"]', '", "torch"]', 1), "setup.py": "import torch\n"},
        {"setup.py": "def later():\n    import torch\n"},
    ],
)
def test_projects_that_may_be_buildable_have_no_reason(tmp_path, files):
    assert find_reason(write(tmp_path, files)) is None


# --- backends that look for a package of the project's name ------------------------------------------

_NAMED = {
    "hatchling": (PROJECT.replace("setuptools.build_meta", "hatchling.build"), "[tool.hatch.build.targets.wheel]\npackages = ['models']\n"),
    "flit": (PROJECT.replace("setuptools.build_meta", "flit_core.buildapi"), "[tool.flit.module]\nname = 'models'\n"),
    "uv": (PROJECT.replace("setuptools.build_meta", "uv_build"), "[tool.uv.build-backend]\nmodule-name = 'models'\n"),
    "poetry": (
        ('[build-system]\nbuild-backend = "poetry.core.masonry.api"\n[tool.poetry]\nname = "thing"\n'
        "[tool.poetry.dependencies]\npython = '*'\n"),
        "[[tool.poetry.packages]]\ninclude = 'models'\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize("backend", _NAMED)
def test_a_backend_without_a_package_of_the_project_name_is_named(tmp_path, backend):
    text, contents = _NAMED[backend]
    folder = write(tmp_path / "a", {"pyproject.toml": text, **SEVERAL})
    assert find_reason(folder) == f"{backend} finds no package or module thing"
    for number, file in enumerate(("thing/__init__.py", "src/thing/__init__.py", "thing.py")):
        folder = write(tmp_path / str(number), {"pyproject.toml": text, file: "", **SEVERAL})
        assert find_reason(folder) is None
    folder = write(tmp_path / "b", {"pyproject.toml": text + contents, **SEVERAL})
    assert find_reason(folder) is None


@pytest.mark.parametrize(
    "files",
    [{}, {"thing/__init__.py": ""}, {"src/thing/__init__.py": ""}, {"thing.py": ""},
     {"own/thing/__init__.py": ""}, {"models/a.py": ""}],
)  # fmt: skip
def test_our_judgement_is_that_of_hatchling(tmp_path, files):
    from hatchling.builders.wheel import WheelBuilder

    folder = write(tmp_path, {"pyproject.toml": _NAMED["hatchling"][0], **files})
    try:
        refused = not WheelBuilder(str(folder)).config.default_file_selection_options
    except ValueError:
        refused = True
    assert (find_reason(folder) is not None) == refused
