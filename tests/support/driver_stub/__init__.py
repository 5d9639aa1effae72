"""A driver made of C for machines without one: libcuda.so.1 and libnvidia-ml.so.1, and the libraries of
an environment on top of it, libcudart.so.12 and libcudnn.so.9.

Built by gcc at test time against NVIDIA's own headers (cuda.h and cuda_runtime_api.h of the wheel
nvidia-cuda-runtime-cu12, nvml.h of nvidia-nvml-dev-cu12), so a wrong signature does not compile (cuDNN's header is in no small wheel).
They answer what a small text file says, which the variable GPUENV_STUB names (see spec.h), and are
found through LD_LIBRARY_PATH, which the loader reads at a program's start only: use them in a child.

    from driver_stub import H200, build, scenario, spec

    libraries = build(tmp_path / "driver")                 # compiled once per test run, then copied
    env = scenario(libraries, "580-h200")                  # variables for the child
    env = scenario(libraries, spec(driver="580.159.04", cuda=13000, gpus=[H200], cu_init=999))
    subprocess.run([sys.executable, "-m", "provision", "detect"], env={**os.environ, **env})

`build` lays the libraries out as the driver's package does: the soname is a link to a file with the
driver's version in its name (libcuda.so.1 -> libcuda.so.580.159.04). `build_runtime` makes the
libraries of an environment. "Device memory" is the host's: copies and one convolution really happen.
"""

from __future__ import annotations

import atexit
import shutil
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from subprocess import run
from tempfile import mkdtemp

HERE = Path(__file__).parent
HEADERS = {
    "cuda.h": "nvidia-cuda-runtime-cu12",
    "cuda_runtime_api.h": "nvidia-cuda-runtime-cu12",
    "nvml.h": "nvidia-nvml-dev-cu12",
}
# C source -> (soname, whether the file's name carries the driver's version)
LIBRARIES = {
    "libcuda.c": ("libcuda.so.1", True),
    "libnvidia_ml.c": ("libnvidia-ml.so.1", True),
}
RUNTIME = {
    "libcudart.c": ("libcudart.so.12", False),
    "libcudnn.c": ("libcudnn.so.9", False),
    "libnccl.c": ("libnccl.so.2", False),
}


def gpu(name: str, cc: str, memory_mib: int, uuid: str, **more: str | int) -> str:
    """A gpu line of a spec; `more` are free_mib, mig (UUIDs with commas), handle_error,
    mode (compute mode), holder (a pid), throttled, lanes, remap, memory_error (-1: it hangs)."""
    fields = {"name": name, "cc": cc, "memory_mib": memory_mib, "uuid": uuid, **more}
    return "gpu " + "|".join(f"{key}={value}" for key, value in fields.items())


K80 = gpu("Tesla K80", "3.7", 11441, "GPU-0d6f0b1a-3f5e-4b57-9a0c-1f2e3d4c5b6a")
V100 = gpu("Tesla V100-SXM2-16GB", "7.0", 16384, "GPU-1a2b3c4d-5e6f-4071-8293-a4b5c6d7e8f9")
T4 = gpu("Tesla T4", "7.5", 15360, "GPU-2b3c4d5e-6f70-4182-93a4-b5c6d7e8f90a")
H200 = gpu("NVIDIA H200", "9.0", 143771, "GPU-8c2c2c9a-7d41-4a1e-b3f5-0a9b8c7d6e5f")
B200 = gpu("NVIDIA B200", "10.0", 183359, "GPU-9d3d3dab-8e52-4b2f-84a6-1bac9d8e7f60")
H200_MIG = gpu(
    "NVIDIA H200",
    "9.0",
    143771,
    "GPU-8c2c2c9a-7d41-4a1e-b3f5-0a9b8c7d6e5f",
    mig="MIG-3b1f7c52-1111-5222-8333-444455556666,MIG-3b1f7c52-1111-5222-8333-777788889999",
)


def spec(
    *,
    driver: str = "",
    cuda: int = 0,
    cudart: int = 12080,
    cudnn: int = 91400,
    gpus: Iterable[str] = (),
    **codes: int,
) -> str:
    """The text of a spec; `codes` are nvml_init, cu_init, cu_version, cu_init_sleep (seconds),
    cu_init_signal, cuda_error,
    cudnn_create, cudnn_wrong, peer_wrong, nccl_hangs, nccl_wrong."""
    lines = [f"driver {driver}", f"cuda {cuda}", f"cudart {cudart}", f"cudnn {cudnn}"]
    lines += [f"{key} {value}" for key, value in codes.items()]
    return "\n".join([*lines, *gpus]) + "\n"


