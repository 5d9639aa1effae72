"""A project's folder: pyproject.toml, poetry, setup.cfg and setup.py, read and never run."""
# ruff: noqa: F811  # fixtures are imported by their name

import time

import pytest
from hypothesis import given, strategies as st
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from project_folder import asked, folder  # noqa: F401  # fixtures
from rows import rows

from provision.cli import exit_codes
from provision.errors import GpuenvError, UsageError
from provision.model import VersionBound
from provision.requirements import poetry
from provision.requirements.toml import TomlFile, find_project_name


def texts(found):
    return [(n.text, n.origin.removeprefix("pyproject.toml ")) for n in found.lines]


def refusal(*args, **kwargs):
    with pytest.raises(UsageError) as caught:
        asked(*args, **kwargs)
    assert caught.value.hint
    return caught.value.message


STANDARD = """\
    [build-system]
    requires = ["hatchling"]

    [project]
    name = "My_Project"
    version = "1"
    requires-python = ">=3.10,<3.13"
    dependencies = [
      "numpy>=1.26",  # arrays
      'torch==2.5.1+cu124',
      "jax[cuda12] ; sys_platform == 'linux'",
    ]

    [project.optional-dependencies]
    viz = ["matplotlib", "numpy>=1.26"]
    all = ["my-project[viz,deep]", "tqdm"]
    deep = ["my.project[all]", "transformers"]

    [dependency-groups]
    test = ["pytest>8", {include-group = "Lint"}]
    lint = ["ruff"]
    loop = [{include-group = "loop2"}]
    loop2 = [{include-group = "loop"}]
    odd = [{path = "x"}]
    """


def test_a_pyproject_with_a_project_table_is_read(folder):
    found = asked(folder, STANDARD)
    assert found.frameworks == ("torch", "jax")
    assert found.bounds == (VersionBound(name="torch", specifier="==2.5.1", origin="pyproject.toml line 10"),)
    assert texts(found) == [
        ("numpy>=1.26", "line 9"),
        (f"My_Project @ {folder.as_uri()}", "the project's folder"),
    ]
    itself = found.lines[-1]
    assert itself.local == str(folder) and itself.editable
    assert SpecifierSet(found.requires_python) == SpecifierSet(">=3.10,<3.13")
    assert found.python_origin == "pyproject.toml line 7"
    assert found.files == (str(folder / "pyproject.toml"),)


def test_extras_that_include_others_are_followed(folder):
    listed = texts(asked(folder, STANDARD, extras=["All"]))[1:-1]
    assert listed == [
        ("tqdm", "line 16"), ("transformers", "line 17"), ("matplotlib", "line 15"), ("numpy>=1.26", "line 15"),
    ]  # fmt: skip
    assert "no extra 'vis'" in refusal(folder, STANDARD, extras=["vis"])
    windows = STANDARD.replace("[viz,deep]", "[deep]\", \"my-project[viz] ; sys_platform == 'win32'")
    assert [text for text, _ in texts(asked(folder, windows, extras=["all"]))[1:-1]] == [
        "tqdm",
        "transformers",
    ]
    half = STANDARD.replace("my-project[viz,deep]", "my-project[viz")
    assert "pyproject.toml line 16: 'my-project[viz'" in refusal(folder, half, extras=["all"])


def test_groups_that_include_others_are_followed(folder):
    assert texts(asked(folder, STANDARD, groups=["TEST"]))[1:-1] == [
        ("pytest>8", "line 20"), ("ruff", "line 21"),
    ]  # fmt: skip
    assert "loop -> loop2 -> loop" in refusal(folder, STANDARD, groups=["loop"])
    assert "include-group" in refusal(folder, STANDARD, groups=["odd"])
    assert "no dependency group" in refusal(folder, STANDARD, groups=["docs"])
    assert "expected a list" in refusal(folder, STANDARD + "text = 'ruff'\n", groups=["text"])


@pytest.mark.parametrize(
    ("tables", "itself"),
    [
        ("[build-system]\nrequires=[]\n", True),
        ("", False),
        ("[build-system]\nrequires=[]\n[tool.uv]\npackage=false\n", False),
        ("[build-system]\nrequires=[]\n[tool.poetry]\npackage-mode=false\n", False),
    ],
)
def test_the_folder_itself_is_installed_only_where_it_is_a_package(folder, tables, itself):
    found = asked(folder, '[project]\nname="a"\ndependencies=["numpy"]\n' + tables)
    assert [n.name for n in found.lines] == ["numpy"] + ["a"] * itself


