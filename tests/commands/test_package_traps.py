"""Packages that are not what their names say: refused or named before anything is solved, wherever they are asked for."""

import re

import pytest
from environment_facts import ok, refused
from known import KNOWN
from loopback import wheel_bytes
from packaging.requirements import Requirement

GPU = ("--driver", "580.65.06", "--gpu", "9.0", "--python", "3.12", "--platform", "linux-x86_64")
TORCH = ("--framework", "torch", *GPU)


@pytest.fixture
def go(gpuenv):
    # Whoever asks this index has gone too far: nothing listens there.
    gpuenv.env["PIP_INDEX_URL"] = "http://127.0.0.1:9/simple"
    return gpuenv


@pytest.fixture
def served(gpuenv, index):
    """`gpuenv` with an index that has torch, and cuRAND of every release of the CUDA toolkit."""
    index.add_plan(gpuenv("resolve", *TORCH, "--json").json)
    parts = {
        part.partition(" ")[2] for row in KNOWN.toolkits for part in row.parts if part.startswith("curand ")
    }
    for need in map(Requirement, sorted(parts)):
        index.add(need.name, str(need.specifier).strip("=.*"))
    gpuenv.env["PIP_INDEX_URL"] = index.url
    return gpuenv


@pytest.mark.parametrize(
    ("text", "why", "right"),
    [
        ("apex", "not NVIDIA Apex", "apex @ git+https://github.com/NVIDIA/apex"),
        ("PyTorch>=2", "placeholder whose build stops", "--framework torch"),
        ("tensorflow_gpu", "ended with release 2.11", "--framework tensorflow"),
        ("cudf", "placeholder", "cudf-cu13 or cudf-cu12"),
    ],
)
def test_a_package_that_nobody_means_is_refused(go, text, why, right):
    for command in ("resolve", "lock"):
        ran = refused(go(command, *TORCH, "--with", text, "--json"), 2)
        message, hint = ran.json["error"]["message"], ran.json["error"]["hint"]
        assert text in message and why in message, message
        assert right in hint, hint


def test_a_requirements_file_is_named_with_its_line(go):
    (go.work / "asked.txt").write_text("einops\napex\n")
    ran = go("resolve", *TORCH, "-r", "asked.txt", "--json")
    assert ran.code == 2 and "apex (asked.txt line 2)" in ran.json["error"]["message"], ran.out


def test_a_line_for_another_platform_is_no_trap(served):
    (served.work / "asked.txt").write_text("apex; sys_platform == 'win32'\n")
    ok(served("resolve", *TORCH, "-r", "asked.txt", "--json"))


def test_traps_in_gpuenv_yaml_and_add_are_refused_too(go):
    file = go.work / "gpuenv.yaml"
    file.write_text("frameworks: [torch]\npackages: [apex]\n")
    assert "NVIDIA Apex" in refused(go("resolve", *GPU, "--json"), 2).json["error"]["message"]
    file.write_text("frameworks: [torch]\n")
    assert "NVIDIA Apex" in refused(go("add", "apex", "--json"), 2).json["error"]["message"]
    assert file.read_text() == "frameworks: [torch]\n"


def test_a_trap_named_by_address_or_present_as_a_wheel_is_accepted(served, index):
    index.add("apex", "0.1")
    address = index.url.replace("/simple", "/files/apex/apex-0.1-py3-none-any.whl")
    ok(served("resolve", *TORCH, "--with", f"apex @ {address}", "--json"))
    (served.work / "wheels").mkdir()
    (served.work / "wheels" / "apex-0.1-py3-none-any.whl").write_bytes(wheel_bytes("apex", "0.1"))
    ok(served("resolve", *TORCH, "--with", "apex", "--find-links", "wheels", "--json"))


def test_a_package_that_may_be_meant_gives_a_warning(served, index):
    index.add("cupy", "14.0")
    ran = ok(served("resolve", *TORCH, "--with", "cupy", "--json"))
    said = [n for n in ran.json["notes"] if n.startswith("cupy ")]
    assert len(said) == 1 and "compile CUDA code" in said[0] and "cupy-cuda13x or cupy-cuda12x" in said[0]


def test_a_name_of_a_framework_in_a_file_is_taken_as_the_framework(go):
    (go.work / "asked.txt").write_text("pytorch\n")
    ran = go("resolve", "-r", "asked.txt", *GPU, "--json")
    assert ran.code == 0 and ran.json["builds"][0]["framework"] == "torch"
    assert any(re.fullmatch(r"pytorch \(asked\.txt line 1\) .* torch", note) for note in ran.json["notes"])


def test_a_placeholder_of_the_toolkit_is_replaced_for_a_gpu_and_refused_for_the_cpu(served):
    ran = served("resolve", *TORCH, "--with", "nvidia-curand-cu13", "--json")
    assert ran.code == 0 and ran.json["packages"][0].startswith("nvidia-curand=="), ran.out
    assert any(re.match("nvidia-curand-cu13 is replaced .*nvidia-curand==", n) for n in ran.json["notes"])
    ran = served("resolve", "--framework", "jax", "--device", "cpu", "--with", "nvidia-curand-cu13", "--json")
    assert ran.code == 2 and "placeholder" in ran.json["error"]["message"]
    assert ran.json["error"]["hint"] == "write nvidia-curand"
