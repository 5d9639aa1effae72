"""Stage 3 on files as wheels and conda lay them out: missing, cut short, mixed, or not the lock's."""
# ruff: noqa: F811  # fixtures are imported by their names

import dataclasses
import hashlib
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from elf_files import library, package
from framework_envs import venv
from rows import rows
from verify_stub import LIBRARIES, cudnn, env, failing, judge, pristine, record, stage  # noqa: F401

from driver_stub import V100, build_runtime, spec
from provision.environment.distributions import RecordRow
from provision.model import CudnnRelease, Environment, Lock, LockedPackage, Plan, PlannedBuild, Target
from provision.verify import Options, disk, libraries
from provision.verify.disk import explain_removed
from provision.verify.libraries import InstalledLibraries, LibraryPackage, PythonPaths


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
    assert verdict.findings[0].cause == "package_files_damaged"
    assert "truncated" in verdict.findings[0].title


def test_other_bytes_of_the_same_size_are_found_by_hash_only(judge, cudnn):
    path = cudnn / "libcudnn_graph.so.9"
    path.write_bytes(path.read_bytes()[:-1] + b"X")
    assert judge().verdict == "works"
    verdict = judge(options=Options(timeout=300))
    assert stage(verdict, "libraries").status == "fail"
    assert verdict.findings[0].cause == "package_files_damaged"
    assert "different content" in verdict.findings[0].title


def test_a_cudnn_file_of_another_version_fails(judge, cudnn):
    path = cudnn / "libcudnn_ops.so.9"
    path.write_bytes(path.read_bytes() + b"longer than recorded")
    verdict = judge()
    assert failing(verdict) == "libraries"
    assert verdict.findings[0].cause == "cudnn_shadowed_by_other_copy"


def test_the_requirement_decides_between_two_cudnn_packages_in_a_folder(judge, cudnn):
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


def test_a_cudnn_package_without_a_known_sublibrary_fails(judge):
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
    package = LockedPackage(name="nvidia-cudnn-cu12", version=cudnn_version, url="file:///x.whl")
    return Lock(manager="venv", target=target, plan=plan, packages=(package,))


def test_another_cudnn_than_the_locked_one_fails(judge):
    assert judge(lock=locked("9.14.0.64")).verdict == "works"
    verdict = judge(lock=locked("9.10.2.21"))
    assert failing(verdict) == "libraries"
    assert "9.10.2.21" in verdict.findings[0].title
    on_cpu = judge(lock=locked("9.10.2.21", device="cpu"))
    assert on_cpu.verdict == "unproven"  # no framework is there that could be imported
    assert {s.status for s in on_cpu.stages} == {"skip"}


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


def test_a_cpu_build_on_a_gpu_machine_fails(judge, cudnn):
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
    verdict = judge(options=Options(timeout=300))
    torch = [s for s in verdict.stages if s.framework == "torch"]
    assert [s.status for s in torch] == ["warn", *["skip"] * 4]
    assert [s.detail for s in verdict.stages if s.framework == "jax" and s.status == "fail"] == [
        "RuntimeError: not this time"
    ]
    asked = judge(options=Options(timeout=300, frameworks=("torch",)))
    assert next(s for s in asked.stages if s.framework == "torch").status == "fail"


def test_a_missing_framework_of_the_plan_fails(judge):
    lock = locked("9.14.0.64")
    build = PlannedBuild(framework="jax", version="0.9.0", cuda="12.9", index="pypi", requirements=())
    verdict = judge(
        options=Options(timeout=300),
        lock=dataclasses.replace(lock, plan=dataclasses.replace(lock.plan, builds=(build,))),
    )
    assert failing(verdict) == "framework"
    assert stage(verdict, "framework").detail == "jax is not in this environment"


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
    verdict = judge(options=Options(timeout=300, frameworks=()))
    assert stage(verdict, "libraries").detail.startswith("libcudnn 9.14.0.64")
    assert stage(verdict, "cudnn").status == "pass"
    library.write_bytes(data[:-1] + b"X")
    again = judge(options=Options(timeout=300))
    assert stage(again, "libraries").status == "fail"


def test_libraries_linked_from_an_installers_cache_are_the_environments(judge, cudnn, tmp_path):
    """uv can link a wheel's files from its cache; the kernel then names the cache's file."""
    for path in [*cudnn.iterdir()]:
        path.rename(tmp_path / path.name)
        path.symlink_to(tmp_path / path.name)
    verdict = judge(options=Options(timeout=300))
    assert stage(verdict, "libraries").status == "pass"
    assert stage(verdict, "cudnn").status == "pass"


def test_deep_reads_the_bytes_of_every_nvidia_library(judge, cudnn):
    path = cudnn.parents[1] / "cuda_runtime" / "lib" / "libcudart.so.12"
    path.write_bytes(path.read_bytes()[:-1] + b"X")
    assert stage(judge(options=Options(timeout=300)), "libraries").status == "pass"
    deep = judge(options=Options(timeout=300, deep=True))
    assert stage(deep, "libraries").status == "fail"
    assert deep.findings[0].cause == "package_files_damaged"


