"""What an environment reports of the machine is compared with what gpuenv reads; limits and malformed reports."""
# ruff: noqa: F811  # fixtures are imported by their names

import json
import re
import resource
import sys
from pathlib import Path

import pytest
from programs import run_program
from rows import rows
from verify_stub import env, fresh_state, healthy, pristine, tamper  # noqa: F401

import provision.verify as whole
from driver_stub import H200, H200_MIG, T4, build, scenario, spec
from provision.model import Driver, Gpu, Machine, StageResult, Target
from provision.profiles.wording import make_finding
from provision.verify import layers, probe

REAL = "GPU-8c2c2c9a-7d41-4a1e-b3f5-0a9b8c7d6e5f"


@pytest.fixture
def verify(gpuenv, tmp_path):
    """`gpuenv verify --quick` of an environment, in a process of its own, under a driver that answers as told."""
    libraries = build(tmp_path / "driver")

    def run(root, what="580-h200", before="", options=("--quick",)):
        environ = {**gpuenv.env, **scenario(libraries, what)}
        words = f"{before} exec {sys.executable} -m provision verify {root} --json {' '.join(options)}"
        done = run_program(["bash", "-c", words], env=environ, cwd=gpuenv.work, timeout=120)
        assert done.returncode in (0, 8), done.stderr
        return json.loads(done.stdout)

    return run


def stage(verdict, name):
    return next(s for s in verdict["stages"] if s["stage"] == name)


def agreed(verdict):
    """Whether the driver's stage passed and nothing contradicts the machine."""
    causes = [f["cause"] for f in verdict["findings"]]
    return stage(verdict, "driver")["status"] == "pass" and "contradicts_machine" not in causes


def test_an_honest_environment_agrees_with_what_gpuenv_reads(verify, env):
    for what in ("580-h200", spec(driver="580.159.04", cuda=13000, gpus=[H200, T4])):
        verdict = verify(env, what)
        assert agreed(verdict), verdict


def test_a_gpu_that_only_the_environment_reports_is_a_failure(verify, env):
    tamper(env, "text = bytes(uuid).hex()", "text = 'f' * 32")
    verdict = verify(env)
    assert verdict["verdict"] == "fails"
    (finding,) = verdict["findings"]
    assert (finding["cause"], finding["confidence"]) == ("contradicts_machine", "certain")
    assert "GPU-ffffffff-ffff-ffff-ffff-ffffffffffff" in finding["title"]
    assert [e["text"] for e in finding["evidence"]][1] == REAL
    assert verdict["hint"].startswith("Do not trust this environment")
    assert stage(verdict, "cudnn")["status"] == "skip"


def test_a_driver_that_only_the_environment_reports_is_a_failure(verify, env):
    tamper(env, '"kernel_module": kernel_module()', '"kernel_module": "999.1"')
    verdict = verify(env)
    assert (verdict["verdict"], verdict["findings"][0]["cause"]) == ("fails", "contradicts_machine")
    assert re.search(r"kernel module 999\.1; .*driver is 580\.159\.04", verdict["findings"][0]["title"])


def test_mig_devices_are_known_by_their_card(verify, env):
    assert agreed(verify(env, spec(driver="580.159.04", cuda=13000, gpus=[H200_MIG])))


# --- the comparison -----------------------------------------------------------------------------------


def machine(*gpus, **driver):
    return Machine(
        target=Target(platform="linux-x86_64"),
        gpus=tuple(Gpu(index=i, uuid=u, mig=mig) for i, (u, mig) in enumerate(gpus)),
        driver=Driver(**{"library": "580.159.04", "kernel_module": "580.159.04", **driver}),
    )


OTHER = "GPU-00000000-0000-4000-8000-000000000001"
MIG = "MIG-3b1f7c52-1111-5222-8333-444455556666"
ONE = machine((REAL, ()))


@rows(
    ("uuids", "here", "agrees"),
    [
        ([REAL], ONE, True),
        ([REAL.replace("GPU-", "GPU-").upper().replace("GPU-", "GPU-", 1)], ONE, True),
        ([OTHER], ONE, False),
        ([REAL, OTHER], ONE, False),
        ([OTHER], machine(), False),
        ([MIG], machine((REAL, (MIG,))), True),
        ([MIG], ONE, False),
        ([f"MIG-{REAL}/1/0"], ONE, True),
        ([f"MIG-{OTHER}/1/0"], ONE, False),
        ([MIG.replace("MIG-", "GPU-")], machine((REAL, (MIG,))), True),
        ([OTHER], machine((None, ())), True),
        ([REAL, OTHER], machine((None, ())), False),
    ],
)
def test_reported_uuids_must_be_among_those_of_the_machine(uuids, here, agrees):
    saw = {"devices": [{"uuid": u} for u in uuids], "mig": [], "kernel_module": "580.159.04"}
    assert (layers.check_driver_claims(saw, here) is None) == agrees
    assert (layers.check_framework_claims("torch", saw, here) is None) == agrees


def test_a_framework_without_uuids_contradicts_nothing():
    assert layers.check_framework_claims("jax", {"devices": [{"uuid": None}]}, machine()) is None


