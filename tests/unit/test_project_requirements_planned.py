"""Requirements of a project that the plan decides."""
# ruff: noqa: F811  # fixtures are imported by their names

import pytest
from requirements_folder import LINUX, asked, elsewhere, folder, texts  # noqa: F401  # fixtures

from provision.requirements.sort import read_project_requirements


@pytest.mark.parametrize(
    ("lines", "frameworks", "bounds"),
    [
        ("tensorflow-gpu==2.10.*", ["tensorflow"], ["tensorflow==2.10.*"]),
        ("tensorflow-cpu>=2.15", ["tensorflow"], ["tensorflow>=2.15"]),
        ("tensorflow[and-cuda]~=2.17", ["tensorflow"], ["tensorflow~=2.17"]),
        ("pytorch", ["torch"], []),
        ("jax[cuda12]==0.4.30\njaxlib==0.4.30", ["jax"], ["jax==0.4.30"]),
        ("jax==0.4.24\njaxlib==0.4.23", ["jax"], ["jax==0.4.24"]),
        ("jaxlib>=0.4", ["jax"], ["jax>=0.4"]),
        ("jax[cuda12]>=0.4\njaxlib==0.4.30", ["jax"], ["jax>=0.4", "jax==0.4.30"]),
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
    assert not {"torch", "tensorflow", "jax", "jaxlib"} & {n.name for n in found.lines}


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
    assert {one.framework: [n.text for n in one.lines] for one in found.cpu} == cpu
    assert {one.framework for one in found.cpu} <= set(found.frameworks)


def test_a_constraint_alone_names_no_cpu_build(folder):
    (folder / "limits.txt").write_text("jax<0.5\n")
    assert asked(folder, "-c limits.txt\ntorch").cpu == ()
    found = asked(folder, "-c limits.txt\njax").cpu[0]
    assert [(n.text, n.constraint) for n in found.lines] == [("jax<0.5", True), ("jax", False)]


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
    assert found.left_out[0].startswith("cuda-toolkit[cudart]==13.0 (requirements.txt line 1) ")


def test_a_frameworks_wheel_at_hand_is_a_bound_and_a_folder(folder):
    (folder / "torch-2.11.0-cp312-cp312-linux_x86_64.whl").touch()
    found = asked(folder, "./torch-2.11.0-cp312-cp312-linux_x86_64.whl")
    assert found.frameworks == ("torch",) and found.bounds[0].specifier == "==2.11.0"
    assert found.find_links == (str(folder),)


def test_packages_come_with_their_origin(folder):
    packages = [("torchvision==0.20+cu124", "--with"), ("six", "gpuenv.yaml")]
    found = read_project_requirements({}, {}, packages=packages)
    assert [(n.text, n.origin) for n in found.lines] == [
        ("torchvision==0.20", "--with"), ("six", "gpuenv.yaml"),
    ]  # fmt: skip
