"""The comparison with uv: its sets, and what counts as a fault."""

import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
from compare_with_uv import Checkout, Comparison, has_cause, judge, list_objections, read_answer  # noqa: E402  # scripts/ is no package
from comparison_table import Compared  # noqa: E402
from requirement_sets import FRAMEWORK_PACKAGES, RequirementSet, read_sets  # noqa: E402


def lock_document(packages, held_back=(), builds=(), notes=()):
    return {
        "packages": [{"name": name, "version": version} for name, version in packages.items()],
        "held_back": [
            {"package": name, "newest": "99", "because": "numpy 2.5.5 is why"} for name in held_back
        ],
        "plan": {"builds": list(builds), "notes": list(notes), "rejected": []},
    }


def test_one_hundred_sets_are_real_requirements_of_every_kind():
    sets = read_sets()
    assert len({s.name for s in sets}) == len(sets) >= 100
    assert sum(len(s.all_frameworks) > 1 for s in sets) >= 12
    assert max(len(s.all_frameworks) for s in sets) >= 3
    assert {f for s in sets for f in s.frameworks} == set(FRAMEWORK_PACKAGES.values())
    for requirement_set in sets:
        assert requirement_set.source.startswith("https://"), requirement_set.name
        parsed = [Requirement(line) for line in requirement_set.requirements]
        assert not any(r.url for r in parsed), f"{requirement_set.name}: git addresses are left out"


def test_binding_packages_come_before_frameworks_and_these_before_the_rest():
    some = RequirementSet(
        name="some",
        source="",
        frameworks=["torch", "onnxruntime"],
        requirements=["numpy", "torch>=2", "vllm"],
    )
    assert some.lines() == ["numpy", "torch>=2", "vllm", "onnxruntime-gpu"]
    assert some.lines([]) == ["torch>=2", "onnxruntime-gpu", "numpy", "vllm"]
    assert some.lines(["vllm"]) == ["vllm", "torch>=2", "onnxruntime-gpu", "numpy"]
    assert some.named == ["numpy", "torch", "vllm", "onnxruntime-gpu"]


def test_frameworks_that_requirements_name_count_too():
    some = RequirementSet(
        name="some", source="", frameworks=["jax"], requirements=["tensorflow-cpu", "jax[cuda13]", "torch"]
    )
    assert some.all_frameworks == ["jax", "tensorflow", "torch"]


def test_the_answer_of_uv_says_who_requires_what():
    answer = read_answer(
        "numpy==2.3.5\n    # via -r requirements.txt\n".replace("\n    #", "  #")
        + "torch==2.13.0+cu130  # via -r requirements.txt, vllm, torchvision\nNVIDIA.nccl==1 ; sys_platform == 'linux'\n"
    )
    assert answer.versions == {"numpy": "2.3.5", "torch": "2.13.0+cu130", "nvidia-nccl": "1"}
    assert answer.required_by["torch"] == ["vllm", "torchvision"]
    assert answer.required_by["numpy"] == []


def names(texts):
    return [text.split()[0] for text in texts]


def test_an_older_release_needs_a_reason():
    theirs = {"torch": "2.15.0", "triton": "3.8", "numpy": "2.5.5", "six": "1.17"}
    ours = {"torch": "2.13.0+cu130", "triton": "3.6", "numpy": "2.5.5", "six": "1.16"}
    with_reason, follows, without_reason = judge(["torch", "numpy"], lock_document(ours), theirs)
    assert not with_reason and not follows
    assert without_reason[0] == "torch 2.13.0+cu130; uv takes 2.15.0"
    assert names(without_reason) == ["torch", "triton", "six"]

    builds = [{"framework": "torch", "requirements": ["torch===2.13.0", "triton==3.6"]}]
    held_back = lock_document(ours, ["torch"], builds)
    with_reason, follows, without_reason = judge(["torch", "triton", "numpy"], held_back, theirs)
    assert names(with_reason) == ["torch", "triton"]
    assert names(follows) == ["six"]
    assert not without_reason
    assert judge(["torch", "six"], held_back, theirs)[2] == ["six 1.16; uv takes 1.17"]


