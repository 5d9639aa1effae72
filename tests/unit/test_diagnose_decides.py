"""The machine decides what a text leaves open: one and the same text, different answers on different machines.

docs/reference/causes.md lists what a machine decides, and by what.
"""

import dataclasses

import pytest
from diagnosed import findings_of, found
from known import KNOWN
from rows import rows

from driver_stub import H200, SCENARIOS, build, scenario, spec
from provision.diagnose import Ran
from provision.model import Driver, Gpu, Machine, Target, TargetGpu

NO_GPUS = "RuntimeError: No CUDA GPUs are available"
NO_KERNEL = (
    "RuntimeError: CUDA error: no kernel image is available for execution on the device\ntorch: 2.9.0+cu130"
)
UNKNOWN = (
    "UserWarning: CUDA initialization: CUDA unknown error - this may be due to an incorrectly set up environment, "
    "e.g. changing env variable CUDA_VISIBLE_DEVICES after program start."
)
FALSE = "CUDA available: False\ntorch: 2.11.0+cu130"


def machine(capability="9.0", driver="580.159.04", count=1, **environment):
    gpus = (TargetGpu(capability=capability),) * count
    return Machine(
        target=Target(platform="linux-x86_64", driver=driver, gpus=gpus),
        driver=Driver(library=driver),
        gpus=tuple(Gpu(index=i, memory_mib=80_000) for i in range(count)),
        environment=environment,
    )


def here(text, on, **more):
    return findings_of([("log", [text.encode()])], KNOWN, on, **{"ran": Ran(), **more})


@pytest.mark.parametrize(
    ("what", "driver", "cause"),
    [
        ("mismatch", "580.159.04", "driver_library_mismatch"),
        ("no-permission", "580.159.04", "gpu_device_access_denied"),
        ("stub-libcuda", "", "cuda_stub_library_loaded"),
    ],
)
def test_the_driver_s_own_answer_decides(gpuenv, tmp_path, what, driver, cause):
    (gpuenv.work / "a.log").write_text(NO_GPUS)
    alone = gpuenv("diagnose", "a.log", "--no-machine", "--json").json["findings"]
    assert {f["confidence"] for f in alone} == {"possible"} and cause != alone[0]["cause"]
    gpuenv.env |= scenario(build(tmp_path / "driver", driver), SCENARIOS[what])
    first = gpuenv("diagnose", "a.log", "--json").json["findings"][0]
    assert (first["cause"], first["confidence"]) == (cause, "certain")


@pytest.mark.parametrize(
    ("code", "cause", "confidence"),
    [
        (34, "cuda_stub_library_loaded", "certain"),
        (802, "fabricmanager_not_running", "certain"),
        (803, "driver_library_mismatch", "certain"),
        (804, "forward_compat_unsupported_hw", "certain"),
        (999, "nvidia_uvm_stale", "likely"),
    ],
)
def test_cuda_s_own_code_decides_where_nvml_gives_the_gpus(gpuenv, tmp_path, code, cause, confidence):
    """nvidia-smi lists the GPU on such a machine, and every program sees none."""
    (gpuenv.work / "a.log").write_text(UNKNOWN)
    alone = gpuenv("diagnose", "a.log", "--no-machine", "--json").json["findings"]
    assert {f["confidence"] for f in alone} == {"possible"}
    answers = spec(driver="580.159.04", cuda=13000, gpus=[H200], cu_init=code)
    gpuenv.env |= scenario(build(tmp_path / "driver"), answers)
    first = gpuenv("diagnose", "a.log", "--json").json["findings"][0]
    assert (first["cause"], first["confidence"]) == (cause, confidence)
    assert any(f"cuInit returned {code}" in e["text"] for e in first["evidence"])


def test_a_machine_whose_driver_answers_decides_nothing_against_itself(gpuenv, tmp_path):
    (gpuenv.work / "a.log").write_text(NO_GPUS)
    gpuenv.env |= scenario(build(tmp_path / "driver"), spec(driver="580.159.04", cuda=13000, gpus=[H200]))
    findings = gpuenv("diagnose", "a.log", "--json").json["findings"]
    assert "certain" not in {f["confidence"] for f in findings}


@rows(
    ("capability", "cause"),
    [
        ("7.0", "arch_dropped_too_old"),
        ("6.1", "arch_dropped_too_old"),
        ("9.0", "extension_built_for_other_torch_or_cuda"),
    ],
)
def test_the_gpu_decides_between_old_new_and_an_extension(capability, cause):
    assert {f.confidence for f in found(*NO_KERNEL.splitlines())} == {"possible"}
    first = here(NO_KERNEL, machine(capability))[0]
    assert first.cause == cause
    assert first.confidence == ("likely" if cause.startswith("extension") else "certain")


def test_the_same_build_is_too_old_for_a_newer_gpu():
    text = NO_KERNEL.replace("2.9.0+cu130", "2.6.0+cu124")
    first = here(text, machine("12.0"))[0]
    assert (first.cause, first.confidence) == ("arch_not_in_wheel_too_new", "certain")


def test_the_driver_decides_whether_it_is_too_old():
    assert "driver_too_old_for_runtime" not in [
        f.cause for f in found(*FALSE.splitlines()) if f.confidence == "certain"
    ]
    old = here(FALSE, machine(driver="535.129.03"))[0]
    assert (old.cause, old.confidence) == ("driver_too_old_for_runtime", "certain")
    assert "580" in old.fix
    new = here(FALSE, machine(driver="580.159.04"))
    assert "driver_too_old_for_runtime" not in [f.cause for f in new]


@rows("visible", ["", "-1", "3", "no"])
def test_the_gpus_decide_what_the_variable_names(visible):
    first = here(NO_GPUS, machine(count=2, CUDA_VISIBLE_DEVICES=visible))[0]
    assert (first.cause, first.confidence) == ("visible_devices_invalid", "certain")
    assert "unset CUDA_VISIBLE_DEVICES" in first.fix


@rows("visible", ["0", "1,0", "GPU-8c2c2c9a-7d41-4a1e-b3f5-0a9b8c7d6e5f"])
def test_a_variable_that_names_a_gpu_is_not_the_cause_for_certain(visible):
    assert "certain" not in {
        f.confidence for f in here(NO_GPUS, machine(count=2, CUDA_VISIBLE_DEVICES=visible))
    }


@rows("text", [NO_GPUS, FALSE, "RuntimeError: Found no NVIDIA driver on your system."])
def test_a_driver_that_gives_gpus_is_not_missing(text):
    excluded = {"driver_missing", "driver_module_not_loaded", "container_without_gpu", "wsl_driver_missing"}
    assert excluded & {f.cause for f in found(*text.splitlines())}
    assert not excluded & {f.cause for f in here(text, machine())}
    assert excluded & {f.cause for f in here(text, dataclasses.replace(machine(), gpus=()))}


@rows(("kills", "certain"), [(1, True), (0, False)])
def test_the_kernel_s_count_decides_why_a_program_was_killed(kills, certain):
    ran = Ran(signal="SIGKILL", oom_kills=kills, oom_source="cgroup")
    findings = here("epoch 1\nKilled", machine(), ran=ran)
    assert [(f.cause, f.confidence) for f in findings] == (
        [("process_limit_reached", "certain")] if certain else []
    )
