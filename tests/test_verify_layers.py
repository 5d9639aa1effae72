"""Stages 1 to 4 on a driver made of C: every answer of CUDA and cuDNN that this machine cannot give."""

import base64
import dataclasses
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from driver_stub import H200, T4, V100, build, build_runtime, scenario, spec
from provision.model import CudnnRelease, Lock, Package, Plan, PlannedBuild, Target
from provision.verify import Options, locate, verify

LIBRARIES = ("libcudnn.so.9", "libcudnn_ops.so.9", "libcudnn_graph.so.9")
QUICK = Options(quick=True, timeout=20)


def healthy(**codes):
    return spec(driver="580.159.04", cuda=13000, gpus=[H200], **codes)


def record(site, name, version, files, requires=()):
    """A dist-info for files that lie in a site-packages folder, as an installer writes it."""
    folder = site / f"{name}-{version}.dist-info"
    folder.mkdir()
    rows = []
    for file in files:
        data = file.read_bytes()
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{file.relative_to(site)},sha256={digest},{len(data)}")
    (folder / "RECORD").write_text("\n".join(rows) + "\n")
    needs = "".join(f"Requires-Dist: {r}\n" for r in requires)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}\n")


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    """A venv with the stub's libcudart and libcudnn in it, laid out and recorded as NVIDIA's wheels are."""
    env = tmp_path_factory.mktemp("pristine") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", env], check=True)
    site = next(env.glob("lib/python*/site-packages"))
    cudart = build_runtime(site / "nvidia" / "cuda_runtime" / "lib", "libcudart.so.12")
    cudnn = build_runtime(site / "nvidia" / "cudnn" / "lib", "libcudnn.so.9")
    for name in LIBRARIES[1:]:
        shutil.copy(cudnn, cudnn.with_name(name))
    record(site, "nvidia_cuda_runtime_cu12", "12.8.90", [cudart])
    record(site, "nvidia_cudnn_cu12", "9.14.0.64", [cudnn.with_name(n) for n in LIBRARIES])
    return env


@pytest.fixture
def env(pristine, tmp_path):
    return Path(shutil.copytree(pristine, tmp_path / "env", symlinks=True))


@pytest.fixture
def cudnn(env):
    return next(env.glob("lib/python*/site-packages/nvidia/cudnn/lib"))


@pytest.fixture
def judge(env, tmp_path, monkeypatch):
    """The verdict on `env` under a driver that answers as a spec says."""
    libraries = build(tmp_path / "driver")
    for name in ("CUDA_VISIBLE_DEVICES", "LD_PRELOAD"):
        monkeypatch.delenv(name, raising=False)

    def run(what="580-h200", options=QUICK, before=(), **more):
        for key, value in scenario(libraries, what).items():
            folders = [*map(str, before), value] if key == "LD_LIBRARY_PATH" else [value]
            monkeypatch.setenv(key, ":".join(folders))
        return verify(locate(env), options, emit=lambda _: None, **more)

    return run


def stage(verdict, name):
    return next(s for s in verdict.stages if s.stage == name)


def failing(verdict):
    """The one stage that failed; every later one must be skipped and say so."""
    names = [s.stage for s in verdict.stages if s.status == "fail"]
    assert len(names) == 1, verdict.stages
    later = list(verdict.stages[[s.stage for s in verdict.stages].index(names[0]) + 1 :])
    assert all(s.status == "skip" and names[0] in s.detail for s in later), later
    return names[0]


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
        ("470-k80", "runtime", "driver_too_old_for_runtime"),
        (healthy(cuda_error=46), "runtime", "gpu_busy_exclusive"),
        (healthy(cuda_error=2), "runtime", "gpu_memory_exhausted"),
        (healthy(cuda_error=222), "runtime", "driver_too_old_for_runtime"),
    ],
)
def test_an_error_of_cuda_names_layer_and_cause(judge, what, where, cause):
    verdict = judge(what)
    assert failing(verdict) == where
    assert verdict.verdict == "fails"
    assert verdict.findings[0].cause == cause
    assert verdict.hint == verdict.findings[0].fix