@pytest.mark.parametrize(
    ("package", "newest", "because", "expected"),
    [
        ("torch", "2.15.0", "vllm 0.33.0 requires torch==2.14.0", True),
        ("torch", "2.15.0", "vllm 0.33.0 requires torch>=2.14.0", False),  # allows the newer release
        ("torch", "2.15.0", "vllm 0.32.0 requires torch==2.14.0", False),  # is not in the lock
        ("vllm", "0.34.0", "vllm 0.34.0 requires torch==2.15.0; with torch 2.15.0 there is no solution", True),
        ("vllm", "0.34.0", "vllm 0.34.0 requires torch==2.14.0", False),  # the lock meets it
        ("torch", "2.15.0", "xformers 0.0.35 needs libcudart.so.12; torch has CUDA 13", True),  # a row
        ("torch", "2.15.0", "has wheels for Python 3.11 to 3.15; requested: 3.10", True),  # of the plan
        ("torch", "2.15.0", "the PyTorch index does not respond; it has torch 2.15.0", True),
        ("torch", "2.15.0", "the solver finds no compatible set: all versions of vllm>=0.33 need more", True),
        ("torch", "2.15.0", "another requirement excludes it", False),
        ("torch", "2.15.0", "torch 2.15.0 is not good", False),
    ],
)  # fmt: skip
def test_a_reason_has_to_name_what_decides(package, newest, because, expected):
    lock = lock_document({"torch": "2.14.0+cu130", "vllm": "0.33.0"})
    lock["plan"]["rejected"] = [
        {"reasons": [{"text": "has wheels for Python 3.11 to 3.15; requested: 3.10"}]}
    ]
    held = {"package": package, "newest": newest, "because": because}
    assert has_cause(held, lock) is expected
    lock["held_back"] = [held]
    _, _, without_reason = judge([package], lock, {package: newest})
    assert bool(without_reason) is not expected


def test_a_package_that_is_named_and_not_locked_is_older_unless_the_plan_says_why():
    theirs = {"nvidia-cuda-nvcc-cu12": "12.2", "rarely": "1"}
    named = ["nvidia-cuda-nvcc-cu12"]
    without_reason = ["nvidia-cuda-nvcc-cu12 is not locked; uv takes 12.2"]
    assert judge(named, lock_document({}), theirs) == ([], [], without_reason)
    note = "nvidia-cuda-nvcc-cu12<=12.2 (r.txt line 2) is replaced by nvidia-cuda-nvcc-cu12==12.8.93.*"
    assert judge(named, lock_document({}, notes=[note]), theirs) == (without_reason, [], [])


def test_the_builds_of_a_plan_decide_packages_that_nobody_names():
    builds = [{"framework": "jax", "requirements": ["jax===0.4.26", "jaxlib===0.4.26"]}]
    lock = lock_document({"jax": "0.4.26", "jaxlib": "0.4.26"}, builds=builds)
    theirs = {"jax": "0.4.27", "jaxlib": "0.4.38"}
    _, follows, without_reason = judge(["jax"], lock, theirs)
    assert (names(follows), names(without_reason)) == (["jaxlib"], ["jax"])


def test_a_build_that_only_misses_its_index_is_the_first_objection():
    def rejected(version, *reasons):
        texts = [{"code": code, "text": code} for code in reasons]
        return {"framework": "torch", "version": version, "cuda": "12", "reasons": texts}

    bound = rejected("3", "requirement_conflict")
    fitting = [bound, rejected("2", "index_excluded", "no_kernel"), rejected("1", "index_excluded")]
    assert list_objections(fitting) == ["torch 1 (CUDA 12): index_excluded"]
    assert list_objections(fitting[:2]) == ["torch 2 (CUDA 12): index_excluded, no_kernel"]
    assert list_objections([bound]) == []


