"""The faults, each as what is done to the machine and what verify must then say."""

from __future__ import annotations

import contextlib
import os
import re
import resource
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import spoil
from spoil import Place

from provision.system.kernels import read_nvidia_folders

Make = Callable[[Place, contextlib.ExitStack], "str | None"]
Runs = tuple[tuple[str, ...], ...]
LOW = ("driver",)
DISK = ("libraries",)
RUN = ("runtime", "cudnn", "framework", "convolution", "matmul", "attention")
SHADOWED = "cudnn_shadowed_by_other_copy"
FULL = "gpu_memory_exhausted"
DAMAGED = "package_files_damaged"


@dataclass(frozen=True)
class Fault:
    """`make` breaks things and may return another Python to verify; the first stage that fails (or warns)
    must be one of `stages`, its cause one of `causes` (empty: a warning without a cause), and `says` must
    be found in title, fix or detail. `runs` are the frameworks of each verification, empty where the
    environment has none that the fault is about."""

    name: str
    make: Make
    stages: tuple[str, ...]
    causes: tuple[str, ...]
    says: str
    runs: Runs
    alone: bool = False
    heals: str = ""  # a file that root's driver makes again by itself: then there is no fault
    healthy: bool = False  # all stages pass
    packages: bool = False  # also the stage packages, which is no part of the proof


def _set(name: str, value: str) -> Make:
    return lambda place, stack: os.environ.__setitem__(name, value)


def _library_path(place: Place, stack: contextlib.ExitStack) -> None:
    spoil.prepend("LD_LIBRARY_PATH", spoil.other_folder(place))


def _preload(place: Place, stack: contextlib.ExitStack) -> None:
    os.environ["LD_PRELOAD"] = str(spoil.other_folder(place) / "libcudnn.so.9")


def _two(place: Place, stack: contextlib.ExitStack) -> None:
    folder = spoil.other_folder(place)
    os.environ["LD_LIBRARY_PATH"] = f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    os.environ["LD_PRELOAD"] = str(next(p for p in place.other if p.name == "libcudnn.so.9"))


def _among_five(place: Place, stack: contextlib.ExitStack) -> None:
    for number in range(6):
        folder = place.scratch / f"innocent-{number}"
        folder.mkdir()
        (folder / "libfoo.so.1").touch()
        spoil.prepend("LD_LIBRARY_PATH", spoil.other_folder(place) if number == 3 else folder)


def _removed(name: str) -> Make:
    return lambda place, stack: spoil.without(place.cudnn, {name}, place)


def _truncated(place: Place, stack: contextlib.ExitStack) -> None:
    path = place.cudnn / "libcudnn_engines_precompiled.so.9"
    spoil.without(place.cudnn, set(), place, {path.name: spoil.truncated(path, place)})


def _flipped(place: Place, stack: contextlib.ExitStack) -> None:
    path = place.cudnn / "libcudnn_ops.so.9"
    spoil.without(place.cudnn, set(), place, {path.name: spoil.flipped(path, place)})


def _truncated_torch(place: Place, stack: contextlib.ExitStack) -> None:
    path = place.site / "torch" / "lib" / "libtorch_cuda.so"
    spoil.without(path.parent, set(), place, {path.name: spoil.truncated(path, place)})


def _limited(kind: int, value: int) -> Make:
    """A limit of this process, which its children have too."""
    return lambda place, stack: resource.setrlimit(kind, (value, value))


def _startup(name: str, text: str) -> Make:
    """A file in the environment's site-packages that Python runs at each start."""

    def make(place: Place, stack: contextlib.ExitStack) -> None:
        file = place.scratch / name
        file.write_text(text)
        spoil.without(place.site, set(), place, {name: file})

    return make


def _on_pythonpath(custom: str) -> Make:
    """A sitecustomize in a folder of PYTHONPATH: that of a system's Python stands before site-packages."""
    return lambda place, _stack: spoil.sitecustomize(custom, place)


def _another_version(place: Place, stack: contextlib.ExitStack) -> None:
    other = next((p for p in place.other if p.name == "libcudnn_cnn.so.9"), None)
    if other is None:
        raise spoil.NotMadeError("this machine has no second cuDNN")
    spoil.without(place.cudnn, set(), place, {other.name: Path(os.path.realpath(other))})


def _stub(place: Place, stack: contextlib.ExitStack) -> None:
    stubs = [p for p in Path("/usr/local").glob("cuda*/**/stubs/libcuda.so*") if p.is_file()]
    if not stubs:
        raise spoil.NotMadeError("this machine has no toolkit with stubs")
    folder = place.scratch / "stubs"
    folder.mkdir()
    (folder / "libcuda.so.1").symlink_to(stubs[0])
    spoil.prepend("LD_LIBRARY_PATH", folder)