def test_cudnn_8_passes_with_its_own_file_names(judge, env, cudnn):
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
    "gone", ["torch/version.py", "torch/lib/libc10_cuda.so", "numpy/core.so", "torch/test/a.py"]
)
def test_a_removed_file_of_a_framework_is_named(tmp_path, gone):
    """Of the framework's packages and of what they require, but not a test."""
    root, site = venv(tmp_path / "env")
    modules = {
        "torch/__init__.py": "",
        "torch/version.py": "",
        "torch/lib/libc10_cuda.so": "",
        "torch/test/a.py": "",
    }
    package(site, "torch", "1.0", [], modules=modules, requires=["numpy"])
    package(site, "numpy", "2.0", [], modules={"numpy/core.so": ""})
    env = Environment(path=str(root), manager="venv", python=str(root / "bin/python"))
    paths = PythonPaths(prefix=str(root), version="3.12.0", sites=(str(site),), roots=(str(site),))
    assert explain_removed("torch", env, paths) is None
    (site / gone).unlink()
    found = explain_removed("torch", env, paths)
    if "test" in gone:
        assert found is None
    else:
        owner = "numpy 2.0" if gone.startswith("numpy") else "torch 1.0"
        assert found is not None and found.title == f"{gone} of {owner} is missing"


def installed(tmp_path, *requires, cudnn="9.14.0.64"):
    """Torch with requirements, and a cuDNN package of a version."""
    (tmp_path / "torch.py").touch()
    record(tmp_path, "torch", "2.9.0", [tmp_path / "torch.py"], requires)
    paths = PythonPaths(prefix="/env", version="3.12.0", sites=(str(tmp_path),), roots=(str(tmp_path),))
    file = RecordRow(str(tmp_path / "libcudnn.so.9"), None, 1)
    return paths, [LibraryPackage(name="nvidia-cudnn-cu12", version=cudnn, files=(file,))]


@rows(
    ("requires", "cudnn", "cause"),
    [
        (["nvidia-cudnn-cu12==9.10.2.21"], "9.14.0.64", None),
        (["nvidia-cudnn-cu12==9.19.0.56"], "9.14.0.64", "cudnn_older_than_compiled"),
        (["nvidia-cudnn-cu12==10.0.0.1"], "9.14.0.64", "cudnn_major_mismatch"),
        (["nvidia-odd ==", "nvidia-cudnn-cu12==9.19.0.56"], "9.14.0.64", "cudnn_older_than_compiled"),
        (["nvidia-cudnn-cu12==9.19.0.56"], "not a version", None),
    ],
)
def test_the_cudnn_that_a_framework_requires_is_compared_with_the_installed_one(
    tmp_path, requires, cudnn, cause
):
    paths, owners = installed(Path(tempfile.mkdtemp(dir=tmp_path)), *requires, cudnn=cudnn)
    env = Environment(path="/env", manager="venv", python="/env/bin/python")
    finding = disk._find_unserved(env, paths, owners)
    assert (finding and finding.cause) == cause


def test_the_systems_cudnn_serves_an_environment_without_one():
    env = Environment(path="/env", manager="venv", python="/env/bin/python")
    paths = PythonPaths(prefix="/env", version="3.12.0", sites=(), roots=("/env",))
    bare = InstalledLibraries(paths=paths, files=())
    there = disk._judge_absent(env, bare, ["/usr/lib/libcudnn.so.9"])
    assert (there.status, there.evidence[0].source) == ("warn", "/usr/lib/libcudnn.so.9")
    assert disk._judge_absent(env, bare, []).finding.cause == "nvidia_libs_not_installed"


def test_a_file_that_is_no_library_or_cannot_be_read_counts_as_cut_short(tmp_path):
    (tmp_path / "text").write_text("a library was here")
    assert libraries._is_cut_short(str(tmp_path / "text"), 18)
    assert libraries._is_cut_short(str(tmp_path), 4096)
    whole = Path(library(tmp_path / "libx.so"))
    size = whole.stat().st_size
    assert not libraries._is_cut_short(str(whole), size) and libraries._is_cut_short(str(whole), size - 1)


def test_a_libcudart_that_is_cut_short_is_the_cause_where_it_does_not_load(judge, env):
    library = next(env.glob("lib/python*/site-packages/nvidia/cuda_runtime/lib/libcudart.so.12"))
    library.write_bytes(library.read_bytes()[:4096])
    verdict = judge()
    assert failing(verdict) == "runtime" and "SIGBUS" in stage(verdict, "runtime").detail
    assert [f.cause for f in verdict.findings] == ["package_files_damaged"]
    assert verdict.findings[0].title.startswith("libcudart.so.12 of nvidia-cuda-runtime-cu12")
