"""Extensions compiled against a framework: real libraries, loaded by the framework's process."""

import dataclasses
import subprocess
from pathlib import Path

import pytest
from framework_envs import venv, write_jax
from rows import rows
from verify_stub import fresh_state

from provision.model import Gpu, Machine, Target
from provision.system.process import Finished
from provision.verify import Options, frameworks, locate_environment, results
from provision.verify.probe import ProbeReport

ENVIRON = {"PATH": "/usr/bin:/bin"}


def library(folder: Path, name: str, *needs: str) -> str:
    """A shared library that names libc10 and needs these symbols."""
    source = folder / f"{name}.c"
    calls = "".join(f"extern void {n}(void);\n" for n in needs) + 'const char *linked = "libc10.so";\n'
    source.write_text(calls + "void all(void) { " + "".join(f"{n}(); " for n in needs) + "}\n")
    made = folder / f"{name}.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", made, source], check=True)
    return str(made)


def test_extensions_are_found_by_what_their_packages_require_and_are_linked_with(tmp_path):
    _, site = venv(tmp_path / "env")
    for dist, requires, linked in (
        ("vision", "torch==2", True),
        ("other", "torchmetrics", True),
        ("pure", "torch", False),
    ):
        info = site / f"{dist}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: {dist}\nVersion: 1.0\nRequires-Dist: {requires}\n\nwords")
        (info / "RECORD").write_text(
            f"{dist}/_C.so,,\n{dist}/gone.so,,\n{dist}/none.so,,\n../../../../etc/passwd.so,,\n"
        )
        (site / dist).mkdir()
        (site / dist / "none.so").touch()
        (site / dist / "_C.so").write_bytes(b"\0libc10.so\0" if linked else b"\0libm.so\0")
    assert frameworks.find_extensions("torch", [str(site)]) == [("vision 1.0", str(site / "vision/_C.so"))]
    assert frameworks.find_extensions("jax", [str(site)]) == []


@pytest.fixture
def run(tmp_path):
    env, site = venv(tmp_path / "env")
    write_jax(site)
    return dataclasses.replace(fresh_state("cpu"), env=locate_environment(env))


def test_what_does_not_load_is_named_with_the_loaders_words(run, tmp_path, monkeypatch):
    good, bad = library(tmp_path, "_C"), library(tmp_path, "_Cbad", "built_for_another_torch")

    def ask(*files):
        monkeypatch.setattr(frameworks, "find_extensions", lambda *_: [("torchvision 0.1", f) for f in files])
        return frameworks.ask_framework(run, "jax", ENVIRON)

    (tmp_path / "gone.c").write_text("int gone;")
    for name, needs in (("libgone", ()), ("_part", ("-L.", "-lgone"))):
        subprocess.run(
            ["gcc", "-shared", "-fPIC", "-o", f"{name}.so", "gone.c", "-Wl,--no-as-needed", *needs],
            cwd=tmp_path,
            check=True,
        )
    (tmp_path / "libgone.so").unlink()
    lacking = str(tmp_path / "_part.so")
    assert results.judge_extensions("jax", ask(good, lacking)) is None, (
        "a library that is not there is no other build"
    )
    judged = results.judge_extensions("jax", ask(good, bad))
    assert judged.status == "fail" and "torchvision 0.1 cannot be loaded with jax" in judged.detail
    finding = judged.finding
    assert finding.cause == "extension_built_for_other_torch_or_cuda"
    assert "built_for_another_torch" in finding.evidence[0].text and finding.evidence[0].source == bad