def _masked(path: str) -> Make:
    return lambda place, stack: spoil.bind("/dev/null", path)


def _no_node(place: Place, stack: contextlib.ExitStack) -> None:
    spoil.without(Path("/dev"), {"nvidiactl"}, place)


def _libcuda_hidden(place: Place, stack: contextlib.ExitStack) -> None:
    entries = [e for e in os.environ.get("LD_LIBRARY_PATH", "").split(":") if e]
    left = [e for e in entries if not Path(e, "libcuda.so.1").exists()]
    os.environ["LD_LIBRARY_PATH"] = ":".join(left)
    if spoil.drivers():
        raise spoil.NotMadeError("the loader finds libcuda.so.1 without LD_LIBRARY_PATH")


def _libcuda_gone(place: Place, stack: contextlib.ExitStack) -> None:
    for folder in spoil.drivers():
        names = {p.name for p in folder.glob("libcuda.so*")}
        spoil.without(folder, names, place)


def _full(leave_mib: int) -> Make:
    def make(place: Place, stack: contextlib.ExitStack) -> None:
        print("  another process:", stack.enter_context(spoil.hog(place, leave_mib)), "MiB free", flush=True)

    return make


def _preallocated(framework: str) -> Make:
    def make(place: Place, stack: contextlib.ExitStack) -> None:
        stack.enter_context(spoil.preallocation(place, framework))

    return make


# The interpreter that goes on is the child of one that had begun to use the GPU.
FORKED = """
import os, sys
if "GPUENV_REPORT" in os.environ or "FAULT_PEER" in os.environ:
    try:
        import torch
        torch.zeros(1, device="cuda")
    except ImportError:
        import ctypes
        assert ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
    child = os.fork()
    if child:
        status = os.waitpid(child, 0)[1]
        os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 1)
"""
# torch.backends.cudnn.enabled is False as soon as torch is imported, as a line in a user's program does it.
DISABLED = """
import importlib.util, sys
class Disable:
    def find_spec(self, name, path=None, target=None):
        if name != "torch.backends.cudnn":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module
        def exec_module(module):
            run(module)
            sys.modules["torch._C"]._set_cudnn_enabled(False)
        spec.loader.exec_module = exec_module
        return spec
sys.meta_path.insert(0, Disable())
"""


def _forked(place: Place, stack: contextlib.ExitStack) -> None:
    spoil.sitecustomize(FORKED, place)


def _disabled(place: Place, stack: contextlib.ExitStack) -> None:
    spoil.sitecustomize(DISABLED, place)


def _cpu_jax(place: Place, stack: contextlib.ExitStack) -> str:
    return str(spoil.linked_environment(place, r"jax_cuda|nvidia|torch|tensorflow|triton"))


def _cpu_torch(place: Place, stack: contextlib.ExitStack) -> str:
    """No CPU wheel of torch is at hand there: torch's own description of its build is changed."""
    python = spoil.linked_environment(place, r"jax|nvidia|torch-|tensorflow")
    version = spoil.own_file("torch/version.py", _site(python), place)
    version.write_text(re.sub(r"(?m)^cuda\b.*$", "cuda: 'str | None' = None", version.read_text()))
    return str(python)


def _cpu_tensorflow(place: Place, stack: contextlib.ExitStack) -> str:
    """The same for TensorFlow, as tensorflow-cpu describes itself."""
    python = spoil.linked_environment(place, r"jax|nvidia|torch|triton")
    info = spoil.own_file("tensorflow/python/platform/build_info.py", _site(python), place)
    info.write_text(re.sub(r"(is_cuda_build['\"]\s*[,:]\s*)True", r"\1False", info.read_text()))
    return str(python)


def _site(python: Path) -> Path:
    return next(python.parents[1].glob("lib/python*/site-packages"))


def _no_wheels(place: Place, stack: contextlib.ExitStack) -> None:
    """`pip install tensorflow`, without [and-cuda]."""
    names = {p.name for p in place.site.iterdir() if re.match("nvidia($|[_-])", p.name)}
    spoil.without(place.site, names, place)


