"""jax without extras, jaxlib, tensorflow-cpu and onnxruntime stay packages for the CPU, beside a torch for CUDA and alone."""

import pytest
from environment_facts import ok

from provision.config.file import read_config

CARD = ("--driver", "580.65.06", "--gpu", "9.0")
HERE = ("--python", "3.12", "--platform", "linux-x86_64", "--index", "pypi")
CPU_LINES = ("jax>=0.4", "jaxlib", "tensorflow-cpu>=2.1", "onnxruntime")


@pytest.fixture
def go(gpuenv, index):
    """`gpuenv` for a card, on an index with torch and JAX for it, JAX for the CPU, and packages for the CPU."""
    for more in (
        ("--framework", "torch", *CARD),
        ("--framework", "jax", *CARD),
        ("--framework", "jax", "--device", "cpu"),
    ):
        index.add_plan(gpuenv("resolve", "--json", *more, *HERE).json)
    version = gpuenv("resolve", "--json", "--framework", "jax", *CARD, *HERE).json["builds"][0]["version"]
    index.add(
        "jax", version, requires=(f"jaxlib<={version}",)
    )  # one wheel for CPU and GPU, as the real one is
    index.add("tensorflow-cpu", "2.20.0")
    index.add("onnxruntime", "1.30.0")
    index.add("flax", "0.12", requires=("jax>=0.4",))
    index.add("wants-torch", "1.0", requires=("torch",))
    gpuenv.env["PIP_INDEX_URL"] = index.url

    def run(verb, *more, lines=None):
        if lines is not None:
            (gpuenv.work / "asked.txt").write_text("".join(f"{line}\n" for line in lines))
            more = ("-r", "asked.txt", *more)
        ran = ok(gpuenv(verb, *CARD, *HERE, *more, "--json"))
        return ran.json

    return run


def builds(plan):
    return [(b["framework"], bool(b["cuda"])) for b in plan["builds"]]


def names(lock):
    return {p["name"] for p in lock["packages"]}


def test_cpu_packages_beside_torch_stay_packages(go):
    alone = go("lock", lines=["torch"])
    made = go("lock", lines=["torch", *CPU_LINES])
    assert builds(made["plan"]) == [("torch", True)]
    assert made["plan"]["builds"] == alone["plan"]["builds"], "they do not change what is planned"
    assert names(made) - names(alone) == {"jax", "jaxlib", "tensorflow-cpu", "onnxruntime"}
    notes = made["plan"]["notes"]
    for lines, option in (
        ("jax (asked.txt line 2), jaxlib (asked.txt line 3) ", "--framework jax"),
        ("tensorflow-cpu (asked.txt line 4) ", "--framework tensorflow"),
    ):
        assert [n for n in notes if n.startswith(lines) and n.endswith(option)], notes
    assert not [
        n for n in notes if "read as" in n or "taken as" in n or "gpuenv selects this package itself" in n
    ]


def test_tensorflow_cpu_beside_another_framework_of_a_cpu_environment_stays_a_package(go):
    made = go("lock", "--device", "cpu", lines=["jax", "tensorflow-cpu>=2.1"])
    assert builds(made["plan"]) == [("jax", False)]
    assert "tensorflow-cpu" in names(made) and "tensorflow" not in names(made)
    assert not [n for n in made["plan"]["notes"] if "read as" in n]


def test_cpu_packages_of_options_and_gpuenv_yaml_are_locked_alike(go, gpuenv):
    wanted = [word for line in CPU_LINES for word in ("--with", line)]
    made = go("lock", "--framework", "torch", *wanted)
    assert builds(made["plan"]) == [("torch", True)]
    assert names(made) >= {"jax", "jaxlib", "tensorflow-cpu", "onnxruntime"}
    assert [n for n in made["plan"]["notes"] if n.startswith("jax is ") and n.endswith("--framework jax")]
    (gpuenv.work / "gpuenv.yaml").write_text(f"frameworks: [torch]\npackages: {list(CPU_LINES)}\n")
    assert names(go("lock", "--output", "other.toml")) == names(made)
    assert "--lock sub/pylock.toml" in gpuenv("lock", *CARD, *HERE, "-o", "sub/pylock.toml").out