def test_a_crash_while_loading_is_that_extensions_and_not_the_frameworks(run, tmp_path, monkeypatch):
    source = tmp_path / "boom.c"
    source.write_text("__attribute__((constructor)) static void boom(void) { *(volatile int *)0 = 1; }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "boom.so", source], check=True)
    monkeypatch.setattr(frameworks, "find_extensions", lambda *_: [("other 2.0", str(tmp_path / "boom.so"))])
    report = frameworks.ask_framework(run, "jax", ENVIRON)
    judged = results.judge_extensions("jax", report)
    assert judged.status == "warn" and "SIGSEGV" in judged.evidence[0].text


def test_a_numpy_that_torch_cannot_read_is_named(run):
    site = next(Path(run.env.path).glob("lib/python*/site-packages"))
    (site / "numpy.py").write_text("__version__ = '2.2.6'\ndef zeros(size): return [0.0] * size\n")
    torch = "class version: cuda = None\n__version__ = '2.0.1'\ndef from_numpy(array): {}\n"
    for body, causes in (
        ("raise RuntimeError('Numpy is not available')", ["numpy_abi"]),
        ("return array", []),
    ):
        (site / "torch.py").write_text(torch.format(body))
        run.stages.clear()
        run.findings.clear()
        frameworks._run_framework(run, "torch", None)
        assert [s.status for s in run.stages].count("warn") == len(causes)
        assert [f.cause for f in run.findings if f.cause == "numpy_abi"] == causes


def test_frameworks_in_one_process_fail_with_the_name_of_the_one_that_is_not_there(run):
    """The stub of JAX works in either order; nothing is named torch here."""
    frameworks._run_together(run, ("jax", "torch"))
    (stage,) = run.stages
    assert (stage.stage, stage.status, stage.framework) == ("framework", "fail", "jax, torch")
    assert {e.source for e in stage.evidence} == {
        f"imported in the order {o}" for o in ("jax, torch", "torch, jax")
    }
    assert all(e.text.startswith("torch: ModuleNotFoundError") for e in stage.evidence)


def ended(*records, signal=None):
    done = Finished(
        returncode=-11 if signal else 0, stdout="", stderr="", timed_out=False, signal=signal, report=b""
    )
    return ProbeReport(records=records, finished=done, seconds=1.0)


ENTER = [{"kind": "enter", "framework": name} for name in ("torch", "jax")]
WRONG = {
    "kind": "convolution",
    "device": 0,
    "case": "conv2d",
    "dtype": "float32",
    "which": "forward",
    "ok": False,
}


@rows(
    ("first", "second", "status", "says"),
    [
        (ended(*ENTER), ended(*ENTER), "pass", "torch and jax work in one process, whichever is imported first"),
        (ended(*ENTER, WRONG), ended(*ENTER), "warn", "Import jax first."),
        (ended(*ENTER, WRONG | {"ok": True}), ended(ENTER[1], signal="SIGSEGV"), "warn", "Import torch first."),
        (ended(*ENTER, WRONG), ended(*ENTER, WRONG), "fail", "Create a separate environment for each framework."),
    ],
)  # fmt: skip
def test_two_orders_of_import_decide_whether_frameworks_conflict(first, second, status, says):
    judged = frameworks.judge_together({("torch", "jax"): first, ("jax", "torch"): second})
    assert (judged.status, judged.finding.fix if judged.finding else judged.detail) == (status, says)
    if judged.finding:
        assert "jax and torch" in judged.finding.title


def test_the_further_operations_run_each_in_its_own_child(run):
    """Where the graded stages passed. The stub computes nothing, so each child says so; FP8 is of GPUs only."""
    deep = dataclasses.replace(run, options=Options(deep=True, timeout=300))
    frameworks._run_framework(deep, "jax", None)
    assert [s.status for s in deep.stages[:-1]] == ["pass", "pass", "skip", "skip", "skip"]
    stage = deep.stages[-1]
    assert (stage.stage, stage.status) == ("operations", "fail")
    assert [e.source for e in stage.evidence] == ["fft", "solve", "sparse"]


@rows(
    ("visible", "ordinal", "left"),
    [("", 1, "1"), ("3,5", 1, "5"), ("MIG-a,MIG-b", 0, "MIG-a"), ("3", 1, "1")],
)
def test_an_ordinal_is_one_of_the_gpus_that_the_user_sees(visible, ordinal, left):
    assert frameworks._visible({"CUDA_VISIBLE_DEVICES": visible}, ordinal) == left


def seen(uuid, ok=True):
    """What a framework's child says of one GPU."""
    device = {"index": 0, "name": "H100", "capability": "9.0", "uuid": uuid}
    framework = {
        "kind": "framework",
        "version": "2",
        "cuda": "13.0",
        "file": "/env/torch.py",
        "devices": [device],
    }
    graded = WRONG | {"error": 0.0, "tolerance": 1.0, "reason": "", "ok": ok}
    return ended(framework, graded, *({**graded, "kind": k} for k in ("matmul", "attention")))


def test_each_mig_device_has_its_results_under_its_own_uuid(monkeypatch):
    """CUDA shows a process one of them, as device 0."""
    run = dataclasses.replace(fresh_state(), mig_devices=("MIG-a", "MIG-b"))
    asked = lambda _run, _name, environ: seen("GPU-1", ok=environ["CUDA_VISIBLE_DEVICES"] == "MIG-a")  # noqa: E731
    monkeypatch.setattr(frameworks, "ask_framework", asked)
    run.paths.frameworks["torch"] = "/env/torch.py"
    frameworks.run_frameworks(run)
    (verdict,) = run.verdicts
    assert [(d.uuid, all(c.ok for c in d.results)) for d in verdict.devices] == [
        ("MIG-a", True),
        ("MIG-b", False),
    ]
    assert [s.device for s in run.stages] == ["MIG-a"] * 5 + ["MIG-b"] * 5
    assert run.wrong and run.failed.stage == "convolution"


def test_a_gpu_that_the_machine_does_not_have_fails_what_passed():
    here = Machine(target=Target(platform="linux-x86_64"), gpus=(Gpu(index=0, uuid="GPU-1"),))
    for uuid, cause in (("GPU-1", None), ("GPU-2", "contradicts_machine")):
        run = dataclasses.replace(
            fresh_state(), machine=here, started={"torch": lambda uuid=uuid: seen(uuid)}
        )
        judged = frameworks._ask_and_judge(run, "torch", run.environ).stages["framework"]
        assert (judged.finding and judged.finding.cause) == cause