def _wheel_missing(name: str) -> Make:
    """One NVIDIA wheel is not installed; a link that stands for its library elsewhere leads nowhere."""

    def make(place: Place, stack: contextlib.ExitStack) -> None:
        infos = {p.name for p in place.site.glob(f"nvidia_{name}[_-][c0-9]*.dist-info")}
        if not infos:
            raise spoil.NotMadeError(f"this environment has no wheel of {name}")
        spoil.without(place.site / "nvidia", {name}, place)
        spoil.without(place.site, infos, place)

    return make


def _unlinked(place: Place, stack: contextlib.ExitStack) -> None:
    """What pip alone makes: no links for the libraries that TensorFlow's RUNPATH leaves out."""
    with (place.site / "tensorflow" / "libtensorflow_framework.so.2").open("rb") as library:
        searched = read_nvidia_folders(library)
    wheels = [p for p in (place.site / "nvidia").glob("*/lib") if p.is_dir()]
    if all(p.parent.name in searched for p in wheels):
        raise spoil.NotMadeError("this TensorFlow's RUNPATH names all folders")
    for folder in wheels:
        links = {p.name for p in folder.iterdir() if p.is_symlink() and str(p.readlink()).startswith("../..")}
        if links:
            spoil.without(folder, links, place)


def faults(place: Place) -> list[Fault]:
    """The matrix for the frameworks that the environment has; rows that it has no framework for are left
    out. The sublibraries are those that this cuDNN has."""
    have = place.frameworks
    rows = [
        *_shadows(have),
        *_on_disk(place),
        *_of_the_driver(have),
        *_of_memory(have),
        *_of_frameworks(have),
        *_beside_the_gpu(have),
        *_of_each_library(place),
        *_of_compilers(have),
        *_between(have),
        *_healthy(place),
    ]
    return [row for row in rows if row.runs]


def _each(have: tuple[str, ...]) -> Runs:
    return tuple((name,) for name in have)


def _if(have: tuple[str, ...], name: str) -> Runs:
    return ((name,),) if name in have else ()


def _shadows(have: tuple[str, ...]) -> list[Fault]:
    stages = ("cudnn", "framework", "convolution", "loaded")
    path = "other-cudnn (from|in) LD_LIBRARY_PATH"
    return [
        Fault("LD_LIBRARY_PATH at another cuDNN", _library_path, stages, (SHADOWED,), path, (have,)),
        Fault("the same among five innocent entries", _among_five, stages, (SHADOWED,), path, (have,)),
        Fault("LD_PRELOAD of another cuDNN", _preload, stages, (SHADOWED,), "from LD_PRELOAD", (have,)),
        Fault("both of these", _two, stages, (SHADOWED,), "LD_LIBRARY_PATH.*LD_PRELOAD|LD_PRELOAD.*LD_LIBRARY_PATH", (have,)),
    ]  # fmt: skip


def _on_disk(place: Place) -> list[Fault]:
    have, torch = (place.frameworks,), _if(place.frameworks, "torch")
    sub = sorted(p.name for p in place.cudnn.glob("libcudnn_*.so.[0-9]"))
    return [
        *(Fault(f"{n} removed", _removed(n), DISK, ("cudnn_not_found",), n, have) for n in sub),
        Fault("libcudnn.so.9 missing, one in the system", _removed("libcudnn.so.9"), DISK, ("cudnn_not_found",), r"libcudnn\.so\.9", have),
        Fault("engines library truncated", _truncated, DISK, (DAMAGED,), "engines_precompiled.*truncated", have),
        Fault("libcudnn_ops with flipped bytes", _flipped, DISK, (DAMAGED,), "libcudnn_ops.*different content", have),
        Fault("libtorch_cuda truncated", _truncated_torch, ("libraries", "packages", "framework"), (DAMAGED,), "libtorch_cuda.*truncated", torch),
        Fault("libcudnn_cnn of another version", _another_version, DISK, (SHADOWED,), "libcudnn_cnn", have),
    ]  # fmt: skip