def test_a_relative_folder_is_read_and_a_missing_one_is_refused(folder):
    (folder / "sub").mkdir()
    (folder / "sub" / "pyproject.toml").write_text("[project]\nname='sub'\n")
    text = '[project]\nname="a"\ndependencies=["sub @ ./sub", "x @ file:///nowhere/x"]\n'
    assert "pyproject.toml line 3" in refusal(folder, text)
    found = asked(folder, text.replace(', "x @ file:///nowhere/x"', ""))
    assert found.lines[0].local == str(folder / "sub")


def test_dependencies_in_the_table_of_poetry_are_read(folder):
    found = asked(
        folder,
        """\
        [tool.poetry]
        name = "p"
        [tool.poetry.dependencies]
        python = "^3.10"
        torch = {version = "^2.4", source = "pytorch"}
        numpy = "~1.26"
        pandas = "*"
        "ruamel.yaml" = ">=0.17,<0.19"
        transformers = {version = "^4", extras = ["vision"], markers = "sys_platform == 'linux'"}
        tool = {git = "https://github.com/o/tool.git", tag = "v1", subdirectory = "src"}
        both = [{version = "1.0", python = "<3.11"}, {version = "2.0", python = ">=3.11"}]
        plots = {version = "^0.3.1", optional = true}
        mine = {git = "git@host:o/mine.git", platform = "linux"}
        [tool.poetry.extras]
        viz = ["plots"]
        [tool.poetry.group.dev.dependencies]
        pytest = "^8"
        """,
        extras=["viz"],
        groups=["dev"],
    )
    assert found.frameworks == ("torch",)
    assert (found.bounds[0].specifier, found.bounds[0].origin) == ("<3,>=2.4", "pyproject.toml line 5")
    assert (SpecifierSet(found.requires_python), found.python_origin) == (
        SpecifierSet(">=3.10,<4"), "pyproject.toml line 4",
    )  # fmt: skip
    listed = [(Requirement(t), o) for t, o in texts(found)]
    assert listed == [(Requirement(t), o) for t, o in [
        ("numpy<1.27,>=1.26", "line 6"),
        ("pandas", "line 7"),
        ("ruamel.yaml<0.19,>=0.17", "line 8"),
        ('transformers[vision]<5,>=4; sys_platform == "linux"', "line 9"),
        ("tool@ git+https://github.com/o/tool.git@v1#subdirectory=src", "line 10"),
        ('both==1.0; python_version < "3.11"', "line 11"),
        ('both==2.0; python_version >= "3.11"', "line 11"),
        ('mine@ git+ssh://git@host/o/mine.git ; sys_platform == "linux"', "line 13"),
        ("plots<0.4,>=0.3.1", "line 12"),
        ("pytest<9,>=8", "line 17"),
    ]]  # fmt: skip


@rows(
    ("written", "meant"),
    [
        ("^1.2.3", ">=1.2.3,<2"),
        ("^0.2.3", ">=0.2.3,<0.3"),
        ("^0.0.3", ">=0.0.3,<0.0.4"),
        ("^0.0", ">=0.0,<0.1"),
        ("^0", ">=0,<1"),
        ("~1.2.3", ">=1.2.3,<1.3"),
        ("~1.2", ">=1.2,<1.3"),
        ("~1", ">=1,<2"),
        ("1.2.*", "==1.2.*"),
        ("1.2", "==1.2"),
        ("=1.2", "==1.2"),
        (">=1.2 <2", ">=1.2,<2"),
        (">= 1.2, < 2", ">=1.2,<2"),
        ("*", ""),
        ("~=1.4.2", "~=1.4.2"),
        ("^1.2 || ^3.0", ">=1.2"),
        ("<2 || >3", ""),
    ],
)
def test_constraints_of_poetry_are_converted(written, meant):
    """The table of poetry's documentation, "Dependency specification"."""
    assert SpecifierSet(poetry._convert_constraint(written, "here") or "") == SpecifierSet(meant)


