"""What changed since an environment was built from its lock, and what that means for its verdict."""
# ruff: noqa: F811  # fixtures are imported by their names

import dataclasses
import hashlib
import json
import os
import shutil
import time

import pytest
from rows import rows
from verify_stub import LIBRARIES, cudnn, env, fresh_state, judge, pristine, record, stage  # noqa: F401

from provision.detect import machine_for_verdict
from provision.environment import drift
from provision.environment.distributions import Distribution, RecordRow
from provision.environment.record import note_installed
from provision.model import (
    EnvironmentChange,
    HostClass,
    Lock,
    LockedPackage,
    Plan,
    PlannedBuild,
    StageResult,
    Target,
    TargetGpu,
    Verdict,
    as_document,
    from_plain,
)
from provision.verify import Options, changes

CUDNN = "nvidia-cudnn-cu12"
LOCKED = Options(quick=True, timeout=300, locked=True)
DEVICE = TargetGpu(capability="9.0", name="NVIDIA H200")
HERE = Target(platform="linux-x86_64", driver="580.159.04", gpus=(DEVICE,))


def wheel(name, version, **more):
    file = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    return LockedPackage(
        name=name, version=version, url=f"http://127.0.0.1:9/{file}", sha256="0" * 64, **more
    )


@pytest.fixture
def lock():
    build = PlannedBuild(framework="torch", version="2.9.0", cuda="12.8", index="pypi", requirements=())
    plan = Plan(
        builds=(build,), python=".".join(os.sys.version.split(".")[:2]), platform="linux-x86_64", manager="venv",
        device="cuda", target=HERE, cuda_major="12", cudnn="9.14.0.64",
    )  # fmt: skip
    packages = (wheel(CUDNN, "9.14.0.64"), wheel("nvidia-cuda-runtime-cu12", "12.8.90"))
    return Lock(manager="venv", target=HERE, plan=plan, packages=packages)


@pytest.fixture
def built(env, lock):
    """The stub's environment as one that gpuenv made a while ago."""
    (env / ".gpuenv").mkdir()
    (env / ".gpuenv" / "plan.json").write_text("{}")
    note_installed(env, lock)
    return env


@pytest.fixture
def site(cudnn):
    return cudnn.parents[2]


def kinds(found):
    return {c.name: c.kind for c in found.changes}


# --- what is found -----------------------------------------------------------------------------------


def test_an_unchanged_environment_has_no_drift(built, lock, judge):
    assert drift.find_drift(built, lock, thorough=True, deep=True) == drift.Drift()
    verdict = judge(lock=lock)
    assert verdict.verdict == "works" and not verdict.drift
    assert "lock" not in [s.stage for s in verdict.stages]
    locked = judge(lock=lock, options=LOCKED, read_machine=machine_for_verdict)
    assert locked.verdict == "works" and stage(locked, "lock").status == "pass"
    assert "hardware" in stage(locked, "lock").detail


def test_replaced_removed_and_doubled_packages_are_found(built, lock, site):
    next(site.glob("nvidia_cuda_runtime*")).rename(site / "nvidia_cuda_runtime_cu12-12.9.79.dist-info")
    shutil.rmtree(next(site.glob("nvidia_cudnn*.dist-info")))
    found = drift.find_drift(built, lock)
    assert kinds(found) == {CUDNN: "removed", "nvidia-cuda-runtime-cu12": "replaced"}
    text = next(c.text for c in found.changes if c.kind == "replaced")
    assert "12.9.79" in text and "12.8.90" in text
    record(site, "nvidia_cuda_runtime_cu12", "12.8.90", [])
    (twice,) = [c for c in drift.find_drift(built, lock).changes if c.name == "nvidia-cuda-runtime-cu12"]
    assert "12.8.90 and 12.9.79" in twice.text


def test_a_local_label_is_another_version(built, lock, site):
    lock = dataclasses.replace(lock, packages=(*lock.packages, wheel("torch", "2.9.0")))
    record(site, "torch", "2.9.0+cpu", [])
    assert kinds(drift.find_drift(built, lock)) == {"torch": "replaced"}
    same = dataclasses.replace(lock, packages=(*lock.packages[:2], wheel("torch", "2.9.0+CPU")))
    assert not drift.find_drift(built, same).changes


