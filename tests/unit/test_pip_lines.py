"""The commands with which pip installs the builds of a plan, over the real profiles."""

import shlex

from known import KNOWN
from packaging.requirements import Requirement
from resolve_questions import R580, V100, ask
from rows import rows

from provision.resolve.pip import install_lines, pip_gaps

INDEXES = {"pytorch": "https://torch.example/whl"}
ARM = {"platform": "linux-aarch64"}
H100 = R580 | {"gpus": ["H100"]}
CPU = {"device": "cpu"}


def lines(*frameworks, indexes=INDEXES, links=(), **machine):
    """The words after "pip install" of each command."""
    plan = ask(*frameworks, **machine)
    found = [shlex.split(line) for line in install_lines("pip", plan, KNOWN, indexes, links)]
    assert all(words[:2] == ["pip", "install"] for words in found)
    return [words[2:] for words in found]


@rows(
    ("frameworks", "machine", "first"),
    [
        # The label of the build, and the index that has no other label.
        (["torch"], V100, ["torch==2.14.1+cu126", "--index-url", "https://torch.example/whl/cu126"]),
        (["torch"], H100, ["torch==2.15.0"]),
        (["torch"], CPU, ["torch==2.15.0+cpu", "--index-url", "https://torch.example/whl/cpu"]),
        # No label on an index with all labels: == would accept 2.5.1+cpu too, and prefer it.
        (["torch==2.5.1"], ARM | {"driver": "550.54.15", "gpus": ["GH200"]}, ["torch===2.5.1", "--index-url", "https://torch.example/whl"]),
        # cuDNN for Volta, and one release of CUDA's libraries: the extra alone takes the newest of each.
        (["jax"], V100, ["jax[cuda12]==0.12.0.1", "nvidia-cudnn-cu12==9.10.2.21",
                         "cuda-toolkit[cublas,cudart,cufft,cupti,cusolver,cusparse,nvcc,nvjitlink,nvrtc]==12.9.2.0"]),
        (["jax"], CPU, ["jax==0.12.0.1"]),
        (["tensorflow==2.20.0"], CPU, ["tensorflow==2.20.0"]),
        (["tensorflow==2.13.1"], H100 | {"python": "3.11"}, ["tensorflow==2.13.1"]),
        (["onnxruntime"], CPU, ["onnxruntime==1.32.0"]),
        (["onnxruntime==1.18.1"], {"driver": "550.54.15", "gpus": ["T4"], "python": "3.11"}, ["onnxruntime-gpu==1.18.1"]),
    ],
)  # fmt: skip
def test_one_command_names_the_build(frameworks, machine, first):
    assert lines(*frameworks, **machine) == [first]


def test_the_extra_names_the_cuda_of_the_build():
    assert lines("jax", **H100)[0][0].startswith("jax[cuda13]==")
    assert lines("tensorflow", **H100)[0][0].startswith("tensorflow[and-cuda]==")
    assert lines("onnxruntime", **H100)[0][0].startswith("onnxruntime-gpu[cuda,cudnn]==")


def test_builds_of_one_index_are_one_command_and_of_two_indexes_two():
    (both,) = lines("torch", "jax", **H100)
    assert both[0] == "torch==2.15.0" and both[1].startswith("jax[cuda13]==")
    torch, jax = lines("torch", "jax", **V100)
    assert torch == ["torch==2.14.1+cu126", "--index-url", "https://torch.example/whl/cu126"]
    assert jax[0] == "torch==2.14.1+cu126" and jax[1].startswith("jax[cuda12]==")  # the first one stays
    assert "--index-url" not in jax


def test_companions_come_from_the_index_of_torch_and_packages_from_the_default_one():
    torch, rest = lines("torch", packages=("torchvision", "numpy>=2"), **V100)
    assert torch[:2] == ["torch==2.14.1+cu126", "torchvision==0.29.1"]
    assert rest == ["torch==2.14.1+cu126", "numpy>=2"]
    assert lines("torch", packages=("torchvision",), **H100) == [["torch==2.15.0", "torchvision==0.29.2"]]


def test_another_default_index_is_named():
    indexes = INDEXES | {"pypi": "https://mirror.example/simple"}
    assert lines("jax", indexes=indexes, **CPU) == [
        ["jax==0.12.0.1", "--index-url", "https://mirror.example/simple"]
    ]


def test_uv_is_told_the_index_by_the_option_that_its_configuration_cannot_replace():
    plan = ask("torch", **V100)
    assert install_lines("uv", plan, KNOWN, INDEXES) == (
        "uv pip install torch==2.14.1+cu126 --default-index https://torch.example/whl/cu126",
    )


def test_a_word_is_quoted_as_a_shell_needs_it():
    plan = ask("jax", packages=('numpy; python_version < "4"',), **CPU)
    (line,) = install_lines("pip", plan, KNOWN, INDEXES)
    assert shlex.split(line)[3] == 'numpy; python_version < "4"'
    (line,) = install_lines("pip", ask("jax", **H100), KNOWN, INDEXES)
    assert ' "jax[cuda13]==' in line  # cmd.exe knows no other quotes


@rows(
    "asked",
    [(f, m) for f in ("torch", "jax", "tensorflow", "onnxruntime") for m in (V100, H100, CPU, {"driver": "550.54.15", "gpus": ["T4"]})],
)  # fmt: skip
def test_every_pin_of_the_plan_is_in_the_command_or_in_the_metadata_of_its_wheel(asked):
    framework, machine = asked
    plan = ask(framework, **machine)
    named = {
        Requirement(w).name
        for words in lines(framework, **machine)
        for w in words
        if not w.startswith(("-", "https:"))
    }
    for build in plan.builds:
        stated = next(
            b for b in KNOWN.builds
            if (b.framework, b.version, b.cuda, b.index, b.platform)
            == (build.framework, build.version, build.cuda, build.index, plan.platform)
        ).requires  # fmt: skip
        left = [r for r in build.requirements if r not in stated]
        assert {Requirement(r).name for r in left} <= named


def test_what_pip_leaves_undone_is_said():
    (gap,) = pip_gaps(ask("tensorflow==2.21.0", **H100), KNOWN)
    assert "cusolver" in gap and "LD_LIBRARY_PATH" in gap
    assert not list(pip_gaps(ask("tensorflow==2.20.0", **H100 | {"python": "3.11"}), KNOWN))
    assert not list(pip_gaps(ask("tensorflow==2.21.0", **CPU), KNOWN))
    (gap,) = pip_gaps(ask("torch", packages=("flash-attn",), **H100), KNOWN)
    assert "flash-attn" in gap
