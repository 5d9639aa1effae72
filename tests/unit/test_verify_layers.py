"""Stages 1 to 4 on a driver made of C: every answer of CUDA and cuDNN that this machine cannot give."""
# ruff: noqa: F811  # fixtures are imported by their names

import os
import re
import subprocess
import sys

import pytest
from verified import verify
from verify_stub import QUICK, cudnn, env, failing, fresh_state, hanging, healthy, judge, pristine, stage  # noqa: F401

from driver_stub import H200, H200_MIG, T4, V100, build, build_runtime, spec
from provision.detect import machine_for_verdict
from provision.system.process import Finished
from provision.verify import Options, layers, locate_environment
from provision.verify.layers import judge_peers
from provision.verify.probe import ProbeReport


def test_a_healthy_machine_passes_four_stages(judge):
    verdict = judge()
    assert verdict.verdict == "works"
    assert [(s.stage, s.status) for s in verdict.stages] == [
        ("driver", "pass"),
        ("runtime", "pass"),
        ("libraries", "pass"),
        ("cudnn", "pass"),
    ]
    assert "580.159.04" in stage(verdict, "driver").detail
    assert "NVIDIA H200 (9.0)" in stage(verdict, "driver").detail
    assert "9.14.0" in stage(verdict, "cudnn").detail
    assert verdict.findings == ()
    assert verdict.hint is None


def test_every_gpu_is_tried_and_one_can_be_chosen(judge):
    two = spec(driver="535.129.03", cuda=12020, gpus=[V100, T4])
    assert judge(two).stages[1].detail.count("MiB free") == 2
    one = judge(two, Options(quick=True, device="cuda:1"))
    assert "15360 of 15360" in one.stages[1].detail
    assert one.verdict == "works"
    none = judge(two, Options(quick=True, device="cuda:2"))
    assert none.verdict == "fails"
    assert none.findings[0].cause == "visible_devices_invalid"
    assert "cuda:0 to cuda:1" in none.hint


@pytest.mark.parametrize(
    ("what", "where", "cause"),
    [
        ("mismatch", "driver", "driver_library_mismatch"),
        ("stub-libcuda", "driver", "cuda_stub_library_loaded"),
        ("no-permission", "driver", "gpu_device_access_denied"),
        (healthy(cu_init=802), "driver", "fabricmanager_not_running"),
        (healthy(cu_init=804), "driver", "forward_compat_unsupported_hw"),
        (
            spec(driver="580.159.04", cuda=13000, gpus=[f"{H200}|memory_error=999"]),
            "driver",
            "nvidia_uvm_stale",
        ),
        ("470-k80", "runtime", "driver_too_old_for_runtime"),
        (
            spec(driver="580.159.04", cuda=13000, gpus=[f"{H200}|mode=3"], cuda_error=46),
            "runtime",
            "gpu_busy_exclusive",
        ),
        (healthy(cuda_error=46), "runtime", "gpu_hardware_fault"),
        (healthy(cuda_error=2), "runtime", "gpu_memory_exhausted"),
        (healthy(cuda_error=222), "runtime", "driver_too_old_for_runtime"),
        (healthy(cu_init=803), "driver", "driver_library_mismatch"),
        (healthy(cu_init=999), "driver", "nvidia_uvm_stale"),
        (healthy(cuda_error=802), "runtime", "fabricmanager_not_running"),
        (healthy(cuda_error=804), "runtime", "forward_compat_unsupported_hw"),
        (healthy(cuda_error=999), "runtime", "nvidia_uvm_stale"),
        (healthy(cuda_error=214), "runtime", "gpu_hardware_fault"),
        (healthy(cudnn_create=4000), "cudnn", None),
        (healthy(cudnn_create=1008), "cudnn", "cudnn_not_found"),
    ],
)
def test_an_error_of_cuda_names_layer_and_cause(judge, what, where, cause):
    verdict = judge(what)
    assert failing(verdict) == where
    assert verdict.verdict == "fails"
    assert [f.cause for f in verdict.findings][:1] == ([cause] if cause else [])
    assert not cause or verdict.hint == verdict.findings[0].fix


def test_cuinit_that_hangs_is_ended_by_the_deadline(judge):
    verdict, seconds = hanging(
        "calling cuInit", lambda n: judge("cuinit-hangs", Options(quick=True, timeout=n))
    )
    assert failing(verdict) == "driver"
    assert f"no answer within {seconds:g} s while calling cuInit" in stage(verdict, "driver").detail


def test_cuinit_that_crashes_is_a_result_with_the_signals_name(judge):
    verdict = judge("cuinit-crashes")
    assert failing(verdict) == "driver"
    assert "SIGSEGV while calling cuInit" in stage(verdict, "driver").detail


