"""`verify --quick --node`: which failures are a fault of the machine, and what another user can change is not run."""
# ruff: noqa: F811  # fixtures are imported by their names

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import export_locks
import pytest
from command import run_forked
from known import KNOWN
from programs import run_program
from rows import rows, sampled
from verify_stub import ALL_LIBRARIES, env, healthy, make_environment  # noqa: F401

from driver_stub import H200, SCENARIOS, build, gpu, scenario, spec
from provision.errors import MachineError, UsageError
from provision.model import Finding, NodeVerdict, StageResult, TargetGpu, Verdict
from provision.system.process import children
from provision.system.process.children import read_start
from provision.verify.node import assert_own, check, count_expected, judge, shorten_line
from provision.wheels import pylock

OF_JOBS = frozenset(c.cause for c in KNOWN.causes if c.of_jobs)
BUSY = spec(driver="580.159.04", cuda=13000, gpus=[f"{H200}|mode=3"], cuda_error=46)
EIGHT = [
    gpu("NVIDIA H200", "9.0", 143771, f"GPU-8c2c2c9a-7d41-4a1e-b3f5-0a9b8c7d6e{i:02x}") for i in range(8)
]
LOST = spec(driver="580.159.04", cuda=13000, gpus=[*EIGHT[:7], f"{EIGHT[7]}|handle_error=15"])
FULL = gpu("NVIDIA H200", "9.0", 143771, "GPU-8c2c2c9a-7d41-4a1e-b3f5-0a9b8c7d6e5f", free_mib=300)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    return make_environment(tmp_path_factory.mktemp("pristine") / "env", ALL_LIBRARIES)


@pytest.fixture
def node(env, tmp_path):
    """Run `gpuenv verify --quick --node` on a driver that answers as a spec says."""
    libraries = build(tmp_path / "driver")

    def run(what, *options):
        variables = {**os.environ, **scenario(libraries, what)}
        variables.pop("CUDA_VISIBLE_DEVICES", None)
        return run_forked("verify", "--quick", "--node", *options, env, env=variables, cwd=tmp_path)

    return run


@pytest.mark.parametrize(
    ("what", "code", "line"),
    sampled(
        [
            (healthy(), 0, "driver 580.159.04, CUDA 13.0: NVIDIA H200 (9.0)"),
            (SCENARIOS["mismatch"], 8, "driver_library_mismatch: "),
            (healthy(cuda_error=35), 8, "driver_too_old_for_runtime: "),
            (SCENARIOS["no-permission"], 8, "gpu_device_access_denied: "),
            (healthy(cu_init=802), 8, "fabricmanager_not_running: "),
            (healthy(cu_init=999), 8, "nvidia_uvm_stale: "),
            (SCENARIOS["cuinit-crashes"], 8, "driver: the process was ended by SIGSEGV"),
            (healthy(cudnn_wrong=1), 8, "gpu_hardware_fault: "),
            (BUSY, 0, "gpu_busy_exclusive: "),
            (healthy(cuda_error=2), 0, "gpu_memory_exhausted: "),
            (SCENARIOS["no-driver"], 0, "no NVIDIA GPU found on this machine"),
            (spec(driver="580.159.04", cuda=13000, gpus=[FULL], cudnn_create=4), 0, "gpu_memory_exhausted: "),
            (LOST, 8, "gpu_hardware_fault: GPU 7 has fallen off the bus"),
        ],
        2,
        wide=True,
    ),
)
def test_only_a_fault_of_the_machine_fails(node, what, code, line):
    ran = node(what, "-q")
    assert ran.returncode == code, ran.stdout + ran.stderr
    (shown,) = ran.stdout.splitlines()
    assert shown.startswith(line) and len(shown) < 80
    assert ran.stderr == ""


@pytest.mark.parametrize(
    ("what", "asked", "line"),
    [
        (healthy(), "2", "gpu_hardware_fault: 1 of 2 GPUs are there"),
        (SCENARIOS["no-driver"], "1", ""),
        (healthy(), "1", "driver 580"),
    ],
)
def test_fewer_gpus_than_expected_are_a_fault(node, what, asked, line):
    ran = node(what, "--expect-gpus", asked)
    assert ran.stdout.startswith(line) and ran.returncode == (0 if line == "driver 580" else 8), ran.stdout


@rows(
    ("asked", "gpus", "classes", "count"),
    [
        (None, ["H200"] * 8, (), 8),
        (4, ["H200"], (), 4),
        (0, ["H200"], (), 0),
        (None, ["H200"], ("sm90",), 0),
        (None, [], (), 0),
        (None, ["V100", "A100"], (), 0),
    ],
)
def test_the_lock_of_one_machine_tells_how_many_gpus_it_has(asked, gpus, classes, count):
    lock = SimpleNamespace(target=SimpleNamespace(gpus=gpus), classes=classes)
    assert count_expected(asked, lock) == count and count_expected(asked, None) == (asked or 0)