def test_the_old_table_of_poetry_is_the_group_dev(folder):
    text = "[project]\nname='x'\ndynamic=['dependencies']\n[tool.poetry.dependencies]\nnumpy='^1'\n"
    found = asked(folder, f"{text}[tool.poetry.dev-dependencies]\npytest='^8'\n", groups=["dev"])
    assert texts(found) == [("numpy<2,>=1", "line 5"), ("pytest<9,>=8", "line 7")]


def test_dynamic_dependencies_are_read_from_their_files(folder):
    text = """\
        [project]
        name = "x"
        dynamic = ["dependencies", "optional-dependencies"]
        [tool.setuptools.dynamic]
        dependencies = {file = ["requirements.txt"]}
        optional-dependencies.dev = {file = "dev.txt"}
        """
    found = asked(folder, text, extras=["dev"], requirements_txt="torch>=2\n# c\nnumpy\n", dev_txt="pytest\n")
    assert found.bounds[0].origin == "requirements.txt line 1"
    assert texts(found) == [("numpy", "requirements.txt line 3"), ("pytest", "dev.txt line 1")]
    assert len(found.files) == 3
    (folder / "dev.txt").unlink()
    assert "dev.txt" in refusal(folder, text, extras=["dev"])


def test_what_pyproject_leaves_to_setuptools_is_read_there(folder):
    text = "[project]\nname='x'\ndynamic=['requires-python', 'dependencies', 'optional-dependencies']\n"
    cfg = "[options]\npython_requires = >=3.9\ninstall_requires = numpy\n[options.extras_require]\ndev = pytest\n"
    found = asked(folder, text, extras=["dev"], setup_cfg=cfg)
    assert [n.origin for n in found.lines[:2]] == [
        "setup.cfg [options.install_requires]", "setup.cfg [options.extras_require]",
    ]  # fmt: skip
    assert (found.requires_python, found.python_origin) == (">=3.9", "setup.cfg [options.python_requires]")
    setup = "from setuptools import setup\nsetup(install_requires=3)\n"
    assert not texts(asked(folder, text, setup_cfg="", setup_py=setup))[:-1]


SETUP = """\
    import setuptools
    requires = ["torch>=1.8", "numpy"]
    raise SystemExit("this file is read, not run")
    setuptools.setup(name="s", install_requires=requires, python_requires=">=3.8",
        extras_require={"dev": ["pytest"]})
    """


def test_setup_py_is_read_as_far_as_it_is_literal(folder):
    found = asked(folder, extras=["dev"], setup_py=SETUP)
    assert found.bounds[0].specifier == ">=1.8" and found.requires_python == ">=3.8"
    assert [n.name for n in found.lines] == ["numpy", "pytest", "s"]
    assert found.lines[-1].editable


@pytest.mark.parametrize(
    "computed",
    [
        "requires = [l for l in open('requirements.txt')]",
        "requires = ['a']\nrequires += ['b']",
        "requires = ['a']\nrequires.append('b')",
        "requires = ['a']\nif True:\n    requires = []",
    ],
)
def test_what_setup_py_computes_is_not_guessed(folder, computed):
    text = f"from setuptools import setup\n{computed}\nsetup(name='s', install_requires=requires)\n"
    (folder / "setup.py").write_text(text)
    found = asked(folder, extras=["dev"])
    assert str(found.computed).startswith("setup.py line")
    assert [n.text for n in found.lines] == [f"s[dev] @ {folder.as_uri()}"]
    message = refusal(folder, install=False)
    assert "computes its requirements in code" in message and "setup.py line" in message


def test_setup_cfg_decides_before_setup_py(folder):
    cfg = """\
        [metadata]
        name = c
        [options]
        python_requires = >=3.9
        install_requires =
            torch>=2
            numpy  # arrays
            # nothing
        [options.extras_require]
        dev = pytest; python_version > "3"
        """
    found = asked(folder, extras=["dev"], setup_cfg=cfg, setup_py="from setuptools import setup\nsetup()\n")
    assert [n.name for n in found.lines] == ["numpy", "pytest", "c"]
    assert found.bounds[0].origin == "setup.cfg [options.install_requires]"
    assert found.python_origin == "setup.cfg [options.python_requires]"
    cfg = "[options]\ninstall_requires = file: requirements.txt\n"
    found = asked(folder, setup_cfg=cfg, requirements_txt="jax\nsix\n")
    assert found.frameworks == ("jax",) and found.lines[0].origin == "requirements.txt line 2"


