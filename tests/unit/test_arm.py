"""Twenty questions of people with a GH200 or a GB10 (DGX Spark), answered from the rows of linux-aarch64.

Each answer was compared with the files of the default index on 2026-11-26: names, METADATA, libraries and kernels of the newest
wheels with "aarch64" in their names.
"""

import pytest
from known import KNOWN
from resolve_questions import ask, question

from provision.model import AvailableWheels
from provision.resolve.question import Question
from provision.resolve.satellites import SatelliteRows, serves_gpus

R580 = {"driver": "580.95.05", "platform": "linux-aarch64", "index": "pypi"}
GH200, GB10 = R580 | {"gpus": ["GH200"]}, R580 | {"gpus": ["GB10"]}


@pytest.mark.parametrize(
    ("framework", "machine", "build"),
    [
        ("torch", GH200, ("2.15.0", "13.2", "9.26.0.51")),
        ("torch", GB10, ("2.15.0", "13.2", "9.26.0.51")),
        ("torch", GB10 | {"python": "3.10"}, ("2.14.1", "13.0", "9.24.0.43")),  # 2.15 begins at 3.11
        ("torch==2.11.0", GB10, ("2.11.0", "13.0", "9.19.0.56")),  # the first with CUDA for Arm on this index
        ("torch==2.10.0", GB10, None),  # its wheel for Arm is for the CPU
        ("torch", GH200 | {"driver": "550.54.15"}, None),  # no wheel for Arm has CUDA 12
        ("torch", GH200 | {"glibc": "2.27"}, None),  # manylinux_2_28
        ("torch", R580 | {"gpus": ["Jetson AGX Orin"]}, None),  # no code for 8.7
        ("jax", GH200, ("0.12.0.1", "13.0", "9.28.0.42")),
        ("jax", GH200 | {"driver": "535.129.03"}, ("0.12.0.1", "12.9", "9.28.0.42")),  # jax-cuda12-pjrt
        ("jax", GB10 | {"driver": "575.51.03"}, ("0.12.0.1", "12.9", "9.28.0.42")),
        ("tensorflow", GH200, None),  # its wheels for Arm are for the CPU
        ("onnxruntime", GH200, ("1.31.1", "13.0", "9.28.0.42")),
        ("onnxruntime", GH200 | {"glibc": "2.28"}, None),  # manylinux_2_34
    ],
)
def test_a_framework_for_an_arm_machine(framework, machine, build):
    plan = ask(framework, **machine)
    assert [(b.version, b.cuda, plan.cudnn) for b in plan.builds] == ([build] if build else [])


@pytest.mark.parametrize(
    ("package", "newest", "form", "cuda", "built_for", "lacks"),
    [
        ("vllm", "0.33.0", "wheel", "13", "torch==2.14.0", []),
        ("torchvision", "0.29.2", "wheel", "13", "torch>=2.14.0", ["Jetson AGX Orin"]),
        (
            "sglang-kernel",
            "0.4.10",
            "wheel",
            "13",
            "torch==2.14.1",
            ["Jetson AGX Orin"],
        ),  # code for 9.0 to 12.1
        (
            "bitsandbytes",
            "0.50.2",
            "wheel",
            "12.4",
            "torch<3,>=2.4",
            ["Jetson AGX Orin"],
        ),  # GB10 runs the PTX for 9.0
        ("onnxruntime-gpu", "1.31.1", "wheel", "13", None, ["Jetson AGX Orin"]),  # 8.9, 9.0, 12.0, 12.1
        ("flash-attn", "2.8.3.post2", "source", None, "torch", []),  # no wheel: it is compiled
    ],
)
def test_a_package_for_an_arm_machine(package, newest, form, cuda, built_for, lacks):
    versions = SatelliteRows(KNOWN, "linux-aarch64").packages[package]
    (row,) = [r for r in versions[newest] if r.cuda == cuda]
    assert (next(iter(versions)), row.form, row.built_for) == (newest, form, built_for)
    asked = {gpu: question("torch", **R580, gpus=[gpu]) for gpu in ("GH200", "GB10", "Jetson AGX Orin")}
    questions = {gpu: Question(*one, KNOWN, AvailableWheels()) for gpu, one in asked.items()}
    assert [gpu for gpu, one in questions.items() if not serves_gpus(one, row)] == lacks