def test_cuinit_that_hangs_is_ended_by_the_deadline(judge):
    verdict = judge("cuinit-hangs", Options(quick=True, timeout=2))
    assert failing(verdict) == "driver"
    assert "no answer within 2 s while calling cuInit" in stage(verdict, "driver").detail


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


def test_no_driver_at_all(judge, tmp_path, monkeypatch):
    build(tmp_path / "none", leave_out=["libcuda.so.1"])
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path / "none"))
    env = locate(tmp_path / "env")
    verdict = verify(env, QUICK, emit=lambda _: None)
    assert failing(verdict) == "driver"
    assert "libcuda.so.1" in stage(verdict, "driver").detail
    assert verdict.findings[0].cause in ("driver_missing", "container_without_gpu")


def test_a_status_of_cudnn_is_told_with_its_name(judge):
    verdict = judge(healthy(cudnn_create=1001))
    assert failing(verdict) == "cudnn"
    assert "CUDNN_STATUS_NOT_INITIALIZED" in stage(verdict, "cudnn").detail


def test_a_full_gpu_is_seen_before_cudnn_is_blamed(judge):
    held = f"{H200}|free_mib=200|holder={os.getpid()}"
    verdict = judge(spec(driver="580.159.04", cuda=13000, gpus=[held], cudnn_create=1001))
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


def test_a_missing_sublibrary_is_named(judge, cudnn):
    (cudnn / "libcudnn_ops.so.9").unlink()
    verdict = judge()
    assert failing(verdict) == "libraries"
    assert verdict.findings[0].cause == "cudnn_not_found"
    assert "libcudnn_ops.so.9" in verdict.findings[0].title
    assert "nvidia-cudnn-cu12==9.14.0.64" in verdict.hint


def test_a_truncated_library_is_named_even_with_quick(judge, cudnn):
    path = cudnn / "libcudnn_graph.so.9"
    path.write_bytes(path.read_bytes()[:3000])
    verdict = judge()
    assert failing(verdict) == "libraries"
    assert verdict.findings[0].cause == "cudnn_not_found"
    assert "cut short" in verdict.findings[0].title


def test_other_bytes_of_the_same_size_are_found_by_hash_only(judge, cudnn):
    path = cudnn / "libcudnn_graph.so.9"
    path.write_bytes(path.read_bytes()[:-1] + b"X")
    assert judge().verdict == "works"
    verdict = judge(options=Options(timeout=20))
    assert stage(verdict, "libraries").status == "fail"
    assert verdict.findings[0].cause == "cudnn_shadowed_by_other_copy"
    assert "other bytes" in verdict.findings[0].title


def test_a_file_of_another_version_is_mixing(judge, cudnn):
    path = cudnn / "libcudnn_ops.so.9"
    path.write_bytes(path.read_bytes() + b"longer than recorded")
    verdict = judge()
    assert failing(verdict) == "libraries"
    assert verdict.findings[0].cause == "cudnn_shadowed_by_other_copy"


def test_two_cudnn_packages_in_one_folder(judge, cudnn):
    """What the framework requires decides: the other package's bytes are a failure, a leftover a warning."""
    site = cudnn.parents[2]
    record(site, "torch", "2.9.0", [], requires=["nvidia-cudnn-cu13==9.19.0.56 ; platform_system == 'Linux'"])
    good = (cudnn / "libcudnn.so.9").read_bytes()
    (cudnn / "libcudnn.so.9").write_bytes(good + b"as cu13 has it")
    record(site, "nvidia_cudnn_cu13", "9.19.0.56", [cudnn / n for n in LIBRARIES])
    assert judge().stages[2].status == "warn"
    (cudnn / "libcudnn.so.9").write_bytes(good)
    verdict = judge()
    assert failing(verdict) == "libraries"
    assert verdict.findings[0].cause == "cudnn_shadowed_by_other_copy"
    assert "nvidia-cudnn-cu12 9.14.0.64 and nvidia-cudnn-cu13 9.19.0.56" in verdict.findings[0].title