def test_a_changed_record_is_found(built, lock, site):
    path = next(site.glob("nvidia_cudnn*.dist-info")) / "RECORD"
    path.write_text(path.read_text() + "nvidia/cudnn/other.py,,\n")
    (site / "nvidia" / "cudnn" / "other.py").touch()
    assert kinds(drift.find_drift(built, lock)) == {CUDNN: "modified"}
    (built / ".gpuenv" / "installed.json").unlink()
    assert not drift.find_drift(built, lock).changes, "made before this was kept"
    path.unlink()
    assert kinds(drift.find_drift(built, lock)) == {CUDNN: "modified"}


def test_missing_files_and_other_sizes_are_always_found(built, lock, cudnn):
    (cudnn / LIBRARIES[0]).unlink()
    path = cudnn / LIBRARIES[1]
    path.write_bytes(path.read_bytes()[:-1])
    for thorough in (False, True):
        (change,) = drift.find_drift(built, lock, thorough=thorough).changes
        assert change.kind == "modified" and f"1 file of {CUDNN} " in change.text
        assert " is missing (" in change.text and "1 file has the wrong size (" in change.text
        assert set(change.paths) == {str(cudnn / n) for n in LIBRARIES[:2]}


def test_a_folder_that_is_gone_is_found_by_a_quick_verdict(built, lock, site, judge):
    lock = dataclasses.replace(lock, packages=(*lock.packages, wheel("numpy", "2.3.1")))
    files = [site / "numpy" / name for name in ("__init__.py", "core.so")]
    for path in files:
        path.parent.mkdir(exist_ok=True)
        path.write_text("contents")
    record(site, "numpy", "2.3.1", files)
    note_installed(built, lock)
    assert not judge(lock=lock).drift
    shutil.rmtree(site / "numpy")
    verdict = judge(lock=lock)
    assert "numpy 2.3.1" in stage(verdict, "lock").detail and stage(verdict, "lock").status == "warn"
    assert "2 files of numpy 2.3.1 are missing (" in stage(verdict, "lock").detail


def test_metadata_of_another_size_than_its_record_has_is_as_it_was_published(built, lock, site):
    record(site, "odd", "1", [])
    info = site / "odd-1.dist-info"
    (info / "top_level.txt").write_text("odd")
    (info / "RECORD").write_text("odd-1.dist-info/top_level.txt,,1\n")
    note_installed(built, lock)
    lock = dataclasses.replace(lock, packages=(*lock.packages, wheel("odd", "1")))
    assert not drift.find_drift(built, lock).changes
    (info / "top_level.txt").unlink()
    assert kinds(drift.find_drift(built, lock)) == {"odd": "modified"}


def test_a_file_that_another_package_has_written_is_its_own(built, lock, site):
    """As two packages that bring the same __init__.py: it may be of either."""
    shared = site / "shared.py"
    shared.write_text("one")
    record(site, "one", "1", [shared])
    shared.write_text("other")
    record(site, "other", "1", [shared])
    both = dataclasses.replace(lock, packages=(*lock.packages, wheel("one", "1"), wheel("other", "1")))
    assert not drift.find_drift(built, both).changes
    assert not drift.find_drift(built, both, thorough=True, deep=True).changes
    shared.write_text("nobody's\n")
    assert set(kinds(drift.find_drift(built, both, thorough=True))) == {"one", "other"}
    shared.unlink()
    assert set(kinds(drift.find_drift(built, both))) == {"one", "other"}


def test_bytes_are_read_where_a_file_was_written_since(built, lock, cudnn):
    path = cudnn / LIBRARIES[0]
    data = path.read_bytes()
    path.write_bytes(data[:-1] + b"X")
    os.utime(path, (time.time() + 5,) * 2)
    assert kinds(drift.find_drift(built, lock, thorough=True)) == {CUDNN: "modified"}
    os.utime(path, (0, 0))
    assert not drift.find_drift(built, lock, thorough=True).changes
    assert kinds(drift.find_drift(built, lock, thorough=True, deep=True)) == {CUDNN: "modified"}