def test_a_constraint_on_a_cpu_package_holds(go, gpuenv, index):
    index.add("jax", "0.4.30")
    (gpuenv.work / "limits.txt").write_text("jax<0.5\n")
    made = go("lock", lines=["torch", "jax", "-c limits.txt"])
    assert {p["name"]: p["version"] for p in made["packages"]}["jax"] == "0.4.30"
    assert builds(made["plan"]) == [("torch", True)]


@pytest.mark.parametrize("line", ["jax[cuda13]", "jax\njax-cuda13-plugin", "jax==0.4.7+cuda11.cudnn86"])
def test_an_extra_a_plugin_or_a_label_asks_for_the_gpu(go, gpuenv, line):
    (gpuenv.work / "asked.txt").write_text(f"torch\n{line}\n")
    ran = gpuenv("resolve", *CARD, *HERE, "-r", "asked.txt", "--json")
    found = {b["framework"] for b in ran.json["builds"]} | {r["framework"] for r in ran.json["rejected"]}
    assert "jax" in found, ran.out
    assert not [n for n in ran.json["notes"] if "for the CPU" in n]


def test_cpu_packages_alone_give_a_cpu_environment_and_a_note(go, gpuenv):
    plan = go("resolve", lines=["jax"])
    assert plan["device"] == "cpu" and builds(plan) == [("jax", False)]
    (said,) = (n for n in plan["notes"] if n.startswith("jax (asked.txt line 1) "))
    assert said.endswith("--framework jax")
    plan = go("resolve", "--device", "cuda", lines=["jax"])
    assert plan["device"] == "cuda" and builds(plan) == [("jax", True)]
    plan = go("resolve", "--framework", "jax", lines=["jax"])
    assert plan["device"] == "cuda" and builds(plan) == [("jax", True)]
    assert builds(go("resolve", lines=["flax", "jax"])) == [("jax", False)], "flax brings no other framework"
    ran = gpuenv("resolve", *CARD, *HERE, "--with", "jax", "--json")
    assert ran.code == 2 and "--framework jax" in ran.json["error"]["hint"]
    (gpuenv.work / "asked.txt").write_text("onnxruntime\n")
    ran = gpuenv("resolve", *CARD, *HERE, "-r", "asked.txt", "--json")
    assert ran.code == 2 and "--framework onnxruntime" in ran.json["error"]["hint"]


def test_a_framework_that_comes_along_keeps_the_gpu(go):
    made = go("lock", lines=["jax", "wants-torch"])
    assert made["plan"]["device"] == "cuda" and builds(made["plan"]) == [("torch", True)]
    assert names(made) >= {"jax", "jaxlib", "torch"}


def test_tensorflow_cpu_never_shares_files_with_tensorflow(gpuenv, index):
    index.add_plan(gpuenv("resolve", "--json", "--framework", "tensorflow", *CARD, *HERE).json)
    index.add("tensorflow-cpu", "2.20.0")
    gpuenv.env["PIP_INDEX_URL"] = index.url
    ran = gpuenv("lock", *CARD, *HERE, "--framework", "tensorflow", "--with", "tensorflow-cpu", "--json")
    assert ran.code == 6 and "install the same files" in ran.json["error"]["message"], ran.out


def test_init_writes_each_required_framework_and_leaves_a_cpu_package_a_package(gpuenv):
    (gpuenv.work / "requirements.txt").write_text("torch\njax\ntensorflow-cpu\n")
    assert gpuenv("init").code == 0
    assert read_config(gpuenv.work / "gpuenv.yaml").frameworks == ("torch", "jax")


def test_onnxruntime_gpu_of_a_project_is_replaced_in_a_cpu_environment(gpuenv, index):
    index.add_plan(gpuenv("resolve", "--json", "--framework", "onnxruntime", "--device", "cpu", *HERE).json)
    index.add("onnxruntime-gpu", "1.20.0")
    gpuenv.env["PIP_INDEX_URL"] = index.url
    (gpuenv.work / "asked.txt").write_text("onnxruntime-gpu>=1.18\n")
    asked = ("--framework", "onnxruntime", "--device", "cpu", "-r", "asked.txt", *HERE, "--json")
    ran = ok(gpuenv("lock", *asked))
    assert "onnxruntime" in names(ran.json) and "onnxruntime-gpu" not in names(ran.json)
    note = "onnxruntime-gpu (asked.txt line 1) is replaced by onnxruntime: the environment is for the CPU"
    assert note in ran.json["plan"]["notes"]
