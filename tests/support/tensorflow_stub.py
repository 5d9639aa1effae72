"""TensorFlow as far as verify asks it, beside the stubs of NVIDIA's libraries: its loader is real, and so are its words."""
# ruff: noqa: F811  # fixtures are imported by their names

import shutil
import subprocess

import pytest
from verify_stub import env, pristine, record  # noqa: F401

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