def test_a_release_known_to_need_more_than_its_package_brings(judge):
    release = CudnnRelease(
        package="nvidia-cudnn-cu12",
        version="9.14.0.64",
        cuda="12",
        platform="linux-" + os.uname().machine,
        libraries=(*LIBRARIES, "libcudnn_cnn.so.9"),
    )
    verdict = judge(releases=[release])
    assert failing(verdict) == "libraries"
    assert "libcudnn_cnn.so.9" in verdict.findings[0].title


def locked(cudnn_version, device="cuda"):
    target = Target(platform="linux-x86_64")
    plan = Plan(
        builds=(), python="3.11", platform="linux-x86_64", manager="venv", device=device, target=target
    )
    package = Package(name="nvidia-cudnn-cu12", version=cudnn_version, url="file:///x.whl")
    return Lock(manager="venv", target=target, plan=plan, packages=(package,))


def test_the_lock_names_another_cudnn(judge):
    assert judge(lock=locked("9.14.0.64")).verdict == "works"
    verdict = judge(lock=locked("9.10.2.21"))
    assert failing(verdict) == "libraries"
    assert "9.10.2.21" in verdict.findings[0].title
    assert judge(lock=locked("9.10.2.21", device="cpu")).verdict == "cpu"


def test_another_package_than_the_locks_is_a_warning(judge):
    lock = locked("9.14.0.64")
    other = Package(name="nvidia-cuda-runtime-cu12", version="12.9.79", url="file:///y.whl")
    verdict = judge(lock=dataclasses.replace(lock, packages=(*lock.packages, other)))
    assert verdict.verdict == "works"
    assert stage(verdict, "libraries").status == "warn"
    assert "the lock names 12.9.79" in stage(verdict, "libraries").evidence[0].text


def test_cudnn_bundled_in_torch_is_checked_too(judge, cudnn):
    site = cudnn.parents[2]
    shutil.rmtree(next(site.glob("nvidia_cudnn*.dist-info")))
    (site / "torch").mkdir()
    cudnn.rename(site / "torch" / "lib")
    record(site, "torch", "1.12.1", [site / "torch" / "lib" / n for n in LIBRARIES])
    assert judge().verdict == "works"
    (site / "torch" / "lib" / "libcudnn_ops.so.9").unlink()
    verdict = judge()
    assert failing(verdict) == "libraries"
    assert "libcudnn_ops.so.9 of torch 1.12.1 is missing" in verdict.findings[0].title


def test_a_cpu_build_on_a_gpu_machine(judge, cudnn):
    site = cudnn.parents[2]
    shutil.rmtree(site / "nvidia")
    for folder in site.glob("nvidia_*.dist-info"):
        shutil.rmtree(folder)
    (site / "torch").mkdir()
    (site / "torch" / "__init__.py").write_text("")
    (site / "torch" / "version.py").write_text("cuda: 'str | None' = None\n")
    verdict = judge()
    assert failing(verdict) == "libraries"
    assert stage(verdict, "runtime").status == "skip"
    assert verdict.findings[0].cause == "cpu_only_build"


def test_a_cpu_build_beside_a_gpu_build_is_a_warning_unless_asked_for(judge, cudnn):
    site = cudnn.parents[2]
    for name, version in (("torch", "cuda = None\n"), ("jax", "")):
        (site / name).mkdir()
        (site / name / "__init__.py").write_text("raise RuntimeError('not this time')\n")
        (site / name / "version.py").write_text(version)
    record(site, "jax_cuda12_plugin", "0.9.0", [])
    verdict = judge(options=Options(timeout=20))
    torch = [s for s in verdict.stages if s.framework == "torch"]
    assert [s.status for s in torch] == ["warn", "skip", "skip"]
    assert [s.detail for s in verdict.stages if s.framework == "jax" and s.status == "fail"] == [
        "RuntimeError: not this time"
    ]
    asked = judge(options=Options(timeout=20, frameworks=("torch",)))
    assert next(s for s in asked.stages if s.framework == "torch").status == "fail"