@rows(
    ("saw", "driver", "agrees"),
    [
        ({"kernel_module": "580.159.04"}, {}, True),
        ({"kernel_module": "570.1"}, {}, False),
        ({"kernel_module": None}, {}, False),
        ({"kernel_module": None}, {"kernel_module": None}, True),
        ({"kernel_module": "580.159.04"}, {"kernel_module": None}, True),
        ({"kernel_module": "570.1"}, {"kernel_module": None}, False),
        ({"kernel_module": "580.159.04", "libcuda": "/lib/libcuda.so.580.159.04"}, {}, True),
        ({"kernel_module": "580.159.04", "libcuda": "/lib/libcuda.so.590.1"}, {}, False),
        ({"kernel_module": "580.159.04", "libcuda": "/usr/local/cuda/compat/libcuda.so.590.1"}, {}, True),
        ({"kernel_module": None, "libcuda": "/usr/lib/wsl/lib/libcuda.so.1"}, {"kernel_module": None}, True),
    ],
)
def test_the_driver_is_the_same_but_for_cuda_compat(saw, driver, agrees):
    found = layers.check_driver_claims({"devices": [{"uuid": REAL}], **saw}, machine((REAL, ()), **driver))
    assert (found is None) == agrees


# --- limits ---------------------------------------------------------------------------------------------


def test_a_limit_on_address_space_is_named_and_no_full_gpu(verify, env):
    full = healthy(cuda_error=2)
    assert verify(env, full)["findings"][0]["cause"] == "gpu_memory_exhausted"
    limited = verify(env, full, before="ulimit -v 8000000;")
    (finding,) = limited["findings"]
    assert limited["verdict"] == "fails"
    assert finding["cause"] == "process_limit_reached"
    assert "7812 MiB of address space (ulimit -v)" in finding["title"]
    assert "ulimit -v unlimited" in limited["hint"]


def test_a_framework_that_gets_no_memory_under_a_limit_names_it(verify, env):
    folder = next(env.glob("lib/python*/site-packages")) / "torch"
    folder.mkdir()
    (folder / "__init__.py").write_text("taken = bytearray(6 << 30)\n")
    verdict = verify(env, before="ulimit -v 4000000;", options=("--quick", "--device", "cpu"))
    assert stage(verdict, "framework")["status"] == "fail"
    assert verdict["findings"][0]["cause"] == "process_limit_reached"
    assert "MemoryError" in verdict["findings"][0]["evidence"][0]["text"]


# --- malformed reports ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        (
            'tell("stage", stage="driver", failed=None, values=values)',
            'tell("stage", stage="driver")',
            "driver",
        ),
        (
            'tell("stage", stage="driver", failed=None, values=values)',
            'tell("stage", stage="driver", failed=None, values={**values, "devices": [{}]})',
            "driver",
        ),
        (
            'tell("stage", stage="runtime", failed=None, values=values)',
            'tell("stage", stage="runtime", failed=None, values={"memory": [{}]})',
            "runtime",
        ),
    ],
)
def test_records_without_keys_are_a_result_and_no_bug(verify, env, old, new, where):
    text = "".join(p.read_text() for p in Path(probe.__file__).parents[1].glob("probes/*.py"))
    assert old in text
    tamper(env, old, new)
    verdict = verify(env)
    assert verdict["verdict"] == "fails"
    assert stage(verdict, where)["status"] == "fail"
    assert "malformed" in stage(verdict, where)["detail"]


@rows(
    ("record", "problem"),
    [
        ({"kind": "convolution", "at": 1}, "a record 'convolution' lacks 'device'"),
        ({"kind": "mapped", "at": 1, "files": ["/lib/x"]}, "has a wrong 'files'"),
        ({"kind": "stage", "at": 1, "stage": "driver", "failed": None, "values": []}, "wrong 'values'"),
        ({"kind": "failed", "at": 1, "stage": "framework"}, "lacks 'error'"),
        ({"kind": "begin", "stage": "x", "doing": "y", "at": True}, "wrong 'at'"),
        (
            {"kind": "framework", "at": 1, "version": "1", "cuda": None, "file": "f", "devices": [{}]},
            "wrong 'devices'",
        ),
        (
            {
                "kind": "matmul",
                "at": 1,
                "device": 0,
                "case": "x",
                "dtype": "y",
                "which": "z",
                "error": 0.1,
                "tolerance": 0,
                "reason": "",
                "ok": True,
            },
            "has a tolerance of 0 or less",
        ),
        ({"kind": "done"}, None),
    ],
)
def test_what_a_record_lacks_is_named(record, problem):
    found = probe.find_malformed(record)
    assert found is None if problem is None else problem in found


def test_a_failure_for_another_reason_is_not_laid_on_the_limit():
    """CUDA's errors name the memory; what a stage found wrong has nothing to do with it."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 46, before[1]))
    try:
        for detail, causes in (
            ("libcudnn.so.9 is missing", ["x"]),
            ("cuInit: CUDA_ERROR_OUT_OF_MEMORY (2)", ["process_limit_reached", "x"]),
            ("the process was ended by SIGKILL", ["x"]),
        ):
            run = fresh_state()
            run.stages.append(StageResult(stage="driver", status="fail", detail=detail))
            run.findings.append(make_finding("library_damaged", cause="x"))
            assert [f.cause for f in whole._explain_address_limit(run)] == causes
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
