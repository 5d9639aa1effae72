"""`onnxruntime-gpu` and others get the extras that bring their CUDA libraries, and a note says so."""

import pytest
from environment_facts import ok

HERE = ("--python", "3.12", "--platform", "linux-x86_64", "--index", "pypi")
GPU = ("--driver", "580.65.06", "--gpu", "9.0")
ADDED = "onnxruntime-gpu[cuda,cudnn]: adding these extras, because they install required CUDA libraries"


@pytest.fixture
def go(gpuenv, index):
    """`gpuenv lock` on an index with torch and an onnxruntime-gpu whose extras bring a library each."""
    index.add_plan(gpuenv("resolve", "--framework", "torch", *GPU, *HERE, "--json").json)
    index.add_plan(gpuenv("resolve", "--framework", "jax", "--device", "cpu", *HERE, "--json").json)
    brought = ("brought-by-cuda; extra == 'cuda'", "brought-by-cudnn; extra == 'cudnn'")
    for version, requires in (("1.31.1", brought), ("1.30.0", brought), ("1.27.0", ())):
        index.add("onnxruntime-gpu", version, requires=requires)
    for name in ("brought-by-cuda", "brought-by-cudnn", "einops"):
        index.add(name, "1.0")
    gpuenv.env["PIP_INDEX_URL"] = index.url

    def run(*more, lines=(), device=("--framework", "torch", *GPU)):
        (gpuenv.work / "asked.txt").write_text("".join(f"{line}\n" for line in lines))
        ran = ok(gpuenv("lock", *device, *HERE, *(("-r", "asked.txt") if lines else ()), *more, "--json"))
        names = {p["name"]: p["version"] for p in ran.json["packages"]}
        return names, ran.json["plan"], ran.err

    return run


def both(names):
    return names.keys() >= {"brought-by-cuda", "brought-by-cudnn"}


def test_extras_are_added_and_said_once(go):
    names, plan, _ = go("--with", "onnxruntime-gpu>=1.30")
    assert both(names) and names["onnxruntime-gpu"] == "1.31.1"
    assert plan["packages"] == ["onnxruntime-gpu[cuda,cudnn]>=1.30"]
    assert plan["notes"].count(ADDED) == 1


def test_a_line_of_a_file_keeps_its_bounds(go):
    names, plan, _ = go(lines=["einops", "onnxruntime-gpu==1.30.0"])
    assert both(names) and names["onnxruntime-gpu"] == "1.30.0" and ADDED in plan["notes"]


def test_extras_that_the_user_named_are_not_in_the_note(go):
    names, plan, _ = go("--with", "onnxruntime-gpu[cudnn,cuda]")
    assert both(names) and not [n for n in plan["notes"] if "these extras" in n]
    names, plan, _ = go("--with", "onnxruntime-gpu[cuda]")
    assert both(names)
    assert any(n.startswith("onnxruntime-gpu[cudnn]: adding these extras") for n in plan["notes"])


def test_no_extras_are_added_for_the_cpu_or_a_release_without_them(go):
    names, plan, _ = go("--with", "onnxruntime-gpu", device=("--framework", "jax", "--device", "cpu"))
    assert plan["packages"] == ["onnxruntime-gpu"] and not both(names)
    names, plan, _ = go("--with", "onnxruntime-gpu==1.27.0")
    assert plan["packages"] == ["onnxruntime-gpu==1.27.0"] and not both(names)


def test_the_release_of_the_set_decides_and_not_the_newest(go, index):
    index.add("holds", "1.0", requires=("onnxruntime-gpu<1.28",))
    names, plan, _ = go("--with", "onnxruntime-gpu", "--with", "holds")
    assert names["onnxruntime-gpu"] == "1.27.0" and not both(names)
    assert not [n for n in plan["notes"] if "these extras" in n]
