"""Requirements files and project folders: what they ask for, read as pip reads them and without running any."""
# ruff: noqa: F811  # fixtures are imported by their names

import codecs
import os
from pathlib import Path

import pytest
from requirements_folder import SHA, asked, elsewhere, folder, package, refusal, texts, write  # noqa: F401  # fixtures

from provision.model import VersionBound


def test_a_typical_file_of_a_training_project_is_read(folder):
    """The style of YOLOv5: comments everywhere, what is not wanted commented out, a line with a marker."""
    found = asked(
        folder,
        """\
        # Base ----------------------------------------
        matplotlib>=3.3
        PyYAML>=5.3.1
        torch>=1.8.0  # see https://pytorch.org/get-started/locally (recommended)
        torchvision>=0.9.0
        # protobuf<=3.20.1  # https://github.com/ultralytics/yolov5/issues/8012
        # tensorflow>=2.4.0,<=2.13.1
        coremltools>=6.0 ; sys_platform == 'darwin'
        setuptools>=70.0.0 # Snyk vulnerability fix
        """,
    )
    assert found.frameworks == ("torch",)
    assert found.bounds == (
        VersionBound(name="torch", specifier=">=1.8.0", origin="requirements.txt line 4"),
    )
    assert texts(found) == [
        "matplotlib>=3.3",
        "PyYAML>=5.3.1",
        "torchvision>=0.9.0",
        'coremltools>=6.0 ; sys_platform == "darwin"',
        "setuptools>=70.0.0",
    ]
    assert found.lines[3].origin == "requirements.txt line 8"
    assert found.files == (str(folder / "requirements.txt"),)
    assert found.left_out == ()


def test_a_frozen_cuda_environment_leaves_its_stack_to_the_plan(folder):
    """`pip freeze` after an install from the PyTorch index: labels, NVIDIA's wheels and triton are the plan's."""
    nvidia = [f"nvidia-{p}-cu12==12.4.5.8" for p in ("cublas", "cuda-cupti", "cuda-nvrtc", "cudnn", "nccl")]
    lines = [
        "--extra-index-url https://download.pytorch.org/whl/cu124",
        "certifi==2024.8.30",
        "-e git+https://github.com/owner/tool@0123abcd#egg=tool&subdirectory=src",
        *nvidia,
        "nvidia-ml-py==12.560.30",
        "torch==2.5.1+cu124",
        "torchvision==0.20.1+cu124",
        "triton==3.1.0",
        "my-fork==1.0+patched",
        "triton==3.0.0 ; sys_platform == 'win32'",
    ]
    found = asked(folder, "\n".join(lines))
    assert [(b.specifier, b.origin) for b in found.bounds] == [("==2.5.1", "requirements.txt line 10")]
    assert texts(found) == [
        "certifi==2024.8.30",
        "tool @ git+https://github.com/owner/tool@0123abcd#subdirectory=src",
        "nvidia-ml-py==12.560.30",
        "torchvision==0.20.1",
        "my-fork==1.0+patched",
    ]
    tool = found.lines[1]
    assert tool.editable and tool.vcs and tool.name == "tool"
    assert found.extra_index_urls == ("https://download.pytorch.org/whl/cu124",)
    said = "\n".join(found.left_out)
    for line in [*nvidia, "triton==3.1.0"]:
        assert f"{line} (requirements.txt line {lines.index(line) + 1}) is ignored" in said
    assert "+cu124 of torchvision (requirements.txt line 11)" in said
    assert len(found.left_out) == len(nvidia) + 3


def test_hashes_of_pip_compile_stay_with_their_requirement(folder):
    found = asked(
        folder,
        f"""\
        jinja2==3.1.4 \\
            --hash={SHA} \\
            --hash sha512:{"ab" * 64}
            # via torch
        torch==2.4.0 --hash={SHA}
        six==1.16.0
        """,
    )
    assert found.lines[0].hashes == (SHA, "sha512:" + "ab" * 64)
    assert found.lines[1].hashes == ()
    assert found.lines[1].origin == "requirements.txt line 6"
    assert any("the hashes of torch (requirements.txt line 5)" in said for said in found.left_out)
    assert "not a hash" in refusal(folder, "six --hash=sha256:12").message
    assert "without a requirement" in refusal(folder, f"six\n--hash={SHA}\n").message