def _of_the_driver(frameworks: tuple[str, ...]) -> list[Fault]:
    have = (frameworks,)
    hidden, denied = ("visible_devices_invalid",), ("gpu_device_access_denied",)
    no_driver = ("container_without_gpu", "driver_missing", "nvidia_libs_not_on_loader_path")
    visible = "CUDA_VISIBLE_DEVICES"
    bogus = "GPU-00000000-1111-2222-3333-444444444444"
    return [
        Fault(f"{visible} empty", _set(visible, ""), LOW, hidden, visible, have),
        Fault(f"{visible} out of range", _set(visible, "9"), LOW, hidden, visible, have),
        Fault(f"{visible} bogus UUID", _set(visible, bogus), LOW, hidden, visible, have),
        Fault("stub libcuda", _stub, LOW, ("cuda_stub_library_loaded",), "stubs", have),
        Fault("/dev/nvidiactl masked", _masked("/dev/nvidiactl"), LOW, denied, "nvidiactl", have),
        Fault("/dev/nvidiactl not there", _no_node, LOW, denied, "nvidiactl", have, heals="/dev/nvidiactl"),
        Fault("/dev/nvidia-uvm masked", _masked("/dev/nvidia-uvm"), ("driver", "runtime"), denied, "nvidia-uvm", have),
        Fault("libcuda not on the loader's path", _libcuda_hidden, LOW, ("nvidia_libs_not_on_loader_path",), "LD_LIBRARY_PATH|loader", have),
        Fault("libcuda not there", _libcuda_gone, LOW, no_driver, "libcuda|driver", have),
    ]  # fmt: skip


def _of_memory(have: tuple[str, ...]) -> list[Fault]:
    reserved = ("preallocation_leaves_no_memory",)
    jax, growth = "XLA_PYTHON_CLIENT_PREALLOCATE", "TF_FORCE_GPU_ALLOW_GROWTH"
    beside = tuple(run for run in _each(have) if run != ("jax",)) if "jax" in have else ()
    return [
        *(
            Fault(f"all memory but {left} MiB taken", _full(left), RUN, (FULL,), "memory", _each(have), alone=True)
            for left in (100, 300, 700)
        ),
        Fault("JAX preallocation beside", _preallocated("jax"), RUN, reserved, jax, beside, alone=True),
        Fault("TensorFlow preallocation beside", _preallocated("tensorflow"), RUN, reserved, growth,
              _each(have) if "tensorflow" in have else (), alone=True),
    ]  # fmt: skip


def _of_frameworks(have: tuple[str, ...]) -> list[Fault]:
    """TensorFlow opens CUDA's libraries by name when it looks for GPUs: one that is missing, or where its
    RUNPATH does not lead, leaves it without a GPU and with a warning that does not name the library."""
    cpu, tensorflow = ("libraries", "framework"), _if(have, "tensorflow")
    missing, unfound = ("nvidia_libs_not_installed",), ("nvidia_libs_not_on_loader_path",)
    return [
        Fault("fork after CUDA began", _forked, RUN, ("forked_after_cuda_init",), "PYTHONPATH|spawn", _each(have)),
        Fault("CPU build of JAX", _cpu_jax, cpu, ("cpu_only_build",), "CPU.only", _if(have, "jax")),
        Fault("CPU build of torch", _cpu_torch, cpu, ("cpu_only_build",), "CPU.only", _if(have, "torch")),
        Fault("CPU build of TensorFlow", _cpu_tensorflow, cpu, ("cpu_only_build",), "CPU.only", tensorflow),
        Fault("cuDNN disabled in torch", _disabled, ("loaded",), (), "cudnn.enabled is False", _if(have, "torch")),
        Fault("TensorFlow without its CUDA wheels", _no_wheels, ("runtime", *cpu), missing, r"\[and-cuda\]|gpuenv repair", tensorflow),
        # Where the system's CUDA has a library of that soname, TensorFlow takes it: what it brings along is told.
        Fault("cuSPARSE's wheel not installed", _wheel_missing("cusparse"), (*cpu, "loaded"), (*missing, "nvidia_lib_symbol_mismatch"),
              "nvidia-cusparse|loader's path", tensorflow),
        Fault("folders that TensorFlow's RUNPATH leaves out", _unlinked, ("framework",), unfound, r"lib\w+\.so.*nvidia/\w+/lib|nvidia/\w+/lib.*lib\w+\.so", tensorflow),
    ]  # fmt: skip


def _beside_the_gpu(have: tuple[str, ...]) -> list[Fault]:
    """Values of variables, limits of the process, and files that Python runs at each start."""
    broken, hidden, limited = (
        ("variable_breaks_framework",),
        ("visible_devices_invalid",),
        ("process_limit_reached",),
    )
    xla, torch, jax = "XLA_FLAGS", _if(have, "torch"), _if(have, "jax")
    hides = "import os; os.environ['CUDA_VISIBLE_DEVICES'] = ''\n"
    custom = "import os\n\nos.environ['CUDA_VISIBLE_DEVICES'] = ''\n"
    allocator = "PYTORCH_CUDA_ALLOC_CONF"
    return [
        Fault(f"{xla} with a flag that does not exist", _set(xla, "--xla_gpu_no_such_flag=1"), RUN, broken, xla, jax),
        Fault(f"{allocator} with a value that is refused", _set(allocator, "max_split_size_mb:1"), RUN, broken, allocator, torch),
        Fault("ulimit -v", _limited(resource.RLIMIT_AS, 12 << 30), ("driver", *RUN), limited, "ulimit -v", torch or jax, alone=True),
        Fault("a .pth that hides the GPUs", _startup("zz_hide.pth", "# a comment\n" + hides), RUN, hidden, r"zz_hide\.pth, line 2", torch or jax),
        Fault("a sitecustomize that hides the GPUs", _on_pythonpath(custom), RUN, hidden, r"sitecustomize\.py, line 3", torch or jax),
    ]  # fmt: skip


