"""Links for TensorFlow releases whose loader does not look into every folder of the NVIDIA wheels."""

import io
import shutil
import subprocess
import zipfile

import pytest
from programs import run_program

from provision.environment.install import install_packages, link_missing_libraries
from provision.environment.uv_install import UvInstall
from provision.model import Lock, PackageSources, Plan, Target
from provision.profiles.measure.builds import read_search_path
from provision.system.kernels import read_nvidia_folders

C = "int {name}(void) {{ return 1; }}\n"
OPENER = "#include <dlfcn.h>\nint opens(const char *n) { return dlopen(n, RTLD_NOW) != 0; }\n"


def library(path, source, *flags):
    path.parent.mkdir(parents=True, exist_ok=True)
    source_file = path.with_suffix(".c")
    source_file.write_text(source)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", path, source_file, *flags], check=True)
    source_file.unlink()


@pytest.fixture
def site(tmp_path):
    """A TensorFlow that looks into cublas' folder only, as 2.21.0 leaves out cusolver's."""
    if not shutil.which("cc"):
        pytest.skip("no C compiler")
    site = tmp_path / "site-packages"
    runpath = "-Wl,--enable-new-dtags,-rpath,$ORIGIN/../../nvidia/cublas/lib:$ORIGIN/../nvidia/cublas/lib"
    library(site / "tensorflow" / "libtensorflow_framework.so.2", OPENER, runpath, "-ldl")
    library(site / "nvidia/cublas/lib/libcublas.so.12", C.format(name="a"), "-Wl,-soname,libcublas.so.12")
    library(
        site / "nvidia/cusolver/lib/libcusolver.so.11", C.format(name="b"), "-Wl,-soname,libcusolver.so.11"
    )
    (site / "nvidia/cusolver/lib/__init__.py").write_text("")
    return site


def opens(site, name):
    code = f"import ctypes; print(ctypes.CDLL('{site}/tensorflow/libtensorflow_framework.so.2').opens(b'{name}'))"
    done = run_program(["python3", "-c", code], check=True, env={"PATH": "/usr/bin:/bin"})
    return done.stdout.strip() == "1"


def test_a_library_in_a_folder_that_is_left_out_is_found_after_linking(site):
    assert opens(site, "libcublas.so.12") and not opens(site, "libcusolver.so.11")
    assert link_missing_libraries(site) == ("libcusolver.so.11",)
    assert opens(site, "libcusolver.so.11")
    link = site / "nvidia/cublas/lib/libcusolver.so.11"
    assert link.is_symlink() and not link.readlink().is_absolute(), "the environment may be renamed"
    assert link_missing_libraries(site) == (), "a second time there is nothing to do"


def test_an_installation_links_and_names_the_libraries(site, tmp_path):
    (tmp_path / "env" / "lib" / "python3.12").mkdir(parents=True)
    site.rename(tmp_path / "env" / "lib" / "python3.12" / "site-packages")
    target, events = Target(platform="linux-x86_64"), []
    plan = Plan(
        builds=(), python="3.12", platform="linux-x86_64", manager="venv", device="cuda", target=target
    )
    lock = Lock(manager="venv", target=target, plan=plan, packages=())
    install_packages(UvInstall(lock, tmp_path / "env", PackageSources(), emit=events.append))
    assert [e.text.rpartition(": ")[2] for e in events if e.kind == "note"] == ["libcusolver.so.11"]


def test_nothing_is_linked_where_no_folder_is_searched(site):
    shutil.rmtree(site / "nvidia" / "cublas")
    assert link_missing_libraries(site) == ()
    assert [p.name for p in (site / "nvidia").iterdir()] == ["cusolver"]


def test_nothing_is_done_without_tensorflow_or_without_nvidia_wheels(site, tmp_path):
    assert link_missing_libraries(tmp_path) == ()
    shutil.rmtree(site / "nvidia")
    assert link_missing_libraries(site) == ()


def test_the_folders_are_measured_out_of_a_wheel(site, tmp_path):
    """As scripts/update_profiles.py reads them for the column `searched`."""
    with zipfile.ZipFile(tmp_path / "tensorflow.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.write(
            site / "tensorflow/libtensorflow_framework.so.2", "tensorflow/libtensorflow_framework.so.2"
        )
        assert read_search_path(wheel) == {"searched": ["cublas"]}
    with zipfile.ZipFile(tmp_path / "shim.whl", "w") as wheel:
        assert read_search_path(wheel) == {"searched": []}


def test_the_runpath_is_read_from_the_library(site):
    with (site / "tensorflow" / "libtensorflow_framework.so.2").open("rb") as library:
        assert read_nvidia_folders(library) == {"cublas"}
    assert read_nvidia_folders(io.BytesIO(b"no runpath here")) == frozenset()
    far = bytes(3 << 20)[:-20] + b"\0$ORIGIN/../nvidia/cudnn/lib:$ORIGIN\0" + bytes(99)
    assert read_nvidia_folders(io.BytesIO(far)) == {"cudnn"}, "it may lie across two pieces"