@pytest.mark.parametrize(
    ("result", "state", "ok"),
    [
        ({"exit": 0}, "ok", True),
        ({"exit": 0, "without_reason": ["a 1; uv takes 2"]}, "OLDER", False),
        ({"exit": 0, "with_reason": ["a 1; uv takes 2"]}, "ok", True),
        ({"exit": 0, "uv_error": "No solution found"}, "only gpuenv", True),
        ({"exit": 6, "error": "conflict", "uv_error": "No solution found"}, "neither", True),
        ({"exit": 1, "error": "KeyError", "uv_error": "No solution found"}, "NO LOCK", False),
        ({"exit": 6, "error": "conflict"}, "NO LOCK", False),
        ({"error": "no answer within 600 s"}, "NO LOCK", False),
        ({"exit": 5, "error": "torch 2.1.2 has no kernels for sm_120"}, "forbidden", True),
        ({"exit": 6, "error": "the index https://example.org does not answer"}, "closed", True),
        ({"exit": 6, "error": "conflict", "uv_error": "Failed to fetch: `https://example.org/a`"}, "closed", True),
    ],
)  # fmt: skip
def test_what_counts_as_a_fault(result, state, ok):
    compared = Compared(name="a", **result)
    assert (compared.state, compared.ok) == (state, ok)


STAND_IN = """
import json, os, sys
words, folder = sys.argv[1:], os.path.dirname(sys.argv[sys.argv.index("-r") + 1])
pinned = "vllm==2" in open(words[words.index("-r") + 1]).read()
if "OLD" in os.environ and "--allow-old" not in words:
    print(json.dumps({"error": {"message": "vllm 1 is old", "hint": "accept it: --allow-old"}}))
    sys.exit(6)
if pinned and "NOTE" in os.environ:
    print("note: torch has another CUDA", file=sys.stderr)
open("pylock.toml", "w").write("2" if pinned else "1")
versions = [{"name": "torch", "version": "3"}]
if "LEFT_OUT" not in os.environ:
    versions.append({"name": "vllm", "version": "2" if pinned else "1"})
print(json.dumps({"packages": versions, "held_back": [], "plan": {"builds": [], "notes": []}}))
"""


@pytest.fixture
def checkout(tmp_path):
    (tmp_path / "other/provision").mkdir(parents=True)
    (tmp_path / "other/provision/__init__.py").touch()
    (tmp_path / "other/provision/__main__.py").write_text(STAND_IN)
    return Checkout(tmp_path / "other")


@pytest.fixture
def comparison(tmp_path):
    some = RequirementSet(name="some", source="", frameworks=["torch"], requirements=["vllm"])
    return Comparison(some, tmp_path, 60)


def test_a_reason_is_false_if_the_versions_of_uv_lock_without_a_note(comparison, checkout):
    lock = comparison._lock(checkout, comparison.result)
    assert comparison._accepts({"vllm": "2"}, lock, checkout)
    assert comparison.written.read_text() == "1", "the lock of the set stays"
    assert not comparison._accepts({"vllm": "2"}, lock, Checkout(checkout.folder, {"NOTE": "1"}))
    assert not comparison._accepts({"vllm": "2"}, lock, Checkout(checkout.folder, {"OLD": "1"}))
    assert not comparison._accepts({"vllm": "2"}, lock, Checkout(checkout.folder, {"LEFT_OUT": "1"}))


def test_versions_of_uv_with_an_older_framework_prove_nothing(comparison, checkout):
    newer = lock_document({"vllm": "1", "torch": "3"})
    comparison.written.touch()
    assert not comparison._accepts({"vllm": "2", "torch": "2"}, newer, checkout)
    assert comparison._accepts({"vllm": "2", "torch": "3"}, newer, checkout)
