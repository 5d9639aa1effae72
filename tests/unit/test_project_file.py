"""Which file describes a project, and how far above this folder it is looked for."""

import errno
import os
import textwrap
from pathlib import Path

import pytest
from rows import rows

from provision.config.edit import add_packages, drop_packages
from provision.config.env import find_in_folder, find_project_file
from provision.config.file import parse_config, read_config
from provision.config.project import digest_files, name_watched_file, read_cached_config
from provision.errors import DataError
from provision.system.files import suggest_fix

YAML = 'frameworks: ["torch>=2.6"]\n'
TABLE = '[project]\nname = "x"\n\n[tool.gpuenv]\nframeworks = ["torch>=2.6"]\n'


@pytest.fixture
def tree(tmp_path):
    """A home, a project in it, and a folder two levels below."""
    below = tmp_path / "home" / "project" / "src" / "deep"
    below.mkdir(parents=True)
    return tmp_path


def found(tree):
    return find_project_file(tree / "home/project/src/deep", [tree / "home"])


@pytest.mark.parametrize(
    ("name", "text"), [("gpuenv.yaml", YAML), ("gpuenv.yml", YAML), ("pyproject.toml", TABLE)]
)
def test_each_name_is_found_here_and_above_and_says_the_same(tree, name, text):
    file = tree / "home/project" / name
    file.write_text(text)
    assert find_in_folder(file.parent) == file
    assert found(tree) == file
    assert read_config(file).frameworks == ("torch>=2.6",)


def test_the_nearest_file_applies(tree):
    for folder in ("home/project", "home/project/src"):
        (tree / folder / "gpuenv.yaml").write_text(YAML)
    assert found(tree) == tree / "home/project/src/gpuenv.yaml"


def test_a_pyproject_without_the_table_is_passed(tree):
    (tree / "home/project/src/pyproject.toml").write_text('[project]\nname = "gpuenv"\n')
    (tree / "home/project/gpuenv.yaml").write_text(YAML)
    assert found(tree) == tree / "home/project/gpuenv.yaml"


def test_the_search_stops_at_home_and_does_not_read_it(tree):
    (tree / "home/gpuenv.yaml").write_text(YAML)
    (tree / "gpuenv.yaml").write_text(YAML)
    assert found(tree) is None
    assert find_project_file(tree / "home", [tree / "home"]) == tree / "home/gpuenv.yaml"
    (tree / "home/gpuenv.yaml").unlink()
    assert find_project_file(tree / "home", [tree / "home"]) is None


def test_home_by_another_name_stops_it_too(tree):
    (tree / "home/gpuenv.yaml").write_text(YAML)
    (tree / "linked").symlink_to(tree / "home")
    assert find_project_file(tree / "home/project", [tree / "linked"]) is None


def test_a_folder_that_everybody_may_write_to_stops_it(tree):
    (tree / "home/project/gpuenv.yaml").write_text(YAML)
    (tree / "home/project").chmod(0o777)
    assert found(tree) is None
    assert find_project_file(tree / "home/project", []) == tree / "home/project/gpuenv.yaml"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
@pytest.mark.parametrize("given", ["home/project/src", "home/project/src/deep"])
def test_a_folder_of_another_user_stops_it(tree, given):
    (tree / "home/project/gpuenv.yaml").write_text(YAML)
    (tree / "home/project/src/gpuenv.yaml").write_text(YAML)
    os.chown(tree / given, 12345, 12345)
    assert found(tree) is None


def test_another_file_system_stops_it(tmp_path):
    """/dev/shm is a file system of its own on Linux; its own parents are another one."""
    shm = Path("/dev/shm")
    if not shm.is_dir() or shm.stat().st_dev == Path("/dev").stat().st_dev:
        pytest.skip("there is no second file system")
    assert find_project_file(shm, []) is None


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"gpuenv.yaml": YAML, "gpuenv.yml": YAML}, "gpuenv.yaml and gpuenv.yml"),
        ({"gpuenv.yaml": YAML, "pyproject.toml": TABLE}, "gpuenv.yaml and [tool.gpuenv] of pyproject.toml"),
        ({"gpuenv.yml": YAML, "pyproject.toml": TABLE}, "gpuenv.yml and [tool.gpuenv] of pyproject.toml"),
    ],
)
def test_two_files_for_one_project_are_an_error(tree, files, says):
    for name, text in files.items():
        (tree / "home/project" / name).write_text(text)
    with pytest.raises(DataError) as error:
        found(tree)
    assert says in error.value.message and "keep one" in error.value.hint


