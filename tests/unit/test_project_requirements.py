"""Requirements files and project folders: what they ask for, read as pip reads them and without running any."""

import codecs
import os
import textwrap
import time
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from packaging.requirements import Requirement

from provision.cli import exit_codes
from provision.errors import GpuenvError, UsageError
from provision.model import VersionBound
from provision.project.requirements.project_requirements import ProjectFiles, read_project_requirements
from provision.project.requirements.sorted_requirements import SortingRules

LINUX = {
    "sys_platform": "linux",
    "platform_system": "Linux",
    "os_name": "posix",
    "platform_machine": "x86_64",
}
STACK = frozenset({"cuda-toolkit", "nvidia-cublas", "cuda-bindings", "tensorrt"})
COMPANIONS = {"torchvision": "torch", "torchaudio": "torch"}
SHA = "sha256:" + "0f" * 32


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Relative names start at the file, so the tests run from another folder."""
    place = tmp_path / "elsewhere"
    place.mkdir()
    monkeypatch.chdir(place)


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "work"
    place.mkdir()
    return place


def write(folder, **files):
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path = path if path.suffix else path.with_suffix(".txt")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")


def asked(folder, text=None, *, name="requirements.txt", environ=None, markers=LINUX, **more):
    if text is not None:
        (folder / name).write_text(textwrap.dedent(text), encoding="utf-8")
    files = ProjectFiles(requirements=[folder / name], **more)
    return read_project_requirements(
        files, environ or {}, SortingRules(markers=markers, stack=STACK), COMPANIONS
    )


def texts(found):
    return [need.text for need in found.needs]


def refusal(folder, text, **more):
    with pytest.raises(UsageError) as caught:
        asked(folder, text, **more)
    assert exit_codes.get_error_code(caught.value) == 2
    return caught.value


# --- lines ---------------------------------------------------------------------------------


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
    assert found.needs[3].origin == "requirements.txt line 8"
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
    tool = found.needs[1]
    assert tool.editable and tool.vcs and tool.name == "tool"
    assert found.extra_index_urls == ("https://download.pytorch.org/whl/cu124",)
    said = "\n".join(found.left_out)
    for line in [*nvidia, "triton==3.1.0"]:
        assert (
            f"{line} (requirements.txt line {lines.index(line) + 1}) is ignored, because gpuenv selects this package itself"
            in said
        )
    assert "the label +cu124 of torchvision (requirements.txt line 11)" in said
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
    assert found.needs[0].hashes == (SHA, "sha512:" + "ab" * 64)
    assert found.needs[1].hashes == ()
    assert found.needs[1].origin == "requirements.txt line 6"
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
    assert [(n.text, n.constraint, n.origin) for n in found.needs] == [
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
        environ={"TOKEN": "secret"},
    )
    assert texts(found) == [
        "numpy>=1.26", "x @ https://user:secret@host/${lower}/$TOKEN/x.zip", "six",
    ]  # fmt: skip
    assert [n.origin[-6:] for n in found.needs] == ["line 1", "line 3", "line 5"]


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
        ("numpy=1.26", "write numpy==1.26"),
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
        ("-c https://u:secretword@host/c.txt", "not downloaded by gpuenv"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(folder, line, says):
    error = refusal(folder, line)
    assert says in error.message + " " + (error.hint or "")
    assert "line 1" in error.message
    assert "secretword" not in error.message
    assert len(error.message) < 400


# --- addresses and paths -----------------------------------------------------------------------


def package(folder, name, **files):
    place = folder / name
    place.mkdir(parents=True)
    files = files or {"pyproject": f'[project]\nname = "{Path(name).name}"\nversion = "1"\n'}
    for file, text in files.items():
        (place / (file + {"pyproject": ".toml", "setup": ".py", "cfg": ""}[file])).write_text(text)
    return place


def test_local_folders_wheels_and_archives_are_read(folder):
    package(folder, "lib")
    package(folder, "old", setup="from setuptools import setup\nsetup(name='older')\n")
    package(folder, "unknown", setup="from setuptools import setup\nsetup(name=open('x').read())\n")
    package(folder, "with space")
    (folder / "wheels").mkdir()
    (folder / "wheels" / "foo-1.0-py3-none-any.whl").touch()
    (folder / "bar-2.0.tar.gz").touch()
    found = asked(
        folder,
        f"""\
        ./lib[a,b] ; python_version < "3.13"
        -e ./old
        unknown/
        ./with space
        other @ ./lib
        other2[x] @ file://{folder}/lib
        file://{folder}/with%20space
        wheels/foo-1.0-py3-none-any.whl
        bar-2.0.tar.gz
        """,
    )
    base = folder.as_uri()
    assert texts(found) == [
        f'lib[a,b] @ {base}/lib ; python_version < "3.13"',
        f"older @ {base}/old",
        f"{base}/unknown",
        f"{base}/with%20space",
        f"other @ {base}/lib",
        f"other2[x] @ {base}/lib",
        f"{base}/with%20space",
        f"foo @ {base}/wheels/foo-1.0-py3-none-any.whl",
        f"bar @ {base}/bar-2.0.tar.gz",
    ]
    assert [n.local and Path(n.local).name for n in found.needs] == [
        "lib", "old", "unknown", "with space", "lib", "lib", "with space", None, None,
    ]  # fmt: skip
    assert [n.editable for n in found.needs] == [False, True, *[False] * 7]


def test_a_dot_in_a_subfolder_means_the_project_where_pip_is_run(folder, monkeypatch):
    """`-e .` in requirements/dev.txt is the folder where pip runs: the next one up that can be installed."""
    write(folder, requirements__dev="-e .\n", pyproject="")
    package(folder, "proj")
    (folder / "proj" / "requirements").mkdir()
    (folder / "proj" / "requirements" / "dev.txt").write_text("-e .\n")
    monkeypatch.chdir(folder / "proj")
    files = ProjectFiles(requirements=[Path("requirements/dev.txt")])
    found = read_project_requirements(files, {}, SortingRules(markers=LINUX))
    assert [n.local for n in found.needs] == [str(folder / "proj")]


def test_commits_and_archive_addresses_are_read(folder):
    found = asked(
        folder,
        """\
        git+https://github.com/openai/CLIP.git
        clip @ git+https://github.com/openai/CLIP.git@a1d0717
        git+ssh://git@github.com/owner/repo.git@v1.0#egg=repo[extra]
        -e git+https://token@host/x.git@main#subdirectory=a/b&egg=x
        https://github.com/owner/repo/archive/main.zip
        https://host/foo-1.0+cu12-cp311-cp311-linux_x86_64.whl#sha256=abc ; sys_platform == 'linux'
        """,
    )
    assert texts(found) == [
        "git+https://github.com/openai/CLIP.git",
        "clip @ git+https://github.com/openai/CLIP.git@a1d0717",
        "repo[extra] @ git+ssh://git@github.com/owner/repo.git@v1.0",
        "x @ git+https://token@host/x.git@main#subdirectory=a/b",
        "https://github.com/owner/repo/archive/main.zip",
        'foo @ https://host/foo-1.0+cu12-cp311-cp311-linux_x86_64.whl#sha256=abc ; sys_platform == "linux"',
    ]
    assert [n.vcs for n in found.needs] == [True] * 4 + [False] * 2
    assert [n.name for n in found.needs] == [None, "clip", "repo", "x", None, "foo"]


# --- what is the plan's --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "frameworks", "bounds"),
    [
        ("tensorflow-gpu==2.10.*", ["tensorflow"], ["tensorflow==2.10.*"]),
        ("tensorflow-cpu>=2.15", ["tensorflow"], ["tensorflow>=2.15"]),
        ("tensorflow[and-cuda]~=2.17", ["tensorflow"], ["tensorflow~=2.17"]),
        ("pytorch", ["torch"], []),
        ("jax[cuda12]==0.4.30\njaxlib==0.4.30", ["jax"], ["jax==0.4.30"]),
        ("jaxlib>=0.4", ["jax"], ["jax>=0.4"]),
        ("jax-cuda12-plugin[with-cuda]==0.4.30\njax", ["jax"], []),
        ("Torch===2.5.1+cu124", ["torch"], ["torch==2.5.1"]),
        ("torch!=2.4.0+cu121,>=2", ["torch"], ["torch>=2"]),
        ("torch==2.1; sys_platform == 'darwin'\njax", ["jax"], []),
        ("torch==2.1; platform_machine == 'x86_64'", ["torch"], ["torch==2.1"]),
        ("torch==1.13; python_version < '3.11'", ["torch"], ["torch==1.13"]),
        ("torch<2; python_version < '3.0'", [], []),
        ("torchvision", ["torch"], []),
        ("numpy", [], []),
        ("tf-nightly", [], []),
        ("tensorflow\ntorch>=2\ntorch<3", ["tensorflow", "torch"], ["torch>=2", "torch<3"]),
        (
            "torch @ https://download.pytorch.org/whl/cu118/torch-2.0.1%2Bcu118-cp310-cp310-linux_x86_64.whl",
            ["torch"],
            ["torch==2.0.1"],
        ),
    ],
)
def test_frameworks_and_their_bounds_are_separated(folder, lines, frameworks, bounds):
    found = asked(folder, lines)
    assert list(found.frameworks) == frameworks
    assert [b.name + b.specifier for b in found.bounds] == bounds
    assert not {"torch", "tensorflow", "jax", "jaxlib"} & {n.name for n in found.needs}


@pytest.mark.parametrize(
    ("lines", "cpu"),
    [
        ("jax", {"jax": ["jax"]}),
        ("Jax[cpu]>=0.4\njaxlib==0.4.30", {"jax": ["Jax[cpu]>=0.4", "jaxlib==0.4.30"]}),
        ("tensorflow_cpu", {"tensorflow": ["tensorflow_cpu"]}),
        ("jax[cuda12]\njaxlib", {}),
        ("jax[tpu]", {}),
        ("jax\njax[cuda13]", {}),
        ("jax\njax-cuda12-pjrt", {}),
        ("jaxlib==0.4.7+cuda11.cudnn86", {}),
        ("tensorflow-cpu\ntensorflow", {}),
        ("tensorflow\ntorch", {}),
        ("jax; sys_platform == 'darwin'", {}),
    ],
)
def test_packages_that_name_only_the_cpu_build_are_listed(folder, lines, cpu):
    found = asked(folder, lines)
    assert {one.framework: [n.text for n in one.needs] for one in found.cpu} == cpu
    assert {one.framework for one in found.cpu} <= set(found.frameworks)


def test_a_constraint_alone_names_no_cpu_build(folder):
    (folder / "limits.txt").write_text("jax<0.5\n")
    assert asked(folder, "-c limits.txt\ntorch").cpu == ()
    found = asked(folder, "-c limits.txt\njax").cpu[0]
    assert [(n.text, n.constraint) for n in found.needs] == [("jax<0.5", True), ("jax", False)]


def test_a_known_python_decides_a_frameworks_marker(folder):
    lines = "torch==1.13; python_version < '3.11'\ntorch==2.5; python_version >= '3.11'\n"
    for python, version in (("3.10", "==1.13"), ("3.12", "==2.5")):
        found = asked(folder, lines, markers=LINUX | {"python_version": python})
        assert [b.specifier for b in found.bounds] == [version]


def test_an_extra_of_a_framework_that_is_no_build_stays(folder):
    assert texts(asked(folder, "torch[opt-einsum]>=2\njax[cuda12,k8s]")) == ["torch[opt-einsum]", "jax[k8s]"]


def test_packages_of_the_cuda_stack_are_left_to_the_plan(folder):
    found = asked(
        folder, "cuda-toolkit[cudart]==13.0\nNVIDIA_cublas\npytorch-triton\ntensorrt==10\nnvidia-dali\n"
    )
    assert texts(found) == ["nvidia-dali"]
    assert len(found.left_out) == 4
    assert (
        found.left_out[0]
        == "cuda-toolkit[cudart]==13.0 (requirements.txt line 1) is ignored, because gpuenv selects this package itself"
    )


def test_a_frameworks_wheel_at_hand_is_a_bound_and_a_folder(folder):
    (folder / "torch-2.11.0-cp312-cp312-linux_x86_64.whl").touch()
    found = asked(folder, "./torch-2.11.0-cp312-cp312-linux_x86_64.whl")
    assert found.frameworks == ("torch",) and found.bounds[0].specifier == "==2.11.0"
    assert found.find_links == (str(folder),)


def test_packages_come_with_their_origin(folder):
    files = ProjectFiles(packages=[("torchvision==0.20+cu124", "--with"), ("six", "gpuenv.yaml")])
    found = read_project_requirements(files, {}, SortingRules(markers={}))
    assert [(n.text, n.origin) for n in found.needs] == [
        ("torchvision==0.20", "--with"), ("six", "gpuenv.yaml"),
    ]  # fmt: skip


# --- other programs' files ----------------------------------------------------------------------


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


@pytest.mark.parametrize("text", ["-r ../\n", "-r .\n", "-c ../\n", "-r dir\n"])
def test_an_included_folder_is_refused_with_its_line_and_a_hint(folder, text):
    (folder / "dir").mkdir()
    error = refusal(folder, text)
    assert "not a regular file, included by" in error.message and "requirements.txt line 1" in error.message
    assert error.hint


# --- any text ---------------------------------------------------------------------------------

_WORDS = st.sampled_from(
    [
        "torch", "numpy", "==1.0", ">=2", "+cu118", "[a]", " @ ", "git+https://h/x", "#egg=n", "-r ", "-e ",
        "-c ", "--hash=" + SHA, "-i ", "--pre", "./a", "file:///a", " ; ", "python_version", "<'3'", "\\\n",
        "\n", " ", "#", "${A}", "'", '"', "(", ")", "\0", "\x85", "\u2028", "=", "https://u:p@h/x.whl", "%2f",
        "../", "~", "[", "]", "requirements.txt",
    ]
)  # fmt: skip


def outcome(folder):
    try:
        return None, asked(folder, environ={"A": "b"})
    except GpuenvError as error:
        return error, None


@settings(max_examples=400)
@given(text=st.one_of(st.lists(_WORDS, max_size=30).map("".join), st.text(max_size=200)))
def test_no_text_causes_an_internal_error(folder, text):
    (folder / "requirements.txt").write_bytes(text.encode("utf-8", "surrogatepass"))
    error, found = outcome(folder)
    assert error is None or error.hint
    for need in found.needs if found else ():
        if need.name and not need.editable:
            assert Requirement(need.text)  # what is handed to the solver is PEP 508


@settings(max_examples=100)
@given(data=st.binary(max_size=300))
def test_no_bytes_cause_an_internal_error(folder, data):
    (folder / "requirements.txt").write_bytes(data)
    error, _ = outcome(folder)
    assert error is None or exit_codes.get_error_code(error) == 2


_NAMES = st.from_regex(r"[a-z][a-z0-9]{0,8}(-[a-z0-9]{1,5})?", fullmatch=True).filter(
    lambda n: n not in ("torch", "tensorflow", "jax", "jaxlib", "triton", "tf", "pytorch") and n not in STACK
)
_VERSIONS = st.from_regex(r"[0-9]{1,3}(\.[0-9]{1,3}){0,3}((a|b|rc)[0-9])?", fullmatch=True)
_SPECIFIERS = st.lists(
    st.tuples(st.sampled_from(["==", ">=", "<=", "!=", "<", ">", "~="]), _VERSIONS).filter(
        lambda pair: pair[0] != "~=" or "." in pair[1]
    ),
    max_size=3,
).map(lambda pairs: ",".join(op + v for op, v in pairs))
_EXTRAS = st.lists(st.sampled_from(["a", "b-c", "d"]), max_size=2).map(
    lambda e: f"[{','.join(e)}]" if e else ""
)


@settings(max_examples=150)
@given(
    rows=st.lists(st.tuples(_NAMES, _EXTRAS, _SPECIFIERS), max_size=8), seed=st.randoms(use_true_random=False)
)
def test_a_written_file_reads_back_the_same(folder, rows, seed):
    lines, meant = [], []
    for name, extras, specifier in rows:
        text = name + extras + specifier
        lines += seed.choice([[], [""], ["# a comment"], ["   # more \\"]])
        gap = seed.choice(["", " ", "  # why", "\t#x", " \\\n"])
        lines.append(seed.choice(["", "  "]) + text + gap)
        meant.append(Requirement(text))
    found = asked(folder, seed.choice(["\n", "\r\n"]).join(lines) + seed.choice(["", "\n"]))
    read = [Requirement(n.text) for n in found.needs]
    assert read == list(dict.fromkeys(meant)) or {str(r) for r in read} == {str(r) for r in meant}


def test_many_files_and_lines_are_bounded(folder):
    write(folder, requirements="".join(f"-r f{i}.txt\n" for i in range(600)))
    for i in range(600):
        (folder / f"f{i}.txt").write_text("numpy\n")
    assert "500" in refusal(folder, None).message


@pytest.mark.parametrize(
    "text",
    [
        "numpy" + " " * 1_000_000 + "x",
        "./" + " " * 200_000 + "[",
        "a" * 1_000_000,
        "://" * 300_000,
        "numpy # " + "#" * 1_000_000,
        "x" + "\\\n" * 200_000,
        "--hash " * 50_000,
        "numpy >=" + "1." * 3_000 + "0",
        "x @ " * 2_000,
        "x" + "[" * 7_000,
        "x" + " " * 7_000 + "@" + " " * 500,
        "\n" * 500_000 + "--bogus",
    ],
    ids=range(12),
)
def test_long_texts_are_read_or_refused_soon(folder, text):
    started = time.process_time()
    outcome_of(folder, text)
    assert time.process_time() - started < 20  # some milliseconds; a square of the length would take hours


def outcome_of(folder, text):
    (folder / "requirements.txt").write_text(text)
    return outcome(folder)


def test_deep_includes_are_refused(folder):
    for i in range(60):
        (folder / f"f{i}.txt").write_text(f"-r f{i + 1}.txt\n")
    assert "deep" in refusal(folder, "-r f0.txt\n").message


def test_what_a_local_folder_states_counts_as_read(folder):
    package(folder, "lib")
    found = asked(folder, "./lib\n")
    assert found.files == (str(folder / "requirements.txt"), str(folder / "lib" / "pyproject.toml"))