# --- a library of each stage, compilers, and what is between GPUs ----------------------------------


def _gone(pattern: str) -> Make:
    return lambda place, stack: spoil.without(*_find(place, pattern), place)


def _cut(pattern: str, size: int | None = None) -> Make:
    def make(place: Place, stack: contextlib.ExitStack) -> None:
        folder, names = _find(place, pattern)
        spoil.without(folder, set(), place, {n: spoil.truncated(folder / n, place, size) for n in names})

    return make


def _swapped(pattern: str, other: str) -> Make:
    """A file with the contents of another library, as a wrong copy leaves it."""

    def make(place: Place, stack: contextlib.ExitStack) -> None:
        folder, names = _find(place, pattern)
        source, (name, *_) = _find(place, other)
        spoil.without(folder, set(), place, dict.fromkeys(names, source / name))

    return make


def _find(place: Place, pattern: str) -> tuple[Path, set[str]]:
    found = sorted(place.site.glob(pattern))
    if not found:
        raise spoil.NotMadeError(f"this environment has no {pattern}")
    return found[0].parent, {p.name for p in found}


def _module(name: str, text: str) -> Make:
    """A module of the user's in a folder of PYTHONPATH."""

    def make(place: Place, stack: contextlib.ExitStack) -> None:
        folder = place.scratch / "own"
        folder.mkdir()
        (folder / name).write_text(text)
        spoil.prepend("PYTHONPATH", folder)

    return make