def test_nested_files_and_constraints_start_at_the_file_that_names_them(folder):
    write(
        folder,
        requirements="-r deps/base.txt\n-c deps/constraints.txt\n",
        deps__base="-r more.txt\nnumpy\n",
        deps__more="jax\n",
        deps__constraints="numpy<2\njax==0.4.30\ntensorflow<2.16\n",
    )
    found = asked(folder)
    assert found.frameworks == ("jax",)
    assert [(b.name, b.specifier, b.origin) for b in found.bounds] == [
        ("jax", "==0.4.30", "deps/constraints.txt line 2"),
        ("tensorflow", "<2.16", "deps/constraints.txt line 3"),
    ]
    assert [(n.text, n.constraint, n.origin) for n in found.lines] == [
        ("numpy", False, "deps/base.txt line 2"),
        ("numpy<2", True, "deps/constraints.txt line 1"),
    ]
    assert [Path(f).name for f in found.files] == [
        "requirements.txt", "base.txt", "more.txt", "constraints.txt",
    ]  # fmt: skip


def test_include_loops_and_missing_files_are_named(folder):
    write(folder, a="-r b.txt\n", b="numpy\n-r a.txt\n")
    message = refusal(folder, None, name="a.txt").message
    assert "a.txt -> b.txt -> a.txt" in message
    message = refusal(folder, "numpy\n\n-r gone.txt\n").message
    assert "gone.txt" in message and "included by requirements.txt line 3" in message
    assert "requirements.txt line 1" in refusal(folder, "-r https://host/requirements.txt").message


def test_two_files_that_include_the_same_one_read_it_once(folder):
    write(folder, requirements="-r a.txt\n-r b.txt\n", a="-r c.txt\n", b="-r c.txt\n", c="numpy\n")
    assert texts(asked(folder)) == ["numpy"]


def test_variables_continuations_and_comments_are_read(folder):
    found = asked(
        folder,
        "numpy\\\n>=1.26\nx @ https://user:${TOKEN}@host/${lower}/$TOKEN/x.zip#egg=x # note\n  # indented\\\nsix\n",
        environ={"TOKEN": "secret", "GPUENV_GRANT": "TOKEN=https://host"},
    )
    assert texts(found) == [
        "numpy>=1.26", "x @ https://user:secret@host/${lower}/$TOKEN/x.zip", "six",
    ]  # fmt: skip
    assert [n.origin[-6:] for n in found.lines] == ["line 1", "line 3", "line 5"]


@pytest.mark.parametrize(
    ("data", "good"),
    [
        (codecs.BOM_UTF8 + b"numpy\n", True),
        ("numpy\r\ntorch\r\n".encode("utf-16"), True),  # PowerShell's `pip freeze > requirements.txt`
        (codecs.BOM_UTF16_BE + "numpy\n".encode("utf-16-be"), True),
        ("# -*- coding: latin-1 -*-\n# f\u00fcr alle\nnumpy\n".encode("latin-1"), True),
        ("# f\u00fcr alle\nnumpy\n".encode("latin-1"), False),
        ("numpy\n".encode("utf-16-le"), False),
        (b"# coding: no-such-code\nnumpy\n", False),
        (b"numpy\0\n", False),
    ],
)
def test_known_encodings_are_read_and_others_refused(folder, data, good):
    (folder / "requirements.txt").write_bytes(data)
    if good:
        assert texts(asked(folder)) == ["numpy"]
    else:
        assert "requirements.txt" in refusal(folder, None).message


def test_options_for_package_sources_are_read(folder):
    found = asked(
        folder,
        """\
        -i https://user:pw@first/simple
        --index-url=https://second/simple
        --extra-index-url https://extra/simple
        --extra-index-url=https://extra/simple
        -f wheels
        --find-links https://host/links.html
        --pre --prefer-binary
        --trusted-host host
        --only-binary :all:
        --use-feature fast-deps
        six --global-option="x"
        """,
    )
    assert found.index_url == "https://second/simple"
    assert found.extra_index_urls == ("https://extra/simple",)
    assert found.find_links == (str(folder / "wheels"), "https://host/links.html")
    assert found.pre and not found.no_index
    assert [said.partition(" (")[0] for said in found.left_out] == [
        "--trusted-host host", "--only-binary :all:", "--global-option x",
    ]  # fmt: skip
    assert asked(folder, "--no-index\n").no_index