@pytest.mark.parametrize(
    "text", ["[tool.gpuenv\n", "[tool.gpuenv]\nx = \n", "[tool]\ngpuenv = 1\n# tool.gpuenv"]
)
def test_a_broken_pyproject_is_named_where_it_is_the_projects_file(tree, text):
    (tree / "home/project/pyproject.toml").write_text(text)
    with pytest.raises(DataError, match=r"pyproject.toml is invalid"):
        found(tree)
    (tree / "home/project/gpuenv.yaml").write_text(YAML)
    assert found(tree) == tree / "home/project/gpuenv.yaml"


def test_a_broken_pyproject_of_another_tool_is_left_alone(tree):
    (tree / "home/project/pyproject.toml").write_text("[project\n")
    assert found(tree) is None


EVERY = """
    [tool.gpuenv]
    frameworks = ["torch>=2.6"]
    requirements = ["requirements.txt"]
    project = {path = ".", install = false}
    extras = ["dev"]
    packages = ["numpy>=1.26"]
    python = ">=3.9"
    device = "cpu"
    find_links = ["wheels"]

    [tool.gpuenv.indexes]
    pypi = "https://mirror.example/simple"

    [tool.gpuenv.targets.node-a]
    driver = "550.54.15"
    gpus = ["9.0"]

    [[tool.gpuenv.checks]]
    import = "cv2"

    [[tool.gpuenv.checks]]
    run = "python train.py --help"
    timeout = 120
"""
SAME = """
    frameworks: ["torch>=2.6"]
    requirements: [requirements.txt]
    project: {path: ., install: false}
    extras: [dev]
    packages: ["numpy>=1.26"]
    python: ">=3.9"
    device: cpu
    find_links: [wheels]
    indexes: {pypi: "https://mirror.example/simple"}
    targets:
      node-a: {driver: "550.54.15", gpus: ["9.0"]}
    checks:
      - import: cv2
      - {run: python train.py --help, timeout: 120}
"""


def test_the_table_has_the_same_keys():
    of_table = parse_config("pyproject.toml", textwrap.dedent(EVERY).encode())
    assert of_table == parse_config("gpuenv.yaml", textwrap.dedent(SAME).encode())


def test_all_mistakes_of_a_table_come_at_once_with_their_lines(golden):
    rows = [
        "[project]", 'name = "x"', "[tool.gpuenv]", "python = 3.10", 'device = "gpu"', "nope = true",
        "[tool.gpuenv.targets.x]", "driver = 550",
    ]  # fmt: skip
    text = "\n".join(rows)
    with pytest.raises(DataError) as error:
        parse_config("pyproject.toml", text.encode())
    found = error.value.problems
    assert [p.split(": ")[:2] for p in found] == [
        ["pyproject.toml:6", "nope"], ["pyproject.toml:4", "python"], ["pyproject.toml:5", "device"],
        ["pyproject.toml:8", "targets.x.driver"],
    ]  # fmt: skip
    golden("project-file", "\n".join(found))


def test_deep_nesting_in_a_table_is_refused():
    text = "[tool.gpuenv]\nframeworks = " + "[" * 60 + "]" * 60 + "\n"
    with pytest.raises(DataError, match="invalid"):
        parse_config("pyproject.toml", text.encode())


def test_the_digest_of_a_table_counts_its_keys_but_the_checks(tmp_path):
    file = tmp_path / "pyproject.toml"
    name = name_watched_file(file)
    seen = []
    for text in (
        TABLE,
        TABLE + "[tool.ruff]\nline-length = 100\n",
        TABLE + '[[tool.gpuenv.checks]]\nimport = "cv2"\n',
        TABLE + 'packages = ["numpy"]\n',
    ):
        file.write_text(text)
        seen.append(digest_files([name]))
    assert seen[0] == seen[1] == seen[2] != seen[3]


def test_the_digest_of_a_pyproject_as_a_project_counts_all_but_the_table(tmp_path):
    file = tmp_path / "pyproject.toml"
    seen = []
    for text in (TABLE, TABLE + 'packages = ["numpy"]\n', TABLE.replace('"x"', '"y"')):
        file.write_text(text)
        seen.append(digest_files([str(file)]))
    assert seen[0] == seen[1] != seen[2]


def test_a_broken_pyproject_counts_with_all_its_bytes(tmp_path):
    file = tmp_path / "pyproject.toml"
    seen = []
    for text in ("[tool.gpuenv\n", "[tool.gpuenv\n#"):
        file.write_text(text)
        seen.append(digest_files([str(file)]))
    assert seen[0] != seen[1]


