"""Two frameworks in one environment: one CUDA, or the further one for the CPU; what is stated for one stays its own."""

import pytest
from environment_facts import ok
from loopback import Index, serving

HERE = "3.11"
GPU = ("--driver", "580.95.05", "--gpu", "H100", "--glibc", "2.35", "--platform", "linux-x86_64")
TAIL = ("--index", "pypi", "--python", HERE, *GPU)
BOTH = ("--framework", "torch", "--framework", "tensorflow")


@pytest.fixture
def both(gpuenv, index):
    """`gpuenv` with the set of torch and TensorFlow that share a CUDA, and the newest torch alone."""
    gpuenv.plans = {}
    for wanted in (("--framework", "torch"), BOTH, ("--framework", "tensorflow")):
        ran = ok(gpuenv("resolve", "--json", *wanted, *TAIL))
        index.add_plan(ran.json)
        gpuenv.plans[wanted] = {b["framework"]: b for b in ran.json["builds"]}
    gpuenv.env |= {"PIP_INDEX_URL": index.url}
    index.uploaded = "2026-10-01T00:00:00Z"
    return gpuenv


def versions(ran):
    return {p["name"]: p["version"] for p in ok(ran).json["packages"]}


def builds(plan):
    return {b["framework"]: (b["version"], b["cuda"]) for b in plan["builds"]}


def test_frameworks_that_are_named_share_one_cuda(both):
    ran = both("lock", "--json", *BOTH, *TAIL)
    found = versions(ran)
    wanted = both.plans[BOTH]
    assert {n: found[n] for n in wanted} == {n: b["version"] for n, b in wanted.items()}
    assert len({c.split(".")[0] for _, c in builds(ran.json["plan"]).values()}) == 1
    held = {h["package"]: h for h in ran.json["held_back"]}
    assert "tensorflow" in held["torch"]["because"], "why torch is not the newest"


def test_a_framework_that_shares_no_cuda_is_for_the_cpu_and_lowers_nothing(both, index):
    """protobuf 4.25.8 allows a TensorFlow that no torch of today shares a CUDA with."""
    for version, protobuf in (("2.21.0", ">=5"), ("2.20.0", ">=5"), ("2.19.1", "<6")):
        plan = both("resolve", "--json", "--framework", f"tensorflow=={version}", *TAIL).json
        index.add_plan(plan)
        needs = [f"{r}; extra == 'and-cuda'" for r in plan["builds"][0]["requirements"][1:]]
        index.add("tensorflow", version, requires=(*needs, f"protobuf{protobuf}"))
    for version in ("6.33.0", "5.29.0", "4.25.8"):
        index.add("protobuf", version)
    (both.work / "asked.txt").write_text("torch\ntensorflow[and-cuda]\nprotobuf==4.25.8\n")
    ran = both("lock", "--json", "-r", "asked.txt", *TAIL)
    found = versions(ran)
    assert found["torch"] == both.plans["--framework", "torch"]["torch"]["version"]
    assert (found["tensorflow"], found["protobuf"]) == ("2.19.1", "4.25.8")
    assert builds(ran.json["plan"]).keys() == {"torch"}
    said = " ".join(ran.err.split())
    assert said.count("is locked for the CPU") == said.count("tensorflow is locked for the CPU") == 1


def test_a_bound_of_one_framework_does_not_reach_the_other(both):
    torch = both.plans[BOTH]["torch"]["version"]
    ran = both("lock", "--json", "--framework", f"torch=={torch}", "--framework", "tensorflow", *TAIL)
    assert versions(ran)["tensorflow"] == both.plans[BOTH]["tensorflow"]["version"]


def test_the_index_of_one_framework_is_no_cuda_of_the_other(both, index):
    """`[tool.uv.sources]` of torch names the index of CUDA 12.8: nobody gave --cuda."""
    plan = both(
        "resolve", "--json", "--framework", "torch==2.10.0", "--cuda", "12.8", "--python", HERE, *GPU
    ).json
    with serving(Index()) as pytorch:
        pytorch.prefix = "/whl"
        pytorch.add_plan(plan)
        del pytorch.wheels["pip"]
        index.add_plan(plan)
        both.env["GPUENV_INDEX_PYTORCH"] = pytorch.url.replace("/simple", "/whl")
        (both.work / "pyproject.toml").write_text(
            '[project]\nname = "p"\nversion = "1"\ndependencies = ["torch", "tensorflow"]\n'
            '[tool.uv]\npackage = false\n[tool.uv.sources]\ntorch = { index = "cu128" }\n'
            '[[tool.uv.index]]\nname = "cu128"\nurl = "https://download.pytorch.org/whl/cu128"\nexplicit = true\n'
        )
        ran = both("lock", "--json", "--project", ".", "--python", HERE, *GPU)
        assert "--cuda" not in ran.out + ran.err, "an option that nobody gave"
        found = versions(ran)
        assert found["tensorflow"] == both.plans[BOTH]["tensorflow"]["version"], ran.err
        assert builds(ran.json["plan"])["torch"][1].startswith("12.")


def test_tensorflow_and_its_cpu_build_are_one_package_where_packages_require_both(both, index):
    version = both.plans["--framework", "tensorflow"]["tensorflow"]["version"]
    for name in ("tensorflow", "tensorflow-cpu"):
        index.add(name, version)
    index.add("texts", "1.0", requires=("tensorflow",))
    (both.work / "asked.txt").write_text("tensorflow-cpu\ntexts\n")
    ran = both("lock", "--json", "--framework", "torch", "-r", "asked.txt", *TAIL)
    found = versions(ran)
    assert found["tensorflow"] == version and "tensorflow-cpu" not in found
    assert found["torch"] == both.plans["--framework", "torch"]["torch"]["version"]
    assert "warning: tensorflow-cpu is left out: " in " ".join(ran.err.split())
    notes = [n for n in ran.json["plan"]["notes"] if n.startswith("tensorflow-cpu")]
    assert len(notes) == 1 and notes[0].startswith("tensorflow-cpu is left out: "), "it does not remain"