def test_a_framework_of_the_plan_that_is_not_there(judge):
    lock = locked("9.14.0.64")
    build = PlannedBuild(framework="jax", version="0.9.0", cuda="12.9", index="pypi", requirements=())
    verdict = judge(
        options=Options(timeout=20),
        lock=dataclasses.replace(lock, plan=dataclasses.replace(lock.plan, builds=(build,))),
    )
    assert failing(verdict) == "framework"
    assert stage(verdict, "framework").detail == "jax is not in this environment"


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
    assert verdict.hint == f"Take {link} out of LD_PRELOAD."


def test_conda_packages_are_judged_by_conda_meta(judge, env, cudnn):
    import json

    site = cudnn.parents[2]
    library = env / "lib" / "libcudnn.so.9"
    shutil.copy(cudnn / "libcudnn.so.9", library)
    shutil.rmtree(site / "nvidia" / "cudnn")
    shutil.rmtree(next(site.glob("nvidia_cudnn*.dist-info")))
    data = library.read_bytes()
    row = {
        "_path": "lib/libcudnn.so.9",
        "path_type": "hardlink",
        "sha256_in_prefix": hashlib.sha256(data).hexdigest(),
        "size_in_bytes": len(data),
    }
    meta = {"name": "libcudnn", "version": "9.14.0.64", "paths_data": {"paths": [row]}}
    (env / "conda-meta").mkdir()
    (env / "conda-meta" / "libcudnn-9.14.0.64-0.json").write_text(json.dumps(meta))
    verdict = judge(options=Options(timeout=20, frameworks=()))
    assert stage(verdict, "libraries").detail.startswith("libcudnn 9.14.0.64")
    assert stage(verdict, "cudnn").status == "pass"
    library.write_bytes(data[:-1] + b"X")
    again = judge(options=Options(timeout=20))
    assert stage(again, "libraries").status == "fail"


def test_libraries_linked_from_an_installers_cache_are_the_environments(judge, cudnn, tmp_path):
    """uv can link a wheel's files from its cache; the kernel then names the cache's file."""
    for path in [*cudnn.iterdir()]:
        path.rename(tmp_path / path.name)
        path.symlink_to(tmp_path / path.name)
    verdict = judge(options=Options(timeout=20))
    assert stage(verdict, "libraries").status == "pass"
    assert stage(verdict, "cudnn").status == "pass"


def test_strict_lets_a_warning_fail(judge):
    low = spec(driver="580.159.04", cuda=13000, gpus=[f"{H200}|free_mib=300"])
    assert judge(low).verdict == "works"
    assert judge(low, Options(quick=True, strict=True)).verdict == "fails"


def test_each_mig_device_gets_a_child_of_its_own(judge, monkeypatch):
    """CUDA shows a process the first one only."""
    first, second = "MIG-3b1f7c52-1111-5222-8333-444455556666", "MIG-3b1f7c52-1111-5222-8333-777788889999"
    verdict = judge("580-h200-mig")
    assert verdict.verdict == "works"
    told = [(s.stage, s.device) for s in verdict.stages]
    assert told[4:] == [("driver", second), ("runtime", second), ("cudnn", second)]
    assert "MIG 1g.18gb" in verdict.stages[0].detail
    chosen = judge("580-h200-mig", Options(quick=True, device="cuda:0"))
    assert len(chosen.stages) == 4
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", first)
    assert len(judge("580-h200-mig").stages) == 4


def test_several_gpus_copy_to_each_other(judge):
    two = spec(driver="535.129.03", cuda=12020, gpus=[V100, T4])
    peers = stage(judge(two, Options(timeout=20)), "peers")
    assert peers.status == "pass"
    assert "2 copies between them are right, 2 direct; the environment brings no NCCL" in peers.detail
    chosen = judge(two, Options(timeout=20, device="cuda:1"))
    assert "peers" not in [s.stage for s in chosen.stages]
    assert "peers" not in [s.stage for s in judge(options=Options(timeout=20)).stages]