LIBRARY_NOT_FOUND, NO_PERMISSION, NOT_LOADED, MISMATCH = 12, 4, 9, 18  # nvmlReturn_t
SCENARIOS: dict[str, str] = {
    "470-k80": spec(driver="470.256.02", cuda=11040, gpus=[K80]),
    "535-v100-t4": spec(driver="535.129.03", cuda=12020, gpus=[V100, T4]),
    "580-h200": spec(driver="580.159.04", cuda=13000, gpus=[H200]),
    "580-h200-mig": spec(driver="580.159.04", cuda=13000, gpus=[H200_MIG]),
    "590-b200": spec(driver="590.48.01", cuda=13010, gpus=[B200]),
    # what pynvml says without libnvidia-ml; a toolkit's libcuda answers 34 to everything
    "stub-libcuda": spec(nvml_init=LIBRARY_NOT_FOUND, cu_init=34, cu_version=34),
    "mismatch": spec(driver="580.159.04", cuda=13000, gpus=[H200], nvml_init=MISMATCH, cu_init=803),
    "cuinit-hangs": spec(
        driver="580.159.04", cuda=13000, gpus=[H200], nvml_init=LIBRARY_NOT_FOUND, cu_init_sleep=3600
    ),
    "cuinit-crashes": spec(
        driver="580.159.04", cuda=13000, gpus=[H200], nvml_init=LIBRARY_NOT_FOUND, cu_init_signal=11
    ),
    "no-permission": spec(driver="580.159.04", cuda=13000, gpus=[H200], nvml_init=NO_PERMISSION, cu_init=304),
    "one-gpu-denied": spec(
        driver="580.159.04", cuda=13000, gpus=[H200, f"{T4}|handle_error={NO_PERMISSION}"]
    ),
    "not-loaded": spec(nvml_init=NOT_LOADED, cu_init=100),
    "no-driver": spec(nvml_init=LIBRARY_NOT_FOUND, cu_init=100),
    "no-gpus": spec(driver="580.159.04", cuda=13000),
    "libcuda-only": spec(driver="535.129.03", cuda=12020, gpus=[V100, T4], nvml_init=LIBRARY_NOT_FOUND),
}

_built: Path | None = None


def headers() -> set[Path]:
    """The folders of NVIDIA's headers in the wheels of this environment."""
    folders = set()
    for name, distribution in HEADERS.items():
        files = [f for f in metadata.files(distribution) or () if f.name == name]
        assert files, f"{distribution} has no {name}: install the dev dependencies"
        folders.add(Path(str(files[0].locate())).parent)
    return folders


def _compile() -> Path:
    folder = Path(mkdtemp(prefix="driver-stub-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    includes = [f"-I{path}" for path in sorted(headers())] + [f"-I{HERE / 'include'}"]
    for source, (soname, _) in {**LIBRARIES, **RUNTIME}.items():
        command = ["gcc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]
        command += ["-fvisibility=hidden", f"-Wl,-soname,{soname}", *includes, str(HERE / source)]
        run([*command, "-o", str(folder / soname), "-ldl"], check=True)
    return folder


def build(folder: Path, driver: str = "580.159.04", *, leave_out: Iterable[str] = ()) -> Path:
    """The libraries in `folder`, as a driver of that version installs them (plain files when "", as
    the toolkit's stubs are). The sonames in `leave_out` are empty files: the loader refuses such a file
    and looks no further, so that a real driver of this machine is not found either."""
    global _built  # noqa: PLW0603  # gcc runs once per test run
    _built = _built or _compile()
    folder.mkdir(parents=True, exist_ok=True)
    for soname, versioned in LIBRARIES.values():
        if soname in leave_out:
            (folder / soname).write_bytes(b"")
            continue
        real = soname.rpartition(".")[0] + f".{driver}" if versioned and driver else soname
        shutil.copy(_built / soname, folder / real)
        if real != soname:
            (folder / soname).unlink(missing_ok=True)
            (folder / soname).symlink_to(real)
    return folder


def build_runtime(folder: Path, soname: str) -> Path:
    """One library of an environment ("libcudart.so.12", "libcudnn.so.9" or "libnccl.so.2") in `folder`."""
    global _built  # noqa: PLW0603  # gcc runs once per test run
    _built = _built or _compile()
    folder.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(_built / soname, folder / soname))


def scenario(libraries: Path, what: str) -> Mapping[str, str]:
    """Variables for a child: the loader's path and the spec. `what` is a name in SCENARIOS or the
    text of a spec."""
    text = SCENARIOS.get(what, what)
    file = libraries / "stub.spec"
    number = 0
    while file.exists() and file.read_text() != text:
        number += 1
        file = libraries / f"stub-{number}.spec"
    file.write_text(text)
    return {"LD_LIBRARY_PATH": str(libraries), "GPUENV_STUB": str(file)}
