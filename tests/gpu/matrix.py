"""The faults, each as what is done to the machine and what verify must then say."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import spoil
from spoil import Place

Make = Callable[[Place, contextlib.ExitStack], "str | None"]
BOTH = (("torch", "jax"),)
EACH = (("torch",), ("jax",))
LOW = ("driver",)
DISK = ("libraries",)
RUN = ("runtime", "cudnn", "framework", "convolution")
SHADOWED = "cudnn_shadowed_by_other_copy"
FULL = "gpu_memory_exhausted"


@dataclass(frozen=True)
class Fault:
    """`make` breaks things and may return another Python to verify; the first stage that fails (or warns)
    must be one of `stages`, its cause one of `causes` (empty: a warning without a cause), and `says` must
    be found in title, fix or detail. `runs` are the frameworks of each verification."""

    name: str
    make: Make
    stages: tuple[str, ...]
    causes: tuple[str, ...]
    says: str
    runs: tuple[tuple[str, ...], ...] = BOTH
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


def _preallocated(place: Place, stack: contextlib.ExitStack) -> None:
    stack.enter_context(spoil.preallocation(place))


# The interpreter that goes on is the child of one that had begun to use the GPU.
FORKED = """
import os, sys
if "GPUENV_REPORT" in os.environ or "FAULT_PEER" in os.environ:
    import torch
    torch.zeros(1, device="cuda")
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
    return str(spoil.linked_environment(place, r"jax_cuda|nvidia|torch|triton"))


def _cpu_torch(place: Place, stack: contextlib.ExitStack) -> str:
    """No CPU wheel of torch is at hand there: torch's own description of its build is changed."""
    python = spoil.linked_environment(place, r"jax|nvidia|torch-")
    package = spoil.copied_package("torch", next(python.parents[1].glob("lib/python*/site-packages")), place)
    text = (package / "version.py").read_text()
    (package / "version.py").unlink()
    (package / "version.py").write_text(re.sub(r"(?m)^cuda\b.*$", "cuda: 'str | None' = None", text))
    return str(python)


def faults(place: Place) -> list[Fault]:
    """The matrix. The sublibraries are those that this cuDNN has."""
    sub = sorted(p.name for p in place.cudnn.glob("libcudnn_*.so.[0-9]"))
    removed = [Fault(f"{n} removed", _removed(n), DISK, ("cudnn_not_found",), n) for n in sub]
    shadow = ("cudnn", "framework", "convolution", "loaded")
    hidden = ("visible_devices_invalid",)
    denied = ("gpu_device_access_denied",)
    no_driver = ("container_without_gpu", "driver_missing", "nvidia_libs_not_on_loader_path")
    path = "other-cudnn (out of|in) LD_LIBRARY_PATH"
    return [
        Fault("LD_LIBRARY_PATH at another cuDNN", _library_path, shadow, (SHADOWED,), path),
        Fault("the same among five innocent entries", _among_five, shadow, (SHADOWED,), path),
        Fault("LD_PRELOAD of another cuDNN", _preload, shadow, (SHADOWED,), "out of LD_PRELOAD"),
        Fault("both of these", _two, shadow, (SHADOWED,), "LD_LIBRARY_PATH.*LD_PRELOAD|LD_PRELOAD.*LD_LIBRARY_PATH"),
        *removed,
        Fault("libcudnn.so.9 missing, one in the system", _removed("libcudnn.so.9"), DISK, ("cudnn_not_found",), r"libcudnn\.so\.9"),
        Fault("engines library truncated", _truncated, DISK, ("cudnn_not_found",), "engines_precompiled.*cut short"),
        Fault("libcudnn_cnn of another version", _another_version, DISK, (SHADOWED,), "libcudnn_cnn"),
        Fault("CUDA_VISIBLE_DEVICES empty", _set("CUDA_VISIBLE_DEVICES", ""), LOW, hidden, "CUDA_VISIBLE_DEVICES"),
        Fault("CUDA_VISIBLE_DEVICES out of range", _set("CUDA_VISIBLE_DEVICES", "9"), LOW, hidden, "CUDA_VISIBLE_DEVICES"),
        Fault("CUDA_VISIBLE_DEVICES bogus UUID", _set("CUDA_VISIBLE_DEVICES", "GPU-00000000-1111-2222-3333-444444444444"), LOW, hidden, "CUDA_VISIBLE_DEVICES"),
        Fault("stub libcuda", _stub, LOW, ("cuda_stub_library_loaded",), "stubs"),
        Fault("/dev/nvidiactl masked", _masked("/dev/nvidiactl"), LOW, denied, "nvidiactl"),
        Fault("/dev/nvidiactl not there", _no_node, LOW, denied, "nvidiactl", heals="/dev/nvidiactl"),
        Fault("/dev/nvidia-uvm masked", _masked("/dev/nvidia-uvm"), ("driver", "runtime"), denied, "nvidia-uvm"),
        Fault("libcuda not on the loader's path", _libcuda_hidden, LOW, ("nvidia_libs_not_on_loader_path",), "LD_LIBRARY_PATH|loader"),
        Fault("libcuda not there", _libcuda_gone, LOW, no_driver, "libcuda|driver"),
        Fault("all memory but 100 MiB taken", _full(100), RUN, (FULL,), "memory", EACH, alone=True),
        Fault("all memory but 300 MiB taken", _full(300), RUN, (FULL,), "memory", EACH, alone=True),
        Fault("all memory but 700 MiB taken", _full(700), RUN, (FULL,), "memory", EACH, alone=True),
        Fault("JAX preallocation beside torch", _preallocated, RUN, ("preallocation_leaves_no_memory",), "XLA_PYTHON_CLIENT_PREALLOCATE", (("torch",),), alone=True),
        Fault("fork after CUDA began", _forked, RUN, ("forked_after_cuda_init",), "PYTHONPATH|spawn", EACH),
        Fault("CPU build of JAX", _cpu_jax, ("libraries", "framework"), ("cpu_only_build",), "CPU only", (("jax",),)),
        Fault("CPU build of torch", _cpu_torch, ("libraries", "framework"), ("cpu_only_build",), "CPU only", (("torch",),)),
        Fault("cuDNN disabled in torch", _disabled, ("loaded",), (), "cudnn.enabled is False", (("torch",),)),
    ]  # fmt: skip