def _of_each_library(place: Place) -> list[Fault]:
    have, torch, jax = (place.frameworks,), _if(place.frameworks, "torch"), _if(place.frameworks, "jax")
    missing = (
        "nvidia_libs_not_installed",
        "nvidia_libs_not_on_loader_path",
        DAMAGED,
        "nvidia_lib_symbol_mismatch",
    )
    early, late = ("runtime", *DISK, "framework"), ("runtime", *DISK, *RUN, "loaded")
    broken, path = (DAMAGED,), ("conflicting_frameworks_in_one_env",)
    lib = "nvidia/*/lib/"
    return [
        Fault("libcudart removed", _gone(f"{lib}libcudart.so.*"), early, missing, "libcudart|nvidia-cuda-runtime", torch),
        Fault("libcudart truncated", _cut(f"{lib}libcudart.so.*"), early, missing, "libcudart", torch),
        Fault("libcublas removed", _gone(f"{lib}libcublas.so.*"), late, missing, "libcublas|nvidia-cublas", torch),
        Fault("libcublasLt removed", _gone(f"{lib}libcublasLt.so.*"), late, missing, "libcublasLt|nvidia-cublas", torch),
        Fault("libcublasLt truncated", _cut(f"{lib}libcublasLt.so.*"), late, missing, "libcublasLt", torch),
        Fault("libcublas removed, JAX", _gone(f"{lib}libcublas.so.*"), late, missing, "libcublas|nvidia-cublas", jax),
        Fault("libcufft empty", _cut(f"{lib}libcufft.so.*", 0), late, missing, "libcufft", torch),
        Fault("libcusparse is another library", _swapped(f"{lib}libcusparse.so.*", f"{lib}libcurand.so.*"), late, missing, "libcusparse", torch),
        Fault("libnvJitLink removed", _gone(f"{lib}libnvJitLink.so.*"), late, missing, "libnvJitLink|nvidia-nvjitlink", torch),
        Fault("libnvrtc removed", _gone(f"{lib}libnvrtc.so.*"), late, missing, "libnvrtc|nvrtc", torch),
        Fault("libnccl removed", _gone(f"{lib}libnccl.so.*"), late, missing, "libnccl|nvidia-nccl", torch),
        Fault("libnccl truncated", _cut(f"{lib}libnccl.so.*"), late, missing, "libnccl", torch),
        Fault("libcudnn_graph empty", _cut("nvidia/cudnn/lib/libcudnn_graph.so.*", 0), DISK, (DAMAGED,), "libcudnn_graph", have),
        Fault("libcudnn_ops is libcudnn_cnn", _swapped("nvidia/cudnn/lib/libcudnn_ops.so.*", "nvidia/cudnn/lib/libcudnn_cnn.so.*"), DISK, (DAMAGED, SHADOWED), "libcudnn_ops.*size", have),
        Fault("libtorch_cpu truncated", _cut("torch/lib/libtorch_cpu.so"), late, broken, "libtorch_cpu", torch),
        Fault("libc10_cuda removed", _gone("torch/lib/libc10_cuda.so"), late, broken, "libc10_cuda", torch),
        Fault("torch/version.py removed", _gone("torch/version.py"), late, broken, r"version\.py", torch),
        Fault("plug-in of JAX removed", _gone("jax_plugins/xla_cuda*/xla_cuda_plugin.so"), late, broken, "xla_cuda_plugin", jax),
        Fault("plug-in of JAX truncated", _cut("jax_plugins/xla_cuda*/xla_cuda_plugin.so"), late, broken, "xla_cuda", jax),
        Fault("library of jaxlib truncated", _cut("jaxlib/libjax_common.so"), late, broken, "libjax_common", jax),
        Fault("module of NumPy removed", _gone("numpy/_core/_multiarray_umath*.so"), late, broken, "_multiarray_umath", jax),
        Fault("a torch.py on PYTHONPATH", _module("torch.py", "x = 1\n"), late, path, "PYTHONPATH", torch),
        Fault("a jax.py on PYTHONPATH", _module("jax.py", "raise RuntimeError('mine')\n"), late, path, "PYTHONPATH", jax),
        Fault("PYTHONHOME of nowhere", _set("PYTHONHOME", "/nonexistent"), late, ("variable_breaks_framework",), "PYTHONHOME", torch),
        Fault("JAX_PLATFORMS=cpu", _set("JAX_PLATFORMS", "cpu"), late, ("visible_devices_invalid",), "JAX_PLATFORMS", jax),
        Fault("JAX_PLATFORMS of no backend", _set("JAX_PLATFORMS", "gpux"), late, ("visible_devices_invalid",), "JAX_PLATFORMS", jax),
        Fault("NVIDIA_TF32_OVERRIDE=1", _set("NVIDIA_TF32_OVERRIDE", "1"), late, ("variable_breaks_framework", "framework_gives_wrong_numbers"), "NVIDIA_TF32_OVERRIDE", torch),
        Fault("CUDA_VISIBLE_DEVICES=-1", _set("CUDA_VISIBLE_DEVICES", "-1"), LOW, ("visible_devices_invalid",), "CUDA_VISIBLE_DEVICES", have),
        Fault("CUDA_VISIBLE_DEVICES of no MIG device", _set("CUDA_VISIBLE_DEVICES", "MIG-00000000-1111-2222-3333-444444444444"), LOW, ("visible_devices_invalid",), "CUDA_VISIBLE_DEVICES", have),
    ]  # fmt: skip


def _tools(*hidden: str) -> Make:
    """Files and folders of the system that are not there, each an empty one in its place."""

    def make(place: Place, stack: contextlib.ExitStack) -> None:
        empty = place.scratch / "empty"
        empty.mkdir()
        os.environ.pop("CC", None)
        for path in filter(os.path.exists, hidden):
            spoil.bind(empty if Path(path).is_dir() else "/dev/null", path)

    return make


def _of_compilers(have: tuple[str, ...]) -> list[Fault]:
    torch, jax, stage = _if(have, "torch"), _if(have, "jax"), ("packages",)
    gcc = [str(p) for p in Path("/usr/bin").glob("x86_64-linux-gnu-gcc-[0-9]*")] + [
        "/usr/bin/clang",
        "/opt/gcc/bin/gcc",
    ]
    headers = [str(p) for p in Path("/usr/include").glob("python3*")]
    cuda = [os.path.realpath("/usr/local/cuda")]
    unsuitable = ("host_compiler_unsuitable",)
    return [
        Fault("no C compiler", _tools(*gcc), stage, unsuitable, "triton.*a C compiler.*install", torch, packages=True),
        Fault("no Python.h", _tools(*headers), stage, unsuitable, r"triton.*Python\.h.*install", torch, packages=True),
        Fault("no ptxas for JAX", _tools(*cuda), ("convolution",), ("toolchain_missing",), "jax-cuda.*ptxas.*with-cuda", jax, packages=True),
        Fault("Triton's cache is a file", _set("TRITON_CACHE_DIR", "/etc/hostname"), stage, ("toolchain_missing",), "triton.*TRITON_CACHE_DIR", torch, packages=True),
    ]  # fmt: skip