def test_hidden_gpus_are_laid_on_the_variable_that_hides_them(judge, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    verdict = judge()
    assert failing(verdict) == "driver"
    first = verdict.findings[0]
    assert (first.cause, first.confidence) == ("visible_devices_invalid", "certain")
    assert "CUDA_VISIBLE_DEVICES=7" in first.title
    assert verdict.hint == "Unset CUDA_VISIBLE_DEVICES."


def test_a_machine_without_a_driver_fails_at_the_driver(judge, tmp_path, monkeypatch):
    build(tmp_path / "none", leave_out=["libcuda.so.1"])
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path / "none"))
    env = locate_environment(tmp_path / "env")
    verdict = verify(env, QUICK, emit=lambda _: None, read_machine=machine_for_verdict)
    assert failing(verdict) == "driver"
    assert "libcuda.so.1" in stage(verdict, "driver").detail
    assert verdict.findings[0].cause in ("driver_missing", "container_without_gpu")


def test_a_notebook_without_a_driver_is_told_to_change_its_runtime(judge, tmp_path, monkeypatch):
    build(tmp_path / "none", leave_out=["libcuda.so.1"])
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path / "none"))
    monkeypatch.setenv("COLAB_RELEASE_TAG", "release-colab_1")
    verdict = verify(
        locate_environment(tmp_path / "env"), QUICK, emit=lambda _: None, read_machine=machine_for_verdict
    )
    assert verdict.findings[0].cause == "driver_missing" and "Change runtime type" in (verdict.hint or "")


def test_a_status_of_cudnn_is_named(judge):
    verdict = judge(healthy(cudnn_create=1001))
    assert failing(verdict) == "cudnn"
    assert "CUDNN_STATUS_NOT_INITIALIZED" in stage(verdict, "cudnn").detail


def test_a_full_gpu_is_seen_before_cudnn_is_blamed(judge):
    memory = f"{H200}|free_mib=200|holder={os.getpid()}"
    verdict = judge(spec(driver="580.159.04", cuda=13000, gpus=[memory], cudnn_create=1001))
    assert failing(verdict) == "cudnn"
    assert stage(verdict, "runtime").status == "warn"
    first = verdict.findings[0]
    assert (first.cause, first.confidence) == ("gpu_memory_exhausted", "certain")
    assert any(str(os.getpid()) in e.text for e in first.evidence)


def test_a_wrong_number_from_cudnn_is_wrong(judge):
    verdict = judge(healthy(cudnn_wrong=1))
    assert failing(verdict) == "cudnn"
    assert verdict.verdict == "wrong"
    assert "element 0" in stage(verdict, "cudnn").detail


def test_a_preloaded_cudnn_is_found_among_innocents(judge, env, tmp_path, monkeypatch):
    other = build_runtime(tmp_path / "other cudnn", "libcudnn.so.9")
    innocent = tmp_path / "innocent"
    innocent.mkdir()
    monkeypatch.setenv("CUDNN_SOMETHING", "1")
    monkeypatch.setenv("CUDA_CACHE_DISABLE", "1")
    # a space separates in LD_PRELOAD, so the guilty file is linked to where there is none
    link = tmp_path / "libcudnn.so.9"
    link.symlink_to(other)
    monkeypatch.setenv("LD_PRELOAD", str(link))
    verdict = judge(before=[innocent])
    assert failing(verdict) == "cudnn"
    assert verdict.verdict == "wrong"
    first = verdict.findings[0]
    assert (first.cause, first.confidence) == ("cudnn_shadowed_by_other_copy", "certain")
    assert "in LD_PRELOAD" in first.title
    assert str(other) in first.title
    assert "CUDNN_SOMETHING" not in first.title
    assert verdict.hint == f"Remove {link} from LD_PRELOAD."


def test_strict_lets_a_warning_fail(judge):
    low = spec(driver="580.159.04", cuda=13000, gpus=[f"{H200}|free_mib=300"])
    assert judge(low).verdict == "works"
    assert judge(low, Options(quick=True, strict=True)).verdict == "fails"


def test_each_mig_device_gets_a_child_of_its_own(judge, monkeypatch):
    """CUDA shows a process the first one only."""
    first, second = "MIG-3b1f7c52-1111-5222-8333-444455556666", "MIG-3b1f7c52-1111-5222-8333-777788889999"
    verdict = judge("580-h200-mig")
    assert verdict.verdict == "works"
    stages = [(s.stage, s.device) for s in verdict.stages]
    assert stages[4:] == [("driver", second), ("runtime", second), ("cudnn", second)]
    assert "MIG 1g.18gb" in verdict.stages[0].detail
    chosen = judge("580-h200-mig", Options(quick=True, device="cuda:0"))
    assert len(chosen.stages) == 4
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", first)
    assert len(judge("580-h200-mig").stages) == 4