def test_what_was_added_writes_over_a_locked_package(built, lock, site, cudnn):
    path = cudnn / LIBRARIES[0]
    path.write_bytes(path.read_bytes() + b"as cu13 has it")
    record(site, "nvidia_cudnn_cu13", "9.19.0.56", [path])
    record(site, "nice", "1.0", [], requires=["nvidia-cudnn-cu13[x]>=9 ; extra == 'all'"])
    found = drift.find_drift(built, lock)
    (change,) = found.changes
    assert change.kind == "overwritten" and change.name == CUDNN
    assert change.by == "nvidia-cudnn-cu13 9.19.0.56"
    nice, other = found.strangers
    assert nice.requires == ("nvidia-cudnn-cu13",) and not nice.over
    assert other.over == (CUDNN,)


def test_the_same_bytes_in_two_packages_are_no_drift(built, lock, site, cudnn):
    record(site, "nvidia_cudnn_cu13", "9.19.0.56", [cudnn / LIBRARIES[0]])
    found = drift.find_drift(built, lock, thorough=True)
    assert not found.changes and not found.strangers[0].over


def test_what_has_no_hash_is_compared_with_what_was_installed(built, lock, site):
    """The version of a commit or folder is what its build says, which can change by itself."""
    folder = dataclasses.replace(wheel("mine", "0"), url="file:///work/mine", sha256=None, unhashed=True)
    lock = dataclasses.replace(lock, packages=(*lock.packages, folder))
    record(site, "mine", "0.3.dev7", [])
    note_installed(built, lock)
    assert not drift.find_drift(built, lock).changes
    next(site.glob("mine-*")).rename(site / "mine-0.4.dist-info")
    assert kinds(drift.find_drift(built, lock)) == {"mine": "replaced"}


def test_a_record_with_commas_and_quotes_in_its_names_is_read(built, lock, site):
    odd = site / 'a, "b".txt'
    odd.write_text("x")
    record(site, "odd", "1.0", [])
    row = f'"a, ""b"".txt",,{odd.stat().st_size}\n'
    (site / "odd-1.0.dist-info" / "RECORD").write_text(row)
    lock = dataclasses.replace(lock, packages=(*lock.packages, wheel("odd", "1.0")))
    assert not drift.find_drift(built, lock, thorough=True).changes
    odd.unlink()
    assert kinds(drift.find_drift(built, lock, thorough=True)) == {"odd": "modified"}


# --- the machine ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("here", "said"),
    [
        (HERE, []),
        (dataclasses.replace(HERE, driver="570.86.10"), ["580.159.04", "570.86.10"]),
        (dataclasses.replace(HERE, driver=None, gpus=()), ["580.159.04", "none", "NVIDIA H200 (9.0)"]),
        (dataclasses.replace(HERE, gpus=(TargetGpu(capability="8.0", name="NVIDIA A100"),)),
         ["NVIDIA H200 (9.0)", "NVIDIA A100 (8.0)"]),
        (dataclasses.replace(HERE, gpus=(DEVICE, DEVICE)), []),
        (dataclasses.replace(HERE, gpus=(TargetGpu(capability="9.0"),)), []),
    ],
)  # fmt: skip
def test_another_driver_or_gpu_is_found(lock, here, said):
    text = " ".join(c.text for c in changes.compare_machine(lock, here))
    assert bool(text) == bool(said)
    assert all(word in text for word in said)
    cpu = dataclasses.replace(lock, plan=dataclasses.replace(lock.plan, device="cpu"))
    assert not changes.compare_machine(cpu, here)