def _small_shm(place: Place, stack: contextlib.ExitStack) -> None:
    spoil.tmpfs("/dev/shm", "size=64k")


def _no_shared_memory(place: Place, stack: contextlib.ExitStack) -> None:
    """NCCL takes /dev/shm where it has neither peer access nor memory of the driver's own."""
    _small_shm(place, stack)
    os.environ |= {"NCCL_P2P_DISABLE": "1", "NCCL_CUMEM_HOST_ENABLE": "0", "NCCL_CUMEM_ENABLE": "0"}


def _between(have: tuple[str, ...]) -> list[Fault]:
    """Faults that only two GPUs show. Peer access still works, so the stage only warns."""
    two = _if(have, "torch") if len(list(Path("/dev").glob("nvidia[0-9]*"))) > 1 else ()
    stage, cause = (
        ("peers",),
        ("gpu_peer_copies_fail", "variable_breaks_framework", "container_shm_too_small", ""),
    )
    return [
        Fault("NCCL_SOCKET_IFNAME of no interface", _set("NCCL_SOCKET_IFNAME", "nope0"), stage, cause, "NCCL_SOCKET_IFNAME", two, alone=True),
        Fault("a /dev/shm of 64 KiB, without peer access", _no_shared_memory, stage, cause, "/dev/shm|NCCL_SHM_DISABLE", two, alone=True),
        Fault("NCCL_NET of no plug-in", _set("NCCL_NET", "nope"), stage, cause, "NCCL_NET", two, alone=True),
    ]  # fmt: skip


# --- healthy settings ------------------------------------------------------------------------------


def _unset(name: str) -> Make:
    def make(place: Place, stack: contextlib.ExitStack) -> None:
        os.environ.pop(name, None)

    return make


def _read_only(place: Place, stack: contextlib.ExitStack) -> None:
    spoil.read_only(place.site)


def _as_nobody(place: Place, stack: contextlib.ExitStack) -> None:
    """The user nobody, who owns nothing. Only the folders of this test are opened to it."""
    for folder in (place.scratch, *place.scratch.parents[:2]):
        folder.chmod(0o777)
    os.environ["HOME"] = str(place.scratch)
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)


def _in_folder(name: str) -> Make:
    """The working folder has a file of the user's own."""

    def make(place: Place, stack: contextlib.ExitStack) -> None:
        folder = place.scratch / "project"
        folder.mkdir()
        (folder / name).write_text("raise RuntimeError('of the project')\n")
        os.chdir(folder)

    return make


def _folder(variable: str) -> Make:
    def make(place: Place, stack: contextlib.ExitStack) -> None:
        (place.scratch / "a folder").mkdir()
        spoil.prepend(variable, place.scratch / "a folder")

    return make


def _one_core(place: Place, stack: contextlib.ExitStack) -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def _in_group(place: Place, stack: contextlib.ExitStack) -> None:
    """A control group with limits, as Slurm and containers make one for each job."""
    group = Path(f"/sys/fs/cgroup/gpuenv-{os.getpid()}")
    controllers = Path("/sys/fs/cgroup/cgroup.subtree_control")
    if not controllers.exists():
        raise spoil.NotMadeError("no cgroup v2")
    controllers.write_text("+cpu +memory +pids")
    group.mkdir()
    for name, limit in {"memory.max": "24G", "pids.max": "512", "cpu.max": "200000 100000"}.items():
        (group / name).write_text(limit)
    (group / "cgroup.procs").write_text(str(os.getpid()))


