"""diagnose with the files of the environment here: facts that the text leaves open."""

import sys

import pytest
from diagnosed import causes, diagnosis_of, findings_of
from known import KNOWN
from rows import rows

from provision.diagnose import Installed
from provision.model import Finding, Verdict

OLD_DRIVER = "RuntimeError: The NVIDIA driver on your system is too old (found version 11040)."
NO_CUDA = "AssertionError: Torch not compiled with CUDA enabled"
CPU = {"torch": "2.4.0+cpu"}


def answer(*lines, versions, path="/envs/a", **more):
    """The findings and the remark on the environment."""
    env = Installed(path=path, why="from VIRTUAL_ENV", versions=versions, **more)
    text = "\n".join(lines).encode()
    diagnosis = diagnosis_of([("log", [text])], installed=env)
    return diagnosis.findings, next(iter(diagnosis.notes), None)


def shown(findings, path="/envs/a"):
    """What the evidence has from the environment."""
    return [e.text for f in findings for e in f.evidence if e.source == path]


def test_the_build_of_the_environment_is_evidence():
    findings, said = answer(OLD_DRIVER, versions={"torch": "2.4.0+cu121"})
    assert findings[0].cause == "driver_too_old_for_runtime"
    assert "12.1" in findings[0].title, "the CUDA of the build, which the text lacks"
    assert "torch 2.4.0+cu121" in shown(findings)
    assert "/envs/a (from VIRTUAL_ENV): torch 2.4.0+cu121" in said
    assert said.endswith("gpuenv diagnose --env /envs/a")


def test_a_missing_package_is_added_to_an_environment_of_gpuenv():
    missing = "ModuleNotFoundError: No module named 'sklearn'"
    for made, command in ((True, "`gpuenv add scikit-learn`"), (False, "`pip install scikit-learn`")):
        [finding], _ = answer(missing, versions={"jax": "0.7.0"}, made_by_gpuenv=made)
        assert (finding.cause, finding.confidence) == ("python_package_missing", "likely")
        assert command in finding.fix


def test_the_cuda_of_a_build_without_a_label_is_that_of_its_wheels():
    findings, _ = answer(OLD_DRIVER, versions={"torch": "2.4.0", "nvidia-cuda-runtime-cu12": "12.1.105"})
    assert "12.1" in findings[0].title


def test_what_only_the_environment_shows_is_not_certain():
    """The driver of the text is too old for the build that is in the environment."""
    lines = ("torch.cuda.is_available() returned False", "Driver Version: 450.80.02")
    stated = findings_of([("log", ["\n".join((*lines, "torch: 2.4.0+cu121")).encode()])], KNOWN, None)
    findings, _ = answer(*lines, versions={"torch": "2.4.0+cu121"})
    assert findings[0].cause == stated[0].cause == "driver_too_old_for_runtime"
    assert (stated[0].confidence, findings[0].confidence) == ("certain", "likely")


@rows(
    ("line", "reason"),
    [
        ("torch: 2.1.0", "the log names torch 2.1.0, the environment has 2.4.0"),
        ("tensorflow: 2.15.0", "the log names tensorflow 2.15.0, the environment does not have it"),
        ("Python 3.9.18 /usr/lib/python3.9/runpy.py", "the log names python 3.9, the environment has 3.11"),
        ('  File "/data/b/lib/python3.11/site-packages/torch/cuda/__init__.py", line 3, in f', "the log has paths of /data/b"),
        ("C:\\Users\\u\\a.py", "the log is from windows"),
    ],
)  # fmt: skip
def test_a_text_from_elsewhere_gets_no_facts_of_the_environment(line, reason):
    findings, said = answer(line, OLD_DRIVER, versions={"torch": "2.4.0+cu121"}, python="3.11")
    assert findings and shown(findings) == []
    assert said == f"/envs/a was not used: {reason}"
    assert findings == findings_of([("log", [f"{line}\n{OLD_DRIVER}".encode()])], KNOWN, None)


@rows(("lines", "path"), [(("torch: 2.4",), "/envs/a"), ((), "/home/my user/a")])
def test_a_short_version_and_the_environments_own_paths_are_no_contradiction(lines, path):
    own = f'  File "{path}/lib/python3.11/site-packages/torch/cuda/__init__.py", line 3, in f'
    _, said = answer(*lines, own, OLD_DRIVER, versions={"torch": "2.4.0+cu121"}, python="3.11", path=path)
    assert f"were read in {path}" in said