def test_a_gpu_that_the_lock_of_the_environment_has_is_missed(node, env):
    gpus = (TargetGpu(capability="9.0", name="NVIDIA H200"),) * 2
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    lock = export_locks.of((), target=replace(export_locks.TARGET, gpus=gpus), python=here)
    (env / ".gpuenv").mkdir()
    (env / ".gpuenv" / "plan.json").write_text("{}")
    pylock.write(env / ".gpuenv" / "pylock.toml", lock)
    assert node(healthy()).stdout == "gpu_hardware_fault: 1 of 2 GPUs are there\n"
    assert node(healthy(), "--expect-gpus", "0").returncode == 0
    pylock.write(env / ".gpuenv" / "pylock.toml", replace(lock, plan=replace(lock.plan, device="cpu")))
    ran = node(healthy())
    assert ran.returncode == 0 and ran.stdout.startswith(str(env)[:40]) and "driver" not in ran.stdout


def processes(text):
    """The processes that have a text in their variables."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # it has ended
            if text.encode() in path.read_bytes():
                found.append(path.parent.name)
    return found


@pytest.mark.parametrize("where", ["cu_init_sleep", "nvml_sleep"])
def test_a_driver_that_hangs_is_a_fault_of_its_own_and_leaves_no_process(env, tmp_path, where):
    """Also where the check is killed from outside before its own deadline."""
    variables = {**os.environ, **scenario(build(tmp_path / "driver"), healthy(**{where: 3600}))}
    words = [sys.executable, "-m", "provision", "verify", "--quick", "--node", "-q", env]
    start = time.monotonic()
    for outer, own, code in ((60, 8, 10), (4, 60, 137)):
        ended = run_program(
            ["timeout", "-s", "KILL", str(outer), *words, "--timeout", str(own)], env=variables
        )
        assert ended.returncode in (code, code - 146), (ended.stdout, ended.stderr)
        if code == 10:
            assert ended.stdout.startswith("gpu_hardware_fault: The driver "), ended.stdout
        deadline = time.monotonic() + 10
        while (left := processes(variables["GPUENV_STUB"])) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert left == []
    assert time.monotonic() - start < 60


def test_a_check_that_ends_without_an_answer_blames_the_driver_only_while_it_is_asked(tmp_path, monkeypatch):
    def die(_seconds=0.0, _ask=None):
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(MachineError, match="the check was ended by SIGKILL"):
        check(die, 60.0)
    with pytest.raises(MachineError, match="no result within"):
        check(lambda _seconds, _ask: time.sleep(60), 0.1)
    crashed = check(lambda _seconds, ask: ask(die), 60.0)
    assert (crashed.fault, crashed.cause, crashed.hung) == (True, "driver", False)
    assert crashed.text == "driver: NVML was ended by SIGKILL"
    asked = check(lambda _seconds, ask: ask(lambda: time.sleep(60)), 0.1)
    assert (asked.fault, asked.hung) == (True, True) and "NVML did not return" in asked.text
    stuck, waiting = tmp_path / "gpuenv" / "stuck", subprocess.Popen(["sleep", "600"])
    monkeypatch.setattr("provision.verify.node._STUCK", stuck)
    try:  # no signal ends a process in the driver, and none can be had here
        monkeypatch.setattr(children, "call", lambda *_: children.Called(stuck={waiting.pid}))
        assert check(die, 60.0).hung and f"{waiting.pid} " in stuck.read_text()
        again = check(lambda _seconds, _ask: pytest.fail("asked"), 60.0)
        assert again.hung and "a call of an earlier check" in again.text
    finally:
        waiting.kill()
        waiting.wait()


def test_an_environment_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(UsageError, match="cannot be examined: "):
        assert_own(tmp_path / "none")


def test_a_driver_that_still_holds_a_process_of_an_earlier_check_is_not_asked_again(tmp_path, monkeypatch):
    stuck, waiting = tmp_path / "stuck", subprocess.Popen(["sleep", "600"])
    monkeypatch.setattr("provision.verify.node._STUCK", stuck)
    try:
        stuck.write_text(f"{waiting.pid} {read_start(waiting.pid)}\n{waiting.pid} 1\n")
        found = check(lambda _seconds, _ask: pytest.fail("asked"), 60.0)
        assert found.hung and re.match("gpu_hardware_fault: .*an earlier check", found.text)
        stuck.write_text(f"{waiting.pid} 1\n")
        fine = NodeVerdict(fault=False, text="driver 580")
        assert check(lambda _seconds, _ask: fine, 60.0) == fine, "another process has its number"
    finally:
        waiting.kill()
        waiting.wait()


def test_the_document_says_fault_cause_and_the_whole_verdict(node):
    document = json.loads(node(SCENARIOS["mismatch"], "--json").stdout)
    assert document["schema"] == "gpuenv.node/1"
    assert (document["fault"], document["cause"]) == (True, "driver_library_mismatch")
    assert document["verdict"]["verdict"] == "fails"
    assert document["text"].startswith("driver_library_mismatch: ")


def test_a_cudnn_that_is_cut_short_is_a_fault(node, env):
    cudnn = next(env.glob("lib/python*/site-packages/nvidia/cudnn/lib/libcudnn_ops.so.9"))
    cudnn.write_bytes(cudnn.read_bytes()[:-1])
    ran = node(healthy())
    assert ran.returncode == 8 and ran.stdout.startswith("package_files_damaged: ")


def test_options_that_mean_something_else_are_refused(node, env):
    ran = node(healthy(), "--strict")
    assert ran.returncode == 2 and "--strict cannot be used with --node" in ran.stderr
    alone = run_program([sys.executable, "-m", "provision", "verify", "--node", env])
    assert alone.returncode == 2 and "--node needs --quick" in alone.stderr


def test_an_environment_that_others_can_write_to_is_not_run(node, env):
    marker = env.with_name("ran")
    site = next(env.glob("lib/python*/site-packages"))
    (site / "late.pth").write_text(f"import pathlib; pathlib.Path({str(marker)!r}).touch()\n")
    (site / "late.pth").chmod(0o666)
    ran = node(healthy())
    assert ran.returncode == 2 and f"{site}/late.pth belongs to" in ran.stderr
    assert "by every user" in ran.stderr
    assert not marker.exists()
    (site / "late.pth").chmod(0o644)
    assert node(healthy()).returncode == 0 and marker.exists()


def test_the_lock_file_of_uv_is_for_all_users(node, env):
    (env / ".lock").touch()
    (env / ".lock").chmod(0o666)
    assert node(healthy()).returncode == 0
    (env / "bin" / ".lock").touch()
    (env / "bin" / ".lock").chmod(0o666)
    assert node(healthy()).returncode == 2, "only that one file"


@pytest.mark.parametrize(("setting", "code"), [("false", 0), ("true", 2), ("", 2)])
def test_packages_of_the_base_python_count_where_the_environment_imports_them(
    node, env, tmp_path, setting, code
):
    base = tmp_path / "base"
    (base / "bin").mkdir(parents=True)
    (base / "bin" / "python3").symlink_to(os.path.realpath(sys.executable))
    library = base / "lib" / f"python3.{sys.version_info[1]}"
    (library / "site-packages").mkdir(parents=True)
    for entry in Path(os.__file__).parent.iterdir():
        if entry.name not in ("site-packages", "os.py"):
            (library / entry.name).symlink_to(entry)
    shutil.copy(os.__file__, library)
    (library / "site-packages" / "theirs.py").write_text("")
    (library / "site-packages" / "theirs.py").chmod(0o666)
    config = env / "pyvenv.cfg"
    line = f"include-system-site-packages = {setting}\n" if setting else ""
    kept = [x for x in config.read_text().splitlines() if not x.startswith(("home", "include"))]
    config.write_text(f"home = {base}/bin\n{line}" + "\n".join(kept) + "\n")
    ran = node(healthy())
    assert ran.returncode == code, ran.stderr
    assert code == 0 or "site-packages/theirs.py belongs to" in ran.stderr
    (library / "os.py").chmod(0o666)
    ran = node(healthy())
    assert ran.returncode == 2 and f"{library}/" in ran.stderr, "the standard library always counts"


def failed(stage, detail, *findings, verdict="fails"):
    stages = (StageResult(stage=stage, status="fail", detail=detail),)
    return Verdict(env="/e", python="/e/bin/python", verdict=verdict, stages=stages, findings=findings)


@rows(
    ("stage", "detail", "fault"),
    [
        ("driver", "cuInit: CUDA_ERROR_NOT_FOUND (500)", True),
        ("driver", "no answer within 3 s while calling cuInit", True),
        ("driver", "no answer within 3 s while loading libcuda.so.1", False),
        ("cudnn", "no answer within 3 s while running a convolution on device 0", False),
        ("cudnn", "the process was ended by SIGKILL while running a convolution on device 0", False),
        ("cudnn", "the process was ended by SIGSEGV while running a convolution on device 0", True),
        ("framework", "torch: import failed", False),
        ("packages", "cv2: libGL.so.1 is missing", False),
    ],
)
def test_the_stage_decides_where_no_cause_is_known(stage, detail, fault):
    judged = judge(failed(stage, detail), None, OF_JOBS)
    assert (judged.fault, judged.cause, judged.text) == (fault, stage, shorten_line(f"{stage}: {detail}"))


@rows("cause", sorted(OF_JOBS))
def test_what_jobs_cause_is_no_fault(cause):
    finding = Finding(cause=cause, title="x")
    assert not judge(failed("runtime", "cudaFree: failed", finding), None, OF_JOBS).fault


def test_the_causes_of_jobs_are_states_that_end_with_a_job():
    assert {
        "gpu_busy_exclusive", "gpu_memory_exhausted", "preallocation_leaves_no_memory", "process_limit_reached",
        "visible_devices_invalid",
    } == OF_JOBS  # fmt: skip


def test_a_line_has_no_line_ends_and_fewer_than_80_characters():
    assert shorten_line("a\n\x1b[31mb\u2028c") == "a b c"
    assert len(shorten_line("word " * 40)) <= 79 and shorten_line("word " * 40).endswith("...")