def test_an_nccl_that_cannot_be_used_is_a_warning_with_what_to_do(judge, cudnn):
    folder = cudnn.parents[1] / "nccl" / "lib"
    folder.mkdir(parents=True)
    shutil.copy(cudnn / "libcudnn.so.9", folder / "libnccl.so.2")
    two = spec(driver="535.129.03", cuda=12020, gpus=[V100, T4])
    peers = stage(judge(two, Options(timeout=20)), "peers")
    assert peers.status == "warn"
    assert "ncclCommInitAll" in peers.detail
    assert "NCCL_DEBUG=INFO" in peers.detail


def test_deep_reads_the_bytes_of_every_nvidia_library(judge, cudnn):
    path = cudnn.parents[1] / "cuda_runtime" / "lib" / "libcudart.so.12"
    path.write_bytes(path.read_bytes()[:-1] + b"X")
    assert stage(judge(options=Options(timeout=20)), "libraries").status == "pass"
    deep = judge(options=Options(timeout=20, deep=True))
    assert stage(deep, "libraries").status == "fail"
    assert deep.findings[0].cause == "nvidia_lib_symbol_mismatch"


@pytest.mark.parametrize(
    ("what", "where", "cause"),
    [
        (healthy(cu_init=803), "driver", "driver_library_mismatch"),
        (healthy(cu_init=999), "driver", "nvidia_uvm_stale"),
        (healthy(cuda_error=802), "runtime", "fabricmanager_not_running"),
        (healthy(cuda_error=804), "runtime", "forward_compat_unsupported_hw"),
        (healthy(cuda_error=999), "runtime", "nvidia_uvm_stale"),
        (healthy(cuda_error=214), "runtime", "gpu_hardware_fault"),
        (healthy(cudnn_create=4000), "cudnn", None),
        (
            spec(driver="580.159.04", cuda=13000, gpus=[f"{H200}|mode=3"], cuda_error=46),
            "runtime",
            "gpu_busy_exclusive",
        ),
        (healthy(cudnn_create=1008), "cudnn", "cudnn_not_found"),
    ],
)
def test_statuses_that_no_machine_here_can_give(judge, what, where, cause):
    verdict = judge(what)
    assert failing(verdict) == where
    assert [f.cause for f in verdict.findings][:1] == ([cause] if cause else [])


def test_cudnn_8_by_its_own_sonames(judge, env, cudnn):
    """cuDNN 8 has other sublibraries, statuses and no cudnnGetLastErrorString."""
    site = cudnn.parents[2]
    for path in [*cudnn.iterdir()]:
        path.unlink()
    shutil.rmtree(next(site.glob("nvidia_cudnn*.dist-info")))
    library = build_runtime(cudnn, "libcudnn.so.9").rename(cudnn / "libcudnn.so.8")
    names = ["libcudnn.so.8", "libcudnn_ops_infer.so.8", "libcudnn_cnn_infer.so.8"]
    for name in names[1:]:
        shutil.copy(library, library.with_name(name))
    record(site, "nvidia_cudnn_cu12", "8.9.7.29", [cudnn / n for n in names])
    eight = {"driver": "535.129.03", "cuda": 12020, "cudnn": 8907, "gpus": [V100]}
    verdict = judge(spec(**eight))
    assert verdict.verdict == "works"
    assert "cuDNN 8.9.7" in stage(verdict, "cudnn").detail
    assert stage(judge(spec(**eight, cudnn_create=1)), "cudnn").status == "fail"
    (cudnn / "libcudnn_cnn_infer.so.8").unlink()
    again = judge(spec(**eight))
    assert failing(again) == "libraries"
    assert "libcudnn_cnn_infer.so.8" in again.findings[0].title


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
        held = f"{H200}|free_mib=200|holder={holder.pid}"
        verdict = judge(spec(driver="580.159.04", cuda=13000, gpus=[held], cudnn_create=1001))
        holder.stdin.close()
    first = verdict.findings[0]
    assert (first.cause, first.confidence) == (cause, "certain")
    assert str(holder.pid) in first.fix
    assert ("XLA_PYTHON_CLIENT_PREALLOCATE" in first.fix) == bool(name)