def test_a_lock_of_a_fleet_is_for_each_of_its_classes(lock):
    """The joint target has the oldest driver and all capabilities: no host of the fleet is equal to it."""
    a100 = Target(
        platform="linux-x86_64", driver="535.129.03", gpus=(TargetGpu(capability="8.0", name="NVIDIA A100"),)
    )
    joint = dataclasses.replace(a100, gpus=(*a100.gpus, DEVICE))
    classes = tuple(
        HostClass(id=f"c{i}", target=t, device="cuda", hosts=(f"h{i}",)) for i, t in enumerate((a100, HERE))
    )
    fleet = dataclasses.replace(lock, target=joint, classes=classes)
    other_board = dataclasses.replace(HERE, gpus=(TargetGpu(capability="9.0", name="NVIDIA H100"),))
    for here in (a100, HERE, other_board):
        assert not changes.compare_machine(fleet, here)
    (newer,) = changes.compare_machine(fleet, dataclasses.replace(HERE, driver="590.48.01"))
    assert newer.kind == "driver" and newer.locked == "580.159.04"
    swapped = changes.compare_machine(fleet, dataclasses.replace(a100, driver="580.159.04"))
    assert [(c.kind, c.locked) for c in swapped] == [("driver", "535.129.03")]
    assert len(changes.compare_machine(dataclasses.replace(fleet, classes=()), HERE)) == 2


def test_another_driver_fails_only_where_the_lock_is_held(built, lock, judge):
    other = dataclasses.replace(lock, target=dataclasses.replace(HERE, driver="570.86.10"))
    assert judge(lock=other).verdict == "works"
    locked = judge(lock=other, options=LOCKED, read_machine=machine_for_verdict)
    assert locked.verdict == "fails" and [c.kind for c in locked.drift] == ["driver"]
    assert "repair" not in locked.hint and "--recreate" in locked.hint


def test_another_minor_version_of_python_is_found(built, lock):
    assert not drift.find_drift(built, lock, python=f"{lock.plan.python}.99").changes
    (change,) = drift.find_drift(built, lock, python="3.99.1").changes
    assert change.kind == "python" and "3.99.1" in change.text


# --- what it means --------------------------------------------------------------------------------------


def test_what_breaks_nothing_is_a_warning(built, lock, judge, site):
    record(site, "numpy", "1.26.4", [])
    lock = dataclasses.replace(lock, packages=(*lock.packages, wheel("numpy", "2.1.0")))
    verdict = judge(lock=lock)
    assert verdict.verdict == "works" and stage(verdict, "lock").status == "warn"
    document = json.loads(json.dumps(as_document(verdict)))
    assert document["drift"][0]["locked"] == "2.1.0" and from_plain(Verdict, document) == verdict
    del document["drift"]
    assert from_plain(Verdict, document).drift == (), "verdicts that were kept before"
    (finding,) = verdict.findings
    assert finding.cause == changes.CHANGED and "numpy 2.1.0 was replaced by 1.26.4" in finding.title
    assert f"gpuenv repair {built}" in finding.fix
    assert judge(lock=lock, options=dataclasses.replace(LOCKED, locked=False, strict=True)).verdict == "fails"
    locked = judge(lock=lock, options=LOCKED, read_machine=machine_for_verdict)
    assert locked.verdict == "fails" and stage(locked, "lock").status == "fail"
    assert [s.status for s in locked.stages[:4]] == ["pass"] * 4, "all else still holds"


@pytest.mark.parametrize(
    ("version", "cause"),
    [
        ("9.10.2.21", "cudnn_older_than_compiled"),
        ("8.9.7.29", "cudnn_major_mismatch"),
        ("9.19.0.56", "cudnn_shadowed_by_other_copy"),
    ],
)
def test_another_cudnn_names_both_versions_and_the_command(built, lock, judge, site, version, cause):
    next(site.glob("nvidia_cudnn*.dist-info")).rename(site / f"nvidia_cudnn_cu12-{version}.dist-info")
    verdict = judge(lock=lock)
    first = verdict.findings[0]
    assert first.cause == cause and verdict.verdict == "fails"
    assert f"{CUDNN} 9.14.0.64 was replaced by {version}" in first.title
    assert f"gpuenv repair {built}" in verdict.hint


def test_a_missing_file_of_cudnn_is_named_with_the_repair(built, lock, judge, cudnn):
    (cudnn / LIBRARIES[1]).unlink()
    first = judge(lock=lock).findings[0]
    assert first.cause == "cudnn_not_found" and LIBRARIES[1] in first.title and "gpuenv repair" in first.fix