def _healthy(place: Place) -> list[Fault]:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    made: dict[str, Make] = {
        "LD_PRELOAD of libm": _set("LD_PRELOAD", "libm.so.6"),
        "LD_PRELOAD of libstdc++": _set("LD_PRELOAD", "libstdc++.so.6"),
        "LD_PRELOAD of no library": _set("LD_PRELOAD", "/nonexistent/libnone.so"),
        "LD_LIBRARY_PATH with an empty folder": _folder("LD_LIBRARY_PATH"),
        "LD_LIBRARY_PATH with empty entries": _set("LD_LIBRARY_PATH", f"::{os.environ.get('LD_LIBRARY_PATH', '')}:/nonexistent"),
        "LD_BIND_NOW": _set("LD_BIND_NOW", "1"),
        "PYTHONPATH with an empty folder": _folder("PYTHONPATH"),
        "PYTHONPATH with a module": _module("mine.py", "x = 1\n"),
        "a .pth that only adds a folder": _startup("zz_more.pth", "/nonexistent\n"),
        "a sitecustomize that prints": _on_pythonpath("print('hello')\n"),
        "PYTHONOPTIMIZE": _set("PYTHONOPTIMIZE", "2"),
        "PYTHONDONTWRITEBYTECODE": _set("PYTHONDONTWRITEBYTECODE", "1"),
        "PYTHONIOENCODING": _set("PYTHONIOENCODING", "latin-1"),
        "PYTHONUNBUFFERED": _set("PYTHONUNBUFFERED", "1"),
        "PYTHONWARNINGS": _set("PYTHONWARNINGS", "always"),
        "PYTHONSAFEPATH": _set("PYTHONSAFEPATH", "1"),
        "the locale C": _set("LC_ALL", "C"),
        "a Turkish locale": _set("LC_ALL", "tr_TR.UTF-8"),
        "a locale that is not installed": _set("LC_ALL", "xx_YY.UTF-8"),
        "no HOME": _unset("HOME"),
        "a HOME of nowhere": _set("HOME", "/nonexistent"),
        "a TMPDIR with a space": _folder("TMPDIR"),
        "a TMPDIR of nowhere": _set("TMPDIR", "/nonexistent"),
        "no PATH": _unset("PATH"),
        "no TERM": _unset("TERM"),
        "CUDA_VISIBLE_DEVICES=0": _set("CUDA_VISIBLE_DEVICES", "0"),
        "CUDA_DEVICE_ORDER": _set("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
        "CUDA_LAUNCH_BLOCKING": _set("CUDA_LAUNCH_BLOCKING", "1"),
        "CUDA_MODULE_LOADING": _set("CUDA_MODULE_LOADING", "EAGER"),
        "CUDA_CACHE_DISABLE": _set("CUDA_CACHE_DISABLE", "1"),
        "a pipe of MPS without its daemon": _set("CUDA_MPS_PIPE_DIRECTORY", "/nonexistent"),
        "a share of MPS": _set("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "50"),
        "NVIDIA_TF32_OVERRIDE=0": _set("NVIDIA_TF32_OVERRIDE", "0"),
        "OMP_NUM_THREADS=1": _set("OMP_NUM_THREADS", "1"),
        "cuDNN's log to stderr": _set("CUDNN_LOGDEST_DBG", "stderr"),
        "NCCL_DEBUG": _set("NCCL_DEBUG", "INFO"),
        "CUBLAS_WORKSPACE_CONFIG": _set("CUBLAS_WORKSPACE_CONFIG", ":4096:8"),
        "XLA_FLAGS deterministic": _set("XLA_FLAGS", "--xla_gpu_deterministic_ops=true"),
        "XLA's platform allocator": _set("XLA_PYTHON_CLIENT_ALLOCATOR", "platform"),
        "JAX_ENABLE_X64": _set("JAX_ENABLE_X64", "1"),
        "JAX_PLATFORMS=cuda": _set("JAX_PLATFORMS", "cuda,cpu"),
        "expandable segments": _set("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),
        "no caching of memory": _set("PYTORCH_NO_CUDA_MEMORY_CACHING", "1"),
        "an environment that is read-only": _read_only,
        "another user": _as_nobody,
        "a torch.py in the working folder": _in_folder("torch.py"),
        "a jax.py in the working folder": _in_folder("jax.py"),
        "one processor core": _one_core,
        "a control group with limits": _in_group,
        "ulimit -n 256": _limited(resource.RLIMIT_NOFILE, min(256, soft)),
        "ulimit -c unlimited": _limited(resource.RLIMIT_CORE, resource.RLIM_INFINITY),
        "ulimit -l 64": _limited(resource.RLIMIT_MEMLOCK, 65536),
        "a small /dev/shm": _small_shm,
        "umask 077": lambda place, stack: [os.umask(0o077), None][1],
        "nice 19": lambda place, stack: [os.nice(19), None][1],
    }  # fmt: skip
    ofs = {"jax": r"JAX|XLA|jax\.py"}
    frameworks = {
        name: ("jax",) if re.search(ofs["jax"], name) else (place.frameworks[i % len(place.frameworks)],)
        for i, name in enumerate(made)
    }
    return [
        Fault(
            f"healthy: {name}", make, (), (), "", (frameworks[name],), alone=name == "nice 19", healthy=True
        )
        for name, make in made.items()
    ]
