"""Adding packages to a project file."""
# ruff: noqa: F811  # fixtures are imported by their names

import dataclasses
import os
import re

import pytest
from hypothesis import given, strategies as st
from project_config import path, read  # noqa: F401  # fixtures

from provision.config import edit
from provision.config.edit import add_packages, parse_package_name
from provision.config.file import read_config
from provision.errors import DataError, UsageError

_STYLES = {
    "absent": ("frameworks: [torch]  # mine\n", 'frameworks: [torch]  # mine\npackages:\n  - "six"\n'),
    "no final newline": ("python: '3.11'", "python: '3.11'\npackages:\n  - \"six\"\n"),
    "empty file": ("", 'packages:\n  - "six"\n'),
    "comments only": ("# hello\n", '# hello\npackages:\n  - "six"\n'),
    "nothing": (
        "packages:  # add writes here\npython: '3.11'\n",
        "packages:  # add writes here\n  - \"six\"\npython: '3.11'\n",
    ),
    "null": ("packages: ~ # x\n", 'packages: ["six"] # x\n'),
    "empty flow": ("packages: []  # x\n", 'packages: ["six"]  # x\n'),
    "flow": ("packages: [numpy, 'tqdm']\n", "packages: [numpy, 'tqdm', \"six\"]\n"),
    "flow, trailing comma": ("packages: [\n  numpy,\n]\n", 'packages: [\n  numpy, "six",\n]\n'),
    "block": (
        "packages:\n- numpy # why\n# end of it\n\npython: '3.11'\n",
        "packages:\n- numpy # why\n- \"six\"\n# end of it\n\npython: '3.11'\n",
    ),
    "block, indented": (
        "packages:\n    - 'numpy'\n    - tqdm",
        "packages:\n    - 'numpy'\n    - tqdm\n    - \"six\"\n",
    ),
    "crlf": ("packages:\r\n  - numpy\r\npython: '3.11'\r\n", "packages:\r\n  - numpy\r\n  - \"six\"\r\npython: '3.11'\r\n"),
    "wide characters": ("# \u00e9\U0001f600\npackages: [numpy] # \u00e9\n", '# \u00e9\U0001f600\npackages: [numpy, "six"] # \u00e9\n'),
    "bom": ("\ufeffpackages: [numpy]\n", '\ufeffpackages: [numpy, "six"]\n'),
}  # fmt: skip


@pytest.mark.parametrize("style", _STYLES)
def test_a_package_is_added_in_the_files_own_style(path, style):
    before, after = _STYLES[style]
    path.write_bytes(before.encode())
    path.chmod(0o640)
    found = add_packages(path, ["six"])
    assert path.read_bytes().decode() == after
    assert found == read_config(path) and found.packages[-1] == "six"
    assert path.stat().st_mode & 0o777 == 0o640
    assert [p.name for p in path.parent.iterdir()] == ["gpuenv.yaml"]
    stamp = path.stat().st_mtime_ns, path.stat().st_ino
    assert add_packages(path, ["six"]) == found
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == stamp  # nothing to do: not even written


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("packages:\n  - numpy>=1 # a\n  - six\n", 'packages:\n  - "Numpy==2.0" # a\n  - six\n  - "tqdm"\n'),
        ("packages: ['numpy[x]', six]\n", 'packages: ["Numpy==2.0", six, "tqdm"]\n'),
    ],
)
def test_an_entry_of_the_same_name_is_replaced(path, before, after):
    path.write_text(before)
    add_packages(path, ["Numpy==2.0", "tqdm"])
    assert path.read_text() == after


@pytest.mark.parametrize(
    ("entry", "added", "after"),
    [
        ("numpy<2", "numpy", "numpy<2"),
        ("numpy<2", "Numpy>=1.26", "Numpy>=1.26"),
        ("numpy[a]<2", "numpy[b]", "numpy[a,b]<2"),
        ("numpy[a]", "numpy", "numpy[a]"),
        ("numpy<2; os_name == 'x'", "numpy", "numpy<2"),
        ("numpy @ https://h/numpy-1.zip", "numpy", "numpy @ https://h/numpy-1.zip"),
    ],
)
def test_a_bound_stays_where_the_added_package_names_none(path, entry, added, after):
    path.write_text(f'packages: ["six", "{entry}", "tqdm"]\n')
    assert add_packages(path, [added]).packages == ("six", after, "tqdm")
    assert edit.merge_packages([entry], [added]) == [after]


def test_a_linked_file_is_written_where_it_lies(path, tmp_path):
    (tmp_path / "real").mkdir()
    real = tmp_path / "real" / "shared.yaml"
    real.write_text("packages: []\n")
    path.symlink_to(real)
    add_packages(path, ["six"])
    assert path.is_symlink() and "six" in real.read_text()