def test_a_file_of_cudnn_that_was_cut_short_is_one_finding(built, lock, judge, cudnn):
    path = cudnn / LIBRARIES[1]
    path.write_bytes(path.read_bytes()[:3000])
    (finding,) = judge(lock=lock).findings
    assert finding.cause == "package_files_damaged" and "has the wrong size" in finding.title
    assert any("recorded" in e.text for e in finding.evidence) and "gpuenv repair" in finding.fix


def test_a_cpu_build_in_place_of_the_locked_one_is_named(built, lock, judge, site):
    shutil.rmtree(site / "nvidia")
    for folder in site.glob("nvidia_*.dist-info"):
        shutil.rmtree(folder)
    (site / "torch").mkdir()
    (site / "torch" / "__init__.py").write_text("")
    (site / "torch" / "version.py").write_text("cuda: 'str | None' = None\n")
    record(site, "torch", "2.9.0+cpu", [site / "torch" / "__init__.py"])
    lock = dataclasses.replace(lock, packages=(*lock.packages, wheel("torch", "2.9.0")))
    first = judge(lock=lock).findings[0]
    assert first.cause == "cpu_only_build" and first.confidence == "certain"
    assert "torch 2.9.0 was replaced by 2.9.0+cpu" in first.title and "gpuenv repair" in first.fix


def test_a_driver_that_is_gone_is_not_blamed_on_a_package(built, lock, judge, site):
    record(site, "numpy", "1.26.4", [])
    lock = dataclasses.replace(lock, packages=(*lock.packages, wheel("numpy", "2.1.0")))
    verdict = judge("no-driver", lock=lock)
    assert verdict.findings[0].cause != changes.CHANGED
    (last,) = [f for f in verdict.findings if "numpy" in f.title]
    assert last.confidence == "possible" and verdict.findings[-1] == last


def test_no_lock_and_no_mark_mean_no_stage(env, lock, judge):
    """An environment that others made has no drift; one of ours without installed.json has."""
    assert "lock" not in [s.stage for s in judge(lock=lock).stages]
    (env / ".gpuenv").mkdir()
    (env / ".gpuenv" / "plan.json").write_text("{}")
    missing = dataclasses.replace(lock, packages=(*lock.packages, wheel("numpy", "2.1.0")))
    assert [c.name for c in judge(lock=missing).drift] == ["numpy"]


def test_missing_files_of_a_conda_package_are_found(built, lock):
    """Of a text into which the prefix was written the size says nothing."""
    meta, files = (
        built / "conda-meta",
        {"lib/libz.so.1": "zlib", "bin/odd": "with a longer prefix", "lib/a.so": "a"},
    )
    meta.mkdir()
    for name, text in files.items():
        (built / name).parent.mkdir(exist_ok=True)
        (built / name).write_text(text)
    rows = [
        {"_path": n, "path_type": "hardlink", "size_in_bytes": 4 if n != "lib/a.so" else 1} for n in files
    ]
    rows[1]["prefix_placeholder"] = "/opt/placeholder"
    (meta / "zlib-1.3-h0_0.json").write_text(json.dumps({"paths_data": {"paths": rows}}))
    url = "http://127.0.0.1:9/linux-64/zlib-1.3-h0_0.conda"
    lock = dataclasses.replace(
        lock, packages=(*lock.packages, LockedPackage(name="zlib", version="1.3", url=url))
    )
    for sizes in (None, drift.read_wrong_sizes(built)):
        assert not drift.find_drift(built, lock, sizes=sizes).changes
    (built / "lib/libz.so.1").unlink()
    (built / "lib/a.so").write_text("")
    for sizes in (None, drift.read_wrong_sizes(built)):
        (change,) = drift.find_drift(built, lock, sizes=sizes).changes
        assert (change.kind, change.name) == ("modified", "zlib")
        assert change.text.startswith("1 file of zlib ") and " is missing (" in change.text
        assert "1 file has the wrong size (" in change.text


