"""The comparison with uv: its sets, what counts as a fault, and the summary."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
from compare_with_uv import Checkout, Comparison, has_cause, judge, list_objections, read_answer  # noqa: E402  # scripts/ is no package
from comparison_table import Compared, summary  # noqa: E402
from lock_times import Times  # noqa: E402
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


def test_only_another_checkout_may_need_the_option_of_earlier_releases(comparison, checkout):
    old = Checkout(checkout.folder, {"OLD": "1"})
    assert comparison._lock(old, comparison.result) is None
    assert comparison.result.state == "NO LOCK"
    comparison._lock(checkout, comparison.result)
    comparison._time([checkout, old], rounds=1)
    assert (comparison.result.other_error, comparison.result.same) == ("", True)
    assert len(comparison.result.other.seconds) == 2, "the run without the option does not count"


def test_a_program_that_takes_too_long_can_stop_what_it_started(tmp_path):
    program = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: open('stopped', 'w') and sys.exit(1)); "
    with pytest.raises(subprocess.TimeoutExpired):
        Times().run([sys.executable, "-c", program + "time.sleep(60)"], tmp_path, {}, timeout=2)
    assert (tmp_path / "stopped").exists()


def test_a_ratio_is_one_to_the_faster_order_of_uv():
    compared = Compared(
        name="a",
        exit=0,
        mine=Times(seconds=[9.0, 3.0, 3.0, 3.0]),
        uv=Times(seconds=[9.0, 4.0, 4.0, 4.0]),
        uv_binding=Times(seconds=[9.0, 2.0, 2.0, 2.0]),
        other=Times(seconds=[9.0, 6.0, 6.0, 6.0]),
    )
    assert (compared.ratio, compared.ratio_to_other) == (1.5, 0.5)
    failed = Compared(name="a", mine=compared.mine, uv=Times(seconds=[0.1]), uv_binding=compared.uv)
    assert failed.ratio == 0.75, "an order that uv does not solve is run once"


def test_the_summary_counts_closed_sets_apart():
    results = [
        Compared(name="a", exit=0, with_reason=["b 1; uv takes 2"], frameworks=["jax", "torch"]),
        Compared(name="b", exit=0, without_reason=["b 1; uv takes 2", "c 1; uv takes 2"]),
        Compared(name="c", exit=6, error="conflict"),
        Compared(name="d", exit=6, uv_error="Git operation failed"),
        Compared(name="e", exit=0, uv_error="No solution found"),
    ]
    counts = {
        line[:25].strip(): line[25:].split() for line in summary(results) if not line.startswith("faults")
    }
    assert counts["sets"] == ["5", "1", "with", "several", "frameworks"]
    assert counts["solved by uv"] == ["3"]
    assert counts["solved by gpuenv"][:2] == ["3", "2"]
    assert counts["not solved, but by uv"] == ["1"]
    assert counts["older with reason"] == ["1", "1", "packages"]
    assert counts["older without reason"] == ["1", "2", "packages"]
    assert counts["closed"][0] == "1"
    assert list(summary(results))[-1] == "faults: b, c"


def test_results_of_a_file_are_kept_and_faults_are_run_again(tmp_path):
    sets, kept = tmp_path / "sets.yaml", tmp_path / "kept.json"
    sets.write_text("- {name: a, source: 'https://a', framework: torch, requirements: [torch]}\n")
    times = {"seconds": [2.0], "cpu": [1.0]}
    row = {"name": "a", "exit": 0, "mine": times, "uv": times, "uv_binding": times, "other": times}
    kept.write_text(json.dumps([row]))
    argv = [sys.executable, ROOT / "scripts/compare_with_uv.py", "--sets", sets, "--json", kept, "--retry"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert next(line for line in done.stdout.splitlines() if line.startswith("a ")).endswith("ok")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--jobs", "2", "--time"], "--jobs: runs at the same time cannot be timed"),
        (["--only", "nothing"], "--only: no set nothing in requirement_sets.yaml"),
        (["--against", "/nowhere"], "--against: /nowhere has no folder provision"),
    ],
)
def test_wrong_options_are_named(words, error):
    argv = [sys.executable, ROOT / "scripts/compare_with_uv.py", *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and error in done.stderr