@pytest.mark.parametrize(
    ("requirement", "says"),
    [
        ("torch", "frameworks"), ("tensorflow-gpu==2.10", "frameworks"), ("jaxlib", "frameworks"),
        ("num py", "not a requirement"), ("six\n", "not a requirement"), ("./x", "not a requirement"),
        ("six\t", "expected a form like"),
    ],
)  # fmt: skip
def test_what_is_no_package_is_refused(path, requirement, says):
    path.write_text("packages: []\n")
    with pytest.raises(UsageError) as caught:
        add_packages(path, ["tqdm", requirement])
    assert says in caught.value.message + str(caught.value.hint)
    assert path.read_text() == "packages: []\n"


@pytest.mark.parametrize(
    "text",
    [
        "{frameworks: [torch]}\n",
        "packages: ['a; python_version < \"3.11\"', 'six ; os_name == \"x\"', 'six; os_name != \"x\"']\n",
        "frameworks: [torch]\n...\n",
        "python: 3.10\n",
    ],
)
def test_a_file_that_cannot_be_edited_stays_as_it_is(path, text):
    path.write_text(text)
    with pytest.raises(DataError):
        add_packages(path, ["six"])
    assert path.read_text() == text
    assert [p.name for p in path.parent.iterdir()] == ["gpuenv.yaml"]


def test_a_file_that_cannot_be_written_is_named(path):
    path.write_text("packages: []\n")
    path.with_name(f".{path.name}.gpuenv-new").mkdir()
    with pytest.raises(UsageError, match="cannot be written"):
        add_packages(path, ["six"])
    assert path.read_text() == "packages: []\n"


@pytest.mark.parametrize(
    "text", ["[tool.gpuenv\n", "[tool]\ngpuenv = 1\n", "", "[tool.gpuenv]\npackages = 1\n"]
)
def test_a_table_that_cannot_be_edited_is_an_error(text):
    with pytest.raises(edit.NotEditableError):
        edit.edit_table(text, [], ["six"])


def test_several_files_are_written_or_none(tmp_path, monkeypatch):
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_bytes(b"old")
    for contents in (
        {first: b"new", tmp_path / "no" / "x": b""},
        {first: b"new", second: b"", tmp_path: b""},
    ):
        with pytest.raises(OSError):
            edit.write_files(contents)
        assert first.read_bytes() == b"old"
        assert [p.name for p in tmp_path.iterdir()] == ["a"]
    commit, committed = edit.Draft.commit, []

    def fails_at_the_third(draft):
        committed.append(draft)
        if len(committed) == 3:
            raise OSError("the disk fails")
        commit(draft)

    with monkeypatch.context() as patch:
        patch.setattr(edit.Draft, "commit", fails_at_the_third)
        with pytest.raises(OSError, match="the disk fails"):
            edit.write_files({first: b"new", second: b"also", tmp_path / "third": b"too"})
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("a", b"old")]
    edit.write_files({first: b"new", second: b"also"})
    assert (first.read_bytes(), second.read_bytes()) == (b"new", b"also")
    assert second.stat().st_mode & 0o777 == 0o666 & ~umask()


def umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


@given(
    entries=st.lists(st.sampled_from(["numpy", "six>=1", "a.b", "tqdm[x]==4", "q ; os_name == 'x'"]), unique=True),
    added=st.lists(st.sampled_from(["numpy==2", "zlib-ng", "A_B", "q", "w[y] ; os_name=='z'"]), min_size=1, unique=True),
    style=st.sampled_from(["block", "flow", "lines"]),
    quote=st.sampled_from(["", "'", '"']),
    tail=st.sampled_from(["", "\n", "\n# end", "\npython: '3.11'\n", "\n\n\ncuda: '12'"]),
)  # fmt: skip
def test_any_style_is_edited_or_left_alone(path, entries, added, style, quote, tail):
    def row(text):
        mark = quote or ('"' if set(text) & set("'[") else "")
        return f'"{text}"' if mark == "'" and "'" in text else f"{mark}{text}{mark}"

    listed = [row(e) for e in entries]
    body = {
        "block": "".join(f"\n  - {e} # {i}" for i, e in enumerate(listed)),
        "flow": f" [{', '.join(listed)}]",
        "lines": " [\n" + "".join(f"   {e},\n" for e in listed) + "  ]",
    }[style]
    text = f"frameworks: [torch]\npackages:{body}{tail}"
    before = read(path, text)
    found = add_packages(path, added)
    after = path.read_text()
    assert read_config(path) == found
    assert {*map(parse_package_name, added)} <= {*map(parse_package_name, found.packages)}
    assert dataclasses.replace(found, packages=()) == dataclasses.replace(before, packages=())
    assert re.findall(r"#.*", text) == re.findall(r"#.*", after)