def test_sources_of_uv_are_read(folder):
    (folder / "lib").mkdir()
    (folder / "lib" / "pyproject.toml").write_text("[project]\nname='lib'\n")
    found = asked(
        folder,
        """\
        [project]
        name = "x"
        dependencies = ["lib[a]>=1", "tool; sys_platform == 'linux'", "torch", "shared"]
        [tool.uv.sources]
        lib = {path = "lib", editable = true}
        tool = {git = "https://host/tool", rev = "abc"}
        torch = {index = "pytorch-cu124"}
        shared = {workspace = true}
        """,
    )
    lib, tool, shared = found.lines
    assert (lib.text, lib.editable, lib.local) == (
        f"lib[a] @ {(folder / 'lib').as_uri()}", True, str(folder / "lib"),
    )  # fmt: skip
    assert tool.text == 'tool @ git+https://host/tool@abc ; sys_platform == "linux"'
    assert shared.text == "shared"
    assert [s.partition(" (")[0] for s in found.left_out] == [
        "tool.uv.sources of torch", "tool.uv.sources of shared",
    ]  # fmt: skip


def test_a_member_finds_its_neighbours_in_the_workspace_around_it(folder):
    (folder / ".git").mkdir()
    for name, text in (
        ("", "[tool.uv.workspace]\nmembers=['packages/*']\n"),
        ("packages/a", "[project]\nname='a'\ndependencies=['b']\n[tool.uv.sources]\nb={workspace=true}\n"),
        ("packages/b", "[project]\nname='b'\n[build-system]\nrequires=[]\n"),
    ):
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "pyproject.toml").write_text(text)
    (need, *_) = asked(folder / "packages" / "a").lines
    assert (need.local, need.editable) == (str(folder / "packages" / "b"), True)


def test_a_key_of_a_later_table_is_not_that_of_this_one():
    places = TomlFile("a.toml", "[one]\nx = 1\n[two]\ny = 2\n")
    assert (places.locate_key("y", "two"), places.locate_key("y", "one")) == (
        "a.toml line 4",
        "a.toml [one.y]",
    )


def test_an_explicit_page_of_wheels_is_read_only_for_what_names_it(folder):
    stated = """\
        [project]
        name = "x"
        dependencies = ["torch"]
        optional-dependencies.fast = ["natten"]
        [tool.uv.sources]
        natten = {index = "pages"}
        [[tool.uv.index]]
        name = "pages"
        url = "https://host/wheels"
        format = "flat"
        """
    assert asked(folder, stated).find_links == ("https://host/wheels",)
    explicit = stated + "explicit = true\n"
    assert asked(folder, explicit).find_links == ()
    assert asked(folder, explicit, extras=["fast"]).find_links == ("https://host/wheels",)


def test_requirements_and_a_project_together_name_files_below_the_project(folder):
    (folder / "more.txt").write_text("six\n")
    found = asked(folder, "[project]\nname='x'\ndependencies=['tqdm']\n", requirements=[folder / "more.txt"])
    assert texts(found) == [("six", "more.txt line 1"), ("tqdm", "line 3")]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[project\n", "not TOML: line 1, column 9: Expected"),
        ('[project]\nname = "x\n', "not TOML: line 2, column 10: the closing quote is missing"),
        ("[project]\ndependencies = [\n", "not TOML: at the end of the file: the value is missing"),
        ("x = 1\nx = 2\n", "the key is there twice"),
        ("[tool.black]\n", "no [project] table"),
        ("[project]\nname='x'\ndynamic=['dependencies']\n", "line 3 computes its requirements"),
        ("[project]\nname='x'\ndependencies='numpy'\n", "list of strings"),
        ("[project]\nname='x'\ndependencies=['numpy>>1']\n", "pyproject.toml line 3"),
        ("[project]\nname='x'\nrequires-python='3.10+'\n", "pyproject.toml line 3"),
        ("[tool.poetry.dependencies]\nnumpy='^x'\n", "pyproject.toml line 2"),
        ("x = " + "[" * 5000, "not TOML"),
        (f"[tool.poetry.dependencies]\nnumpy='{'1' * 1001}'\n", "line 2: the constraint is too long"),
        (
            "[project]\nname='x'\ndynamic=['dependencies']\n[tool.setuptools.dynamic]\ndependencies={file=3}\n",
            "a path or a list of paths",
        ),
        ("[project]\nname='x'\n[tool.uv]\nindex='x'\n", "a list of tables"),
        (
            "[project]\nname='x'\ndependencies=['a>>1']\n[tool.uv.sources]\na={path='b'}\n",
            "pyproject.toml line 3",
        ),
    ],
)
def test_a_mistake_is_named_with_its_place(folder, text, says):
    assert says in refusal(folder, text)