def test_a_conda_file_may_be_of_any_conda_package_and_of_no_wheel(built, lock, site):
    shared, meta = site / "shared.py", built / "conda-meta"
    path = str(shared.relative_to(built))
    meta.mkdir()
    for stem, text in {
        "foo-1.0-h0_0": "foo's",
        "zed-1.0-h0_0": "the file of zed",
        "bar": "the wheel's",
    }.items():
        shared.write_text(text)
        row = {"_path": path, "size_in_bytes": len(text), "sha256": hashlib.sha256(text.encode()).hexdigest()}
        if stem != "bar":
            (meta / f"{stem}.json").write_text(json.dumps({"paths_data": {"paths": [row]}}))
    record(site, "bar", "2.0", [shared])
    foo = LockedPackage(name="foo", version="1.0", url="http://127.0.0.1:9/linux-64/foo-1.0-h0_0.conda")
    lock = dataclasses.replace(lock, packages=(*lock.packages, foo, wheel("bar", "2.0")))
    for text, changed in (("the wheel's", {"foo": "modified"}), ("the file of zed", {"bar": "modified"})):
        shared.write_text(text)
        for more in ({}, {"sizes": drift.read_wrong_sizes(built)}, {"thorough": True, "deep": True}):
            assert kinds(drift.find_drift(built, lock, **more)) == changed


def test_a_file_with_the_bytes_of_the_lock_was_not_overwritten(tmp_path):
    """Another package lists it with other bytes, but the locked one was installed last."""
    (tmp_path / "a.so").write_bytes(b"1234")
    other, owner = (Distribution(name, "1.0", tmp_path / f"{name}.dist-info") for name in ("other", "mine"))
    right = RecordRow(str(tmp_path / "a.so"), hashlib.sha256(b"1234").hexdigest(), 4)
    assert drift._make_overwritten(other, owner, [right]) is None
    wrong = RecordRow(right.path, hashlib.sha256(b"4321").hexdigest(), 4)
    change = drift._make_overwritten(other, owner, [right, wrong])
    assert (change.kind, change.by, change.paths) == ("overwritten", "other 1.0", (right.path,))


def change(kind, name, locked="2.0", found="1.0", text=""):
    return EnvironmentChange(kind=kind, name=name, text=text or f"{name} changed", locked=locked, found=found)


@rows(
    ("found", "cause", "confidence", "fix"),
    [
        ([change("python", "python")], "changed_since_lock", "certain", "--recreate --lock /env/.gpuenv/pylock.toml"),
        ([change("replaced", "jaxlib")], "jax_plugin_version_mismatch", "certain", "gpuenv repair"),
        ([change("removed", "jax-cuda13-plugin")], "cpu_only_build", "certain", "gpuenv repair"),
        ([change("replaced", "jax-cuda13-plugin"), change("replaced", "jaxlib")], "changed_since_lock", "certain", "gpuenv repair"),
        ([change("replaced", "nvidia-cublas")], "cuda_lib_older_than_compiled", "certain", "gpuenv repair"),
        ([change("replaced", "nvidia-cublas", found="3.0")], "nvidia_lib_symbol_mismatch", "certain", "gpuenv repair"),
        ([change("replaced", "nvidia-cublas", found="h1_0")], "nvidia_lib_symbol_mismatch", "certain", "gpuenv repair"),
        ([change("replaced", CUDNN, found="h1_0")], "cudnn_shadowed_by_other_copy", "certain", "gpuenv repair"),
        ([change("replaced", "numpy")], "numpy_abi", "certain", "gpuenv repair"),
    ],
)  # fmt: skip
def test_the_main_change_decides_cause_and_fix(lock, monkeypatch, found, cause, confidence, fix):
    """The lock inside the environment has the same releases, so nothing was left uninstalled."""
    jax = [wheel(n, "2.0") for n in ("jaxlib", "jax-cuda13-plugin")]
    inside = dataclasses.replace(lock, packages=(*lock.packages, *jax))
    names = {c.name for c in found}
    monkeypatch.setattr(
        changes.record, "read_lock", lambda _: dataclasses.replace(inside, packages=[wheel(n, "2.0") for n in names])
    )  # fmt: skip
    found = sorted(found, key=changes._get_weight)
    failed = StageResult(stage="framework", status="fail", detail="")
    finding = changes._make_change_finding(fresh_state(stages=[failed]), inside, found)
    assert (finding.cause, finding.confidence) == (cause, confidence)
    assert fix in finding.fix