MPS = f"{H200}|mode=3|free_mib=140000|holder={os.getpid()}"
"""A GPU that MPS shares: in exclusive mode, with a process on it that is not of this user's job."""
OTHERS = H200_MIG.replace("8c2c2c9a", "11111111").replace("3b1f7c52", "22222222")
"""A card beside the own one whose MIG devices are for others."""


@pytest.mark.parametrize(
    ("gpus", "variables"),
    [
        ([MPS], {"CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps", "CUDA_MPS_LOG_DIRECTORY": "/tmp/nvidia-log"}),
        ([MPS], {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25"}),
        ([H200, OTHERS], {"CUDA_VISIBLE_DEVICES": "0"}),
        ([OTHERS, H200_MIG], {"CUDA_VISIBLE_DEVICES": "MIG-3b1f7c52-1111-5222-8333-777788889999"}),
        ([H200, f"{T4}|handle_error=4"], {}),
    ],
    ids=["MPS", "a share of MPS", "MIG of others", "one MIG device of a job", "a GPU that the cgroup denies"],
)
def test_a_gpu_that_is_shared_with_others_is_healthy(judge, monkeypatch, gpus, variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    verdict = judge(spec(driver="580.159.04", cuda=13000, gpus=gpus))
    assert (verdict.verdict, verdict.findings) == ("works", ())
    assert len(verdict.stages) == 4


def test_the_device_file_of_a_gpu_of_others_is_no_failure():
    """Slurm and containers deny the cards that are not of the job by their device cgroup."""
    files = [
        {"path": "/dev/nvidia0", "problem": None},
        {"path": "/dev/nvidia1", "problem": "Operation not permitted"},
        {"path": "/dev/nvidiactl", "problem": None},
    ]
    device = {"index": 0, "name": "NVIDIA H200", "capability": "9.0", "uuid": "GPU-1"}
    saw = {"cuda": "13.0", "kernel_module": "580.159.04", "files": files, "devices": [device], "mig": []}
    judged = layers._judge_driver(fresh_state(), {"failed": None, "values": saw})
    assert (judged.status, judged.finding) == ("pass", None)


TWO = {"driver": "535.129.03", "cuda": 12020, "gpus": [V100, T4]}


@pytest.fixture
def nccl(cudnn):
    return build_runtime(cudnn.parents[1] / "nccl" / "lib", "libnccl.so.2")


def test_copies_between_gpus_are_compared_with_the_way_through_the_host(judge):
    two = spec(**TWO)
    peers = stage(judge(two, Options(timeout=300)), "peers")
    assert peers.status == "pass"
    assert "2 copies between them are correct" in peers.detail
    assert all("GB/s, through the host" in e.text for e in peers.evidence)
    chosen = judge(two, Options(timeout=300, device="cuda:1"))
    assert "peers" not in [s.stage for s in chosen.stages]
    assert "peers" not in [s.stage for s in judge(options=Options(timeout=300)).stages]


@pytest.mark.parametrize(
    ("speed", "access", "route"),
    [(340.0, True, "direct"), (37.0, True, "with peer access"), (340.0, False, "without")],
)
def test_the_route_of_a_copy_is_its_speed_beside_the_hosts(speed, access, route):
    copies = tuple(
        {
            "kind": "copy",
            "source": a,
            "target": 1 - a,
            "access": access,
            "speed": speed,
            "host_speed": 27.0,
            "ok": True,
        }
        for a in (0, 1)
    )
    report = ProbeReport(
        records=copies,
        finished=Finished(returncode=0, stdout="", stderr="", timed_out=False, signal=None, report=b""),
        seconds=1,
    )
    judged = judge_peers(fresh_state(), report, 2)
    assert judged.evidence[0].text.partition(", ")[2].startswith(route)
    assert f"{2 * (route == 'direct')} of them direct" in judged.detail


def test_nccl_sends_between_each_pair_and_sums_over_all(judge, nccl):
    peers = stage(judge(spec(**TWO), Options(timeout=300)), "peers")
    assert (peers.status, "between each pair and over all" in peers.detail) == ("pass", True)


@pytest.mark.parametrize(
    ("codes", "variables", "said", "cause"),
    [
        ({"nccl_hangs": 1}, {}, "NCCL works only with NCCL_P2P_DISABLE=1", "gpu_peer_copies_fail"),
        ({"peer_wrong": 1}, {}, "wrong copies: device 0 to device 1", "gpu_peer_copies_fail"),
        ({"nccl_wrong": 1}, {}, "NCCL does not work between these GPUs: NCCL's numbers are wrong", None),
        ({}, {"NCCL_SOCKET_IFNAME": "eth9"}, "unhandled system error", "variable_breaks_framework"),
        pytest.param(
            {},
            {"NCCL_NET": "none"},
            "NCCL works only without NCCL_NET: ",
            "variable_breaks_framework",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_stops_nccl_is_named(judge, nccl, monkeypatch, codes, variables, said, cause):
    monkeypatch.setattr(layers, "_ARM_SECONDS", 3)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    verdict = judge(spec(**TWO, **codes), Options(timeout=300))
    peers = stage(verdict, "peers")
    assert peers.status == "warn"
    assert said in peers.detail
    assert [f.cause for f in verdict.findings] == ([cause] if cause else [])
    assert [e.source for e in peers.evidence if e.source == "/dev/shm"]
    assert {f"{k}={v}" for k, v in variables.items()} <= {e.text for e in peers.evidence}


def test_the_condition_of_the_gpus_is_a_note_and_no_failure(judge):
    gpus = [f"{V100}|throttled=64|lanes=8|remap=1", T4]
    verdict = judge(spec(**{**TWO, "gpus": gpus}), Options(timeout=300))
    assert [s.status for s in verdict.stages[:4]] == ["pass"] * 4
    first, second = (e.text for e in stage(verdict, "runtime").evidence if e.source == "NVML")
    assert re.fullmatch("GPU 0: ECC on, PCIe x8 of x16, .*heat, .*reset .*", first)
    assert second == "GPU 1: ECC on, PCIe x16"


@pytest.mark.parametrize(
    ("name", "cause"),
    [("xla_cuda_plugin.so", "preallocation_leaves_no_memory"), (None, "gpu_memory_exhausted")],
)
def test_who_holds_the_memory_decides_between_need_and_preallocation(judge, tmp_path, name, cause):
    """A process that maps JAX's plugin reserved the memory; another one needs it."""
    code = "import mmap, sys; f = open(sys.argv[1], 'rb'); m = mmap.mmap(f.fileno(), 0, access=1); print('up', flush=True); sys.stdin.read()"
    file = tmp_path / (name or "data.bin")
    file.write_bytes(b"x" * 4096)
    with subprocess.Popen(
        [sys.executable, "-c", code, file], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout.readline() == b"up\n"
        memory = f"{H200}|free_mib=200|holder={holder.pid}"
        verdict = judge(spec(driver="580.159.04", cuda=13000, gpus=[memory], cudnn_create=1001))
        holder.stdin.close()
    first = verdict.findings[0]
    assert (first.cause, first.confidence) == (cause, "certain")
    assert str(holder.pid) in first.fix
    assert ("XLA_PYTHON_CLIENT_PREALLOCATE" in first.fix) == bool(name)


def peers(*records, timed_out=False):
    done = Finished(returncode=0, stdout="", stderr="", timed_out=timed_out, signal=None, report=b"")
    return judge_peers(fresh_state(), ProbeReport(records=records, finished=done, seconds=1), 2)


def test_copies_that_did_not_end_are_a_warning_with_the_call():
    failed = {"kind": "failed", "stage": "peers", "call": "cudaMemcpyPeer", "code": 700, "name": "cudaErrorIllegalAddress", "text": None}  # fmt: skip
    for judged, said in (
        (peers(), "the copies did not end"),
        (peers(failed), "cudaMemcpyPeer: cudaErrorIllegalAddress (700)"),
        (peers(timed_out=True), "no answer within 1 s"),
    ):
        assert (judged.status, judged.detail) == ("warn", f"{said}; single GPUs work")


def test_a_libcuda_beside_another_module_is_a_warning():
    device = {"index": 0, "name": "NVIDIA H200", "capability": "9.0", "uuid": "GPU-1"}
    for libcuda, cause in (
        ("libcuda.so.570.86.10", "driver_library_mismatch"),
        ("compat/libcuda.so.570.86.10", None),
    ):
        saw = {"cuda": "13.0", "kernel_module": "580.159.04", "files": [], "devices": [device], "mig": [],
               "libcuda": f"/usr/lib/{libcuda}"}  # fmt: skip
        judged = layers._judge_driver(fresh_state(), {"failed": None, "values": saw})
        assert (judged.status, judged.finding and judged.finding.cause) == (
            "warn" if cause else "pass",
            cause,
        )