def test_an_option_behind_a_requirement_is_said_not_to_count(folder):
    """pip drops it without a word; people think that it counts."""
    found = asked(folder, "torch==2.0.1+cu118 --index-url https://download.pytorch.org/whl/cu118\n")
    assert found.index_url is None
    assert any("options after a requirement (requirements.txt line 1)" in said for said in found.left_out)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--bogus x", "no such option"),
        ("-r a b", "unexpected 'b' after the options"),
        ("numpy -e .", "-e follows a requirement"),
        ("numpy=1.26", "write numpy==1.26.*"),
        ("numpy=1.26=py311_0", "conda syntax"),
        ("numpy>=>1", "requirements.txt line 1"),
        ("numpy; python_version", "requirements.txt line 1"),
        ("git@github.com:owner/repo.git", "git+ssh://"),
        ("hg+https://host/repo", "git is"),
        ("ftp://host/x.whl", "not a supported scheme"),
        ("./nothing-here", "no such path"),
        ("x @ file:///home/conda/feedstock_root/build_artifacts/x_1/work", "pip list --format=freeze"),
        ("-e numpy", "no such path"),
        ("-e https://host/x.whl", "can be editable"),
        ("torch @ git+https://github.com/pytorch/pytorch", "gpuenv cannot choose a build of"),
        ("-e git+https://host/x#egg=-", "no name"),
        ("numpy==" + "9" * 5000, "requirements.txt line 1"),
        ("numpy; " + "(" * 5000 + "os_name=='x'" + ")" * 5000, "requirements.txt line 1"),
        ("numpy; " + "(" * 3000 + "os_name=='x'" + ")" * 3000, "requirements.txt line 1"),
        ("-c https://u:secretword@host/c.txt", "not downloaded by gpuenv"),
        ("./requirements.txt#sha256=ab", "name a requirements file with -r"),
        ("file://other/x.whl", "on another host"),
        ("file:", "the path is empty"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(folder, line, says):
    error = refusal(folder, line)
    assert says in error.message + " " + (error.hint or "")
    assert "line 1" in error.message
    assert "secretword" not in error.message
    assert len(error.message) < 400


def test_a_constraint_is_a_name_with_a_bound(folder):
    package(folder, "lib")
    for line in ("six[a]", "-e ./lib"):
        write(folder, c=line)
        assert refusal(folder, "-c c.txt\n").message.startswith("c.txt line 1: ")
    write(folder, c="six>=1")
    assert [(n.text, n.constraint) for n in asked(folder, "-c c.txt\n").lines] == [("six>=1", True)]


def test_a_marker_counts_that_has_no_answer_or_follows_an_editable_folder(folder):
    package(folder, "lib")
    found = asked(folder, "six ; sys_platform ~= 'linux'\n-e ./lib ; python_version < '3'\n")
    marked = f'lib @ {folder.as_uri()}/lib ; python_version < "3"'
    assert texts(found) == ['six ; sys_platform ~= "linux"', marked] and found.lines[1].editable
    assert asked(folder, "torch ; sys_platform ~= 'linux'\n").frameworks == ("torch",)


@pytest.mark.parametrize(
    ("name", "text", "hint"),
    [
        ("environment.yml", "name: x\ndependencies:\n  - pytorch\n", "manager conda"),
        ("env.txt", "name: x\nchannels:\n- defaults\ndependencies:\n- pytorch\n", "manager conda"),
        (
            "list.txt",
            "# This file may be used to create\n# $ conda create --name <env> --file <this>\nx=1=0\n",
            "conda",
        ),
        ("spec.txt", "# platform: linux-64\n@EXPLICIT\nhttps://h/x.conda\n", "--lock spec.txt"),
        ("pyproject.toml", "[project]\nname='x'\n", "--project"),
        ("Pipfile", "[packages]\n", "pipenv requirements"),
        ("pylock.toml", "lock-version = '1.0'\n", "--lock pylock.toml"),
        ("table.txt", "Package    Version\n---------- -------\nnumpy      1.26\n", "pip freeze"),
        ("page.txt", "\n<!DOCTYPE html>\n<html>", "download"),
        ("train.py", "import torch\n", "requirement"),
    ],
)
def test_a_file_that_is_no_requirements_file_gets_a_hint(folder, name, text, hint):
    error = refusal(folder, text, name=name)
    assert name in error.message
    assert hint in error.hint


def test_what_is_no_file_is_not_opened(folder):
    os.mkfifo(folder / "pipe.txt")
    assert "not a regular file" in refusal(folder, None, name="pipe.txt").message  # opening it would hang
    (folder / "dir.txt").mkdir()
    assert "not a regular file" in refusal(folder, None, name="dir.txt").message
    with (folder / "huge.txt").open("wb") as stream:
        stream.truncate(1 << 30)
    assert "larger" in refusal(folder, None, name="huge.txt").message


@pytest.mark.parametrize("text", ["-r dir/../\n", "-r .\n", "-c dir/..\n", "-r dir\n"])
def test_an_included_folder_is_refused_with_its_line_and_a_hint(folder, text):
    (folder / "dir").mkdir()
    error = refusal(folder, text)
    assert "not a regular file, included by" in error.message and "requirements.txt line 1" in error.message
    assert error.hint


def test_what_a_local_folder_states_counts_as_read(folder):
    package(folder, "lib")
    found = asked(folder, "./lib\n")
    assert found.files == (str(folder / "requirements.txt"), str(folder / "lib" / "pyproject.toml"))