def test_a_folder_that_is_not_there_ends_no_search(tree):
    file = tree / "home/project/gpuenv.yaml"
    file.write_text(YAML)
    assert find_project_file(tree / "home/project/src", [tree / "missing", tree / "home"]) == file
    assert find_project_file(tree / "home/project/missing", [tree / "home"]) is None


def test_a_pyproject_and_a_yaml_of_the_same_bytes_are_not_mixed_up(tmp_path):
    for name in ("gpuenv.yaml", "pyproject.toml"):
        (tmp_path / name).write_text("# nothing of gpuenv\n")
    assert read_cached_config(tmp_path / "gpuenv.yaml", tmp_path / "cache").frameworks == ()
    assert read_cached_config(tmp_path / "pyproject.toml", tmp_path / "cache").frameworks == ()
    assert len(list((tmp_path / "cache").glob("project-*.json"))) == 2


EDITED = [
    (
        '[project]\nname = "x"\n\n[tool.gpuenv] # ours\nframeworks = ["torch"]\n\n[tool.ruff]\n',
        '[project]\nname = "x"\n\n[tool.gpuenv] # ours\nframeworks = ["torch"]\npackages = ["einops>=0.8"]\n\n[tool.ruff]\n',
    ),
    (
        '[tool.gpuenv]\npackages = [\n    "numpy",  # why\n]\n[tool.gpuenv.targets.ci]\ndevice = "cpu"\n',
        '[tool.gpuenv]\npackages = [\n    "numpy",  # why\n    "einops>=0.8",\n]\n[tool.gpuenv.targets.ci]\ndevice = "cpu"\n',
    ),
    ('[tool.gpuenv]\r\npackages = ["Einops"]\r\n', '[tool.gpuenv]\r\npackages = ["einops>=0.8"]\r\n'),
    ('[tool.gpuenv]\npackages = ["Einops"]\r\n', '[tool.gpuenv]\npackages = ["einops>=0.8"]\r\n'),
    (
        '[tool.gpuenv]\r\ndevice = "cpu"\r\n',
        '[tool.gpuenv]\r\ndevice = "cpu"\r\npackages = ["einops>=0.8"]\r\n',
    ),
    (
        'tool.gpuenv.frameworks = ["jax"]\n',
        'tool.gpuenv.frameworks = ["jax"]\ntool.gpuenv.packages = ["einops>=0.8"]\n',
    ),
]


@pytest.mark.parametrize(("before", "after"), EDITED)
def test_a_package_is_added_to_a_table_and_all_else_stays(tmp_path, before, after):
    file = tmp_path / "pyproject.toml"
    file.write_bytes(before.encode())
    add_packages(file, ["einops>=0.8"])
    assert file.read_bytes().decode() == after


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("pyproject.toml", '[tool.gpuenv]\npackages = [\n  "a", # x\n  "b",\n]\n', '[tool.gpuenv]\npackages = [\n  "a", # x\n]\n'),
        ("pyproject.toml", '[tool.gpuenv]\npackages = ["b>=1"]\nproject = "."\n', '[tool.gpuenv]\npackages = []\nproject = "."\n'),
        ("gpuenv.yaml", "packages:\n  - a # x\n  - b>=1 # y\n  - c\ndevice: cpu\n", "packages:\n  - a # x\n  - c\ndevice: cpu\n"),
        ("gpuenv.yaml", "packages: # all\n- b", "packages: # all\n"),
        ("gpuenv.yml", "packages: [b, a]\n", "packages: [a]\n"),
        ("gpuenv.yaml", "packages: [a, 'b', c] # x\n", "packages: [a, c] # x\n"),
        ("gpuenv.yaml", "packages: [b]\n", "packages: []\n"),
        ("gpuenv.yaml", "packages:\n  - b; sys_platform == 'linux'\n  - b; sys_platform != 'linux'\n", "packages:\n"),
    ],
)  # fmt: skip
def test_a_package_is_dropped_and_all_else_stays(tmp_path, name, before, after):
    file = tmp_path / name
    file.write_text(before)
    drop_packages(file, ["b"])
    assert file.read_text() == after
    drop_packages(file, ["b"])
    assert file.read_text() == after


@rows("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_gets_the_hint_to_free_space(code):
    hint = suggest_fix(OSError(code, os.strerror(code)), "check the folder's permissions")
    assert hint == "free space on the disk"


def test_another_failed_write_keeps_the_hint_of_its_caller():
    assert suggest_fix(PermissionError(errno.EACCES, "denied"), "check it") == "check it"