def test_an_environment_for_the_cpu_excludes_gpu_causes_only_where_the_text_is_surely_of_it():
    own = '  File "/envs/a/lib/python3.11/site-packages/torch/cuda/__init__.py", line 3, in f'
    findings, _ = answer(own, NO_CUDA, versions=CPU, device="cpu")
    assert findings[0].title.startswith("This environment is for the CPU")
    findings, _ = answer(NO_CUDA, versions=CPU, device="cpu")
    assert not findings[0].title.startswith("This environment")


def test_an_environment_without_a_framework_is_not_mentioned():
    assert answer(OLD_DRIVER, versions={"requests": "2.32.0"}, python="3.11")[1] is None


# --- the command ---------------------------------------------------------------------------------


@pytest.fixture
def active(gpuenv):
    """An active environment with a torch, whose Python must not run."""
    env = gpuenv.folder / "active"
    (env / "bin").mkdir(parents=True)
    (env / "bin" / "python").write_text("#!/bin/sh\ntouch ran\n")
    (env / "bin" / "python").chmod(0o755)
    (env / "lib/python3.11/site-packages/torch-2.4.0+cu121.dist-info").mkdir(parents=True)
    (gpuenv.work / "a.log").write_text(OLD_DRIVER + "\n")
    return env


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_the_active_environment_gives_facts_and_nothing_of_it_runs(gpuenv, active, variable):
    gpuenv.env[variable] = str(active)
    done = gpuenv("diagnose", "a.log", "--json")
    assert "12.1" in done.json["findings"][0]["title"]
    said = f"versions missing from the log were read in {active} (from {variable}): torch 2.4.0+cu121, Python 3.11"
    assert done.err.count(said) == 1
    assert f"to verify that environment: gpuenv diagnose --env {active}" in done.err
    assert not (gpuenv.work / "ran").exists()
    (gpuenv.work / "a.log").write_text(f"torch: 2.1.0\n{OLD_DRIVER}\n")
    other = gpuenv("diagnose", "a.log").err
    assert f"{active} was not used" in other and "torch 2.1.0" in other and "2.4.0" in other


def test_a_log_alone_or_of_another_machine_gets_no_facts_of_the_environment(gpuenv, active):
    gpuenv.env["VIRTUAL_ENV"] = str(active)
    done = gpuenv("diagnose", "a.log", "--no-machine")
    assert "12.1" not in done.out and str(active) not in done.err


def test_gpuenvs_own_environment_is_never_taken(gpuenv, active):
    gpuenv.env["VIRTUAL_ENV"] = sys.prefix
    done = gpuenv("diagnose", "a.log")
    assert done.code == 0 and sys.prefix not in done.err
    assert sys.prefix not in gpuenv("diagnose").err


def test_the_projects_environment_comes_before_the_active_one(gpuenv, active):
    gpuenv.env["VIRTUAL_ENV"] = str(active)
    own = gpuenv.work / ".venv"
    (own / "lib/python3.12/site-packages/torch-2.5.1+cu118.dist-info").mkdir(parents=True)
    done = gpuenv("diagnose", "a.log")
    assert f"{own} (the project's environment): torch 2.5.1+cu118" in done.err
    assert str(active) not in done.err


def test_an_environment_that_works_is_said_beside_the_causes_of_a_log():
    for outcome in ("works", "cpu", "unproven", "wrong", "fails"):
        verdict = Verdict(env="/envs/a", python="p", verdict=outcome)
        notes = diagnosis_of([("log", [NO_CUDA.encode()])], verdict=verdict).notes
        assert [note.startswith("/envs/a works") for note in notes] == [True] * (outcome == "works")


def test_a_warning_on_an_environment_that_works_is_never_the_first_cause_of_a_log():
    missing = Finding(
        cause="python_package_missing", title="yaml is not installed", evidence=(), confidence="certain"
    )
    works, fails = (
        Verdict(env="/envs/a", python="p", verdict=v, findings=(missing,)) for v in ("works", "fails")
    )
    assert causes("ImportError: libGL.so.1: cannot open shared object file", verdict=works) == [
        "system_library_missing",
        "python_package_missing",
    ]
    assert causes("ModuleNotFoundError: No module named 'yaml'", verdict=works)[0] == "python_package_missing"
    assert causes("ImportError: libGL.so.1: cannot open", verdict=fails)[0] == "python_package_missing"
