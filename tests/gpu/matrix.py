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

from provision.system.fatbins import read_nvidia_folders

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