def test_a_folder_without_a_project_is_refused(folder):
    assert "no pyproject.toml" in refusal(folder)
    assert "no pyproject.toml" in refusal(folder / "gone")
    (folder / "pyproject.toml").write_text("[project")
    assert find_project_name(folder) is None, "the mistake is that of its reader"


_VALUES = st.recursive(
    st.sampled_from(["torch", "numpy>=1", "x @ ./y", "^1.0", "*", ">=3", "", "a b"]) | st.booleans() | st.integers(),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["version", "git", "file", "path", "include-group", "python", "markers"]), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
_KEYS = st.sampled_from(
    ["name", "dependencies", "dynamic", "requires-python", "optional-dependencies", "python", "a", "extras"]
)


@given(
    project_table=st.dictionaries(_KEYS, _VALUES, max_size=4),
    poetry_table=st.dictionaries(_KEYS, _VALUES, max_size=3),
    groups=st.dictionaries(st.sampled_from(["a", "b"]), _VALUES, max_size=2),
    which=st.sets(st.sampled_from(["project", "poetry", "groups", "sources", "setuptools"])),
)
def test_no_table_causes_an_internal_error(folder, project_table, poetry_table, groups, which):
    import tomli_w

    data = {"tool": {}}
    if "project" in which:
        data["project"] = project_table
    if "poetry" in which:
        data["tool"]["poetry"] = poetry_table
    if "groups" in which:
        data["dependency-groups"] = groups
    if "sources" in which:
        data["tool"]["uv"] = {"sources": {"numpy": groups.get("a", 1), "torch": groups}}
    if "setuptools" in which:
        data["tool"]["setuptools"] = {"dynamic": poetry_table}
    (folder / "pyproject.toml").write_text(tomli_w.dumps(data))
    try:
        asked(folder, extras=["a"][: len(which) % 2], groups=["a"][: len(groups)])
    except GpuenvError as error:
        raised = error
    else:
        return
    assert exit_codes.get_error_code(raised) == exit_codes.USAGE


@given(text=st.text(alphabet="ab[]{}()='\"\n ,*.:#\\f%;setuprqi", max_size=120))
def test_no_setup_file_causes_an_internal_error(folder, text):
    (folder / "setup.py").write_text("from setuptools import setup\nsetup(install_requires=" + text)
    (folder / "setup.cfg").write_text("[options]\ninstall_requires=" + text)
    try:
        asked(folder)
    except GpuenvError as error:
        raised = error
    else:
        return
    assert exit_codes.get_error_code(raised) == exit_codes.USAGE


def test_groups_that_double_and_chains_are_bounded(folder):
    rows = [f'g{i} = [{{include-group = "g{i + 1}"}}, {{include-group = "g{i + 1}"}}]' for i in range(30)]
    text = "[project]\nname = 'x'\n[dependency-groups]\n" + "\n".join([*rows, 'g30 = ["six"]\n'])
    assert [n.name for n in asked(folder, text, groups=["g0"]).lines] == ["six"]
    rows = [f'g{i} = [{{include-group = "g{i + 1}"}}]' for i in range(3000)]
    text = "[project]\nname = 'x'\n[dependency-groups]\n" + "\n".join([*rows, "g3000 = []\n"])
    assert "deep" in refusal(folder, text, groups=["g0"])


@pytest.mark.parametrize(
    "code", ["-" * 150_000 + "1", "a" + ".b" * 90_000, "[" * 150, "x" * 300_000, "f" + "()" * 90_000]
)
def test_deep_code_is_refused(folder, code):
    (folder / "setup.py").write_text(f"setup(install_requires={code})")
    assert "setup.py" in refusal(folder)


def test_a_project_of_many_dependencies_is_read_at_once(folder):
    started = time.process_time()
    rows = "".join(f'  "package-{i}>=1",\n' for i in range(5000))
    found = asked(folder, f'[project]\nname = "x"\ndependencies = [\n{rows}]\n')
    assert found.lines[-1].origin == "pyproject.toml line 5003"
    assert time.process_time() - started < 20
