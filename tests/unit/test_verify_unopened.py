"""A framework whose loader does not find a library: where it lies, or what would bring it, and the fix."""
# ruff: noqa: F811  # fixtures are imported by their names

import shutil
import subprocess

import pytest
from verify_stub import env, healthy, judge, pristine, record, stage  # noqa: F401

from provision.verify import Options, libraries, locate, unopened
from provision.verify.locate import Found, Surroundings

NEEDED = ("libcublas.so.12", "libcusolver.so.11", "libcusparse.so.12")
REQUIRES = (
    "nvidia-cublas-cu12<13.0,>=12.5.3.2; extra == 'and-cuda'",
    "nvidia-cusolver-cu12<13.0,>=11.6.3.83; extra == 'and-cuda'",
    "nvidia-cusparse-cu12<13.0,>=12.5.1.3; extra == 'and-cuda'",
    "nvidia-cudnn-cu12<10.0,>=9.3.0.75; extra == 'and-cuda'",
    "nvidia-cuda-runtime-cu12<13.0,>=12.5.82; extra == 'and-cuda'",
)
OPENER = """
#include <dlfcn.h>
const char *opens(const char *name) { return dlopen(name, RTLD_NOW) ? "" : dlerror(); }
"""
# TensorFlow as far as the framework stage asks it: its loader is real, and so are its words.
TENSORFLOW = f"""
import ctypes, os, sys, types
_opener = ctypes.CDLL(os.path.join(os.path.dirname(__file__), "libtensorflow_framework.so.2"))
_opener.opens.restype = ctypes.c_char_p
__version__ = "2.21.0"
sys.modules["numpy"] = types.SimpleNamespace(float64=None, zeros=None)

def _seen(kind):
    missing = False
    for name in {NEEDED!r}:
        error = _opener.opens(name.encode()).decode()
        missing = missing or error
        if os.environ.get("TF_CPP_VMODULE") == "dso_loader=1":
            print("I dso_loader.cc:144]", f"Could not load dynamic library '{{name}}'; dlerror: {{error}}" if error
                  else f"Successfully opened dynamic library {{name}}", file=sys.stderr)
    if missing:
        print("W gpu_device.cc:2365] Cannot dlopen some GPU libraries.", file=sys.stderr)
    return [] if missing else ["GPU:0"]

float32 = float16 = bfloat16 = None
sysconfig = types.SimpleNamespace(get_build_info=lambda: {{"cuda_version": "12.5.1", "is_cuda_build": True}})
details = lambda device: {{"compute_capability": (9, 0), "device_name": "NVIDIA H200"}}
config = types.SimpleNamespace(list_physical_devices=_seen, experimental=types.SimpleNamespace(get_device_details=details))
"""


def shared(path, source="", *flags):
    path.parent.mkdir(parents=True, exist_ok=True)
    command = ["cc", "-shared", "-fPIC", "-o", path, "-x", "c", "-", "-x", "none", *flags]
    subprocess.run(command, input=source, text=True, check=True)


@pytest.fixture
def site(env):
    """TensorFlow with its libraries as pip installs them; its RUNPATH leaves cuSOLVER's folder out."""
    if not shutil.which("cc"):
        pytest.skip("no C compiler")
    site = next(env.glob("lib/python*/site-packages"))
    for name in NEEDED:
        folder = name[3:].partition(".")[0]
        shared(site / "nvidia" / folder / "lib" / name, "", f"-Wl,-soname,{name}")
        record(site, f"nvidia_{folder}_cu12", "12.0.0", [site / "nvidia" / folder / "lib" / name])
    runpath = ":".join(f"$ORIGIN/../nvidia/{f}/lib" for f in ("cublas", "cusparse"))
    library = site / "tensorflow" / "libtensorflow_framework.so.2"
    shared(library, OPENER, f"-Wl,--enable-new-dtags,-rpath,{runpath}", "-ldl")
    (site / "tensorflow" / "__init__.py").write_text(TENSORFLOW)
    info = site / "tensorflow" / "python" / "platform" / "build_info.py"
    info.parent.mkdir(parents=True)
    info.write_text("build_info = {'cuda_version': '12.5.1', 'is_cuda_build': True}\n")
    record(site, "tensorflow", "2.21.0", [library], REQUIRES)
    return site


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
    found = Surroundings(prefix="/x", version="3.11.0", sites=(str(site),), roots=())
    words = "Could not load dynamic library 'libcusolver.so.11'; dlerror: libcusolver.so.11: cannot open shared object file"
    finding = unopened.finding("tensorflow", words, locate(site.parents[2]), found, ())
    assert f"export LD_LIBRARY_PATH={site}/nvidia/cusolver/lib" in finding.fix


def test_a_library_that_is_not_installed_is_named_with_the_command(judge, env, site):
    shutil.rmtree(site / "nvidia" / "cusparse")
    shutil.rmtree(next(site.glob("nvidia_cusparse*")))
    finding = judge(healthy(), FULL).findings[0]
    assert finding.cause == "nvidia_libs_not_installed"
    assert "nvidia-cusparse-cu12 brings it" in finding.title
    assert finding.fix.endswith("'nvidia-cusparse-cu12<13.0,>=12.5.1.3'")
    assert finding.fix.startswith("uv pip install --python "), "this environment has no pip"
    (site / "pip").mkdir()
    assert f"{env}/bin/python -m pip install " in judge(healthy(), FULL).findings[0].fix


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
    tensorflow = Found(name="tensorflow", origin=str(site / "tensorflow/__init__.py"), site=str(site))
    torch = Found(name="torch", origin=str(tmp_path / "torch/__init__.py"), site=str(tmp_path))

    def major(*frameworks):
        return libraries.built_major(
            Surroundings(prefix="/x", version="3.11.0", sites=(), roots=(), frameworks=frameworks)
        )

    assert (major(tensorflow), major(torch), major()) == ("12", "13", None)
    assert major(tensorflow, torch) is None


def test_what_is_no_library_of_nvidias_is_left_to_others(site):
    found = Surroundings(prefix="/x", version="3.11.0", sites=(str(site),), roots=())
    for words in (
        "libGL.so.1: cannot open shared object file",
        "libcuda.so.1: cannot open shared object file",
        "",
    ):
        assert unopened.finding("tensorflow", words, locate(site.parents[2]), found, ()) is None
