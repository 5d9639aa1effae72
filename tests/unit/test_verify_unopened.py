"""A framework whose loader does not find a library: where it lies, or what would bring it, and the fix."""
# ruff: noqa: F811  # fixtures are imported by their names

import shutil
import subprocess

from programs import run_program
from tensorflow_stub import site  # noqa: F401
from verify_stub import env, healthy, judge, pristine, stage  # noqa: F401

from provision.verify import Options, disk, libraries, locate_environment
from provision.verify.libraries import PythonPaths

FULL = Options(frameworks=("tensorflow",), timeout=300)


def test_a_folder_that_the_runpath_leaves_out_is_named_and_the_fix_mends_it(judge, env, site):
    verdict = judge(healthy(), FULL)
    (finding,) = verdict.findings
    assert stage(verdict, "framework").status == "fail"
    assert (finding.cause, finding.confidence) == ("nvidia_libs_not_on_loader_path", "certain")
    assert "libcusolver.so.11" in finding.title and str(site / "nvidia/cusolver/lib") in finding.title
    command = finding.fix.partition(": ")[2]
    assert command.startswith("ln -s ../../cusolver/lib/libcusolver.so.11 ")
    subprocess.run(["sh", "-c", command], check=True, cwd="/")
    assert stage(judge(healthy(), FULL), "framework").status == "pass"


def test_where_nothing_may_be_written_the_loaders_variable_is_the_fix(site):
    found = PythonPaths(prefix="/x", version="3.11.0", sites=(str(site),), roots=())
    words = "Could not load dynamic library 'libcusolver.so.11'; dlerror: libcusolver.so.11: cannot open shared object file"
    installed = libraries.InstalledLibraries(paths=found)
    finding = disk.explain_missing("tensorflow", words, locate_environment(site.parents[2]), installed)
    folder = f"{site}/nvidia/cusolver/lib"
    assert f"export LD_LIBRARY_PATH={folder}" in finding.fix
    line = f"{finding.fix[finding.fix.index('export ') :]}; printenv LD_LIBRARY_PATH"
    for before, after in ({}, folder), ({"LD_LIBRARY_PATH": "/mine"}, f"{folder}:/mine"):
        done = run_program(["sh", "-c", line], env=before, check=True)
        assert done.stdout.strip() == after


def test_a_library_that_is_not_installed_is_named_with_the_command(judge, env, site):
    shutil.rmtree(site / "nvidia" / "cusparse")
    shutil.rmtree(next(site.glob("nvidia_cusparse*")))
    finding = judge(healthy(), FULL).findings[0]
    assert finding.cause == "nvidia_libs_not_installed"
    assert "nvidia-cusparse-cu12 contains it" in finding.title
    assert finding.fix.endswith("'nvidia-cusparse-cu12<13.0,>=12.5.1.3'")
    assert finding.fix.startswith("uv pip install --python "), "this environment has no pip"
    (site / "pip").mkdir()
    assert f"{env}/bin/python -m pip install " in judge(healthy(), FULL).findings[0].fix
    (env / ".gpuenv").mkdir()
    (env / ".gpuenv" / "plan.json").write_text("{}")
    assert judge(healthy(), FULL).findings[0].fix.endswith(f"gpuenv repair {env}")


def test_tensorflow_without_its_libraries_wants_the_extra(judge, env, site):
    """The system's libcudart of another major is not TensorFlow's."""
    for path in site.glob("nvidia*"):
        shutil.rmtree(path)
    verdict = judge(healthy(), FULL)
    finding = verdict.findings[0]
    assert stage(verdict, "runtime").status == "fail" and "libcudart.so.12" in finding.title
    assert finding.cause == "nvidia_libs_not_installed"
    assert finding.fix.endswith("'tensorflow[and-cuda]==2.21.0'")


def test_the_cuda_that_frameworks_were_built_with_is_read_from_disk(site, tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "version.py").write_text("cuda: Optional[str] = '13.0'\n")
    tensorflow = {"tensorflow": str(site / "tensorflow/__init__.py")}
    torch = {"torch": str(tmp_path / "torch/__init__.py")}

    def major(frameworks):
        return libraries.read_built_major(
            PythonPaths(prefix="/x", version="3.11.0", sites=(), roots=(), frameworks=frameworks)
        )

    assert (major(tensorflow), major(torch), major({})) == ("12", "13", None)
    assert major(tensorflow | torch) is None


def test_what_is_no_library_of_nvidias_is_left_to_others(site):
    found = PythonPaths(prefix="/x", version="3.11.0", sites=(str(site),), roots=())
    for words in (
        "libGL.so.1: cannot open shared object file",
        "libcuda.so.1: cannot open shared object file",
        "",
    ):
        assert (
            disk.explain_missing(
                "tensorflow",
                words,
                locate_environment(site.parents[2]),
                libraries.InstalledLibraries(paths=found),
            )
            is None
        )


def test_a_library_of_which_another_major_is_installed_is_another_cuda_s(site):
    found = PythonPaths(prefix="/x", version="3.11.0", sites=(str(site),), roots=())
    installed = libraries.InstalledLibraries(paths=found)
    env = locate_environment(site.parents[2])

    def cause(name):
        words = f"{name}: cannot open shared object file"
        finding = disk.explain_missing("tensorflow", words, env, installed)
        assert name in finding.title and finding.confidence == "certain"
        return finding.cause, finding.title

    assert cause("libcudnn.so.8")[0] == "cudnn_major_mismatch"
    assert "libcudnn.so.9" in cause("libcudnn.so.8")[1]
    assert cause("libcublas.so.11")[0] == "cuda_major_mismatch"
    assert cause("libcublas.so.12.9")[0] == "nvidia_libs_not_installed", "the same major"
    assert cause("libcufft.so.11")[0] == "nvidia_libs_not_installed"
